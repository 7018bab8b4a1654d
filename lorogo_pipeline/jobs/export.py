"""Export documents as JSON lines, a folder of Markdown, or one Parquet file; atomic."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from lorogo_pipeline.errors import BadOption
from lorogo_pipeline.jobs.materialise import label_of
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.lake import Lake
from lorogo_pipeline.tables.schemas import DOCUMENTS

FORMATS = ("jsonl", "markdown", "parquet")
_NAME_MAX = 200  # of a file name: most file systems allow 255
_COLUMNS = [name for name in DOCUMENTS.names if name not in {"bucket", "snapshot"}]


@dataclass(slots=True)
class ExportReport:
    """The result of an export."""

    format: str
    out: str
    documents: int = 0
    deleted: int = 0  # left out
    incomplete: int = 0
    bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def export(
    lake: Lake,
    out: Path,
    *,
    format: str = "jsonl",  # noqa: A002 - the option's name
    documents: Sequence[str] | None = None,
    as_of_ns: int | None = None,
) -> ExportReport:
    """Write the table `documents`, without deleted ones. Raises BadOption."""
    if format not in FORMATS:
        raise BadOption(f"format is {format!r}; it must be one of {', '.join(FORMATS)}")
    if format == "markdown" and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadOption(f"{out} exists: name a new or an empty folder")
    if format != "markdown" and out.is_dir():
        raise BadOption(f"{out} is a folder: name a file")
    done = ExportReport(format, str(out))
    rows = _rows(lake, label_of(as_of_ns), documents, done, snapshots=format == "parquet")
    match format:
        case "jsonl":
            with _whole(out) as part, part.open("w", encoding="utf-8") as file:
                for batch in rows:
                    for row in batch.to_pylist():
                        file.write(json.dumps(_plain(row), ensure_ascii=False) + "\n")
        case "markdown":
            with _whole(out) as part:
                part.mkdir()
                for batch in rows:
                    for row in batch.to_pylist():
                        name = file_name(row["document_id"])
                        (part / name).write_text(markdown(row), encoding="utf-8")
        case _:
            schema = pa.schema([field for field in DOCUMENTS if field.name != "bucket"])
            with _whole(out) as part, pq.ParquetWriter(part, schema, compression="zstd") as writer:
                for batch in rows:
                    writer.write_table(batch.select(schema.names).cast(schema))
    done.bytes = sum(path.stat().st_size for path in ([out] if out.is_file() else out.iterdir()))
    return done


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """Yield a temporary path; rename it to `out` on success, remove it on failure."""
    part = out.parent / f".{out.name}.{os.getpid()}.part"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _clear(part)
        yield part
        if out.is_dir():
            out.rmdir()  # empty: checked by the caller
        part.replace(out)
    except OSError as error:
        raise BadOption(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            _clear(part)


def _clear(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part)
    else:
        part.unlink(missing_ok=True)


def _rows(
    lake: Lake, label: str, documents: Sequence[str] | None, done: ExportReport, *, snapshots: bool
) -> Iterator[pa.Table]:
    wanted = None if documents is None else pa.array(sorted(documents), pa.string())
    columns = [*_COLUMNS, "snapshot"] if snapshots else _COLUMNS
    for file in lake.table("documents").list():
        if file.label != label:
            continue
        for group in parquet.groups(lake.files, "documents", file, columns):
            rows = group if wanted is None else group.filter(pc.is_in(group["document_id"], wanted))
            live = rows.filter(pc.equal(rows["state"], "live"))
            done.deleted += rows.num_rows - live.num_rows
            done.documents += live.num_rows
            done.incomplete += pc.sum(pc.invert(live["complete"])).as_py() or 0
            if live.num_rows:
                yield live


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "document_id": row["document_id"],
        "as_of": row["as_of"].isoformat(),
        "generation": row["generation"],
        "complete": row["complete"],
        "problem": row["problem"],
        "updates": row["updates"],
        "version": {one["peer"]: one["end"] for one in row["version"]},
        "value": None if row["json"] is None else json.loads(row["json"]),
    }


def file_name(document_id: str) -> str:
    """Return the Markdown file name of a document; a key of a forged journal must not leave the folder."""
    name = quote(document_id, safe="=")
    if len(name) > _NAME_MAX:
        name = f"{name[:_NAME_MAX]}~{xxhash.xxh64_hexdigest(document_id.encode())}"
    return f"{'%2E' + name[1:] if name.startswith('.') else name}.md"


def markdown(row: dict[str, Any]) -> str:
    """Render a document as Markdown: texts as they are, everything else as JSON."""
    lines = [
        "---",
        f"document: {_scalar(row['document_id'])}",
        f"as_of: {row['as_of'].isoformat()}",
        f"updates: {row['updates']}",
        f"complete: {str(row['complete']).lower()}",
        "---",
        "",
    ]
    value = json.loads(row["json"]) if row["json"] else {}
    for name, root in value.items():
        if len(value) > 1:
            lines += [f"## {name}", ""]
        if isinstance(root, str):
            lines += [root, ""]
        elif isinstance(root, list) and all(isinstance(item, str) for item in root):
            lines += [*(f"- {item}" for item in root), ""]
        else:
            written = json.dumps(root, ensure_ascii=False, indent=2)
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", written)), default=0))
            lines += [f"{fence}json", written, fence, ""]
    return "\n".join(lines)


def _scalar(text: str) -> str:
    """Quote text for one line of YAML."""
    return text if text.replace("-", "").replace("_", "").isalnum() else json.dumps(text)
