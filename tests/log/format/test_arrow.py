"""Arrow columns of many frames."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorogo_log import BlockingLog, CorruptionError, LogOptions, MemoryStorage, Reader, limits

Rows = list[tuple[int, int, bytes, bytes]]
FRAMES = st.lists(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=40)), min_size=1, max_size=12))


def filled(
    frames: list[list[tuple[bytes, bytes]]], *, compress: bool = False, durable_id: bool = False
) -> MemoryStorage:
    storage = MemoryStorage()
    options = LogOptions(compress=compress, segment_bytes=4096, durable_id=durable_id)
    with BlockingLog("log", options, storage=storage) as log:
        for number, frame in enumerate(frames):
            log.append_many(frame, ts=number)
    return storage


def both(reader: Reader, **wishes: int | bytes) -> tuple[Rows, Rows, int]:
    """The records by `read()`, by `arrow()`, and in how many pieces the latter came."""
    read = [
        (row.sequence, row.time, row.key, row.payload)
        for batch in reader.read(**wishes)  # type: ignore[arg-type]
        for row in batch.records()
    ]
    pieces = list(reader.arrow(**wishes))  # type: ignore[arg-type]
    arrow: Rows = []
    for piece in pieces:
        piece.validate(full=True)
        columns = [piece["sequence"], piece["time"].cast("int64"), piece["key"], piece["value"]]
        arrow += list(zip(*(column.to_pylist() for column in columns), strict=True))
    return read, arrow, len(pieces)


@settings(deadline=None, max_examples=50)
@given(FRAMES, st.booleans(), st.booleans(), st.integers(1, 7))
def test_joined_frames_hold_the_same_records(
    frames: list[list[tuple[bytes, bytes]]], compress: bool, durable_id: bool, drop: int
) -> None:
    """`arrow()` gives what `read()` gives: from anywhere, for a key, compressed, and after cleaning.

    A log whose id is durable begins with a frame without records.
    """
    storage = filled(frames, compress=compress, durable_id=durable_id)
    reader = Reader.open("log", storage=storage)
    places: list[dict[str, int | bytes]] = [{}, {"key": b"a"}]
    places += [{"from_seq": sum(map(len, frames)) // 2}, {"from_time": len(frames) // 2}]
    for _ in range(2):
        for wishes in places:
            read, arrow, _ = both(reader, **wishes)
            assert arrow == read
        with BlockingLog("log", storage=storage) as log:
            log.append(1)
            log.clean(lambda _, record: record.sequence % drop == 0)


def test_small_frames_are_joined_and_large_ones_are_not() -> None:
    """Thousands of small frames become a few pieces; a frame of the limit's size is a piece of its own."""
    small = [[(b"k", b"x" * 30)] * 8] * 300
    large = [[(b"k", b"x" * limits.ARROW_JOIN_BYTES)]]
    reader = Reader.open("log", storage=filled([*small, *large, *small]))
    read, arrow, pieces = both(reader)
    assert arrow == read and len(arrow) == 4801
    assert pieces == 3


def test_what_comes_before_damage_is_given_before_it_is_raised() -> None:
    """A flipped byte raises, after the joined frames before it; skipping it gives all the others."""
    storage = filled([[(b"k", b"x" * 100)]] * 10)
    (name,) = [name for name in storage.directory("log", create=False).list() if name.endswith(".seg")]
    files = storage.directory("log", create=False).files
    files[name][files[name].index(b"x" * 100, 1500)] ^= 1
    reader = Reader.open("log", storage=storage)
    pieces = reader.arrow()
    assert 0 < next(pieces).num_rows < 9
    with pytest.raises(CorruptionError):
        next(pieces)
    assert sum(piece.num_rows for piece in reader.arrow(damaged="skip")) == 9
