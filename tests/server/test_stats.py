"""Statistics of a server."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

from lorogo_protocol.journal.latency import COUNTS_MAX
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Up
from lorogo_server import Server
from tests.server.support import QUICK, Probe, Serve, Writer, until


async def test_bytes_and_latencies_are_counted_since_the_start(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """Bytes are those of accepted updates; each ACK and each sync of the journal is in one of the counts."""
    server = await serve()
    await probe.start(unique)
    author = Writer()
    sent = [author.type(f"word {number} ") for number in range(5)]
    for update in sent:
        await probe.accept(unique, update)
    stats = server.stats()
    assert stats["accepted_bytes"] == sum(map(len, sent))
    acks, syncs = stats["ack_us_counts"], stats["journal_sync_us_counts"]
    assert isinstance(acks, list)
    assert isinstance(syncs, list)
    assert sum(acks) == stats["acked"] == 5
    assert sum(syncs) >= 1
    assert max(len(acks), len(syncs)) <= COUNTS_MAX
    assert acks[-1]
    sums = stats["ack_us_sum"], stats["journal_sync_us_sum"]
    assert all(isinstance(one, int) and one >= 0 for one in sums)


async def test_waiting_items_are_counted_and_go_back_to_zero(serve: Serve, probe: Probe, unique: str) -> None:
    """Messages that are not taken yet, ACKs that wait for the disk, loads that wait for a slot."""
    server = await serve()
    await probe.start(unique)
    author = Writer()
    host = server.hosts[unique]
    async with host.busy:  # nothing is taken meanwhile
        parts = probe.split(author.type("hello"))
        await probe.put(unique, parts)

        async def queued() -> bool:
            return bool(server.stats()["intake_waiting"])

        await until(queued)
        assert server.stats()["intake_waiting_bytes"] == sum(len(part.data) for part in parts)
    await probe.answer()

    async def calm() -> bool:
        stats = server.stats()
        names = ("intake_waiting", "intake_waiting_bytes", "acks_waiting", "loads_waiting", "journal_waiting")
        return not any(stats[name] for name in names)

    assert await until(calm)
    assert server.stats()["documents_up"] == 1


async def test_loads_beyond_the_limit_wait_and_are_counted(serve: Serve, probe: Probe, unique: str) -> None:
    """A slot that is taken lets the next load wait, and the figure counts it until it is free."""
    server = await serve()
    slots = server.context.load_slots
    for _ in range(server.settings.loads_max):
        await slots.acquire()
    starting = asyncio.create_task(probe.start(unique))

    async def waits() -> bool:
        return server.stats()["loads_waiting"] == 1

    await until(waits)
    for _ in range(server.settings.loads_max):
        slots.release()
    await starting
    assert server.stats()["loads_waiting"] == 0
    assert server.stats()["documents_up"] == 1


async def test_snapshot_bytes_are_those_of_open_documents(serve: Serve, probe: Probe, unique: str) -> None:
    """As stored: the size of the compaction."""
    server = await serve()
    await probe.start(unique)
    await probe.accept(unique, Writer().type("some content" * 20))
    assert server.stats()["snapshot_bytes"] == 0
    stored = await probe.call("compact", unique)
    assert server.stats()["snapshot_bytes"] == stored["snapshot_bytes"] != 0


async def test_a_document_of_a_server_that_is_gone_is_a_takeover(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """From whom, which document and when; a plain start and one after DOWN are none."""
    server = await serve()
    await probe.start(f"{unique}-plain")
    assert (server.stats()["takeovers"], server.stats()["last_takeovers"]) == (0, [])
    await probe.statuses.write(unique, Up("gone", 1), expected_revision=0, server="gone", lease=7)
    await probe.init(unique, b"")  # no client waits for its pings: the server makes the move itself
    await probe.until_up(unique)
    stats = server.stats()
    assert stats["takeovers"] == 1
    rows: Any = stats["last_takeovers"]
    ((document, before, time_ns),) = rows
    assert (document, before) == (unique, "gone")
    assert abs(time_ns - server.context.clock.wall_ns()) < 60e9
    assert stats["loads"] == 2


async def test_its_own_stale_status_is_no_takeover(serve: Serve, probe: Probe, unique: str) -> None:
    """A server that was killed and came back under its id takes nothing from other servers."""
    server = await serve()
    mine = server.server_id
    await probe.statuses.write(unique, Up(mine, 1), expected_revision=0, server=mine, lease=7)
    await probe.init(unique, b"")
    await probe.until_up(unique)
    assert server.stats()["takeovers"] == 0


async def test_who_is_named_as_the_server_before_must_be_a_name(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """Any client with rights on the bucket may write that header: nonsense is not repeated."""
    server = await serve()
    operation = await probe.move(unique)
    entry = await probe.status(unique)
    stream = probe.transport.stream(subjects.STATUS_STREAM)
    stored = await stream.last(subjects.status_key(unique))
    assert stored is not None
    odd = {**stored.headers, "LORO_TAKEN_FROM": "no name at all " * 50}
    await stream.append(subjects.status_key(unique), stored.data, headers=odd, expected_last=entry.revision)
    await probe.init(unique, operation.encode())
    await probe.until_up(unique)
    assert server.stats()["last_takeovers"] == []


async def test_history_counts_operations_when_it_is_asked_to(serve: Serve, probe: Probe, unique: str) -> None:
    """The number up to each version, on request only."""
    await serve()
    await probe.start(unique)
    author = Writer()
    await probe.accept(unique, author.type("12345"))
    answer: Any = await probe.call("history", unique, operations=True)
    (version,) = answer["versions"]
    assert version["operations"] == 5
    plain: Any = await probe.call("history", unique)
    assert "operations" not in plain["versions"][0]


async def test_the_journals_files_are_measured(serve: Serve, tmp_path: Path) -> None:
    """The size as `du` shows it, not all bytes ever written."""
    server: Server = await serve(QUICK, data=tmp_path, storage=None)
    assert server.journal is not None
    journal = server.journal

    async def measured() -> bool:
        """The next segment may be prepared just now, and a file may take its last name."""
        await journal.measure()
        try:
            sizes = [place.stat().st_size for place in (tmp_path / "journal").rglob("*") if place.is_file()]
        except FileNotFoundError:
            return False
        return server.stats()["journal_disk_bytes"] == sum(sizes) > 0

    await until(measured)


async def test_the_journals_disk_is_measured(serve: Serve, tmp_path: Path) -> None:
    """Its free space and size, as the system reports; nothing before the first sample."""
    server: Server = await serve(QUICK, data=tmp_path, storage=None)
    assert server.journal is not None
    server.journal.disk_free_bytes = server.journal.disk_size_bytes = None
    assert server.stats()["disk_size_bytes"] is None
    await server.journal.measure()
    stats: Any = server.stats()
    assert stats["disk_size_bytes"] == shutil.disk_usage(tmp_path).total
    assert 0 < stats["disk_free_bytes"] <= stats["disk_size_bytes"]
