"""Fragments: cut, put together in any order, and what happens to those that lie."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_gateway import frames as wire
from lorogo_gateway.frames import (
    BatchKey,
    Crdt,
    Fragment,
    FragmentAssembler,
    FragmentBudget,
    FragmentHeader,
    FragmentRefusal,
    Status,
)

ROOM = "doc"
BATCH = b"batch-01"
KEY = BatchKey(Crdt.LORO, ROOM, BATCH)


def assembler(
    bytes_max: int = 10_000, update_bytes_max: int = 8_000, pool: FragmentBudget | None = None, key: str = ""
) -> FragmentAssembler:
    return FragmentAssembler(
        bytes_max=bytes_max,
        update_bytes_max=update_bytes_max,
        seconds=10.0,
        pool=pool,
        key=key,
    )


def header(count: int, total: int, batch: bytes = BATCH) -> FragmentHeader:
    return FragmentHeader(Crdt.LORO, ROOM, batch, count, total)


def part(index: int, data: bytes, batch: bytes = BATCH) -> Fragment:
    return Fragment(Crdt.LORO, ROOM, batch, index, data)


@given(st.binary(max_size=2000), st.integers(20, 2500), st.randoms(use_true_random=False))
def test_an_update_that_was_cut_comes_together_in_any_order(
    payload: bytes, size: int, rng: random.Random
) -> None:
    """Below the size it is one DocUpdate; above, a header and fragments of that size."""
    frames = [
        wire.decode(data) for data in wire.update_frames(Crdt.LORO, ROOM, payload, BATCH, fragment_bytes=size)
    ]
    if len(payload) <= size:
        assert frames == [wire.DocUpdate(Crdt.LORO, ROOM, (payload,), BATCH)]
        return
    first, *parts = frames
    assert isinstance(first, FragmentHeader)
    assert (first.count, first.total) == (len(parts), len(payload))
    whole = assembler()
    assert whole.begin(first, now=0.0) is None
    rng.shuffle(parts)
    results = []
    for fragment in parts:
        assert isinstance(fragment, Fragment)
        assert len(fragment.data) <= size
        results.append(whole.add(fragment))
    assert results == [None] * (len(parts) - 1) + [payload]
    assert whole.deadline is None


def test_frames_of_a_large_update_fit_into_the_limit() -> None:
    frames = list(wire.update_frames(Crdt.LORO, "x" * 128, bytes(1 << 20), BATCH, fragment_bytes=240 * 1024))
    assert max(map(len, frames)) <= wire.FRAME_BYTES_MAX
    assert len(frames) == 1 + 5


def test_the_same_header_and_the_same_fragment_twice_change_nothing() -> None:
    whole = assembler()
    assert whole.begin(header(2, 4), now=0.0) is None
    assert whole.add(part(0, b"ab")) is None
    assert whole.begin(header(2, 4), now=1.0) is None
    assert whole.add(part(0, b"ab")) is None
    assert whole.add(part(1, b"cd")) == b"abcd"


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([header(2, 4), header(3, 4)], Status.INVALID_UPDATE),
        ([header(2, 4), part(2, b"ab")], Status.INVALID_UPDATE),
        ([header(2, 4), part(0, b"ab"), part(0, b"xy")], Status.INVALID_UPDATE),
        ([header(2, 4), part(0, b"abcde")], Status.INVALID_UPDATE),
        ([header(2, 4), part(0, b"ab"), part(1, b"c")], Status.INVALID_UPDATE),
        ([header(0, 4)], Status.INVALID_UPDATE),
        ([header(1, 0)], Status.INVALID_UPDATE),
        ([header(5, 4)], Status.INVALID_UPDATE),
        ([header(100, 4000)], Status.INVALID_UPDATE),  # of 40 bytes each: more overhead than update
        ([header(2, 8_001)], Status.PAYLOAD_TOO_LARGE),
        ([header(1, 2**32 - 1)], Status.PAYLOAD_TOO_LARGE),
    ],
)
def test_a_batch_that_lies_is_refused_once_and_forgotten(
    steps: list[FragmentHeader | Fragment], status: Status
) -> None:
    whole = assembler()
    *before, last = [
        whole.begin(step, now=0.0) if isinstance(step, FragmentHeader) else whole.add(step) for step in steps
    ]
    assert before == [None] * len(before)
    assert isinstance(last, FragmentRefusal)
    assert (last.key, last.status) == (KEY, status)
    assert whole.add(part(0, b"ab")) is None
    assert whole.deadline is None
    assert whole.begin(header(1, 8_000), now=0.0) is None  # nothing stayed reserved


def test_unfinished_bytes_and_batches_are_bounded() -> None:
    """The announced bytes count against the limit, not the received ones; a finished batch frees
    its share.
    """
    whole = assembler(bytes_max=10_000)
    assert whole.begin(header(2, 6_000), now=0.0) is None
    refused = whole.begin(header(2, 6_000, b"batch-02"), now=0.0)
    assert isinstance(refused, FragmentRefusal)
    assert refused.status is Status.RATE_LIMITED
    assert whole.add(part(0, bytes(3_000))) is None
    assert whole.add(part(1, bytes(3_000))) == bytes(6_000)
    many = [whole.begin(header(1, 1, f"{n:08}".encode()), now=0.0) for n in range(65)]
    assert many[:64] == [None] * 64
    assert isinstance(many[64], FragmentRefusal)


def test_a_batch_that_does_not_come_in_time_is_refused_and_what_comes_later_is_ignored() -> None:
    whole = assembler()
    for now, batch in enumerate((b"batch-01", b"batch-02", b"batch-03")):
        assert whole.begin(header(2, 4, batch), now=float(now)) is None
    assert whole.deadline == 10.0
    assert whole.expire(now=9.9) == []
    late = whole.expire(now=11.0)
    assert [(refusal.key.batch, refusal.status) for refusal in late] == [
        (b"batch-01", Status.FRAGMENT_TIMEOUT),
        (b"batch-02", Status.FRAGMENT_TIMEOUT),
    ]
    assert whole.deadline == 12.0
    assert whole.add(part(0, b"ab", b"batch-01")) is None
    assert whole.add(part(0, b"ab", b"batch-03")) is None
    assert whole.add(part(1, b"cd", b"batch-03")) == b"abcd"


def test_a_room_that_is_left_waits_for_nothing() -> None:
    whole = assembler()
    whole.begin(header(2, 4), now=0.0)
    whole.begin(FragmentHeader(Crdt.PERSISTED, ROOM, BATCH, 2, 4), now=0.0)
    whole.forget(Crdt.LORO, ROOM)
    assert whole.add(part(0, b"ab")) is None
    assert [refusal.key.crdt for refusal in whole.expire(now=99.0)] == [Crdt.PERSISTED]


def test_deadlines_come_in_the_order_of_headers() -> None:
    whole = assembler()
    seen = []
    for now in range(5):
        whole.begin(header(2, 4, f"{now:08}".encode()), now=float(now))
        seen.append(whole.deadline)
    assert all(before == after for before, after in pairwise(seen))


def test_what_came_counts_for_all_connections_and_is_given_back_however_it_ends() -> None:
    """Not what was announced: who only announces would take room from others."""
    pool = FragmentBudget(10_000, 10_000)
    one, two = assembler(pool=pool, key="ann"), assembler(pool=pool, key="bob")
    for whole in (one, two):
        assert whole.begin(header(2, 8_000), now=0.0) is None
    assert pool.bytes == 0
    assert one.add(part(0, bytes(6_000))) is None
    refused = two.add(part(0, bytes(6_000)))
    assert isinstance(refused, FragmentRefusal)
    assert refused.status is Status.RATE_LIMITED
    assert pool.bytes == 6_000
    assert one.add(part(1, bytes(2_000))) == bytes(8_000)
    assert pool.bytes == 0
    ends: dict[str, Callable[[], object]] = {
        "late": lambda: two.expire(now=99.0),
        "left": lambda: two.forget(Crdt.LORO, ROOM),
        "over": two.close,
        "a lie": lambda: two.add(part(1, bytes(9_000))),
    }
    for end in ends.values():
        assert two.begin(header(2, 8_000), now=0.0) is None
        assert two.add(part(0, bytes(6_000))) is None
        assert pool.bytes == 6_000
        end()
        assert pool.bytes == 0


def test_one_key_has_no_more_than_its_part_of_all_that_waits() -> None:
    pool = FragmentBudget(10_000, 4_000)
    assert pool.take("ann", 3_000)
    assert not pool.take("ann", 2_000)
    assert pool.take("bob", 3_000)
    pool.give_back("ann", 3_000)
    assert pool.take("ann", 4_000)
    assert pool.bytes == 7_000
    assert not pool.take("", 3_001)
    assert pool.take("", 3_000)
