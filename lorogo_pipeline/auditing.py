"""The job `audit`: everything that the journals hold, replayed, against everything that is served.

The journals are ingested into a lake of their own, which is thrown away: the audit stands on nothing that
an earlier job made. A document that differs is read from the journals once more (`again`), because somebody
may have edited it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lorogo_pipeline import audit_difference, parquet
from lorogo_pipeline.audit_compare import Replayed, rows
from lorogo_pipeline.audit_difference import BadRecord, Difference
from lorogo_pipeline.audit_live import LookSettings, look_at
from lorogo_pipeline.audit_report import AuditReport
from lorogo_pipeline.audit_run import audit
from lorogo_pipeline.bucket_rows import formed_updates
from lorogo_pipeline.decoding import record_rows
from lorogo_pipeline.folding import FoldOptions, by_document, document_row, fold_document
from lorogo_pipeline.ingest import ingest
from lorogo_pipeline.lake import Lake
from lorogo_pipeline.materialise import materialise
from lorogo_pipeline.progress import Progress
from lorogo_pipeline.segments import Reading, Wanted, find_segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
