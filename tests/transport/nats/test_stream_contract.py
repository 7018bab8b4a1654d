"""Streams, on real NATS and in memory alike."""

import asyncio
import time
from dataclasses import replace

import pytest

from lorogo_protocol.errors import MalformedMessage
from lorogo_transport.errors import (
    NoResponders,
    OutcomeUnknown,
    StorageFull,
    StreamMismatch,
    StreamMissing,
    TooLarge,
    TransportError,
    WrongLastSequence,
)
from lorogo_transport.ports import Message, StoredMessage, Stream, StreamSpec
from lorogo_transport.stores.republish import republished
from tests.transport.support import AnyTransport, Collector, Connect, newest


def spec_of(unique: str) -> StreamSpec:
    return StreamSpec(
        name=unique,
        subjects=(f"{unique}.wal.*",),
        republish=(f"{unique}.wal.*", f"{unique}.done.{{{{wildcard(1)}}}}"),
    )


@pytest.fixture
async def stream(transport: AnyTransport, unique: str) -> Stream:
    assert await transport.ensure(spec_of(unique)) == [f"created stream {unique}"]
    return transport.stream(unique)


async def everything(
    stream: Stream, subject: str, *, first: int = 1, last: int | None = None
) -> list[StoredMessage]:
    return [stored async for stored in stream.read(subject, first=first, last=last)]


async def test_append_and_read_back(stream: Stream, unique: str) -> None:
    """An appended message has its sequence, time, body and headers in every kind of read."""
    before = time.time_ns()
    subject = f"{unique}.wal.a"
    assert await stream.append(subject, b"one", headers={"LORO_X": "é"}) == 1
    assert await stream.append(f"{unique}.wal.b", b"other") == 2
    assert await stream.append(subject, b"") == 3
    after = time.time_ns()
    one, three = await stream.get(1), await stream.last(subject)
    assert one is not None
    assert three is not None
    assert (one.subject, one.sequence, one.data, one.headers) == (subject, 1, b"one", {"LORO_X": "é"})
    assert (three.sequence, three.data, three.headers) == (3, b"", {})
    assert before - 10**9 <= one.time_ns <= three.time_ns <= after + 10**9
    assert await everything(stream, subject) == [one, three]
    assert await stream.get(4) is None
    assert await stream.last(f"{unique}.wal.c") is None
    assert await everything(stream, f"{unique}.wal.c") == []


async def test_compare_and_swap(stream: Stream, unique: str) -> None:
    """`expected_last` decides: 0 means nothing there; other subjects do not matter."""
    subject = f"{unique}.wal.a"
    with pytest.raises(WrongLastSequence):
        await stream.append(subject, b"", expected_last=1)
    assert await stream.append(subject, b"", expected_last=0) == 1
    with pytest.raises(WrongLastSequence):
        await stream.append(subject, b"", expected_last=0)
    assert await stream.append(f"{unique}.wal.b", b"", expected_last=0) == 2
    assert await stream.append(subject, b"", expected_last=1) == 3
    assert await stream.count(subject) == 2


async def test_one_winner(dial: Connect, stream: Stream, unique: str) -> None:
    """Of twenty who swap at once exactly one wins."""
    others = [(await dial()).stream(unique) for _ in range(4)]
    tries = [others[n % 4].append(f"{unique}.wal.a", b"%d" % n, expected_last=0) for n in range(20)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    winners = [result for result in results if isinstance(result, int)]
    assert winners == [1]
    assert all(isinstance(result, WrongLastSequence) for result in results if not isinstance(result, int))


async def test_unconfirmed_appends(transport: AnyTransport, stream: Stream, unique: str) -> None:
    """An append without waiting shows in the republished copy; a lost compare-and-swap shows nowhere."""
    got = Collector()
    await transport.bus.subscribe(f"{unique}.done.*", got)
    subject = f"{unique}.wal.a"
    await stream.append_unconfirmed(subject, b"1", expected_last=0)
    await stream.append_unconfirmed(subject, b"lost", expected_last=0)
    await stream.append_unconfirmed(subject, b"2", expected_last=1)
    await got.wait(2)
    assert got.bodies == [b"1", b"2"]
    assert await stream.count(subject) == 2


async def test_republished_copies(transport: AnyTransport, stream: Stream, unique: str) -> None:
    """A copy names the stored message and the subject's last one before it; its headers cannot be forged."""
    got = Collector()
    await transport.bus.subscribe(f"{unique}.done.a", got)
    forged = {"LORO_X": "1", "Nats-Sequence": "77", "Nats-Last-Sequence": "70", "Nats-Subject": "fake"}
    await stream.append(f"{unique}.wal.a", b"1", headers=forged)
    await stream.append(f"{unique}.wal.b", b"x")
    await stream.append(f"{unique}.wal.a", b"2")
    copies = [republished(message) for message in await got.wait(2)]
    assert [copy.stored for copy in copies] == await everything(stream, f"{unique}.wal.a")
    assert [(copy.stored.sequence, copy.previous) for copy in copies] == [(1, 0), (3, 1)]
    assert copies[0].stored.headers == {"LORO_X": "1"}
    await stream.purge(f"{unique}.wal.a")
    await stream.append(f"{unique}.wal.a", b"3")
    last = republished((await got.wait(3))[-1])
    assert (last.stored.sequence, last.previous) == (4, 0)


COPY = {
    "Nats-Sequence": "1",
    "Nats-Last-Sequence": "0",
    "Nats-Time-Stamp": "2026-01-01T00:00:00Z",
    "Nats-Subject": "loro.wal.a",
}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        *({name: value for name, value in COPY.items() if name != missing} for missing in COPY),
        COPY | {"Nats-Sequence": "x"},
        COPY | {"Nats-Sequence": "0"},
        COPY | {"Nats-Last-Sequence": "1"},
        COPY | {"Nats-Last-Sequence": "-1"},
        COPY | {"Nats-Time-Stamp": "yesterday"},
    ],
)
def test_what_is_no_copy(headers: dict[str, str]) -> None:
    """Anyone may publish where copies go: without the stream's headers it is malformed."""
    with pytest.raises(MalformedMessage):
        republished(Message("loro.committed.a", b"", headers))


async def test_read_ranges(stream: Stream, unique: str) -> None:
    """`first` and `last` bound a read, both included; sequences of other subjects are skipped."""
    for number in range(1, 21):
        await stream.append(f"{unique}.wal.{'ab'[number % 2]}", b"%d" % number)
    subject = f"{unique}.wal.a"  # the even ones
    assert [one.sequence for one in await everything(stream, subject, first=5)] == list(range(6, 21, 2))
    assert [one.sequence for one in await everything(stream, subject, first=6, last=10)] == [6, 8, 10]
    assert [one.sequence for one in await everything(stream, subject, first=0, last=3)] == [2]
    assert await everything(stream, subject, first=21) == []
    assert await everything(stream, subject, first=8, last=7) == []


async def test_read_many_and_large(stream: Stream, unique: str) -> None:
    """Thousands of messages, and messages that fill several batches, come in order and whole."""
    small, large = f"{unique}.wal.small", f"{unique}.wal.large"
    for number in range(2500):
        await stream.append_unconfirmed(small, b"%d" % number)
    for number in range(12):
        await stream.append(large, bytes([number]) * 900_000)
    assert [one.data for one in await everything(stream, small)] == [b"%d" % n for n in range(2500)]
    assert [one.data for one in await everything(stream, large)] == [bytes([n]) * 900_000 for n in range(12)]


async def test_a_status_header_ends_no_batch(stream: Stream, unique: str) -> None:
    """A stored message may have a header called Status: it is a message like any other."""
    subject = f"{unique}.wal.a"
    for number in range(3):
        await stream.append(subject, b"%d" % number, headers={"Status": "204", "Description": "EOB"})
    assert [one.data for one in await everything(stream, subject)] == [b"0", b"1", b"2"]
    last = await stream.last(subject)
    assert last is not None
    assert last.headers == {"Status": "204", "Description": "EOB"}


async def test_a_reader_may_stop_early(stream: Stream, unique: str) -> None:
    """Leaving a read in the middle leaves nothing behind: the stream can be read again."""
    for number in range(10):
        await stream.append(f"{unique}.wal.a", b"%d" % number)
    async for stored in stream.read(f"{unique}.wal.a"):
        assert stored.sequence == 1
        break
    assert len(await everything(stream, f"{unique}.wal.a")) == 10


async def test_newest_of_every_subject(stream: Stream, unique: str) -> None:
    """The last message of each subject that matches."""
    for number in range(9):
        await stream.append(f"{unique}.wal.{number % 3}", b"%d" % number)
    found = await newest(stream, f"{unique}.wal.*")
    assert {stored.subject[-1]: stored.data for stored in found} == {"0": b"6", "1": b"7", "2": b"8"}
    assert [stored.data for stored in await newest(stream, f"{unique}.wal.1")] == [b"7"]
    assert await newest(stream, f"{unique}.wal.none") == []
    named = [f"{unique}.wal.1", f"{unique}.wal.none", f"{unique}.wal.0"]
    assert {stored.subject async for stored in stream.newest_of(named)} == {named[0], named[2]}
    assert [stored async for stored in stream.newest_of([])] == []


async def test_newest_of_thousands_of_subjects(stream: Stream, unique: str) -> None:
    """More subjects than one answer of NATS may name (1024) come all the same, each once."""
    for number in range(2300):
        await stream.append_unconfirmed(f"{unique}.wal.{number}", b"old")
        await stream.append_unconfirmed(f"{unique}.wal.{number}", b"%d" % number)
    await stream.append(f"{unique}.wal.0", b"0")  # confirmed, so all before it are stored
    found = await newest(stream, f"{unique}.wal.*")
    assert sorted(int(stored.data) for stored in found) == list(range(2300))


async def test_state_and_count(stream: Stream, unique: str) -> None:
    """The stream's account of itself: first and last sequence, messages, bytes, limit, its clock."""
    empty = await stream.state()
    assert (empty.first_sequence, empty.last_sequence, empty.messages, empty.bytes) == (0, 0, 0, 0)
    assert (empty.consumers, empty.bytes_max) == (0, -1)
    for number in range(5):
        await stream.append(f"{unique}.wal.{number % 2}", b"x" * 100)
    state = await stream.state()
    assert 0 < empty.created_ns <= empty.now_ns <= state.now_ns <= time.time_ns() + 1_000_000_000
    assert (state.first_sequence, state.last_sequence, state.messages) == (1, 5, 5)
    assert 500 < state.bytes < 1500
    assert await stream.count(f"{unique}.wal.0") == 3
    assert await stream.count(f"{unique}.wal.*") == 5
    assert await stream.count(f"{unique}.wal.9") == 0
    assert await stream.subjects(f"{unique}.wal.*") == {f"{unique}.wal.0": 3, f"{unique}.wal.1": 2}
    assert await stream.count_through(f"{unique}.wal.1") == (2, (await stream.state()).last_sequence)
    assert await stream.count_through(f"{unique}.wal.none") == (0, (await stream.state()).last_sequence)
    assert await stream.subjects(f"{unique}.wal.9") == {}


async def test_purge(stream: Stream, unique: str) -> None:
    """A purge removes one subject's messages below a sequence, or all; sequences never come back."""
    for number in range(1, 11):
        await stream.append(f"{unique}.wal.{'ab'[number % 2]}", b"%d" % number)
    subject = f"{unique}.wal.a"
    assert await stream.purge(subject, before=1) == 0
    assert await stream.purge(subject, before=0) == 0
    assert await stream.purge(subject, before=6) == 2
    assert [one.sequence for one in await everything(stream, subject)] == [6, 8, 10]
    assert await stream.count(f"{unique}.wal.b") == 5
    assert await stream.purge(subject) == 3
    assert await stream.purge(subject) == 0
    assert await stream.last(subject) is None
    assert await stream.append(subject, b"", expected_last=0) == 11


async def test_purge_of_a_prefix(stream: Stream, unique: str) -> None:
    """The whole stream reads as one line of all subjects, and everything below a sequence can go at once."""
    for number in range(1, 11):
        await stream.append(f"{unique}.wal.{'ab'[number % 2]}", b"%d" % number)
    line = await everything(stream, f"{unique}.wal.*", first=2)
    assert [(one.sequence, one.subject[-1]) for one in line] == [
        (number, "ab"[number % 2]) for number in range(2, 11)
    ]
    assert await stream.purge(">", before=1) == 0
    assert await stream.purge(">", before=8) == 7
    assert [one.sequence for one in await everything(stream, f"{unique}.wal.*")] == [8, 9, 10]
    state = await stream.state()
    assert (state.first_sequence, state.last_sequence, state.messages) == (8, 10, 3)
    assert await stream.append(f"{unique}.wal.a", b"") == 11


async def test_delete(stream: Stream, unique: str) -> None:
    """One message can be taken out; a second time it is not there."""
    for number in range(3):
        await stream.append(f"{unique}.wal.a", b"%d" % number)
    assert await stream.delete(2) is True
    assert await stream.delete(2) is False
    assert await stream.delete(99) is False
    assert [one.sequence for one in await everything(stream, f"{unique}.wal.a")] == [1, 3]


async def test_full(transport: AnyTransport, unique: str) -> None:
    """A stream with discard new refuses when it is full, and takes again after a purge."""
    await transport.ensure(replace(spec_of(unique), bytes_max=10_000))
    stream = transport.stream(unique)
    assert (await stream.state()).bytes_max == 10_000
    for _ in range(3):
        await stream.append(f"{unique}.wal.a", b"x" * 3000)
    with pytest.raises(StorageFull):
        await stream.append(f"{unique}.wal.a", b"x" * 3000)
    assert await stream.count(f"{unique}.wal.a") == 3
    await stream.purge(f"{unique}.wal.a")
    assert await stream.append(f"{unique}.wal.a", b"x" * 3000) == 4


async def test_discard_old(transport: AnyTransport, unique: str) -> None:
    """A stream with discard old drops its oldest instead."""
    await transport.ensure(replace(spec_of(unique), bytes_max=10_000, discard_new=False))
    stream = transport.stream(unique)
    for _ in range(6):
        await stream.append(f"{unique}.wal.a", b"x" * 3000)
    assert [one.sequence for one in await everything(stream, f"{unique}.wal.a")] == [4, 5, 6]


async def test_too_large(transport: AnyTransport, stream: Stream, unique: str) -> None:
    """An append above max_payload is refused before a byte is sent."""
    with pytest.raises(TooLarge):
        await stream.append(f"{unique}.wal.a", bytes(transport.bus.max_payload + 1))
    with pytest.raises(TooLarge):
        await stream.append_unconfirmed(f"{unique}.wal.a", bytes(transport.bus.max_payload + 1))


async def test_rollup(transport: AnyTransport, unique: str) -> None:
    """`Nats-Rollup: sub` replaces all of a subject with this message, where the stream allows it."""
    await transport.ensure(replace(spec_of(unique), allow_rollup=True))
    stream = transport.stream(unique)
    for number in range(3):
        await stream.append(f"{unique}.wal.a", b"%d" % number)
    await stream.append(f"{unique}.wal.b", b"other")
    sequence = await stream.append(
        f"{unique}.wal.a", b"only", headers={"Nats-Rollup": "sub", "X": "y"}, expected_last=3
    )
    assert sequence == 5
    stored = await everything(stream, f"{unique}.wal.a")
    assert [(one.data, one.headers) for one in stored] == [(b"only", {"X": "y"})]
    assert await stream.count(f"{unique}.wal.b") == 1


async def test_rollup_denied(stream: Stream, unique: str) -> None:
    """A stream without rollup accepts no header that deletes a subject's messages."""
    await stream.append(f"{unique}.wal.a", b"precious")
    with pytest.raises(TransportError, match="rollup"):
        await stream.append(f"{unique}.wal.a", b"", headers={"Nats-Rollup": "sub"})
    assert await stream.count(f"{unique}.wal.a") == 1


async def test_one_message_per_subject(transport: AnyTransport, unique: str) -> None:
    """With one message per subject the newest stays, and its copy names the one that it replaced."""
    await transport.ensure(replace(spec_of(unique), messages_per_subject_max=1))
    stream = transport.stream(unique)
    got = Collector()
    await transport.bus.subscribe(f"{unique}.done.a", got)
    await stream.append(f"{unique}.wal.a", b"1")
    await stream.append(f"{unique}.wal.a", b"2", expected_last=1)
    assert [one.sequence for one in await everything(stream, f"{unique}.wal.a")] == [2]
    assert [republished(message).previous for message in await got.wait(2)] == [0, 1]


async def test_a_missing_stream(transport: AnyTransport, unique: str) -> None:
    """Every call raises StreamMissing with the name of the stream."""
    stream = transport.stream(unique)
    subject = f"{unique}.wal.a"
    with pytest.raises(StreamMissing, match=unique):
        await stream.append(subject, b"")
    for call in (
        stream.last(subject), stream.get(1), stream.state(), stream.count(subject),
        stream.purge(subject), stream.delete(1), everything(stream, subject),
    ):  # fmt: skip
        with pytest.raises(StreamMissing):
            await call
    with pytest.raises(StreamMissing):
        await newest(stream, subject)


async def test_a_subject_that_the_stream_does_not_take(stream: Stream, unique: str) -> None:
    """An append to a subject outside the stream fails with NoResponders."""
    with pytest.raises(NoResponders):
        await stream.append(f"{unique}.elsewhere", b"")


async def test_ensure_again_changes_nothing(transport: AnyTransport, stream: Stream, unique: str) -> None:
    """A second `ensure` with the same spec finds nothing to do."""
    assert await transport.ensure(spec_of(unique)) == []


async def test_ensure_migrates_what_is_safe(transport: AnyTransport, stream: Stream, unique: str) -> None:
    """Republish, limits and age of an existing stream are brought to the spec; messages stay."""
    await stream.append(f"{unique}.wal.a", b"kept")
    wanted = replace(
        spec_of(unique),
        republish=(f"{unique}.wal.*", f"{unique}.elsewhere.{{{{wildcard(1)}}}}"),
        bytes_max=100_000,
        age_max_seconds=3600,
        allow_rollup=True,
        discard_new=False,
    )
    changes = await transport.ensure(wanted)
    assert {change.partition(":")[0] for change in changes} == {
        "republish", "max_bytes", "max_age", "allow_rollup_hdrs", "discard",
    }  # fmt: skip
    assert await transport.ensure(wanted) == []
    got = Collector()
    await transport.bus.subscribe(f"{unique}.elsewhere.a", got)
    await stream.append(f"{unique}.wal.a", b"new")
    await got.wait(1)
    assert await stream.count(f"{unique}.wal.a") == 2


async def test_ensure_refuses_what_is_not_safe(transport: AnyTransport, stream: Stream, unique: str) -> None:
    """Other subjects are another stream: the error names the difference."""
    with pytest.raises(StreamMismatch, match=f"subjects are {unique}.wal.\\*, not {unique}.other"):
        await transport.ensure(replace(spec_of(unique), subjects=(f"{unique}.other",), republish=None))


async def test_two_servers_ensure_at_once(dial: Connect, unique: str) -> None:
    """Servers that start together all find the stream in order."""
    transports = [await dial() for _ in range(5)]
    await asyncio.gather(*(transport.ensure(spec_of(unique)) for transport in transports))
    assert await transports[0].stream(unique).append(f"{unique}.wal.a", b"") == 1


async def test_cancelled_append_harms_no_later_append(stream: Stream, unique: str) -> None:
    """An append that is cancelled may or may not be stored; the next one works."""
    task = asyncio.ensure_future(stream.append(f"{unique}.wal.a", b"1"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    sequence = await stream.append(f"{unique}.wal.a", b"2")
    assert sequence in (1, 2)


async def test_no_time(stream: Stream, unique: str) -> None:
    """An append whose confirmation does not come in time has an unknown outcome."""
    with pytest.raises(OutcomeUnknown):
        await stream.append(f"{unique}.wal.a", b"1", timeout=0)


async def test_next(stream: Stream, unique: str) -> None:
    """The earliest message from a sequence on, of one subject or of all that match; None behind the end."""
    for name in ("a", "b", "a", "c"):
        await stream.append(f"{unique}.wal.{name}", name.encode())
    await stream.delete(1)

    async def sequence(subject: str, first: int) -> int | None:
        found = await stream.next(f"{unique}.wal.{subject}", first)
        return None if found is None else found.sequence

    assert [await sequence("a", first) for first in (0, 1, 3, 4)] == [3, 3, 3, None]
    assert [await sequence("*", first) for first in (1, 3, 4, 5)] == [2, 3, 4, None]
    assert await sequence("d", 1) is None


async def test_read_by_wildcard(stream: Stream, unique: str) -> None:
    """Several subjects are read together, in the order of the stream, across batches."""
    await asyncio.gather(*(stream.append(f"{unique}.wal.{index % 3}", b"") for index in range(1100)))
    found = await everything(stream, f"{unique}.wal.*", first=5, last=1090)
    assert [stored.sequence for stored in found] == list(range(5, 1091))
    assert {stored.subject for stored in found} == {f"{unique}.wal.{name}" for name in "012"}
