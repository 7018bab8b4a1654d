"""The rules of replication, purely: the four rules of catching up, comparing segments, the messages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from lorogo_log import Record
from lorogo_log.format.batch import encode
from lorogo_log.replication.replica_rules import (
    Apply,
    CatchUp,
    CatchUpPlan,
    Ignore,
    Piece,
    ReplicaBehind,
    WantedSegment,
    plan,
    unpack_pieces,
)
from lorogo_log.transfer import wire
from lorogo_log.transfer.wire import Hello, PeerError, Purpose, SegmentEntry, WireKind


def piece(offset: int, size: int = 1) -> Piece:
    """A frame at an offset; `size` records of 100 bytes."""
    values = [bytes(100)] * size
    made = encode([b""] * size, values, [0] * size, first_sequence=1, epoch=1, offset=offset, chain=0)
    return Piece(made.header, bytes(made))


ONE = piece(0).size


def test_a_frame_at_the_end_is_applied() -> None:
    """Rule 1: same offset, apply; what was seen before is ignored."""
    rules = CatchUp(0, 10 * ONE)
    assert rules.fetched(0) == []
    assert rules.frame(piece(0)) == Apply()
    assert rules.frame(piece(ONE)) == Apply()
    assert rules.frame(piece(0)) == Ignore()
    assert rules.at == 2 * ONE


def test_behind_a_gap_frames_are_buffered_until_the_fetch_reaches_them() -> None:
    """Rules 2 and 4: behind, buffer and fetch; caught up, apply the buffer."""
    rules = CatchUp(0, 10 * ONE)
    rules.fetched(0)
    later = [piece(3 * ONE), piece(4 * ONE)]
    assert rules.frame(later[0]) == ReplicaBehind()
    assert rules.frame(later[1]) == ReplicaBehind()
    assert rules.buffer_start == 3 * ONE
    assert rules.fetched(2 * ONE) is None
    assert rules.fetched(3 * ONE) == later
    assert not rules.behind
    assert rules.frame(piece(5 * ONE)) == Apply()


def test_a_buffer_above_its_bound_is_dropped() -> None:
    """Rule 3: the buffer never holds more than its bound; what was dropped is fetched instead."""
    rules = CatchUp(0, 2 * ONE)
    rules.fetched(0)
    for number in (2, 3):
        assert rules.frame(piece(number * ONE)) == ReplicaBehind()
    assert rules.frame(piece(4 * ONE)) == ReplicaBehind(dropped_bytes=2 * ONE)
    assert rules.buffer_start == 4 * ONE
    assert rules.fetched(2 * ONE) is None
    assert rules.fetched(4 * ONE) is not None
    assert rules.drops == 1


def test_a_frame_above_the_bound_is_not_kept_at_all() -> None:
    """A single frame above the bound is only heard of: it must be fetched."""
    rules = CatchUp(0, ONE)
    rules.fetched(0)
    large = piece(ONE, 50)
    assert rules.frame(large) == ReplicaBehind(large.size)
    assert rules.fetched(ONE) is None
    assert rules.fetched(large.end) == []


@settings(max_examples=400, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=30),
    moves=st.lists(
        st.sampled_from(["send", "send", "send", "skip", "again", "head", "fetch", "fetch one"]), max_size=120
    ),
    bound=st.integers(1, 6),
)
def test_whatever_is_lost_or_repeated_frames_are_applied_once_and_in_order(
    sizes: list[int], moves: list[str], bound: int
) -> None:
    """Any order of frames sent, left out, repeated, and fetches: applied is exactly the log, once."""
    frames: list[Piece] = []
    for size in sizes:
        frames.append(piece(frames[-1].end if frames else 0, size))
    rules = CatchUp(0, bound * ONE)
    applied = 0  # frames that are in the log
    sent = 0

    def take(some: list[Piece]) -> None:
        nonlocal applied
        for one in some:
            assert one is frames[applied]
            applied += 1

    def fetch(upto: int) -> None:
        nonlocal applied
        applied = max(applied, upto)
        take(rules.fetched(frames[applied - 1].end if applied else 0) or [])

    for move in moves:
        match move:
            case "send" | "skip" if sent < len(frames):
                if move == "send" and rules.frame(frames[sent]) == Apply():
                    take([frames[sent]])
                sent += 1
            case "again" if sent:
                if rules.frame(frames[sent // 2]) == Apply():
                    take([frames[sent // 2]])
            case "head":
                rules.head(frames[sent - 1].end if sent else 0)
            case "fetch" if rules.behind:
                fetch(sent)
            case "fetch one" if rules.behind:
                fetch(min(sent, applied + 1))
        assert rules.buffered_bytes <= bound * ONE
        assert not rules.behind or rules.buffer_start is None or rules.buffer_start >= rules.at
    rules.head(frames[-1].end)
    if rules.behind:
        fetch(len(frames))
    assert applied == len(frames)
    assert not rules.behind


# -- comparing segments -------------------------------------------------------------------------------------


def segment(
    first: int, last: int, *, sealed: bool = True, chain: int | None = None, epoch: int = 1
) -> SegmentEntry:
    """Records `first` to `last`, ten bytes each."""
    return SegmentEntry(
        first_sequence=first,
        first_time=first,
        first_offset=first * 10,
        last_sequence=last,
        end_offset=(last + 1) * 10,
        position=128 + (last + 1 - first) * 10,
        size=1000 if sealed else 0,
        epoch=epoch,
        header_checksum=first,
        chain=last if chain is None else chain,
        chain_before=first - 1,
        sealed=sealed,
        rewritten=False,
    )


A, B, C = segment(1, 10), segment(11, 20), segment(21, 25, sealed=False)
SHORT_B = segment(11, 14)

A10 = replace(A, records=10)
CLEANED_A = replace(A, rewritten=True, records=9, digest=bytes([1] * 16))
LOST_B = replace(B, damaged=True, sealed=False, chain=0)
OTHER_B = segment(11, 20, chain=7)
#: (here, there, what follows); there is epoch 2 and here epoch 1, unless a case says otherwise
PLANS: dict[str, tuple[list[SegmentEntry], list[SegmentEntry], CatchUpPlan]] = {
    "nothing anywhere": ([], [], CatchUpPlan()),
    "a new replica": ([], [A, B, C], CatchUpPlan(fetch=(WantedSegment(A), WantedSegment(B)), follow=C)),
    "compressed here: all is there": (
        [replace(A, rewritten=True, records=10), B, C],
        [A10, B, C],
        CatchUpPlan(follow=C),
    ),
    "cleaned here: repaired": (
        [CLEANED_A, B, C],
        [A10, B, C],
        CatchUpPlan(suspect=(CLEANED_A,), follow=C, covered=0),
    ),
    "cleaned there too, of as many": (
        [CLEANED_A, B, C],
        [replace(CLEANED_A, digest=bytes([2] * 16)), B, C],
        CatchUpPlan(suspect=(CLEANED_A,), follow=C, covered=0),
    ),
    "cleaned there once more": (
        [CLEANED_A, B, C],
        [replace(CLEANED_A, digest=bytes([2] * 16), records=8), B, C],
        CatchUpPlan(follow=C),
    ),
    "cleaned here, lost there": (
        [CLEANED_A, B, C],
        [replace(A, damaged=True), B, C],
        CatchUpPlan(follow=C, covered=0, blocked=replace(A, damaged=True)),
    ),
    "cleaned here, at the end": ([CLEANED_A], [A10, B, C], CatchUpPlan(aside=(CLEANED_A,))),
    "all there": ([A, B, C], [A, B, C], CatchUpPlan(follow=C)),
    "behind by one": ([A], [A, B, C], CatchUpPlan(fetch=(WantedSegment(B),), follow=C)),
    "half of a segment that is sealed now": (
        [A, SHORT_B],
        [A, B],
        CatchUpPlan(fetch=(WantedSegment(B, SHORT_B),)),
    ),
    "half of the open one": ([A, B, segment(21, 22)], [A, B, C], CatchUpPlan(follow=C)),
    "the other side expired its beginning": ([A, B], [B, C], CatchUpPlan(follow=C)),
    "behind what the other side still has": (
        [A],
        [segment(31, 40)],
        CatchUpPlan(fetch=(WantedSegment(segment(31, 40)),)),
    ),
    "the other side cleaned one away": ([A, B, C], [A, C], CatchUpPlan(follow=C)),
    "compressed there": ([A, B], [replace(A, rewritten=True, size=9), B], CatchUpPlan()),
    "compressed there, and half of it here": (
        [A, SHORT_B],
        [A, replace(B, rewritten=True, header_checksum=5)],
        CatchUpPlan(aside=(SHORT_B,)),
    ),
    "another history": ([A, OTHER_B], [A, B], CatchUpPlan(aside=(OTHER_B,))),
    "longer than the other side": ([A, B, C], [A, SHORT_B], CatchUpPlan(aside=(C, B))),
    "beyond the other side's end": ([A, B], [A], CatchUpPlan(aside=(B,))),
    "damaged there, and whole here": ([A, B], [A, LOST_B, C], CatchUpPlan(follow=C)),
    "damaged there, and less here": (
        [A, SHORT_B],
        [A, LOST_B, C],
        CatchUpPlan(blocked=LOST_B, covered=14),
    ),
    "damaged there, less here, and more behind it": (
        [A, SHORT_B, C],
        [A, LOST_B, C],
        CatchUpPlan(follow=C, blocked=LOST_B, covered=14),
    ),
    "damaged there, and another end here": (
        [A, OTHER_B],
        [A, LOST_B, C],
        CatchUpPlan(blocked=LOST_B, covered=20),
    ),
    "damaged there and wanted: wait": ([A], [A, LOST_B, C], CatchUpPlan(blocked=LOST_B)),
    "damaged there and missing here": (
        [A, C],
        [A, LOST_B, C],
        CatchUpPlan(follow=C, blocked=LOST_B, covered=10),
    ),
    "damaged here: for repair": ([replace(A, damaged=True, chain=0), B], [A, B], CatchUpPlan(covered=0)),
    "cut here, with the next one lost: its end is only a guess": (
        [replace(segment(1, 20), damaged=True, sealed=False), C],
        [A, B, C],
        CatchUpPlan(fill=(B,), follow=C, covered=0),
    ),
    "damaged here, at the end": (
        [A, replace(B, damaged=True)],
        [A, B],
        CatchUpPlan(aside=(replace(B, damaged=True),)),
    ),
    "lost here in the middle": ([A, C], [A, B, C], CatchUpPlan(fill=(B,), follow=C, covered=10)),
    "lost here at the beginning": ([B, C], [A, B, C], CatchUpPlan(fill=(A,), follow=C, covered=0)),
    "less here in the middle": (
        [A, SHORT_B, C],
        [A, B, C],
        CatchUpPlan(suspect=(SHORT_B,), follow=C, covered=14),
    ),
}


@pytest.mark.parametrize("case", PLANS)
def test_segments_are_compared(case: str) -> None:
    """What is missing is fetched, what contradicts put aside, what one side cleaned or expired left alone."""
    local, remote, expected = PLANS[case]
    assert plan(local, remote, epoch=2) == expected


@pytest.mark.parametrize(
    "case", ["another history", "longer than the other side", "beyond the other side's end"]
)
def test_without_a_newer_epoch_nothing_is_put_aside(case: str) -> None:
    """Two histories in one epoch: nobody can say which is right, so what is here stays and it is said."""
    local, remote, _ = PLANS[case]
    found = plan(local, remote, epoch=1)
    assert found.ahead
    assert found == CatchUpPlan(ahead=found.ahead, covered=found.covered)
    assert found.covered == 10


def test_what_the_other_side_wrote_and_does_not_list_stays() -> None:
    """Its newest file is gone while it runs: WELCOME says that it has written that far."""
    assert plan([A, B], [A], end=B.end_offset, epoch=1) == CatchUpPlan()


runs = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None)
@given(sizes=runs, data=st.data())
def test_whatever_is_lost_or_damaged_nothing_behind_a_hole_is_called_covered(
    sizes: list[int], data: st.DataObject
) -> None:
    """Any segments missing, cut or damaged on either side: up to `covered`, all that is offered is held."""
    whole: list[SegmentEntry] = []
    for size in sizes:
        first = whole[-1].last_sequence + 1 if whole else 1
        before = whole[-1].chain if whole else 0
        whole.append(replace(segment(first, first + size - 1), chain_before=before))
    local: list[SegmentEntry] = []
    remote: list[SegmentEntry] = []
    held: set[int] = set()
    for entry in whole:
        here = data.draw(st.sampled_from(["whole", "whole", "gone", "short", "damaged"]))
        there = data.draw(st.sampled_from(["whole", "whole", "damaged", "gone"]))
        last = data.draw(st.integers(entry.first_sequence, entry.last_sequence))
        if here == "short" and last < entry.last_sequence:
            local.append(segment(entry.first_sequence, last))
            held |= set(range(entry.first_sequence, last + 1))
        elif here != "gone":
            local.append(replace(entry, damaged=here == "damaged"))
            if here != "damaged":
                held |= set(range(entry.first_sequence, entry.last_sequence + 1))
        if there != "gone":
            remote.append(replace(entry, damaged=there == "damaged"))
    found = plan(local, remote, end=whole[-1].end_offset, epoch=1)
    assert not found.ahead
    end = local[-1].last_sequence if local else 0
    covered = end if found.covered is None else found.covered
    if found.aside:
        covered = 0
        assert all(entry.damaged for entry in found.aside)
    offered = {
        number
        for entry in remote
        for number in range(entry.first_sequence, entry.last_sequence + 1)
        if number <= covered
    }
    assert offered <= held
    for wanted in found.fetch:
        assert (
            found.blocked is None
            or wanted.entry.first_sequence < found.blocked.first_sequence
            or (wanted.entry.first_sequence >= (local[-1].first_sequence if local else 0))
        )


# -- messages -----------------------------------------------------------------------------------------------

u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
u32 = st.integers(0, 2**32 - 1)
entries = st.builds(
    SegmentEntry, u64, i64, u64, u64, u64, u64, u64, u64, u32, u32, st.booleans(), st.booleans(),
    st.binary(min_size=16, max_size=16), st.booleans(),
)  # fmt: skip
ids = st.binary(min_size=16, max_size=16)
messages = st.one_of(
    st.builds(
        Hello,
        st.sampled_from(Purpose),
        ids,
        ids,
        u32,
        u64,
        u64,
        u64,
        st.integers(0, 65535),
        st.text(max_size=30),
    ),
    st.builds(wire.Welcome, ids, u32, u64, u64, u64, u64),
    st.builds(wire.RefusedMessage, st.sampled_from(wire.WireRefusal), st.text(max_size=200)),
    st.builds(wire.Catalog, u64),
    st.builds(wire.SegmentList, st.lists(entries, max_size=5).map(tuple), st.booleans()),
    st.builds(wire.Fetch, u64, i64, u64, u64),
    st.builds(wire.Data, u64, u64),
    st.builds(wire.Lookup, u64),
    st.builds(wire.HeadMessage, u64, u64, u64),
    st.builds(wire.ReplicaAck, u64, u64, u64, st.booleans()),
)


@given(messages, u64)
def test_messages_come_back(message: wire.Message, number: int) -> None:
    """What is packed is unpacked to the same."""
    raw = wire.message(message, number)
    assert len(raw) % 8 == 0
    header = wire.unpack_header(raw[:32])
    assert header.number == number
    assert wire.unpack(header, wire.check_body(header, raw[32:])) == message


@given(u64, i64, st.binary(max_size=20), st.binary(max_size=50))
def test_records_come_back(sequence: int, time: int, key: bytes, payload: bytes) -> None:
    """A forwarded record is the same record."""
    record = Record(sequence, time, key, payload)
    assert wire.unpack_record(wire.pack_record(record)) == record


@given(st.integers(0, 255), st.data())
def test_every_flipped_byte_of_a_message_is_seen(mask: int, data: st.DataObject) -> None:
    """One changed byte anywhere is refused: in the header by its checksum, in the body by its own."""
    raw = bytearray(wire.message(Hello(Purpose.FOLLOW, name="replica")))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= mask or 1
    with pytest.raises(PeerError):
        wire.check_body(wire.unpack_header(raw[:32]), raw[32:])


def forged(kind: int, size: int, *, magic: bytes = b"LGWR", version: int = 1, flags: int = 0) -> bytes:
    """A header whose checksum is right and whose content is not."""
    head = wire._HEADER.pack(magic, version, kind, flags, 0, size, 0)
    return head + crc32c(head).to_bytes(4, "little")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        bytes(32),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        forged(WireKind.HELLO, 2**32 - 1),
        forged(WireKind.FRAMES, wire.STREAM_BYTES_MAX + 1),
        forged(WireKind.SEGMENTS, 1 << 30),
        forged(WireKind.ACK, 0),
        forged(0, 0),
        forged(99, 8),
        forged(WireKind.ACK, 32, magic=b"LGFR"),
        forged(WireKind.ACK, 32, version=2),
        forged(WireKind.ACK, 32, flags=1),
    ],
)
def test_a_hostile_header_is_refused_before_its_length_is_believed(raw: bytes) -> None:
    """Empty, foreign, a huge length, an unknown kind: PeerError, and nothing is allocated."""
    with pytest.raises(PeerError):
        wire.unpack_header(raw)


@pytest.mark.parametrize(
    "body",
    [
        b"\0" * 80,
        bytes(piece(0).raw)[:-8],
        bytes(piece(0).raw) + b"x" * 80,
        b"\x89LRLOG\r\n" + bytes(200),
    ],
)
def test_frames_that_are_none_are_refused(body: bytes) -> None:
    """Half a frame, zeros, garbage behind a frame, a bad segment header: PeerError."""
    with pytest.raises(PeerError):
        unpack_pieces(body)
