"""Servers whose journals tell of different lives of a document: what was ACKed last counts."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from lorogo_protocol.calls import Refused as CallRefused
from lorogo_server import Server
from lorogo_server.facts import SnapshotFacts
from tests.server.support import QUICK, Writer
from tests.server.test_reconcile import SNAPSHOTS, STATUS, WAL, World, reconciled

ALONE = replace(QUICK, reconcile_every_seconds=3600.0)  # it compares when a test says so


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        made = World(stack, tmp_path / "none")
        await made.begin()
        yield made


async def machine(world: World, name: str) -> Server:
    """A server with a disk of its own, after it has compared."""
    world.data = world.data.parent / name
    return await reconciled(await world.server(settings=ALONE))


async def facts(server: Server) -> SnapshotFacts:
    head = await server.context.snapshots.head("doc")
    assert head is not None
    return SnapshotFacts.parse(head.facts)


async def deleted_at_one(world: World) -> None:
    """`one` wrote and deleted `doc`; NATS lost all."""
    one = await machine(world, "one")
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("delete", "doc")
    await one.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)


async def new_life_at_two(world: World) -> None:
    """`one` wrote and deleted `doc`, `two` has ACKed a new beginning of it; NATS lost all, each time."""
    await deleted_at_one(world)
    two = await machine(world, "two")
    await world.probe.start("doc")
    await world.probe.accept("doc", Writer().type("anew"))
    await two.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)


async def test_a_tombstone_of_before_does_not_bury_what_was_acked_since(world: World) -> None:
    """The server that compares first knows only of the deletion; the other one contradicts it."""
    await new_life_at_two(world)
    one = await machine(world, "one")
    assert (await facts(one)).deleted
    await one.stop()
    two = await machine(world, "two")
    found = await facts(two)
    assert (found.deleted, found.generation) == (False, 1)
    await world.probe.start("doc")
    assert await world.probe.value("doc") == {"body": "anew"}


@pytest.mark.parametrize("forgotten", [False, True], ids=["", "table-lost"])
async def test_nothing_of_the_former_life_comes_with_it(world: World, forgotten: bool) -> None:
    """Neither from the journal that knows of the deletion, nor from one that knows nothing of it."""
    three = await machine(world, "three")
    await world.probe.start("doc")
    await world.write(5)
    await three.stop()
    await new_life_at_two(world)
    await (await machine(world, "one")).stop()
    for name in ("two", "three", "one", "two", "three"):
        if forgotten:
            for table in (world.data.parent / name).rglob("reconciled"):
                table.unlink()
        server = await machine(world, name)
        assert not (await facts(server)).deleted
        await world.probe.start("doc")
        assert await world.probe.value("doc") == {"body": "anew"}
        await server.stop()


async def test_a_deletion_that_is_asked_for_again_stands(world: World) -> None:
    """Whoever finds it deleted and says so again means what was written since, too."""
    await new_life_at_two(world)
    one = await machine(world, "one")
    await world.probe.start("doc")
    await world.probe.call("delete", "doc")
    await one.stop()
    two = await machine(world, "two")
    assert (await facts(two)).deleted
    await two.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    await (await machine(world, "one")).stop()
    assert (await facts(await machine(world, "two"))).deleted


async def test_a_tombstone_of_before_does_not_bury_what_was_restored(world: World) -> None:
    """The deletion is in one journal, the restore in another; the first of them compares first."""
    one = await machine(world, "one")
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("delete", "doc")
    await one.stop()
    two = await machine(world, "two")
    await world.probe.start("doc")
    await world.probe.call("restore", "doc")
    await world.write(5)
    await two.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    one = await machine(world, "one")
    assert (await facts(one)).deleted
    await world.probe.start("doc")
    with pytest.raises(CallRefused):
        await world.probe.value("doc")
    await one.stop()
    two = await machine(world, "two")
    found = await facts(two)
    assert (found.deleted, found.generation) == (False, 1)
    await reconciled(two)
    await world.is_whole()


async def test_a_restore_is_known_though_somebody_opened_what_was_left(world: World) -> None:
    """NATS lost it, an owner who had not heard of it began anew: the generation is brought back, too."""
    one = await machine(world, "one")
    await world.probe.start("doc")
    await world.write(5)
    await world.probe.call("delete", "doc")
    await world.probe.call("restore", "doc")
    await one.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    two = await machine(world, "two")
    await world.probe.start("doc")
    assert (await facts(two)).generation == 0
    one = await machine(world, "one")
    await reconciled(one)
    assert (await facts(two)).generation == 1
    await world.is_whole()
    await world.write(2)
    await world.probe.call("compact", "doc")
    assert (await facts(two)).generation == 1
    await world.is_whole()
