"""Find repeated rows in several files, and choose the one to keep: pure.

Candidates are found by the 64-bit `identity`; equality of the key columns decides. The result does not
depend on the order in which files were written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lorogo_pipeline.tables.table_rows import BEST, KEYS


def columns_of(table: str) -> list[str]:
    """Return the columns that `losers` needs of a file."""
    return list(dict.fromkeys(["identity", *KEYS[table], *(name for name, _ in BEST[table])]))


def repeated(identities: Sequence[np.ndarray]) -> np.ndarray:
    """Return the identities of more than one row."""
    everything = np.concatenate(identities) if identities else np.empty(0, np.int64)
    everything.sort()
    return np.unique(everything[1:][everything[1:] == everything[:-1]])


def losers(table: str, files: Sequence[pa.Table], candidates: np.ndarray) -> list[np.ndarray]:
    """Return the rows to drop of each file, given its `columns_of` and the `repeated` identities."""
    if not len(candidates):
        return [np.empty(0, np.int64) for _ in files]
    wanted = pa.array(candidates, pa.int64())
    pieces = []
    for number, file in enumerate(files):
        rows = pa.array(np.arange(file.num_rows), pa.int64())
        marked = file.append_column("_row", rows).append_column(
            "_file", pa.array(np.full(file.num_rows, number), pa.int64())
        )
        pieces.append(marked.filter(pc.is_in(file["identity"], wanted)))
    found = pa.concat_tables(pieces).combine_chunks()
    keys = KEYS[table]
    order = [(name, "ascending") for name in keys]
    order += [(name, "ascending" if rising else "descending") for name, rising in BEST[table]]
    found = found.take(
        pc.sort_indices(found, sort_keys=[*order, ("_file", "ascending"), ("_row", "ascending")])
    )
    again = np.zeros(found.num_rows, bool)
    if found.num_rows > 1:
        again[1:] = True
        for name in keys:
            column = found[name].combine_chunks()
            if column.null_count:
                column = pc.fill_null(column, "")
            again[1:] &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    file_of, row_of = found["_file"].to_numpy()[again], found["_row"].to_numpy()[again]
    return [np.sort(row_of[file_of == number]) for number in range(len(files))]
