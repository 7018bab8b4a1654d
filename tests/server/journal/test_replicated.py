"""Durability `replicated`: an ACK is sent when other servers' disks have it, too."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_log import Reader, Storage, limits
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import UpdateRecord
from lorogo_server import Server
from lorogo_server.journal import replication
from lorogo_server.journal.disk_journal import JournalStopped
from lorogo_server.journal.replication import chosen
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.rpc.discovery import find_servers
from tests.log.full_disk import FullDisk
from tests.server.support import QUICK, Probe, Writer, replicas_of, until

REPLICATED = replace(QUICK, durability="replicated", journal_segment_bytes=1 << 20)
names = st.lists(st.text("abcdef", min_size=1, max_size=6), unique=True, max_size=8)


@given(names, st.integers(0, 4))
def test_every_server_chooses_the_same_and_never_itself(servers: list[str], count: int) -> None:
    """The choice depends on who is there, not on who asks or in what order; it is as large as it can be."""
    for server in servers:
        one = chosen(server, servers, count)
        assert one == chosen(server, reversed(servers), count)
        assert server not in one
        assert len(one) == min(count, len(servers) - 1)


@given(names, st.text("gh", min_size=1, max_size=3))
def test_a_newcomer_moves_few(servers: list[str], newcomer: str) -> None:
    """A joining server replaces others, or none."""
    for server in servers:
        before, after = chosen(server, servers, 2), chosen(server, [*servers, newcomer], 2)
        assert set(after) - set(before) <= {newcomer}


class Fleet:
    """Servers on one NATS in memory, with their folders on the disk."""

    def __init__(self, stack: AsyncExitStack, nats: MemoryNats, folder: Path) -> None:
        self.nats = nats
        self.folder = folder
        self._stack = stack

    async def server(
        self, name: str, folder: str = "", storage: Storage | None = None, **changes: object
    ) -> Server:
        settings = replace(REPLICATED, server_id=name, **changes)  # type: ignore[arg-type]
        data = self.folder / (folder or name)
        server = Server(self.nats.connect(name), settings, data=data, storage=storage)
        return await self._stack.enter_async_context(server)

    async def probe(self) -> Probe:
        return await self._stack.enter_async_context(Probe(self.nats.connect("probe")))

    def copied(self, keeper: str, of: str) -> list[str]:
        """The log ids of the updates in a copy."""
        folder = self.folder / keeper / "replicas" / of / "00"
        if not any(folder.glob("*.seg")):
            return []
        found = [
            records.decode(record.value)
            for batch in Reader.open(folder).cursor()
            for record in batch.records()
        ]
        return [record.log_id for record in found if isinstance(record, UpdateRecord)]


@asynccontextmanager
async def fleet(folder: Path) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        yield Fleet(stack, MemoryNats(), folder)


async def test_no_ack_before_another_server_has_it(tmp_path: Path) -> None:
    """Alone, a server serves and applies but does not ACK; when a second comes, the ACK does too."""
    async with fleet(tmp_path) as world:
        one = await world.server("one")
        probe = await world.probe()
        await probe.start("doc")
        parts = probe.split(Writer().type("hello"))
        await probe.put("doc", parts)

        async def applied() -> bool:
            return await probe.value("doc") == {"body": "hello"}

        await until(applied)
        assert probe.replies.empty()
        await world.server("two")
        ack = await probe.answer()
        assert ack.log_id == parts[0].log_id
        assert ack.durability == "replicated"  # type: ignore[union-attr]
        assert world.copied("two", "one") == [parts[0].log_id]

        async def reported() -> bool:
            return one.stats()["journal_replicas"] == ["two"]

        await until(reported)


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_load_that_writes_nothing_waits_for_replicas_too(tmp_path: Path, restarted: bool) -> None:
    """Earlier content of our disk is not ACKed as replicated before others have it."""
    async with fleet(tmp_path) as world:
        one = await world.server("one")
        probe = await world.probe()
        await probe.start("doc")
        parts = probe.split(Writer().type("hello"))
        await probe.put("doc", parts)

        async def applied() -> bool:
            return await probe.value("doc") == {"body": "hello"}

        await until(applied)
        host = one.hosts["doc"]
        if restarted:
            await one.stop()
            one = await world.server("one")
        else:
            host.stop("idle")
            await host.closed.wait()
        await probe.start("doc")
        assert one.hosts["doc"].loaded.intake.head.sequence == 1
        await until(applied)
        await probe.put("doc", parts)  # and again
        assert (await probe.call("get", "doc"))["value"] == {"body": "hello"}
        assert probe.replies.empty()
        await world.server("two")
        assert (await probe.answer()).log_id == parts[0].log_id
        assert world.copied("two", "one") == [parts[0].log_id]


async def test_waiting_for_replicas_costs_little(tmp_path: Path) -> None:
    """Without replicas there is one wait per partition, and one ACK per update however often it comes."""
    async with fleet(tmp_path) as world:
        one = await world.server("one")
        probe = await world.probe()
        await probe.start("doc")
        writer = Writer()
        first = probe.split(writer.type("x"))
        await probe.put("doc", first)
        tasks = len(asyncio.all_tasks())
        for _ in range(100):
            await probe.put("doc", first)
            await probe.put("doc", probe.split(writer.type("x")))

        async def applied() -> bool:
            return await probe.value("doc") == {"body": writer.text}

        await until(applied)
        assert len(asyncio.all_tasks()) <= tasks + 10
        await world.server("two")
        answers = [await probe.answer() for _ in range(101)]
        assert len({answer.log_id for answer in answers}) == 101
        await until(lambda: _no_more(one))
        assert probe.replies.empty()


async def _no_more(server: Server) -> bool:
    await server.hosts["doc"].acks.flush(5)
    return True


async def test_a_copy_on_the_same_disk_is_none(tmp_path: Path) -> None:
    """Workers under one folder do not count for each other; one under another folder does."""
    async with fleet(tmp_path) as world:
        one = await world.server("one", folder="here/worker-0")
        two = await world.server("two", folder="here/worker-1")
        found = {server.journal_place for server in await find_servers(one.context.transport.bus)}
        assert found == {(tmp_path / "here" / "place").read_text()}
        probe = await world.probe()
        await probe.start("doc")
        parts = probe.split(Writer().type("hello"))
        await probe.put("doc", parts)
        for server in (one, two):
            await replicas_of(server).update(await find_servers(server.context.transport.bus))
            assert server.stats()["copies"] == []
        assert await probe.value("doc") == {"body": "hello"}
        assert probe.replies.empty()
        await world.server("three", folder="there/worker-0")
        assert (await probe.answer()).log_id == parts[0].log_id


async def test_the_place_may_be_configured(tmp_path: Path) -> None:
    """Servers with one `journal_place` keep no copies for each other, whatever their folders are."""
    async with fleet(tmp_path) as world:
        one = await world.server("one", journal_place="cellar")
        await world.server("two", journal_place="cellar")
        await world.server("three", journal_place="attic")
        await until(lambda: _copied(one, ["three"]))


async def _copied(server: Server, by: list[str]) -> bool:
    return server.stats()["journal_replicas"] == by


async def test_a_lost_server_is_in_the_copy(tmp_path: Path) -> None:
    """Everything that was ACKed is in another server's copy, byte for byte as it was journalled."""
    async with fleet(tmp_path) as world:
        owner = await world.server("one")
        probe = await world.probe()
        await probe.start("doc")
        await world.server("two")
        assert "doc" in owner.hosts
        writer = Writer()
        acked = [(await probe.accept("doc", writer.type(str(n)))).log_id for n in range(9)]
        assert world.copied("two", "one") == acked


async def test_a_copy_goes_on_when_its_disk_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the only copy's disk is full nothing is ACKed and the sender's server names the cause; with room
    the ACK comes, without a restart of either.
    """
    monkeypatch.setattr(limits, "FULL_SECONDS", 0.02)
    monkeypatch.setattr(replication, "_WAIT_SECONDS", 0.1)
    async with fleet(tmp_path) as world:
        one = await world.server("one")
        probe = await world.probe()
        await probe.start("doc")
        disk = FullDisk()
        two = await world.server("two", storage=disk, journal_place="elsewhere")
        writer = Writer()
        await probe.put("doc", probe.split(writer.type("hello")))
        await probe.answer()
        disk.full = True
        parts = probe.split(writer.type(" again"))
        await probe.put("doc", parts)

        async def known() -> bool:
            return "the disk is full" in str(one.stats()["journal_lacking"])

        await until(known)
        assert probe.replies.empty()
        assert "the disk is full" in str(two.stats()["copies_trouble"])
        disk.full = False
        assert (await probe.answer()).log_id == parts[0].log_id
        assert two.stats()["copies_trouble"] == {}


async def test_the_fleet_finds_itself(tmp_path: Path) -> None:
    """Three servers, one copy each wanted: every journal is copied by the server that is chosen for it."""
    async with fleet(tmp_path) as world:
        servers = {name: await world.server(name) for name in ("one", "two", "three")}
        found = await find_servers(world.nats.connect("look").bus)
        assert {server.server_id for server in found} == set(servers)
        assert all(server.journal_address for server in found)

        async def copied() -> bool:
            kept = {keeper: server.stats()["copies"] for keeper, server in servers.items()}
            return all(
                name in kept[keeper]  # type: ignore[operator]  # a list of names
                for name in servers
                for keeper in chosen(name, servers, 1)
            )

        await until(copied)


async def test_who_does_not_know_the_secret_gets_no_copy(tmp_path: Path) -> None:
    """With a secret, another host on the network neither reads the journal nor counts as a replica."""
    async with fleet(tmp_path) as world:
        one = await world.server("one", journal_secret="open sesame")
        stranger = await world.server("two", journal_secret="guess")
        probe = await world.probe()
        await probe.start("doc")
        await probe.put("doc", probe.split(Writer().type("x")))

        async def refused() -> bool:
            return bool(stranger.stats()["copies_trouble"])

        await until(refused)
        assert probe.replies.empty()
        assert one.stats()["journal_replicas"] == []


async def test_a_port_that_is_taken_is_said_in_a_sentence(tmp_path: Path) -> None:
    """The server does not start half: the journal's lock is free again afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with fleet(tmp_path) as world:
            with pytest.raises(JournalStopped, match=r"cannot serve the journal on .*in use; choose another"):
                await world.server("one", journal_port=port)
            await world.server("one")
            await asyncio.sleep(0)
