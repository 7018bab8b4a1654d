"""Update records read a column at a time: the same as reading each by itself, or left alone."""

import random

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorogo_pipeline.decode import packed_updates
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import UpdateRecord

INT = (1 << 63) - 1
numbers = st.one_of(
    st.integers(0, 300), st.sampled_from([2**16 - 1, 2**16, 2**32 - 1, 2**32]), st.integers(0, INT)
)
spans = st.builds(
    lambda peer, first, more: (peer, min(first, INT - 1), min(first + more, INT)),
    st.integers(0, (1 << 64) - 1),
    numbers,
    st.integers(1, 1000),
)
updates = st.builds(
    UpdateRecord,
    epoch=numbers,
    sequence=numbers,
    log_id=st.text(max_size=50),
    digest=st.text("0123456789", max_size=20),
    lease=numbers,
    generation=numbers,
    spans=st.lists(spans, max_size=15).map(tuple),
    payload=st.one_of(st.binary(max_size=40), st.sampled_from([b"x" * 255, b"y" * 256, b"z" * 65536])),
)


def column(values: list[bytes]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def read(values: pa.BinaryArray) -> dict[int, UpdateRecord]:
    """The records that were read, by their row."""
    found, rows = packed_updates.read(values)
    peers, firsts, ends = found.peers.tolist(), found.firsts.tolist(), found.ends.tolist()
    return {
        row: UpdateRecord(
            int(found.epoch[place]),
            int(found.sequence[place]),
            found.log_id[place].as_py().decode(),
            found.digest[place].as_py().decode(),
            int(found.lease[place]),
            int(found.generation[place]),
            tuple(
                (peers[at], firsts[at], ends[at])
                for at in range(found.span_offsets[place], found.span_offsets[place + 1])
            ),
            found.payload[place].as_py(),
        )
        for place, row in enumerate(rows.tolist())
    }


@settings(deadline=None)
@given(st.lists(updates, max_size=8))
def test_every_update_that_a_server_writes_is_read_as_it_was(made: list[UpdateRecord]) -> None:
    """The read update equals the written one, for any width of numbers and texts."""
    values = [msgpack.packb(records.encode(record)) for record in made]
    assert read(column(values)) == dict(enumerate(made))


@settings(deadline=None)
@given(st.lists(st.one_of(updates, st.binary(max_size=30), st.just(None)), max_size=8), st.randoms())
def test_what_is_damaged_is_left_alone_or_reads_the_same_by_itself(
    mixed: list[UpdateRecord | bytes | None], rng: random.Random
) -> None:
    """Cut or changed bytes never give a record that reading them one by one would not give."""
    values = []
    for one in mixed:
        match one:
            case UpdateRecord():
                value = bytearray(msgpack.packb(records.encode(one)))
                for _ in range(rng.randrange(3)):
                    value[rng.randrange(len(value))] = rng.randrange(256)
                values.append(bytes(value[: rng.choice([len(value), rng.randrange(len(value) + 1)])]))
            case bytes():
                values.append(one)
            case None:
                values.append(msgpack.packb(["r", 1, 7, 2, 0, 0]))
    try:
        found = read(column(values))
    except UnicodeDecodeError:
        return  # the caller casts to text, and sees it, too
    for row, record in found.items():
        assert records.decode(msgpack.unpackb(values[row])) == record


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(["u", 1, -1, 2, "a", "1", 0, 0, [], b""], id="a number below zero"),
        pytest.param(["u", 1, 1 << 63, 2, "a", "1", 0, 0, [], b""], id="a number that no table holds"),
        pytest.param(["u", 1, 1, 2, "a", "1", 0, 0, [[1, 5, 5]], b""], id="a span that holds nothing"),
        pytest.param(["u", 1, 1, 2, "a", "1", 0, 0, [[1, 5]], b""], id="a span of two numbers"),
        pytest.param(["u", 1, 1, 2, "a", "1", 0, 0, [[1, 0, 2]] * 16, b""], id="very many spans"),
        pytest.param(["u", 1, 1, 2, "a" * 256, "1", 0, 0, [], b""], id="a long log id"),
        pytest.param(["u", 1, 1, 2, "a", "1", 0, 0, [], "text"], id="a payload that is text"),
        pytest.param(["u", 1, 1, 2, "a", "1", 0, 0, [], b"", "more"], id="a field more"),
        pytest.param(["u", 2, 1, 2, "a", "1", 0, 0, [], b""], id="another layout"),
        pytest.param(["b", 1, 1, 2, 0, 0, "1", b"", b"", b""], id="another kind"),
    ],
)
def test_what_is_not_exactly_an_update_is_left_to_others(value: list[object]) -> None:
    """A row that is unlike what servers write is not read here; those around it are."""
    good = UpdateRecord(1, 2, "a", "1", 0, 0, ((9, 0, 4),), b"payload")
    packed = msgpack.packb(records.encode(good))
    assert read(column([packed, msgpack.packb(value), packed])) == {0: good, 2: good}


def test_a_slice_of_a_column_is_read_like_a_column_of_its_own() -> None:
    """The position of the bytes in their buffer does not matter; an empty slice has no rows."""
    made = [UpdateRecord(1, place, "a", "1", 0, 0, ((1, 0, 1),), b"x" * place) for place in range(9)]
    values = column([msgpack.packb(records.encode(record)) for record in made])
    assert read(values.slice(3, 4)) == dict(enumerate(made[3:7]))
    assert read(values.slice(5, 0)) == {}
    assert np.array_equal(packed_updates.read(values)[1], np.arange(9))
