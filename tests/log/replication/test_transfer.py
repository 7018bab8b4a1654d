"""Segments between processes: served with `sendfile`, fetched several at once, resumed, checked."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lorogo_log import BlockingLog, CorruptionError, Log, LogOptions, MemoryStorage, Reader
from lorogo_log.errors import LogError
from lorogo_log.replication.replica_fetch import Fetcher
from lorogo_log.replication.replica_rules import WantedSegment
from lorogo_log.replication.replica_store import ReplicaStore
from lorogo_log.transfer import wire
from lorogo_log.transfer.segment_transfer import SegmentClient, SegmentServer, ServedLog
from lorogo_log.transfer.wire import Fetch, Hello, PeerError, Purpose, RefusedError, WireKind, WireRefusal
from lorogo_log.transfer.wire_socket import connect
from tests.log.replicas import OPTIONS, Proxy, hashes, items
from tests.log.replication.test_replication_rules import forged


@pytest.fixture
def source(tmp_path: Path) -> Iterator[BlockingLog]:
    """A log with several sealed segments and an open one."""
    with BlockingLog(tmp_path / "source", OPTIONS) as core:
        for _ in range(60):
            core.append_many(items())
        core.writer.flush().result(10)
        yield core


@pytest.fixture
def server(source: BlockingLog) -> Iterator[SegmentServer]:
    with SegmentServer(source, timeout=5) as server:
        yield server


@pytest.fixture
def store(tmp_path: Path, source: BlockingLog) -> Iterator[ReplicaStore]:
    store = ReplicaStore(tmp_path / "copy", OPTIONS)
    store.accept(welcome_of(source))
    yield store
    store.close()


def welcome_of(core: BlockingLog) -> wire.Welcome:
    return ServedLog(core, None, bytes(16)).welcome()


def sealed(address: tuple[str, int]) -> list[WantedSegment]:
    with SegmentClient(address, timeout=5) as client:
        return [WantedSegment(entry) for entry in client.catalog() if entry.sealed]


def fetcher(address: tuple[str, int], tries: int = 5) -> Fetcher:
    return Fetcher(
        lambda: (address,), log_id=lambda: bytes(16), timeout=5, backoff_seconds=0.001, tries=tries
    )


def test_sealed_segments_arrive_byte_for_byte(
    source: BlockingLog, server: SegmentServer, store: ReplicaStore, tmp_path: Path
) -> None:
    """Several at once, installed in order, equal to the originals."""
    wanted = sealed(server.address)
    assert len(wanted) >= 3
    order: list[int] = []

    def install(entry: wire.SegmentEntry) -> None:
        store.install(entry)
        order.append(entry.first_sequence)

    fetcher(server.address).fetch_all(store, wanted, install)
    assert order == sorted(order)
    here, there = hashes(tmp_path / "copy"), hashes(tmp_path / "source")
    assert here == {name: there[name] for name in here}
    assert len(here) == len(wanted)
    assert store.head.next_sequence == wanted[-1].entry.last_sequence + 1
    assert store.core.lookup(17) == source.lookup(17)


def test_an_open_segment_is_given_up_to_what_is_durable(source: BlockingLog, server: SegmentServer) -> None:
    """The zeros behind the durable end are not sent."""
    with SegmentClient(server.address, timeout=5) as client:
        last = client.catalog()[-1]
        assert not last.sealed
        data = client.read(last, at=0, size=1 << 30)
    assert len(data) == last.position
    file = Path(source.directory.path) / last.name
    assert data == file.read_bytes()[: last.position]


def test_a_broken_transfer_goes_on_where_it_was(server: SegmentServer, store: ReplicaStore) -> None:
    """A connection cut again and again costs only what was on its way."""
    wanted = sealed(server.address)[:1]
    with Proxy(server.address) as proxy:
        passed = 0

        def cut(chunk: bytes) -> bytes | None:
            nonlocal passed
            passed += len(chunk)
            return None if proxy.connections < 4 and passed > 20_000 * proxy.connections else chunk

        proxy.change = cut
        one = fetcher(proxy.address, tries=10)
        one.fetch_all(store, wanted, store.install)
    assert one.resumed >= 3
    assert one.fetched_bytes == wanted[0].entry.size
    assert store.core.lookup(1).sequence == 1


def test_a_half_fetched_segment_survives_a_restart(
    server: SegmentServer, store: ReplicaStore, tmp_path: Path
) -> None:
    """What was fetched before a restart is not fetched again."""
    entry = sealed(server.address)[0].entry
    store.resume(entry, None)
    part = tmp_path / "copy" / (entry.name + ".part")
    with SegmentClient(server.address, timeout=5) as client:
        part.write_bytes(client.read(entry, at=0, size=30_000))
    store.close()
    again = ReplicaStore(tmp_path / "copy", OPTIONS)
    again.accept(server.welcome())
    try:
        one = fetcher(server.address)
        one.fetch_all(again, [WantedSegment(entry)], again.install)
        assert one.fetched_bytes == entry.size - 30_000
        assert again.head.next_sequence == entry.last_sequence + 1
        assert not part.exists()
    finally:
        again.close()


@pytest.mark.parametrize("place", ["header", "frame", "trailer", "footer"])
def test_a_damaged_transfer_is_never_put_in_place(
    server: SegmentServer, store: ReplicaStore, tmp_path: Path, place: str
) -> None:
    """One flipped bit on the way: fetched again from the beginning, and only the good one gets the name."""
    wanted = sealed(server.address)[:1]
    entry = wanted[0].entry
    at = {"header": 20, "frame": 5_000, "trailer": entry.position + 12, "footer": entry.size - 20}[place]
    store.resume(entry, None)
    part = tmp_path / "copy" / (entry.name + ".part")
    with SegmentClient(server.address, timeout=5) as client:
        data = bytearray(client.read(entry, at=0, size=entry.size))
    data[at] ^= 4
    part.write_bytes(data)
    one = fetcher(server.address)
    one.fetch_all(store, wanted, store.install)
    assert one.restarted == 1
    assert (tmp_path / "copy" / entry.name).read_bytes() == (tmp_path / "source" / entry.name).read_bytes()


def test_a_source_that_is_damaged_itself_is_not_believed(
    source: BlockingLog, server: SegmentServer, store: ReplicaStore, tmp_path: Path
) -> None:
    """The fetch fails, and nothing got the segment's name."""
    wanted = sealed(server.address)[:1]
    file = tmp_path / "source" / wanted[0].entry.name
    with file.open("r+b") as damaged:
        damaged.seek(4_000)
        damaged.write(b"\xff\xfe\xfd")
    with pytest.raises(CorruptionError, match="hash"):
        fetcher(server.address, tries=2).fetch_all(store, wanted, store.install)
    assert not (tmp_path / "copy" / wanted[0].entry.name).exists()


def test_lookups_are_answered(source: BlockingLog, server: SegmentServer) -> None:
    """A record, or None if there is none."""
    with SegmentClient(server.address, timeout=5) as client:
        assert client.lookup(33) == source.lookup(33)
        assert client.lookup(10**9) is None


def test_another_log_is_refused(server: SegmentServer) -> None:
    """Who names another log gets one sentence and no bytes."""
    with pytest.raises(RefusedError) as refused:
        SegmentClient(server.address, timeout=5, log_id=b"x" * 16)
    assert refused.value.reason is WireRefusal.WRONG_LOG


def test_a_segment_that_is_not_there_is_refused(server: SegmentServer) -> None:
    """The connection goes on after a refusal."""
    with SegmentClient(server.address, timeout=5) as client:
        entry = client.catalog()[0]
        gone = wire.SegmentEntry.unpack(entry.pack())
        object.__setattr__(gone, "first_sequence", 777_777)
        with pytest.raises(RefusedError, match="not found"):
            client.read(gone, at=0, size=10)
        assert client.lookup(1) is not None


def test_more_segments_than_one_answer_holds(server: SegmentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog is asked for again until all of it is there."""
    with SegmentClient(server.address, timeout=5) as client:
        deadline = time.monotonic() + 30
        whole = client.catalog()
        while not all(entry.sealed for entry in whole[:-1]):  # it is done in the background
            assert time.monotonic() < deadline
            time.sleep(0.01)
            whole = client.catalog()
        monkeypatch.setattr(wire, "ENTRIES_MAX", 2)
        assert client.catalog() == whole


def test_too_many_connections_are_refused(source: BlockingLog) -> None:
    """One above the bound gets a sentence; the others go on."""
    with (
        SegmentServer(source, timeout=5, connections_max=1) as server,
        SegmentClient(server.address, timeout=5) as first,
    ):
        with pytest.raises(LogError, match="too many connections"):
            SegmentClient(server.address, timeout=5)
        assert first.lookup(1) is not None


HELLO = wire.message(Hello(Purpose.FETCH))
HOSTILE = {
    "nothing": b"",
    "half a header": HELLO[:10],
    "half a body": HELLO[:-8],
    "wrong magic": b"NOPE" + HELLO[4:],
    "zeros": bytes(4096),
    "a huge length": forged(WireKind.HELLO, 2**32 - 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(64),
    "HELLO twice": HELLO + HELLO,
    "an answer instead of a request": HELLO + wire.message(wire.Data(0, 1 << 60)),
    "a request before HELLO": wire.message(wire.Catalog()),
    "FRAMES to a server": HELLO + wire.pack(WireKind.FRAMES, bytes(80)),
    "a position beyond everything": HELLO + wire.message(Fetch(1, 1, 2**63, 2**63)),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_bytes_end_their_own_connection_and_nothing_else(
    source: BlockingLog, server: SegmentServer, case: str
) -> None:
    """The server closes (or refuses), and goes on serving others; the log is as it was."""
    before = source.stats()
    with SegmentClient(server.address, timeout=5) as bystander:
        sock = connect(server.address, 5)
        with suppress(OSError):  # closed before all of it was read
            sock.sendall(HOSTILE[case])
            sock.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):  # but never TimeoutError
            while sock.recv(65536):
                pass  # whatever is answered, the end comes
        sock.close()
        assert bystander.lookup(5) is not None
    assert source.stats() == before


def test_a_client_does_not_believe_a_hostile_server(source: BlockingLog, server: SegmentServer) -> None:
    """More bytes than were asked for, another request's answer, half an answer: PeerError."""
    entry = sealed(server.address)[0].entry
    welcome = wire.message(server.welcome())
    answers = [
        wire.message(wire.Data(0, 1 << 50), 1),
        wire.message(wire.Data(8, 10), 1),
        wire.message(wire.Data(0, 10), 2) + bytes(10),
        wire.message(wire.Data(0, 10), 1) + bytes(3),
        wire.message(wire.ReplicaAck(1, 1, 1, caught_up=True), 1),
        b"",
    ]
    for answer in answers:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def play(listener: socket.socket = listener, answer: bytes = answer) -> None:
                sock, _ = listener.accept()
                sock.recv(4096)
                sock.sendall(welcome)
                sock.recv(4096)
                sock.sendall(answer)
                sock.close()

            thread = threading.Thread(target=play)
            thread.start()
            client = SegmentClient(listener.getsockname()[:2], timeout=5)
            with pytest.raises((PeerError, ConnectionError)):
                client.read(entry, at=0, size=100)
            client.close()
            thread.join(5)


def test_a_storage_without_files_serves_too(tmp_path: Path) -> None:
    """In memory there is nothing for `sendfile`: the same bytes are sent."""
    memory = MemoryStorage()
    with BlockingLog("m", OPTIONS, storage=memory) as core:
        for _ in range(30):
            core.append_many(items())
        with SegmentServer(core, timeout=5) as server:
            store = ReplicaStore(tmp_path / "copy", LogOptions(segment_bytes=1 << 16))
            store.accept(server.welcome())
            wanted = sealed(server.address)
            fetcher(server.address).fetch_all(store, wanted, store.install)
            store.close()
    assert Reader.open(tmp_path / "copy").lookup(20).sequence == 20


async def test_sendfile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of segments on a disk do not pass through this process."""
    calls: list[int] = []
    real = os.sendfile

    def counted(out: int, into: int, offset: int, count: int) -> int:
        calls.append(count)
        return real(out, into, offset, count)

    monkeypatch.setattr(os, "sendfile", counted)
    async with Log.open(tmp_path / "log", segment_bytes=1 << 16) as log:
        await log.append(1)
        with SegmentServer(log.core) as server, SegmentClient(server.address, timeout=5) as client:
            client.read(client.catalog()[0], at=0, size=100)
    assert calls == [100]
