"""Merge staged files into one bucket, on a worker: deduplicate, drop erased rows, merge small files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lorogo_pipeline.spark import tasks
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.dedupe import columns_of, losers, repeated
from lorogo_pipeline.tables.files import LakeFiles
from lorogo_pipeline.tables.lake import DataFile

#: (size limit of a small file, number of small files that a bucket may have). A replay reads all files of
#: a bucket in parallel; a merge rewrites them.
_TIERS = ((16 << 20, 64), (1 << 20, 8))
_MERGE_BYTES = 256 << 20  # of rows in memory, of one merged file


def dedupe_bucket(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the files to add to and remove from the bucket, so that it includes the staged ones."""
    files = LakeFiles(spec["lake"])
    writer = parquet.DataFileWriter(files, tasks.attempt("settle"))
    there = {name: [DataFile.from_json(one) for one in found] for name, found in spec["there"].items()}
    staged = {name: [DataFile.from_json(one) for one in found] for name, found in spec["staged"].items()}
    erased = _erased(files, [*there.get("events", []), *staged.get("events", [])])
    answer: dict[str, Any] = {"added": {}, "removed": {}, "new": {}, "repeated": 0, "erased": 0}
    for name, new in staged.items():
        old = there[name]
        if not new and not (erased and old and name != "answers"):
            continue
        repeats, drops = _drops(files, name, [*old, *new], erased)
        changed = [file for file, drop in zip([*old, *new], drops, strict=True) if len(drop)]
        keep = [file for file in [*old, *new] if file not in changed]
        rewritten = [
            (file, drop)
            for file, drop in zip([*old, *new], drops, strict=True)
            if len(drop) and len(drop) < file.rows
        ]
        small = _too_many(keep)
        _rewrite(files, writer, name, spec["bucket"], rewritten, small)
        left = [file for file in new if file in keep and file not in small]
        answer["added"][name] = [file.to_json() for file in [*left, *writer.written.get(name, [])]]
        answer["removed"][name] = [file.to_json() for file in old if file in changed or file in small]
        again = sum(map(len, repeats))
        answer["repeated"] += again
        answer["erased"] += sum(map(len, drops)) - again
        came = sum(file.rows - len(drop) for file, drop in zip(new, drops[len(old) :], strict=True))
        answer["new"][name] = came - sum(map(len, repeats[: len(old)]))  # these replaced old rows
    return answer


def _too_many(found: Sequence[DataFile]) -> list[DataFile]:
    """Return the small files to merge into one."""
    for size, most in _TIERS:
        small = [file for file in found if file.bytes < size]
        if len(small) > most:
            return small
    return []


def _erased(files: LakeFiles, events: Sequence[DataFile]) -> list[str]:
    """Return the erased documents of the bucket."""
    found: set[str] = set()
    for file in events:
        rows = parquet.read(files, "events", file, ["document_id", "kind"])
        found.update(rows.filter(pc.equal(rows["kind"], "erased"))["document_id"].to_pylist())
    return sorted(found)


def _drops(
    files: LakeFiles, name: str, found: Sequence[DataFile], erased: list[str]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return for each file its repeated rows, and all rows to drop (repeated or of erased documents)."""
    identities = [parquet.read(files, name, file, ["identity"])["identity"].to_numpy() for file in found]
    candidates = repeated(identities)
    drops = [np.empty(0, np.int64) for _ in found]
    if len(candidates):
        seen = [parquet.read(files, name, file, columns_of(name)) for file in found]
        drops = losers(name, seen, candidates)
    if not erased or name == "answers":
        return drops, drops
    return drops, [
        _with_erased(files, name, file, drop, erased) for file, drop in zip(found, drops, strict=True)
    ]


def _with_erased(
    files: LakeFiles, name: str, file: DataFile, drop: np.ndarray, erased: list[str]
) -> np.ndarray:
    columns = ["document_id", "kind"] if name == "events" else ["document_id"]
    rows = parquet.read(files, name, file, columns)
    mask = pc.is_in(rows["document_id"], pa.array(erased, pa.string()))
    if name == "events":  # keep the record of the erasure itself
        mask = pc.and_(mask, pc.not_equal(rows["kind"], "erased"))
    return np.union1d(drop, np.flatnonzero(mask.to_numpy(zero_copy_only=False)))


def _rewrite(
    files: LakeFiles,
    writer: parquet.DataFileWriter,
    name: str,
    bucket: int,
    changed: Sequence[tuple[DataFile, np.ndarray]],
    small: Sequence[DataFile],
) -> None:
    """Write files with rows to drop, and small files, as few new files."""
    pieces: list[pa.Table] = []
    size = 0
    nothing = np.empty(0, np.int64)
    for file, drop in [*changed, *((file, nothing) for file in small)]:
        rows = parquet.read(files, name, file)
        if len(drop):
            kept = np.ones(rows.num_rows, bool)
            kept[drop] = False
            rows = rows.filter(pa.array(kept))
        if size + rows.nbytes > _MERGE_BYTES and pieces:
            writer.put_pieces(name, bucket, pieces)
            pieces, size = [], 0
        pieces.append(rows)
        size += rows.nbytes
    if pieces:
        writer.put_pieces(name, bucket, pieces)
