"""The contents of a lake for tests: whole tables, without Spark, in any files."""

from pathlib import Path
from typing import Any

import pytest

from lorogo_pipeline.spark import tasks
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.lake import Lake
from lorogo_pipeline.tables.schemas import TABLES

Rows = list[dict[str, Any]]


def on_workers(patched: pytest.MonkeyPatch) -> None:
    """Leave nothing to this process, however small it is: Spark's workers do it, as on a cluster."""
    patched.setattr(tasks, "_is_here", lambda _: False, raising=False)


def rows_of(place: Path | str, table: str) -> Rows:
    """Every row of a table's newest version, in a fixed order."""
    lake = Lake.open(str(place))
    found: Rows = []
    for file in lake.table(table).list():
        rows = parquet.read(lake.files, table, file).to_pylist()
        assert len(rows) == file.rows and {row["bucket"] for row in rows} == {file.bucket}
        found += rows
    return sorted(found, key=repr)


def tables_of(place: Path | str, *names: str) -> dict[str, Rows]:
    """Every row of the tables, to compare two lakes."""
    return {name: rows_of(place, name) for name in names or TABLES}


def documents_of(place: Path | str, *, latest: bool = True) -> dict[str, dict[str, Any]]:
    """Rows of `documents` by id."""
    rows = [row for row in rows_of(place, "documents") if row["latest"] is latest]
    assert len({(row["document_id"], row["as_of"] if not latest else 0) for row in rows}) == len(rows)
    return {row["document_id"]: row for row in rows}


def files_of(place: Path | str, table: str) -> list[str]:
    """The files that the newest version names."""
    return [file.path for file in Lake.open(str(place)).table(table).list()]
