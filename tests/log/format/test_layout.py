"""The bytes: what goes in comes out, and the drawing's numbers are the code's."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lorogo_log import LogPosition
from lorogo_log.format.batch import Batch, body_matches, encode
from lorogo_log.format.layout import (
    FRAME_HEADER_BYTES,
    Footer,
    SegmentHeader,
    unpack_footer,
    unpack_frame_header,
    unpack_segment_header,
)

U64 = st.integers(0, (1 << 64) - 1)
U32 = st.integers(0, (1 << 32) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.tuples(U64, I64, U64, U64, U32, U32, st.binary(min_size=16, max_size=16), st.integers(0, 1)))
def test_a_segment_header_comes_back(fields: tuple[int, int, int, int, int, int, bytes, int]) -> None:
    """128 bytes, checked."""
    header = SegmentHeader(*fields)
    packed = header.pack()
    assert len(packed) == 128
    assert unpack_segment_header(packed) == header


@given(
    st.tuples(U64, U64, U64, U64, I64, I64, U64, U32, U32, U64, U64, U64, U32, U32),
    st.binary(min_size=16, max_size=16),
    U32,
    I64,
)
def test_a_footer_comes_back(numbers: tuple[int, ...], digest: bytes, checksum: int, high: int) -> None:
    """160 bytes, checked, and tied to the file's size."""
    fields: list[Any] = [*numbers, digest, checksum, high]
    footer = Footer(*fields)
    packed = footer.pack()
    assert len(packed) == 160
    assert unpack_footer(packed, footer.trailer_position + footer.trailer_bytes + 160) == footer


ROWS = st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=40), I64), min_size=1, max_size=30)


@settings(max_examples=200)
@given(ROWS, st.integers(1, 1 << 60), st.data())
def test_a_frame_comes_back(rows: list[tuple[bytes, bytes, int]], first: int, data: st.DataObject) -> None:
    """Keys, values, times and sequences, dense or sparse, by row and by key."""
    keys, values, times = [list(column) for column in zip(*rows, strict=True)]
    sequences = None
    if data.draw(st.booleans()):
        steps = data.draw(st.lists(st.integers(1, 9), min_size=len(rows), max_size=len(rows)))
        sequences = [first + sum(steps[: place + 1]) - steps[0] for place in range(len(rows))]
    last = sequences[-1] if sequences else None
    encoded = encode(
        keys,
        values,
        times,
        first_sequence=first,
        epoch=3,
        offset=64,
        chain=9,
        sequences=sequences,
        last_sequence=last,
    )
    raw = bytes(encoded)
    header = unpack_frame_header(raw)
    assert header == encoded.header and header.frame_bytes == len(raw) and len(raw) % 8 == 0
    assert body_matches(header, raw, 0)
    batch = Batch(header, memoryview(raw)[FRAME_HEADER_BYTES:])
    expected = [
        (sequences[place] if sequences else first + place, when, key, value)
        for place, (key, value, when) in enumerate(rows)
    ]
    assert [(r.sequence, r.time, r.key, r.payload) for r in batch.records()] == expected
    assert (header.first_time, header.last_time) == (min(times), max(times))
    for key in {*keys, b"absent"}:
        assert [r.payload for r in batch.with_key(key).records()] == [
            row[3] for row in expected if row[2] == key
        ]
    wanted = data.draw(st.sampled_from([row[0] for row in expected]))
    assert [r.sequence for r in batch.from_sequence(wanted).records()] == [
        s for s, *_ in expected if s >= wanted
    ]


@given(U64, U64, U64)
def test_a_position_is_text(sequence: int, segment: int, offset: int) -> None:
    """Saved and read back."""
    position = LogPosition(sequence, segment, offset)
    assert LogPosition.parse(str(position)) == position
