"""Replication as a whole: coordinator and replicas over real sockets, with what goes wrong in between."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from lorogo_log import Log, MemoryStorage, Reader, StaleEpochError
from lorogo_log.replication.coordinator import Coordinator
from lorogo_log.replication.replica import LogReplica
from lorogo_log.storage.replica_state import TAKEOVER_STEP
from lorogo_log.transfer import wire
from lorogo_log.transfer.wire import Hello, Purpose, RefusedMessage, ReplicaAck, WireKind, WireRefusal
from lorogo_log.transfer.wire_stream import MessageStream
from tests.log.replicas import SEGMENT, Proxy, copy_of, grow, hashes
from tests.log.replication.test_replication_rules import forged, piece

ANY = frozenset(WireKind)


def opened(path: Path, **more: object) -> Log:
    settings: dict[str, object] = {"segment_bytes": SEGMENT} | more
    return Log.open(path, **settings)  # type: ignore[arg-type]


async def same(log: Log, *replicas: LogReplica) -> None:
    """Wait until all have everything."""
    for replica in replicas:
        await replica.has(log.stats().durable_sequence, timeout=20)


async def test_two_replicas_catch_up_while_appends_go_on(tmp_path: Path) -> None:
    """From many segments behind, with appends all the while: in the end all files are equal."""
    async with opened(tmp_path / "log") as log:
        await grow(log, 100)
        async with (
            Coordinator(log) as coordinator,
            copy_of(tmp_path / "one", coordinator.address, name="one") as one,
            copy_of(tmp_path / "two", coordinator.address, name="two") as two,
        ):
            last = 0
            for _ in range(100):
                last = await grow(log, 1)
                await asyncio.sleep(0)
            await coordinator.replicated(last, count=2, timeout=20)
            assert sorted(info.name for info in coordinator.replicas()) == ["one", "two"]
            assert one.stats().fetched_bytes > 0
            await one.caught_up(timeout=10)
            await two.caught_up(timeout=10)
            assert one.lookup(last) == log.lookup(last)
    assert len(hashes(tmp_path / "log")) > 5
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log") == hashes(tmp_path / "two")


async def test_a_caught_up_replica_gets_frames_as_they_are_written(tmp_path: Path) -> None:
    """Same offset: applied from the stream, nothing is fetched; an append waits for the replica's disk."""
    async with (
        opened(tmp_path / "log") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        await one.caught_up(timeout=10)
        for _ in range(20):
            last = await grow(log, 1)
            await coordinator.replicated(last, count=1, timeout=10)
            assert one.sequence >= last
        assert one.stats().fetched_bytes == 0
        assert one.stats().streamed_bytes > 0


async def test_waiting_for_more_replicas_than_there_are_ends_in_time(tmp_path: Path) -> None:
    """TimeoutError says how many have it."""
    async with (
        opened(tmp_path / "log") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        last = await grow(log, 1)
        await one.has(last, timeout=10)
        await coordinator.replicated(last, count=1, timeout=10)
        with pytest.raises(TimeoutError, match="1 of 2 replicas"):
            await coordinator.replicated(last, count=2, timeout=0.05)
        assert [coordinator.replicated_through(count) for count in (1, 2)] == [last, 0]


async def test_a_restarted_replica_goes_on_in_the_open_segment(tmp_path: Path) -> None:
    """Restarted many times in the middle of a segment: files are equal, nothing is put aside."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        for _ in range(6):
            async with copy_of(tmp_path / "one", coordinator.address) as one:
                await grow(log, 3)
                await same(log, one)
        assert not list((tmp_path / "one").glob("*.broken"))
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")


async def test_a_restarted_coordinator_is_followed_again(tmp_path: Path) -> None:
    """New epoch, new segment, same replica without a restart."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with opened(tmp_path / "log") as log, Coordinator(log, port=port) as coordinator:
        one = copy_of(tmp_path / "one", coordinator.address)
        await one.__aenter__()
        await grow(log, 5)
        await same(log, one)
    try:
        async with opened(tmp_path / "log") as log, Coordinator(log, port=port):
            await grow(log, 5)
            await same(log, one)
            assert one.stats().epoch == 2
    finally:
        await one.close()
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")


async def test_a_buffer_above_its_bound_is_dropped_and_fetched(tmp_path: Path) -> None:
    """Rule 3 over the wire: with a tiny buffer the replica drops, fetches, and still ends equal."""
    async with opened(tmp_path / "log") as log:
        await grow(log, 100)
        async with (
            Coordinator(log) as coordinator,
            copy_of(tmp_path / "one", coordinator.address, buffer_bytes=10_000) as one,
        ):
            while not one.stats().drops:
                await grow(log, 5)
                await asyncio.sleep(0)
            await same(log, one)
            assert one.stats().drops > 0
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")


async def test_a_slow_replica_slows_nobody(tmp_path: Path) -> None:
    """One that does not read loses its queue; appends and the other replica go on; later it fetches."""
    async with opened(tmp_path / "log") as log, Coordinator(log, queue_bytes=100_000) as coordinator:
        stuck = asyncio.Event()
        with Proxy(coordinator.address) as proxy:
            gate = threading.Event()
            gate.set()
            proxy.change = lambda chunk: chunk if gate.wait(20) else None
            async with (
                copy_of(tmp_path / "one", coordinator.address, name="one") as one,
                copy_of(tmp_path / "slow", proxy.address, name="slow", silence_seconds=30) as slow,
            ):
                await one.caught_up(timeout=10)
                await slow.caught_up(timeout=10)
                gate.clear()
                last = 0
                while not stuck.is_set():
                    last = await grow(log, 20, size=2000)
                    await coordinator.replicated(last, count=1, timeout=10)
                    if any(info.dropped_bytes for info in coordinator.replicas()):
                        stuck.set()
                infos = {info.name: info for info in coordinator.replicas()}
                assert infos["slow"].queue_bytes <= 100_000
                assert infos["one"].sequence == last
                assert slow.sequence < last
                gate.set()
                await same(log, slow)
    assert hashes(tmp_path / "slow") == hashes(tmp_path / "log") == hashes(tmp_path / "one")


async def test_a_frame_too_large_for_the_stream_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HEAD tells of it; the replica fetches it from the open segment."""
    monkeypatch.setattr("lorogo_log.replication.replica_tail.STREAM_BYTES_MAX", 50_000)
    async with (
        opened(tmp_path / "log", segment_bytes=1 << 20) as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        await one.caught_up(timeout=10)
        await grow(log, 1)
        await log.append(os.urandom(200_000))
        await grow(log, 1)
        await same(log, one)
        await coordinator.replicated(log.stats().durable_sequence, timeout=10)
        assert one.stats().fetched_bytes == 0  # no whole segment: only the frames that were missing
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")


async def test_an_older_coordinator_is_refused(tmp_path: Path) -> None:
    """Whoever has met epoch 9 takes nothing of epoch 3, not even after a restart; the old one learns it."""
    async with opened(tmp_path / "log", epoch=3) as log:
        await grow(log, 2)
        async with Coordinator(log) as old, copy_of(tmp_path / "one", old.address) as one:
            await same(log, one)
        (tmp_path / "new").mkdir()
        for file in (tmp_path / "log").iterdir():
            if file.suffix == ".seg":
                (tmp_path / "new" / file.name).write_bytes(file.read_bytes())
        async with opened(tmp_path / "new", epoch=9) as newer, Coordinator(newer) as young:
            async with copy_of(tmp_path / "one", young.address) as one:
                await one.caught_up(
                    timeout=10
                )  # nothing was written in epoch 9 yet: it is promised all the same
                assert one.next_epoch == TAKEOVER_STEP
            async with Coordinator(log) as zombie, copy_of(tmp_path / "one", zombie.address) as one:
                last = await grow(log, 1)
                with pytest.raises(StaleEpochError):
                    await zombie.replicated(last, timeout=10)
                assert zombie.fenced == 9
                assert one.sequence < last


async def test_a_new_epoch_reaches_replicas_without_any_record(tmp_path: Path) -> None:
    """A fence is a frame: replicas have it soon; files stay equal through restarts with only fences."""
    for number in range(3):
        async with (
            opened(tmp_path / "log", epoch=10 * number + 1) as log,
            Coordinator(log, head_seconds=0.02) as coordinator,
            copy_of(tmp_path / "one", coordinator.address) as one,
        ):
            await one.caught_up(timeout=10)
            await log.fence(10 * number + 5)
            end = log.stats().end_offset
            await one._until(lambda end=end, one=one: one.stats().end_offset >= end, 10, "no fence")  # type: ignore[misc]
            assert one.stats().epoch == 10 * number + 5
    async with (
        opened(tmp_path / "log") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        await grow(log, 2)
        await same(log, one)
        assert one.stats().aside == 0
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")


async def test_a_tail_that_was_never_replicated_is_put_aside(tmp_path: Path) -> None:
    """The replica takes over, the old coordinator comes back as a replica: its tail is kept as `.broken`."""
    async with opened(tmp_path / "a") as log:
        await grow(log, 30)
        async with Coordinator(log) as coordinator, copy_of(tmp_path / "b", coordinator.address) as one:
            await same(log, one)
            epoch = one.next_epoch
        lost = await grow(log, 2)  # acknowledged by this disk alone
    async with opened(tmp_path / "b", epoch=epoch) as log, Coordinator(log) as coordinator:
        new = await grow(log, 40)
        assert new > lost
        async with copy_of(tmp_path / "a", coordinator.address) as back:
            await same(log, back)
            assert back.stats().aside == 1
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")
    assert list((tmp_path / "a").glob("*.broken"))


async def test_another_log_is_not_followed(tmp_path: Path) -> None:
    """A replica of one log does not become a replica of another; what it has stays."""
    async with opened(tmp_path / "a") as log, Coordinator(log) as coordinator:
        await grow(log, 3)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await same(log, one)
    before = hashes(tmp_path / "one")
    async with opened(tmp_path / "b") as log, Coordinator(log) as coordinator:
        await grow(log, 3)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            with pytest.raises(TimeoutError, match="another log"):
                await one.caught_up(timeout=0.5)
    assert hashes(tmp_path / "one") == before


async def test_expired_segments_are_not_missed(tmp_path: Path) -> None:
    """A new replica begins with what the coordinator still has."""
    async with opened(tmp_path / "log") as log:
        await grow(log, 100)
        await log.expire(keep_bytes=100_000)
        first = log.segments()[0].first_sequence
        assert first > 1
        async with Coordinator(log) as coordinator, copy_of(tmp_path / "one", coordinator.address) as one:
            await grow(log, 3)
            await same(log, one)
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")


async def test_a_connection_cut_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    """Cut after every so many bytes, again and again, with flipped bits too: equal in the end."""
    async with opened(tmp_path / "log") as log:
        await grow(log, 40)
        async with Coordinator(log) as coordinator:
            with Proxy(coordinator.address) as proxy:
                passed = [0]

                def trouble(chunk: bytes) -> bytes | None:
                    passed[0] += len(chunk)
                    if proxy.connections > 40:
                        return chunk
                    if passed[0] > 30_000 and proxy.connections % 3 == 0:
                        passed[0] = 0
                        return None
                    if passed[0] > 30_000 and proxy.connections % 3 == 1:
                        passed[0] = 0
                        return chunk[:-3] + bytes(byte ^ 1 for byte in chunk[-3:])
                    return chunk

                proxy.change = trouble
                async with copy_of(tmp_path / "one", proxy.address) as one:
                    for _ in range(30):
                        await grow(log, 2)
                        await asyncio.sleep(0.01)
                    await same(log, one)
                    assert proxy.connections > 3
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")


# -- hostile peers ------------------------------------------------------------------------------------------

FOLLOW = wire.message(Hello(Purpose.FOLLOW, replica_id=b"hostile-hostile!"))
TO_COORDINATOR = {
    "nothing": b"",
    "half": FOLLOW[:40],
    "wrong magic": b"LGFR" + FOLLOW[4:],
    "twice": FOLLOW + FOLLOW,
    "a huge length": FOLLOW + forged(WireKind.ACK, 2**32 - 1),
    "frames to a coordinator": FOLLOW + wire.pack(WireKind.FRAMES, bytes(piece(0).raw)),
    "an ACK of what was never written": FOLLOW + wire.message(ReplicaAck(2**40, 2**50, 1, caught_up=True)),
    "half an ACK": FOLLOW + wire.message(ReplicaAck(1, 1, 1, caught_up=True))[:-9],
    "a flipped bit": FOLLOW + wire.message(ReplicaAck(1, 1, 1, caught_up=True))[:-1] + b"\1",
}


@pytest.mark.parametrize("case", TO_COORDINATOR)
async def test_a_hostile_replica_is_cut_off(tmp_path: Path, case: str) -> None:
    """The connection ends; nothing it said counts; the others go on."""
    async with (
        opened(tmp_path / "log") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        await one.caught_up(timeout=10)
        reader, writer = await asyncio.open_connection(*coordinator.address)
        with suppress(OSError):  # closed before all of it was read
            writer.write(TO_COORDINATOR[case])
            writer.write_eof()
        with suppress(ConnectionError):  # but never TimeoutError
            async with asyncio.timeout(10):
                await reader.read()
        writer.close()
        last = await grow(log, 2)
        await coordinator.replicated(last, count=1, timeout=10)
        with pytest.raises(TimeoutError):
            await coordinator.replicated(last, count=2, timeout=0.02)
        assert await log.append(1) == last + 1


def _frames(*pieces: bytes) -> bytes:
    return wire.pack(WireKind.FRAMES, b"".join(pieces))


FIRST = bytes(piece(0).raw)
FROM_COORDINATOR = {
    "nothing": b"",
    "half a frame": _frames(FIRST)[:-16],
    "an empty message": forged(WireKind.FRAMES, 0),
    "a huge length": forged(WireKind.FRAMES, 2**31),
    "wrong magic": _frames(b"XXXX" + FIRST[4:]),
    "a flipped bit in a body": _frames(FIRST[:-1] + bytes([FIRST[-1] ^ 1])),
    "zeros": bytes(200),
    "a frame twice": _frames(FIRST, FIRST),
    "out of order": _frames(bytes(piece(500).raw), FIRST),
    "an ACK to a replica": wire.message(ReplicaAck(1, 1, 1, caught_up=True)),
    "a refusal": wire.message(RefusedMessage(WireRefusal.STOPPED, "no")),
    "an older epoch": wire.message(wire.HeadMessage(1, 0, 0)),
}


@pytest.mark.parametrize("case", FROM_COORDINATOR)
async def test_a_hostile_coordinator_changes_nothing(tmp_path: Path, case: str) -> None:
    """What it sends is not written, its connection ends, and the replica follows the true one again."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        await grow(log, 3)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await same(log, one)
    before = hashes(tmp_path / "one")
    log_id = Reader.open(tmp_path / "one").segments()[0]
    assert log_id.sealed
    ended = asyncio.Event()

    async def hostile(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = MessageStream(reader, writer)
        with suppress(wire.PeerError, OSError):
            _, body = await stream.receive(5, frozenset({WireKind.HELLO}))
            hello = Hello.unpack(body)
            if hello.purpose is Purpose.FOLLOW:
                welcome = wire.Welcome(hello.log_id, 0, 1, hello.next_sequence, hello.end_offset, SEGMENT)
                await stream.send(wire.message(welcome), 5)
                await stream.send(FROM_COORDINATOR[case], 5)
                writer.write_eof()
                while True:
                    await stream.receive(5, ANY)
        stream.abort()
        ended.set()

    server = await asyncio.start_server(hostile, "127.0.0.1", 0)
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        address = server.sockets[0].getsockname()[:2]
        async with copy_of(tmp_path / "one", address) as one:
            async with asyncio.timeout(10):
                await ended.wait()
            assert {name: hashes(tmp_path / "one")[name] for name in before} == before
            one.follow(coordinator.address)
            await grow(log, 2)
            await same(log, one)
    server.close()
    await server.wait_closed()
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")


# -- real processes -----------------------------------------------------------------------------------------

CHILD = """
import asyncio, sys
from lorogo_log import Log, LogOptions
from lorogo_log.replication.replica import LogReplica
from lorogo_log.storage.replica_state import TAKEOVER_STEP
from lorogo_log.replication.coordinator import Coordinator

async def coordinator(path, port):
    async with Log.open(path, segment_bytes=65536) as log, Coordinator(log, port=port) as served:
        print("ready", flush=True)
        while True:
            last = (await log.append_many([(b"k", bytes(300))] * 10))[-1]
            try:
                await served.replicated(last, count=1, timeout=20)
                print(last, flush=True)
            except TimeoutError:
                pass

async def replica(path, port):
    options = LogOptions(segment_bytes=65536)
    pauses = {"backoff_seconds": 0.01, "backoff_seconds_max": 0.1}
    async with LogReplica(path, ("127.0.0.1", port), options=options, **pauses):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.slow
async def test_what_was_said_to_be_replicated_survives_kill_9_of_either_side(tmp_path: Path) -> None:
    """Killed in turn at any moment: every record told as replicated is on both disks."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    async def start(role: str) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, role, str(tmp_path / role), str(port), stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        async with asyncio.timeout(20):
            assert (await child.stdout.readline()).strip() == b"ready"
        return child

    children = {role: await start(role) for role in ("coordinator", "replica")}
    told = 0
    try:
        for number in range(8):
            stdout = children["coordinator"].stdout
            assert stdout is not None
            async with asyncio.timeout(30):
                for _ in range(5 + 3 * number):
                    told = max(told, int(await stdout.readline()))
            role = ("coordinator", "replica")[number % 2]
            children[role].send_signal(signal.SIGKILL)
            rest = b""
            if role == "coordinator":
                rest = await stdout.read()
            await children[role].wait()
            told = max([told, *(int(line) for line in rest.split(b"\n")[:-1])])
            children[role] = await start(role)
    finally:
        for child in children.values():
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    assert told > 100
    for role in children:
        async with Log.open(tmp_path / role) as log:  # recovery cuts what was torn
            assert log.stats().durable_sequence >= told
            seen = [record.sequence async for batch in log.read() for record in batch.records()]
            assert seen[:told] == list(range(1, told + 1))


async def test_a_replica_closed_in_the_middle_of_catching_up_ends_at_once(tmp_path: Path) -> None:
    """Its fetches are ended, what it has is whole, and the next time it goes on."""
    async with opened(tmp_path / "log") as log:
        await grow(log, 150)
        async with Coordinator(log) as coordinator:
            for _ in range(4):
                async with copy_of(tmp_path / "one", coordinator.address, parallel=2) as one:
                    with suppress(TimeoutError):
                        await one.has(10**9, timeout=0.02)
            async with copy_of(tmp_path / "one", coordinator.address) as one:
                await same(log, one)
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")


async def test_a_long_catch_up_is_not_taken_for_silence(tmp_path: Path) -> None:
    """HEAD is answered while segments are fetched, and before anything is proven: with nothing."""
    async with opened(tmp_path / "log") as log:
        await grow(log, 60)
        async with Coordinator(log, head_seconds=0.02, silence_seconds=0.3) as coordinator:
            reader, writer = await asyncio.open_connection(*coordinator.address)
            stream = MessageStream(reader, writer)
            await stream.send(wire.message(Hello(Purpose.FOLLOW, replica_id=b"slow-slow-slow-!")), 5)
            await stream.receive(5, frozenset({WireKind.WELCOME}))
            for _ in range(40):  # more than the silence in all
                await stream.receive(5, frozenset({WireKind.HEAD, WireKind.FRAMES}))
                await stream.send(wire.message(ReplicaAck(0, 0, 1, caught_up=False)), 5)
            assert len(coordinator.replicas()) == 1
            with pytest.raises(TimeoutError):
                await coordinator.replicated(1, timeout=0.01)
            with suppress(wire.PeerError, ConnectionError):  # and now real silence: it is cut off
                while True:
                    await stream.receive(5, frozenset({WireKind.HEAD, WireKind.FRAMES}))
            assert coordinator.replicas() == []
            stream.abort()


async def test_segments_come_from_other_replicas_too(tmp_path: Path) -> None:
    """A new replica spreads its fetches over the coordinator and the replicas that it knows."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        await grow(log, 100)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await same(log, one)
            sent = coordinator.sent_bytes
            async with copy_of(tmp_path / "two", coordinator.address, sources=[one.address]) as two:
                await same(log, two)
                assert coordinator.sent_bytes - sent < two.stats().fetched_bytes
    assert hashes(tmp_path / "two") == hashes(tmp_path / "log")


async def test_a_log_in_memory_is_replicated_too(tmp_path: Path) -> None:
    """Storage is pluggable on both sides."""
    memory = MemoryStorage()
    async with opened(Path("log"), storage=memory) as log, Coordinator(log) as coordinator:
        await grow(log, 60)
        async with copy_of(Path("copy"), coordinator.address, storage=memory) as one:
            await grow(log, 5)
            await same(log, one)
    sides = [memory.directories[name].files for name in ("log", "copy")]
    segments = [
        {name: bytes(data) for name, data in files.items() if name.endswith(".seg")} for files in sides
    ]
    assert segments[0] == segments[1]
