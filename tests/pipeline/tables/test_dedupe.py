"""Which of several rows counts: always the same one, whatever the files and their order."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorogo_pipeline.tables.dedupe import columns_of, losers, repeated
from lorogo_pipeline.tables.schemas import TABLES

Row = dict[str, Any]


def file_of(table: str, rows: list[Row]) -> pa.Table:
    columns = columns_of(table)
    schema = pa.schema([TABLES[table].field(name) for name in columns])
    return pa.Table.from_pylist([{name: row.get(name) for name in columns} for row in rows], schema=schema)


def winners(table: str, files: list[list[Row]]) -> list[Row]:
    """The rows that remain of all files."""
    made = [file_of(table, rows) for rows in files]
    found = losers(table, made, repeated([one["identity"].to_numpy() for one in made]))
    assert len(found) == len(files)
    left = []
    for one, drop in zip(made, found, strict=True):
        kept = np.ones(one.num_rows, bool)
        kept[drop] = False
        left += one.filter(pa.array(kept)).to_pylist()
    return sorted(left, key=repr)


def update(**facts: Any) -> Row:
    row = {
        "identity": 1,
        "document_id": "a",
        "log_id": "l",
        "digest": "d",
        "digest_ok": True,
        "source": "journal",
        "accepted_ns": 5,
        "epoch": 1,
        "sequence": 1,
        "lease": 1,
        "generation": 0,
        "ops": 1,
        "bytes": 1,
    }
    return row | facts


def event(**facts: Any) -> Row:
    row = {
        "identity": 1,
        "document_id": "a",
        "kind": "base",
        "generation": 0,
        "digest": "d",
        "bytes": 0,
        "accepted_ns": 5,
        "epoch": 1,
        "sequence": 1,
        "lease": 1,
    }
    return row | facts


def only(table: str, *rows: Row) -> Row:
    (row,) = winners(table, [[row] for row in rows])
    assert winners(table, [list(rows[::-1])]) == [row]
    return row


def test_nothing_is_repeated() -> None:
    """Without repeated rows nothing is removed."""
    assert list(repeated([])) == [] and list(repeated([np.array([3, 1], np.int64)])) == []
    assert winners("updates", [[update()], []]) == [update()]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"digest_ok": True, "source": "stream", "accepted_ns": 9}, {"digest_ok": False, "accepted_ns": 1}),
        ({"source": "journal", "accepted_ns": 9}, {"source": "stream", "accepted_ns": 1}),
        ({"accepted_ns": 4, "epoch": 9}, {"accepted_ns": 5, "epoch": 1}),
        ({"epoch": 1, "sequence": 9}, {"epoch": 2, "sequence": 1}),
        ({"sequence": 2}, {"sequence": 3}),
        ({"lease": 2}, {"lease": 3}),
        ({"ops": 5}, {"ops": 0}),
    ],
)
def test_the_better_update(better: Row, worse: Row) -> None:
    """A right digest first; then a journal before the stream; then the oldest; then the lowest position."""
    assert only("updates", update(**worse), update(**better)) == update(**better)


def test_a_base_with_content() -> None:
    """The base that has its content counts, though it is younger."""
    full = event(bytes=100, accepted_ns=9)
    assert only("events", event(), full, event(accepted_ns=1)) == full


def test_events_without_a_digest() -> None:
    """Deletions have no digest: two of one generation are one, of two generations two."""
    first, again = (event(kind="deleted", digest=None, epoch=None, sequence=None, lease=n) for n in (1, 2))
    assert only("events", again, first) == first
    other = event(kind="deleted", digest=None, generation=1, identity=2)
    assert len(winners("events", [[first], [again, other]])) == 2


def test_equal_hashes_of_different_facts() -> None:
    """Two facts whose 64-bit hashes happen to be equal are both kept."""
    one, other = update(log_id="x"), update(log_id="y")
    assert winners("updates", [[one, other], [one]]) == [one, other]
    assert len(winners("updates", [[update(document_id=name) for name in "abc"]])) == 3


def test_answers() -> None:
    """Of two reports about one minute, the one with the higher counts stays."""
    row = {"identity": 1, "server": "s", "since": 5, "acked": 3, "refused": 0, "until": 7}
    found = winners("answers", [[row], [row | {"acked": 4}], [row | {"refused": 9}]])
    assert [one["acked"] for one in found] == [4]


_UPDATES = st.builds(
    update,
    document_id=st.sampled_from("ab"),
    log_id=st.sampled_from("lm"),
    digest_ok=st.booleans(),
    source=st.sampled_from(["journal", "stream"]),
    accepted_ns=st.integers(1, 2),
    epoch=st.integers(1, 2),
    sequence=st.integers(1, 2),
    lease=st.none() | st.integers(1, 2),
    generation=st.none() | st.integers(0, 1),
    ops=st.integers(0, 1),
    bytes=st.integers(0, 1),
)
_EVENTS = st.builds(
    event,
    document_id=st.sampled_from("ab"),
    kind=st.sampled_from(["base", "deleted"]),
    generation=st.integers(0, 1),
    digest=st.sampled_from([None, "d", "e"]),
    bytes=st.integers(0, 1),
    accepted_ns=st.integers(1, 2),
    epoch=st.none() | st.integers(1, 2),
    sequence=st.none() | st.integers(1, 2),
    lease=st.integers(1, 2),
)


@given(
    table_and_rows=st.one_of(
        st.tuples(st.just("updates"), st.lists(_UPDATES, max_size=12)),
        st.tuples(st.just("events"), st.lists(_EVENTS, max_size=12)),
    ),
    files=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
@settings(max_examples=300, deadline=None)
def test_the_winners_do_not_depend_on_the_files(
    table_and_rows: tuple[str, list[Row]], files: int, seed: int
) -> None:
    """However rows are spread over files, in whatever order: the same rows count, one of each fact."""
    table, rows = table_and_rows
    rows = [row | {"identity": ord(row["document_id"]) % 2} for row in rows]  # several facts share one
    rng = random.Random(seed)
    shuffled = rng.sample(rows, len(rows))
    spread: list[list[Row]] = [[] for _ in range(files)]
    for row in shuffled:
        rng.choice(spread).append(row)
    left = winners(table, spread)
    assert left == winners(table, [rows])
    again = winners(table, [left, *spread])
    assert again == left, "what came once may come again, and changes nothing"


@given(st.lists(st.lists(st.integers(-3, 3), max_size=8), max_size=4))
@settings(deadline=None)
def test_repeated_identities(files: list[list[int]]) -> None:
    """Those that stand more than once, wherever."""
    flat = [one for file in files for one in file]
    found = repeated([np.array(file, np.int64) for file in files])
    assert found.tolist() == sorted({one for one in flat if flat.count(one) > 1})
