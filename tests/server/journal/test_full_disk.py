"""A server whose disk is full: it closes its documents, and continues when there is room."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from lorogo_chaos.errors import FaultUnavailable
from lorogo_chaos.processes.disks import SmallDisk
from lorogo_client import NotServed, ServerFull
from lorogo_gateway.metrics.health import health
from lorogo_log import Reader, limits
from lorogo_log.recovery.recovery import RecoveryMode, recover
from lorogo_log.storage.disk import FileStorage
from lorogo_protocol.messages.replies import Ack
from lorogo_protocol.status import Down
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import QUICK as CLIENT
from tests.client.support import client_of, new_world
from tests.log.full_disk import FullDisk
from tests.server.support import QUICK, Probe, Writer, until


class Full:
    """Servers with such disks on one NATS in memory."""

    def __init__(self, stack: AsyncExitStack, nats: MemoryNats, probe: Probe) -> None:
        self.nats, self.probe, self._stack = nats, probe, stack
        self.writer = Writer()

    async def server(self, name: str = "one", partitions: int = 1) -> tuple[Server, FullDisk]:
        disk = FullDisk()
        settings = replace(QUICK, server_id=name, journal_partitions=partitions)
        made = Server(self.nats.connect(name), settings, data=Path(name), storage=disk)
        return await self._stack.enter_async_context(made), disk

    async def fill(self, server: Server, disk: FullDisk) -> str:
        """Fill its disk under an edit of `doc`; the log id of the edit, which is not ACKed."""
        disk.full = True
        parts = self.probe.split(self.writer.type("not ACKed yet "))
        await self.probe.put("doc", parts)

        async def noticed() -> bool:
            return server.readiness.full and not server.hosts

        await until(noticed)
        return parts[0].log_id


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Full]:
    monkeypatch.setattr(limits, "FULL_SECONDS", 0.02)
    async with AsyncExitStack() as stack:
        nats = await new_world()
        probe = await stack.enter_async_context(Probe(nats.connect("probe")))
        yield Full(stack, nats, probe)


async def _is_ready(server: Server) -> bool:
    return server.ready


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_server_goes_on_when_its_disk_has_room(world: Full, partitions: int) -> None:
    """The document is DOWN meanwhile; then it is loaded, what was not ACKed is journalled from the WAL and
    ACKed, and nothing speaks of a stopped journal or of damage.
    """
    server, disk = await world.server(partitions=partitions)
    await world.probe.start("doc")
    await world.probe.accept("doc", world.writer.type("before "))
    log_id = await world.fill(server, disk)
    assert isinstance((await world.probe.status("doc")).status, Down)
    assert world.probe.replies.empty()
    assert (server.ready, server.readiness.broken, server.readiness.hindrances) == (
        False,
        False,
        ("journal-full",),
    )
    (first, *_) = health(server.stats(), 0)
    assert first.startswith("JOURNAL FULL (the journal waits for room: no space left on the disk of one/")
    disk.full = False
    await until(lambda: _is_ready(server))
    await world.probe.start("doc")
    while (ack := await world.probe.answer()).log_id != log_id:
        pass  # the new owner sends older ones again
    assert isinstance(ack, Ack)
    assert await world.probe.value("doc") == {"body": world.writer.text}
    stats = server.stats()
    assert (stats["journal"], stats["journal_damage"]) == ("open", 0)
    await server.stop()
    for number in range(partitions):
        directory = disk.directory(f"one/journal/{number:02d}", create=False)
        found = recover(directory, RecoveryMode.STRICT)
        assert (found.damage, found.torn) == ([], [])
        list(Reader(directory).read())


async def test_the_client_is_given_the_real_cause(world: Full) -> None:
    """No server takes the document because a disk is full: opening it, a call and the session report that."""
    server, disk = await world.server()
    async with client_of(world.nats, replace(CLIENT, open_seconds=0.3)) as client:
        async with client.open("doc") as session:
            text = session.doc.get_text("body")
            disk.full = True
            text.insert(0, "kept ")
            session.commit()

            async def said() -> bool:
                return isinstance(session.problem, ServerFull)

            await until(said)
            with pytest.raises(NotServed, match="the disk of server one is full"):
                await client.document("other").get(timeout=10)
            disk.full = False
            await session.flush(timeout=10)

            async def fine() -> bool:
                return session.problem is None

            await until(fine)
            assert server.ready
        assert (await client.document("doc").get())["value"] == {"body": "kept "}


async def test_another_server_takes_the_documents_and_every_init(world: Full) -> None:
    """A server that cannot journal takes no init while another server is there."""
    one, disk = await world.server("one")
    await world.probe.start("doc")
    await world.fill(one, disk)
    two, _ = await world.server("two")

    async def steps_aside() -> bool:
        return one._inits is not None and not one._inits.active

    await until(steps_aside)
    for number in range(10):
        await world.probe.start(f"doc-{number}")
    assert len(two.hosts) == 10
    assert not one.hosts


async def test_a_disk_that_is_full_again_is_waited_for_again(world: Full) -> None:
    """However often."""
    server, disk = await world.server()
    for _ in range(3):
        await world.probe.start("doc")
        log_id = await world.fill(server, disk)
        disk.full = disk.refused = False
        await until(lambda: _is_ready(server))
        await world.probe.start("doc")
        while (await world.probe.answer()).log_id != log_id:
            pass
    assert await world.probe.value("doc") == {"body": world.writer.text}


async def test_a_real_disk_is_filled_and_freed(tmp_path: Path) -> None:
    """On a file system of 16 MiB: ACKs stop, and come again without a restart; `verify` and status agree."""
    disk = SmallDisk(tmp_path / "data", 16 << 20)
    try:
        await disk.mount()
    except FaultUnavailable as error:
        pytest.skip(str(error))
    try:
        nats, settings = MemoryNats(), replace(QUICK, journal_segment_bytes=1 << 20)
        async with (
            Server(nats.connect(), settings, data=disk.folder) as server,
            Probe(nats.connect()) as probe,
        ):
            writer = Writer()
            await probe.start("doc")
            await probe.accept("doc", writer.type("before "))
            await asyncio.to_thread(disk.fill)
            while not server.readiness.full:
                await probe.put("doc", probe.split(writer.type("x" * 20_000)))
                await asyncio.sleep(0)
            disk.free()
            await until(lambda: _is_ready(server))
            await probe.start("doc")
            await probe.accept("doc", writer.type("after"))
            assert await probe.value("doc") == {"body": writer.text}
            assert server.stats()["journal_damage"] == 0
        found = recover(
            FileStorage().directory(disk.folder / "journal" / "00", create=False), RecoveryMode.STRICT
        )
        assert (found.damage, found.torn) == ([], [])
        assert not list((disk.folder / "journal" / "00").glob("*.broken"))
    finally:
        await disk.unmount()
