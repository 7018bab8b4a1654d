"""What a replica may say, keep and throw away; whom coordinator and replica believe. Each was once untrue."""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from lorogo_log import BlockingLog, Log, LogOptions, ReplicaError, StaleEpochError, Sync
from lorogo_log.format.batch import encode, frame
from lorogo_log.format.layout import ZSTD, unpack_frame_header
from lorogo_log.replication.coordinator import Coordinator
from lorogo_log.replication.replica import LogReplica
from lorogo_log.replication.replica_check import DivergedError, repair_install
from lorogo_log.replication.replica_rules import Piece
from lorogo_log.replication.replica_session import ReplicaSession
from lorogo_log.replication.replica_store import ReplicaStore
from lorogo_log.storage.replica_state import TAKEOVER_STEP
from lorogo_log.transfer import wire
from lorogo_log.transfer.catalog import catalog
from lorogo_log.transfer.segment_transfer import SegmentClient, SegmentServer, ServedLog
from lorogo_log.transfer.wire import Hello, PeerError, Purpose, ReplicaAck, WireKind
from lorogo_log.transfer.wire_socket import receive
from lorogo_log.transfer.wire_stream import MessageStream
from tests.log.replicas import OPTIONS, SEGMENT, copy_of, grow, hashes, items
from tests.log.replication.test_coordinator import opened, same
from tests.log.replication.test_replication_repair import flip


async def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll with a deadline."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - files and other threads set no event
            await asyncio.sleep(0.01)


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.seg"))


# -- holes --------------------------------------------------------------------------------------------------


async def test_nothing_is_acknowledged_above_what_the_coordinator_cannot_give(tmp_path: Path) -> None:
    """The coordinator's copy is damaged and the replica's is shorter: it waits before the gap and says so."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        await grow(log, 20)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            held = await grow(log, 1)
            await coordinator.wait(held, timeout=10)
        short = segments(tmp_path / "one")[-1].name
        last = await grow(log, 60)
        await log.rotate()
        await until(lambda: all(one.sealed for one in log.segments()))
        good = (tmp_path / "log" / short).read_bytes()
        flip(tmp_path / "log" / short, len(good) - 9_000)
        await log.scrub()
        async with copy_of(tmp_path / "one", coordinator.address, audit_seconds=0.05) as one:
            await until(lambda: one.stats().waiting is not None)
            with pytest.raises(TimeoutError, match="0 of 1"):
                await coordinator.wait(last, timeout=0.3)
            assert "damaged at the coordinator" in str(one.stats().waiting)
            assert [info.waiting for info in coordinator.replicas()] == [True]
            assert one.sequence == held
            assert not one.stats().caught_up
            await log.install(short, [good])
            await coordinator.wait(last, timeout=10)
            assert one.stats().waiting is None
            for sequence in range(1, last, 11):
                assert one.lookup(sequence) == log.lookup(sequence)


@pytest.mark.parametrize("running", [True, False])
async def test_a_segment_that_vanished_is_fetched_again(tmp_path: Path, running: bool) -> None:
    """Whether the replica runs or not, in the middle or at the beginning; the rest stays as it is."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await grow(log, 80)
        replica = copy_of(tmp_path / "one", coordinator.address, audit_seconds=0.05)
        async with replica as one:
            await coordinator.wait(last, timeout=10)
            if running:
                for number in (0, 2):
                    segments(tmp_path / "one")[number].unlink()
                await until(lambda: len(segments(tmp_path / "one")) == len(segments(tmp_path / "log")))
                await coordinator.wait(await grow(log, 1), timeout=10)
        if not running:
            for number in (2, 0):
                segments(tmp_path / "one")[number].unlink()
            async with copy_of(tmp_path / "one", coordinator.address) as one:
                await coordinator.wait(await grow(log, 1), timeout=10)
                assert len(segments(tmp_path / "one")) == len(segments(tmp_path / "log"))
                assert one.stats().aside == 0
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")
    assert not list((tmp_path / "one").glob("*.broken"))


async def test_damage_at_a_replica_takes_its_acknowledgement_back(tmp_path: Path) -> None:
    """From when it is known until it is repaired, nothing behind the damage counts as held there."""
    async with opened(tmp_path / "log") as log, Coordinator(log, head_seconds=0.02) as coordinator:
        last = await grow(log, 60)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await coordinator.wait(last, timeout=10)
            one._repairer.sources = lambda: ()
            flip(segments(tmp_path / "one")[1], 5_000)
            await asyncio.to_thread(lambda: list(one.core.scrub()))
            await until(lambda: coordinator.replicas()[0].waiting)
            assert coordinator.replicas()[0].sequence < last
            assert "repaired" in str(one.stats().waiting)
            one._repairer.sources = lambda: (coordinator.address,)
            assert await one.repaired(timeout=10)
            await coordinator.wait(await grow(log, 1), timeout=10)


async def test_a_coordinators_lost_file_costs_a_replica_nothing(tmp_path: Path) -> None:
    """The newest segment's file is removed while the log is open: the replica keeps its good copy."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await grow(log, 30)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await coordinator.wait(last, timeout=10)
        await log.rotate()
        await until(lambda: all(one.sealed for one in log.segments()))
        before = hashes(tmp_path / "one")
        segments(tmp_path / "log")[-1].unlink()
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await one.caught_up(timeout=10)
            assert one.lookup(last).sequence == last
            await coordinator.wait(await grow(log, 2), timeout=10)
            assert one.lookup(last).sequence == last
    assert not list((tmp_path / "one").glob("*.broken"))
    now = hashes(tmp_path / "one")
    assert {name: now[name] for name in before} == before


async def test_a_coordinator_that_lost_its_end_is_not_followed(tmp_path: Path) -> None:
    """Restarted with less than its replica holds: what is held stays, and both sides say why."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await grow(log, 40)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await coordinator.wait(last, timeout=10)
    segments(tmp_path / "log")[-1].unlink()
    before = hashes(tmp_path / "one")
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        again = await grow(log, 1)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            async with asyncio.timeout(30):
                while one.stats().trouble is None:  # noqa: ASYNC110  # no event for it
                    await asyncio.sleep(0.02)
            with pytest.raises(TimeoutError, match="has lost what it had"):
                await coordinator.wait(again, timeout=3.0)
            assert "take over from this replica" in str(one.stats().trouble)
    assert hashes(tmp_path / "one") == before


# -- what is installed --------------------------------------------------------------------------------------


def test_a_repair_never_installs_a_shorter_copy(tmp_path: Path) -> None:
    """A replica stopped in the middle of the segment: its sealed copy is good, and not the whole."""
    with BlockingLog(tmp_path / "log", OPTIONS) as core:
        for number in range(40):
            core.append_many(items())
            if number == 17:
                (tmp_path / "short").mkdir()
                for file in segments(tmp_path / "log"):
                    shutil.copy(file, tmp_path / "short")
    name = segments(tmp_path / "short")[-1].name
    with BlockingLog(tmp_path / "short", OPTIONS) as other:
        entry = next(one for one in catalog(other) if one.name == name)
        copy = (tmp_path / "short" / name).read_bytes()
    assert entry.sealed
    damaged = bytearray((tmp_path / "log" / name).read_bytes())
    damaged[9_000] ^= 1
    damaged[-20] ^= 1  # the footer too: nothing here says how long it was, but the segment after it
    (tmp_path / "log" / name).write_bytes(damaged)
    with BlockingLog(tmp_path / "log", OPTIONS) as core:
        assert core.damage
        (tmp_path / "log" / (name + ".part")).write_bytes(copy)
        with pytest.raises(DivergedError):
            repair_install(core, entry)
        assert (tmp_path / "log" / name).read_bytes() == damaged


def test_a_fetched_segment_must_continue_what_is_here(tmp_path: Path) -> None:
    """Another history's segment with the right name and hash is refused: nothing is mixed."""
    log_id = bytes(range(16))
    made: dict[str, tuple[BlockingLog, list[wire.SegmentEntry]]] = {}
    for side in ("a", "b"):
        core = BlockingLog(tmp_path / side, replace(OPTIONS, log_id=log_id), now=lambda: 1)
        for _ in range(40):
            core.append_many(items())
        deadline = time.monotonic() + 10
        while sum(not entry.sealed for entry in catalog(core)) > 1 and time.monotonic() < deadline:
            pass
        made[side] = core, catalog(core)
    store = ReplicaStore(tmp_path / "copy", OPTIONS)
    store.accept(ServedLog(made["a"][0], None, bytes(16)).welcome())

    def install(side: str, number: int) -> None:
        entry = made[side][1][number]
        data = (tmp_path / side / entry.name).read_bytes()
        (tmp_path / "copy" / (entry.name + ".part")).write_bytes(data)
        store.install(entry)

    try:
        install("a", 0)
        with pytest.raises(DivergedError):
            install("b", 1)
        with pytest.raises(DivergedError):
            install("b", 0)  # over a good one, with other frames
        install("a", 1)
        assert store.core.lookup(300) == made["a"][0].lookup(300)
    finally:
        store.close()
        for core, _ in made.values():
            core.close()


def _forged(kind: str, first: int, offset: int) -> bytes:
    good = encode([b"k"] * 5, [b"v"] * 5, [0] * 5, first_sequence=first, epoch=1, offset=offset, chain=0)
    head = good.header
    match kind:
        case "compressed garbage":
            made = frame(good.parts[1], head._replace(flags=ZSTD))
        case "a count of 2^32 - 1":
            made = frame(good.parts[1], head._replace(count=2**32 - 1, last_sequence=first + 2**32 - 2))
        case "records without a body":
            made = frame(b"", head._replace(body_bytes=0, raw_bytes=0, body_checksum=0))
        case "a last sequence of 2^64 - 1":
            made = frame(good.parts[1], head._replace(last_sequence=2**64 - 1))
        case "a last sequence of 0":
            made = frame(good.parts[1], head._replace(last_sequence=0))
        case "sequences left out":
            made = frame(good.parts[1], head._replace(first_sequence=first + 7, last_sequence=first + 11))
        case "a body without records":
            made = frame(good.parts[1], head._replace(count=0, last_sequence=first - 1))
        case _:
            body = bytearray(bytes(good.parts[1]))
            body[40:44] = b"\xff\xff\xff\x7f"  # a key's offset
            made = frame(bytes(body), head._replace(body_checksum=crc32c(body)))
    return bytes(made)


FORGED = [
    "compressed garbage",
    "a count of 2^32 - 1",
    "records without a body",
    "a last sequence of 2^64 - 1",
    "a last sequence of 0",
    "sequences left out",
    "a body without records",
    "offsets that go back",
]


@pytest.mark.parametrize("kind", FORGED)
async def test_a_forged_frame_is_refused_and_the_replica_goes_on(tmp_path: Path, kind: str) -> None:
    """Its checksums hold and its content does not: refused, nothing is written, the true one is followed."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        await grow(log, 3)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await same(log, one)
            head = one.store.head
            raw = _forged(kind, head.next_sequence, head.end_offset)
            piece = Piece(unpack_frame_header(raw), raw)
            with pytest.raises(PeerError):
                await one.on_disk(lambda: one.store.apply([piece]))
            await coordinator.wait(await grow(log, 2), timeout=10)
            assert one.failed is None
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")


async def test_whatever_a_session_dies_of_the_replica_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any exception ends one connection, is shown, and the next one is tried."""
    real, calls = ReplicaSession.run, [0]

    async def run(self: ReplicaSession) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise RuntimeError("something that nobody thought of")
        await real(self)

    monkeypatch.setattr(ReplicaSession, "run", run)
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await grow(log, 2)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await coordinator.wait(last, timeout=10)
            assert "nobody thought of" in str(one.stats().trouble)


# -- who is believed ----------------------------------------------------------------------------------------


async def follower(coordinator: Coordinator, hello: Hello) -> MessageStream:
    stream = MessageStream(*await asyncio.open_connection(*coordinator.address))
    await stream.send(wire.message(hello), 5)
    return stream


async def test_an_acknowledgement_of_what_is_not_written_is_not_believed(tmp_path: Path) -> None:
    """A sequence above the durable end ends the connection; nothing counts."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await grow(log, 1)
        stream = await follower(coordinator, Hello(Purpose.FOLLOW, replica_id=b"liar-liar-liar-!"))
        await stream.receive(5, frozenset({WireKind.WELCOME}))
        await until(lambda: len(coordinator.replicas()) == 1)
        end = log.stats().end_offset
        await stream.send(wire.message(ReplicaAck(last + 1, end, 1, caught_up=True)), 5)
        await until(lambda: not coordinator.replicas())
        with pytest.raises(TimeoutError):
            await coordinator.wait(last, timeout=0.05)
        stream.abort()


FENCES = {
    "another log": lambda log_id: Hello(Purpose.FOLLOW, b"x" * 16, b"r" * 16, epoch=9),
    "another partition": lambda log_id: Hello(Purpose.FOLLOW, log_id, b"r" * 16, partition=3, epoch=9),
    "a new replica": lambda log_id: Hello(Purpose.FOLLOW, bytes(16), b"r" * 16, epoch=9),
    "an epoch beyond everything": lambda log_id: Hello(Purpose.FOLLOW, log_id, b"r" * 16, epoch=2**64 - 1),
}


@pytest.mark.parametrize("case", FENCES)
async def test_who_has_no_part_in_the_log_cannot_fence(tmp_path: Path, case: str) -> None:
    """Log and partition are looked at before the epoch; an epoch that nobody counts to is no epoch."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        stream = await follower(coordinator, FENCES[case](log.core.writer.engine.log_id))
        await stream.receive(5, frozenset({WireKind.REFUSED}))
        stream.abort()
        assert coordinator.fenced is None
        async with copy_of(tmp_path / "one", coordinator.address):
            await coordinator.wait(await grow(log, 1), timeout=10)


async def test_a_replica_of_the_log_with_a_newer_epoch_fences(tmp_path: Path) -> None:
    """Then every wait ends with StaleEpochError."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await grow(log, 1)
        waiting = asyncio.create_task(coordinator.wait(last, timeout=10))
        hello = Hello(Purpose.FOLLOW, log.core.writer.engine.log_id, b"r" * 16, epoch=9)
        stream = await follower(coordinator, hello)
        with pytest.raises(StaleEpochError):
            await waiting
        assert coordinator.stats().fenced == 9
        stream.abort()


async def test_with_a_secret_strangers_get_nothing(tmp_path: Path) -> None:
    """Both sides prove that they know it; without it there is neither a catalog nor a stream."""
    async with opened(tmp_path / "log") as log, Coordinator(log, secret=b"open sesame") as coordinator:
        last = await grow(log, 60)
        for wrong in (None, b"close sesame"):
            with pytest.raises(PeerError, match="secret"):
                SegmentClient(coordinator.address, timeout=5, secret=wrong)
            async with copy_of(tmp_path / "no", coordinator.address, secret=wrong) as no:
                with pytest.raises(TimeoutError, match="secret"):
                    await no.caught_up(timeout=0.3)
                assert no.sequence == 0
        async with copy_of(tmp_path / "one", coordinator.address, secret=b"open sesame") as one:
            await coordinator.wait(last, timeout=10)
            assert one.stats().fetched_bytes > 0
    async with opened(tmp_path / "log") as log, Coordinator(log) as open_to_all:
        with pytest.raises(PeerError, match="did not prove"):
            SegmentClient(open_to_all.address, timeout=5, secret=b"open sesame")


async def test_a_deadline_is_for_a_whole_message() -> None:
    """One byte now and then does not keep a connection."""
    near, far = socket.socketpair()
    near.settimeout(0.2)
    stop = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            for byte in wire.message(Hello(Purpose.FETCH)):
                far.send(bytes([byte]))
                if stop.wait(0.05):
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(receive, near, frozenset({WireKind.HELLO}))
    assert time.monotonic() - began < 2
    stop.set()
    thread.join(5)
    near.close()
    far.close()


def test_a_catalog_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer may tell of so many segments, in order, and no more; and a record has a bound."""
    with BlockingLog(tmp_path / "log", OPTIONS) as core, SegmentServer(core, timeout=5) as server:
        for _ in range(60):
            core.append_many(items())
        with SegmentClient(server.address, timeout=5) as client:
            assert len(client.catalog()) > 3
            monkeypatch.setattr(wire, "CATALOG_MAX", 3)
            with pytest.raises(PeerError, match="more than 3"):
                client.catalog()
            monkeypatch.setattr(
                "lorogo_log.transfer.segment_transfer.catalog", lambda core, at: catalog(core)[::-1]
            )
            monkeypatch.setattr(wire, "CATALOG_MAX", 3000)
            with pytest.raises(PeerError, match="invalid segment"):
                client.catalog()
        monkeypatch.setattr(wire, "RECORD_BYTES_MAX", 100)
        with SegmentClient(server.address, timeout=5) as client, pytest.raises(wire.RefusedError):
            client.lookup(1)
    assert wire._BODY_BYTES[WireKind.RECORD][1] <= 64 << 20


def test_without_file_descriptors_accepting_waits(tmp_path: Path) -> None:
    """An accept that fails is tried again after a pause that grows."""
    with BlockingLog(tmp_path / "log", OPTIONS) as core:
        server = SegmentServer(core, timeout=5)
        calls = [0]

        class Full:
            def accept(self) -> None:
                calls[0] += 1
                raise OSError(errno.EMFILE, "too many open files")

        real, server._listener = server._listener, Full()  # type: ignore[assignment]
        SegmentClient(("127.0.0.1", real.getsockname()[1]), timeout=5).close()  # the accept that waits
        assert not server._closing.wait(0.5)
        assert 1 < calls[0] < 20
        server._listener = real
        with SegmentClient(server.address, timeout=5) as client:
            assert client.welcome.epoch == 1
        server.close()


# -- opening ------------------------------------------------------------------------------------------------


async def test_a_taken_port_leaves_nothing_behind(tmp_path: Path) -> None:
    """The lock is free again, nobody watches the log, no thread is left."""
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        replica = LogReplica(tmp_path / "one", ("127.0.0.1", 1), port=port)
        with pytest.raises(OSError, match="in use"):
            await replica.__aenter__()
        async with opened(tmp_path / "one") as log:
            coordinator = Coordinator(log, port=port)
            with pytest.raises(OSError, match="in use"):
                await coordinator.__aenter__()
            assert not log.core.writer._watchers
            async with Coordinator(log) as coordinator:
                assert coordinator.address[1] != port
    left = set(threading.enumerate()) - before
    assert not [thread.name for thread in left if thread.name.startswith("lorogo-log")]


@pytest.mark.parametrize("sync", [Sync.os(), Sync.interval(5)])
async def test_a_coordinator_refuses_a_log_that_does_not_wait_for_its_disk(
    tmp_path: Path, sync: Sync
) -> None:
    """What is streamed is on the coordinator's disk: other policies are refused in one sentence."""
    async with opened(tmp_path / "log", sync=sync) as log:
        with pytest.raises(ValueError, match=r"Sync\.group"):
            await Coordinator(log).__aenter__()
        await grow(log, 1)


async def test_nobody_appends_to_a_replica(tmp_path: Path) -> None:
    """Its log refuses, whoever tries."""
    async with (
        opened(tmp_path / "log") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        for attempt in (lambda: one.core.append(1), lambda: one.core.append_many([(b"", 1)])):
            with pytest.raises(ReplicaError, match="coordinator"):
                await asyncio.to_thread(attempt)
        await coordinator.wait(await grow(log, 1), timeout=10)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1:7400",
        b"x",
        [],
        ("host",),
        ("host", "7400"),
        ("", 7400),
        ("host", 0),
        ("host", 70000),
        [("a", 1), "b"],
    ],
)
def test_an_address_that_is_none_is_refused(tmp_path: Path, address: object) -> None:
    """A clear ValueError when the replica is made, not when it connects."""
    with pytest.raises(ValueError, match="address"):
        LogReplica(tmp_path / "one", address)  # type: ignore[arg-type]


async def test_many_partitions_share_one_port(tmp_path: Path) -> None:
    """HELLO names the partition; a replica of one does not follow another."""
    with SegmentServer(timeout=5) as server:
        async with (
            opened(tmp_path / "0", partition=0) as zero,
            opened(tmp_path / "7", partition=7) as seven,
            Coordinator(zero, server=server) as first,
            Coordinator(seven, server=server) as second,
        ):
            assert first.address == second.address
            options = LogOptions(segment_bytes=SEGMENT, partition=7)
            last = [await grow(zero, 30), await grow(seven, 40)]
            async with (
                copy_of(tmp_path / "copy0", server.address) as copy0,
                copy_of(tmp_path / "copy7", server.address, options=options) as copy7,
            ):
                await first.wait(last[0], timeout=10)
                await second.wait(last[1], timeout=10)
                assert copy0.lookup(9) == zero.lookup(9)
                assert copy7.lookup(9) == seven.lookup(9)
                with pytest.raises(ValueError, match="already served"):
                    server.serve(zero.core)
    assert hashes(tmp_path / "copy0") == hashes(tmp_path / "0")
    assert hashes(tmp_path / "copy7") == hashes(tmp_path / "7")


# -- taking over --------------------------------------------------------------------------------------------


async def test_an_old_coordinator_that_comes_back_is_refused(tmp_path: Path) -> None:
    """However often it was restarted, who took over has the higher epoch; its replicas tell the old one."""
    async with (
        opened(tmp_path / "a") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "b", coordinator.address) as b,
        copy_of(tmp_path / "c", coordinator.address) as c,
    ):
        await coordinator.wait(await grow(log, 3), replicas=2, timeout=10)
        assert b.next_epoch == c.next_epoch == TAKEOVER_STEP
    async with opened(tmp_path / "b") as log, Coordinator(log) as coordinator:
        assert log.stats().epoch == TAKEOVER_STEP
        async with copy_of(tmp_path / "c", coordinator.address) as c:
            taken = await grow(log, 3)
            await coordinator.wait(taken, timeout=10)
            held = c.lookup(taken)
    for _ in range(3):
        async with opened(tmp_path / "a") as log, Coordinator(log) as old:
            lost = await grow(log, 5)
            async with copy_of(tmp_path / "c", old.address) as c:
                with pytest.raises(StaleEpochError):
                    await old.wait(lost, timeout=10)
                assert c.lookup(taken) == held
    async with (
        opened(tmp_path / "b") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "a", coordinator.address) as back,
    ):
        await coordinator.wait(await grow(log, 1), timeout=10)
        assert back.lookup(taken) == held
        assert back.stats().diverged
        assert all((tmp_path / "a" / name).exists() for name in back.stats().diverged)


async def test_two_coordinators_of_one_epoch_are_told_apart(tmp_path: Path) -> None:
    """Two replicas took over at once: a third holds to the one that it met first, also after a restart."""
    async with (
        opened(tmp_path / "a") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "b", coordinator.address),
        copy_of(tmp_path / "c", coordinator.address),
    ):
        await coordinator.wait(await grow(log, 3), replicas=2, timeout=10)
    shutil.copytree(tmp_path / "c", tmp_path / "d")
    (tmp_path / "d" / "replica.state").unlink()
    async with (
        opened(tmp_path / "b") as one,
        Coordinator(one) as first,
        opened(tmp_path / "c") as two,
        Coordinator(two) as second,
    ):
        assert one.stats().epoch == two.stats().epoch
        async with copy_of(tmp_path / "d", first.address) as d:
            taken = await grow(one, 1)
            await first.wait(taken, timeout=10)
        async with copy_of(tmp_path / "d", second.address) as d:
            with pytest.raises(TimeoutError, match="another coordinator of epoch"):
                await second.wait(await grow(two, 1), timeout=0.5)
            assert second.stats().refused > 0
            assert d.lookup(taken) == one.lookup(taken)


async def test_a_record_of_before_counts_when_the_new_epoch_is_there_too(tmp_path: Path) -> None:
    """A replica that has the old record but not this epoch's first frame may yet lose it to another."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await grow(log, 2)
        end = log.stats().end_offset
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        stream = await follower(coordinator, Hello(Purpose.FOLLOW, replica_id=b"only the old one"))
        await stream.receive(5, frozenset({WireKind.WELCOME}))
        await stream.send(wire.message(ReplicaAck(last, end, 1, caught_up=False)), 5)
        await until(lambda: any(info.sequence == last for info in coordinator.replicas()))
        with pytest.raises(TimeoutError):
            await coordinator.wait(last, timeout=0.05)
        await stream.send(wire.message(ReplicaAck(last, log.stats().end_offset, 2, caught_up=True)), 5)
        await coordinator.wait(last, timeout=10)
        stream.abort()


async def test_an_epoch_that_was_promised_cannot_be_opened_again(tmp_path: Path) -> None:
    """Neither by a replica's directory nor by a coordinator's own."""
    async with (
        opened(tmp_path / "log", epoch=7) as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        await one.caught_up(timeout=10)
    for path in (tmp_path / "log", tmp_path / "one"):
        with pytest.raises(StaleEpochError):
            await Log.open(path, epoch=7).__aenter__()
        async with Log.open(path) as log:
            assert log.stats().epoch > 7
