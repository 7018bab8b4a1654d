"""Servers whose journals tell of different lives of a document: what was ACKed last counts."""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from loro import ExportMode

from lorogo_protocol.journal import incarnation
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused as CallRefused
from lorogo_server import Server
from lorogo_server.journal.journal_scan import JournalFolder
from lorogo_server.recovery.document_comparison import StoredDocumentState
from lorogo_server.recovery.journal_reader import JournalReader
from lorogo_server.recovery.reconcile import Reconciler
from lorogo_server.recovery.restore_run import RestoreRequest
from lorogo_server.snapshot_metadata import SnapshotMetadata
from tests.server.recovery.test_reconcile import SNAPSHOTS, STATUS, WAL, World, figures, reconciled
from tests.server.recovery.test_restore_sources import restored
from tests.server.support import QUICK, Writer, so, until
from tests.server.worlds import ShiftedClock

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


async def facts(server: Server) -> SnapshotMetadata:
    head = await server.context.snapshots.head("doc")
    assert head is not None
    return SnapshotMetadata.parse(head.facts)


async def value(world: World) -> object:
    await world.probe.start("doc")
    return await world.probe.value("doc")


async def visit(world: World, name: str, *steps: str) -> None:
    """A server of that name serves `doc`, somebody does that with it, and the server stops."""
    server = await machine(world, name)
    await world.probe.start("doc")
    for step in steps:
        match step:
            case "write":
                await world.write(5)
            case "anew":
                await world.probe.accept("doc", Writer().type("anew"))
            case verb:
                await world.probe.call(verb, "doc")
    await server.stop()


async def deleted_at_one(world: World) -> None:
    """`one` wrote and deleted `doc`; NATS lost all."""
    await visit(world, "one", "write", "delete")
    world.lose(WAL, SNAPSHOTS, STATUS)


async def new_life_at_two(world: World) -> None:
    """`one` wrote and deleted `doc`, `two` has ACKed a new beginning of it; NATS lost all, each time."""
    await deleted_at_one(world)
    await visit(world, "two", "anew")
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


async def test_a_restore_purges_nothing_that_was_brought_back(world: World) -> None:
    """Its owner knows only of the deletion, and refuses what another server publishes again: that stays."""
    await new_life_at_two(world)
    one = await machine(world, "one")
    await world.probe.start("doc")
    await machine(world, "two")
    kept = await one.context.wal.subjects(subjects.wal("doc"))
    assert kept
    with pytest.raises(CallRefused, match="loaded again"):
        await world.probe.call("restore", "doc")
    assert await one.context.wal.subjects(subjects.wal("doc")) == kept
    await until(lambda: _reads(world, {"body": "anew"}))


async def _reads(world: World, wanted: object) -> bool:
    try:
        return await world.probe.value("doc") == wanted
    except CallRefused:
        return False


@pytest.mark.parametrize("forgotten", [False, True], ids=["", "table-lost"])
async def test_nothing_of_the_former_life_comes_with_it(world: World, forgotten: bool) -> None:
    """Neither from the journal that knows of the deletion, nor from one that knows nothing of it."""
    await visit(world, "three", "write")
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


async def test_a_repeated_deletion_ends_only_what_its_owner_knew(world: World) -> None:
    """Edits of an absent server's journal live when it returns, although the deletion was requested again."""
    await new_life_at_two(world)
    await visit(world, "one", "delete")
    two = await machine(world, "two")
    assert not (await facts(two)).deleted
    await reconciled(two)
    assert await value(world) == {"body": "anew"}


async def test_a_tombstone_of_before_does_not_bury_what_was_restored(world: World) -> None:
    """The deletion is in one journal, the restore in another; the first of them compares first."""
    await visit(world, "one", "write", "delete")
    await visit(world, "two", "restore", "write")
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
    await visit(world, "one", "write", "delete", "restore")
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


@pytest.mark.parametrize("again", [False, True], ids=["another document", "the same document"])
async def test_a_restore_lives_although_a_later_deletion_did_not_know_it(world: World, again: bool) -> None:
    """NATS lost the restore; a server without it deleted what it knew. The journal of the restore returns."""
    if again:
        await visit(world, "one", "write", "delete")
        await visit(world, "two", "restore")
        world.lose(WAL, SNAPSHOTS, STATUS)
        await visit(world, "one", "delete")
        returned = await reconciled(await machine(world, "two"))
    else:
        await visit(world, "one", "write", "delete", "restore")
        world.lose(WAL, SNAPSHOTS, STATUS)
        await visit(world, "two", "anew", "delete")
        returned = await reconciled(await machine(world, "one"))
    assert not (await facts(returned)).deleted
    assert "anew" not in str(await value(world))


@pytest.mark.parametrize("both", [False, True], ids=["another's journal", "the same journal"])
async def test_what_was_acked_after_the_deletion_of_a_restored_document(world: World, both: bool) -> None:
    """Its generation is lower than that of the deletion, and it came later."""
    await visit(world, "one", "write", "delete", "restore", "delete")
    world.lose(WAL, SNAPSHOTS, STATUS)
    await visit(world, "two", "anew")
    if both:
        one = await machine(world, "one")
        assert await value(world) == {"body": "anew"}
        await world.probe.accept("doc", Writer().type("more "))
        await one.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    await (await machine(world, "one")).stop()
    await reconciled(await machine(world, "two"))
    assert "anew" in str(await value(world))


async def test_the_end_of_the_past_outlives_nats(world: World) -> None:
    """A base is all that is left of the new life, or the table is lost: whoever was away brings nothing."""
    await visit(world, "three", "write")
    await new_life_at_two(world)
    await (await machine(world, "one")).stop()
    two = await reconciled(await machine(world, "two"))
    assert await value(world) == {"body": "anew"}
    await world.probe.call("compact", "doc")
    await two.stop()
    four = await machine(world, "four")
    assert await value(world) == {"body": "anew"}
    await four.stop()
    one = await machine(world, "one")
    assert await value(world) == {"body": "anew"}
    await one.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    for table in world.data.parent.rglob("reconciled"):
        table.unlink()
    for name in ("four", "three", "one"):
        server = await reconciled(await machine(world, name))
        assert await value(world) == {"body": "anew"}
        await server.stop()


async def test_the_past_stays_away_from_a_life_that_nobody_contradicted(world: World) -> None:
    """Who knows of the deletion says where it ends, so that who does not brings nothing back."""
    await visit(world, "three", "write")
    await deleted_at_one(world)
    await visit(world, "two", "anew")
    one = await machine(world, "one")
    assert figures(one, "tombstones_contradicted") == (1,)
    await one.stop()
    await reconciled(await machine(world, "three"))
    assert await value(world) == {"body": "anew"}


@pytest.mark.parametrize("passes", [1, 3])
async def test_what_was_erased_is_not_revived_for_good(world: World, passes: int) -> None:
    """The server that knows of the erasure comes last, and ends what others have brought back.

    Nobody opens it before that without being asked, however often they compare: an owner would be a new life.
    """
    await new_life_at_two(world)
    await (await machine(world, "two")).stop()
    three = await machine(world, "three")
    assert await value(world) == {"body": "anew"}
    await world.probe.call("delete", "doc", purge=True)
    await three.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    for name in ("one", "two"):
        server = await machine(world, name)
        for _ in range(passes - 1):
            await reconciled(server)
        await world.probe.bus.barrier()
        await server.stop()
    three = await reconciled(await machine(world, "three"))
    assert (await facts(three)).erased_ns


async def test_what_was_deleted_again_is_no_alarm(world: World) -> None:
    """Its new life ended as it should."""
    await new_life_at_two(world)
    two = await machine(world, "two")
    assert await value(world) == {"body": "anew"}  # served, so that its snapshot is stored
    await two.stop()
    one = await machine(world, "one")
    await world.probe.start("doc")
    await world.probe.accept("doc", Writer().type("more"))
    await world.probe.call("delete", "doc")
    await one.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    one = await machine(world, "one")
    assert (await facts(one)).deleted
    assert figures(one, "tombstones_contradicted") == (0,)


@pytest.mark.parametrize("revived", [False, True])
async def test_a_restore_from_journals_keeps_lives_apart(world: World, revived: bool) -> None:
    """What it stores can be contradicted, and has nothing of a past that ended."""
    await new_life_at_two(world)
    if revived:
        await (await machine(world, "one")).stop()
        two = await reconciled(await machine(world, "two"))
        assert await value(world) == {"body": "anew"}
        await two.stop()
        world.lose(WAL, SNAPSHOTS, STATUS)
    folder = world.data.parent
    await restored(folder, world.nats, folder / "one", folder / "two")
    await reconciled(await machine(world, "two"))
    assert await value(world) == {"body": "anew"}


async def test_an_empty_document_that_was_restored_lives_by_its_snapshot(world: World) -> None:
    """NATS loses it while the document is open: its owner stores it again, though no journal has an edit."""
    server = await machine(world, "one")
    await world.probe.start("doc")
    for verb in ("delete", "restore"):
        await world.probe.call(verb, "doc")
    world.nats.store(SNAPSHOTS).purge(">", None)
    assert await server.context.snapshots.head("doc") is None
    await reconciled(server)
    assert server.hosts["doc"].state.memory_is_only_copy
    await world.probe.call("compact", "doc")
    found = await facts(server)
    assert (found.deleted, found.generation) == (False, 1)


async def test_who_lists_late_takes_a_restore_for_no_new_life(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that lags shows the document as it was before the deletion; it was restored since."""
    await visit(world, "one", "write", "delete")
    await visit(world, "two", "restore")
    one = await machine(world, "one")

    async def lagging(_: Reconciler) -> dict[str, StoredDocumentState]:
        return {"doc": StoredDocumentState(revision=1, messages=5)}

    assert one.reconciler is not None
    one.reconciler.table.forget_complete()
    with monkeypatch.context() as patch:
        patch.setattr(Reconciler, "_listed", lagging)
        await reconciled(one)
    found = await facts(one)
    assert (found.generation, found.tombstone, found.ended) == (1, "", ())
    assert await value(world) == {"body": world.writer.text}


@pytest.mark.parametrize("how", ["restored", "table-lost", "table-old", "table-kept"])
async def test_tokens_are_found_in_the_journals_if_the_clock_of_nats_went_back(
    world: World, how: str
) -> None:
    """NATS lost all, and one with a slow clock took its place: what is ACKed since is later all the same."""
    nats_clock, world.clock = world.clock, ShiftedClock()
    one = await machine(world, "one")
    await world.probe.start("doc")
    await world.write(2)
    await world.probe.call("delete", "doc")
    if how == "table-kept":
        await reconciled(one)
    await one.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    nats_clock.ahead = -3600.0
    folder = world.data.parent
    if how == "restored":
        await restored(folder, world.nats, folder / "one")
    if how == "table-lost":
        for table in folder.rglob("reconciled"):
            table.unlink()
    one = await machine(world, "one")
    assert (await facts(one)).deleted
    await world.probe.start("doc")
    await world.probe.call("restore", "doc")
    await reconciled(one)
    await world.probe.accept("doc", Writer().type("after the restore "))
    await one.stop()
    one = await reconciled(await machine(world, "one"))
    assert not (await facts(one)).deleted
    assert "after the restore" in str(await value(world))


async def test_an_erasure_waits_for_whoever_serves_a_new_life(world: World) -> None:
    """NATS lost the snapshot of what somebody opened anew: its owner stores it, and nothing is purged."""
    one = await machine(world, "one")
    await world.probe.start("doc")
    await world.probe.call("delete", "doc", purge=True)
    await one.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    two = await machine(world, "two")
    await world.probe.start("doc")
    await world.probe.accept("doc", Writer().type("anew"))
    one = await machine(world, "one")
    world.nats.store(SNAPSHOTS).purge(">", None)
    for server in (one, two, one, two):
        await reconciled(server)
    await until(lambda: _stored(one))
    await reconciled(one)
    assert not (await facts(one)).deleted
    assert await world.probe.value("doc") == {"body": "anew"}


async def _stored(server: Server) -> bool:
    return await server.context.snapshots.head("doc") is not None


@pytest.mark.parametrize("ahead", [0.0, -3600.0], ids=["", "slow-clock"])
async def test_what_was_erased_goes_again_with_a_tombstone_of_before(world: World, ahead: float) -> None:
    """Whoever erased it may have a slow clock: an erasure is dated by NATS's, as the deletion was."""
    await visit(world, "one", "write", "delete")
    before = copy.deepcopy(world.nats.stores[SNAPSHOTS])
    world.clock = ShiftedClock(ahead)
    two = await machine(world, "two")
    await world.probe.start("doc")
    await world.probe.call("delete", "doc", purge=True)
    await two.stop()
    world.nats.stores[SNAPSHOTS] = before
    assert (await facts(await machine(world, "two"))).erased_ns


@pytest.mark.parametrize("first", ["one", "two"], ids=["deletion first", "edits first"])
async def test_edits_of_a_token_that_was_given_out_twice_live(world: World, first: str) -> None:
    """NATS lost the end of every stream: the deletion has the higher token, and does not name their term."""
    one = await machine(world, "one")
    await world.probe.start("first")
    ends = {name: world.nats.store(name).state(0).last_sequence for name in (STATUS, SNAPSHOTS, WAL)}
    for number in range(5):
        await world.probe.start(f"other-{number}")
    await world.probe.start("doc")
    await world.write(2)
    await world.probe.call("delete", "doc")
    await one.stop()
    for name, last in ends.items():
        world.nats.store(name).rewind(last)
    await visit(world, "two", "anew")
    for name in (first, "two" if first == "one" else "one"):
        server = await reconciled(await machine(world, name))
        await server.stop()
    two = await reconciled(await machine(world, "two"))
    assert not (await facts(two)).deleted
    assert await value(world) == {"body": "anew"}


async def test_a_restore_has_the_content_that_nats_lost_with_the_tombstone(world: World) -> None:
    """The tombstone comes back without content if NATS lost everything: the journals have it."""
    await visit(world, "one", "write", "delete")
    world.lose(WAL, SNAPSHOTS, STATUS)
    await machine(world, "one")
    await world.probe.start("doc")
    await world.probe.call("restore", "doc")
    assert await world.probe.value("doc") == {"body": world.writer.text}


async def test_edits_after_a_rewind_behind_a_deletion_live(world: World) -> None:
    """NATS went back to before the deletion, another server edits, the deleting server returns."""
    one = await machine(world, "one")
    await world.probe.start("doc")
    await world.write(2)
    await one.stop()
    before = copy.deepcopy(world.nats.stores)
    await visit(world, "one", "delete")
    world.nats.stores = before
    two = await machine(world, "two")
    await world.probe.start("doc")
    other = Writer(world.writer.everything())
    await world.probe.accept("doc", other.type("anew "))
    await two.stop()
    one = await reconciled(await machine(world, "one"))
    assert not (await facts(one)).deleted
    assert await value(world) == {"body": other.text}


async def test_what_a_new_life_took_from_the_wal_comes_back_with_it(world: World) -> None:
    """The WAL was not purged, and its tombstone is lost: edits of the new life build on what was deleted."""
    one = await machine(world, "one")
    await world.probe.start("doc")
    await world.write(5)
    kept = copy.deepcopy(world.nats.stores[WAL])
    await world.probe.call("delete", "doc")
    await one.stop()
    world.lose(SNAPSHOTS, STATUS)
    world.nats.stores[WAL] = kept
    two = await machine(world, "two")
    await world.probe.start("doc")
    other = Writer(world.writer.everything())
    await world.probe.accept("doc", other.type("anew"))
    await two.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    await (await machine(world, "one")).stop()
    two = await machine(world, "two")
    assert not (await facts(two)).deleted
    await world.probe.start("doc")
    await reconciled(two)
    await until(lambda: _reads(world, {"body": other.text}))
    assert two.stats()["reconcile_waiting"] == 0


@pytest.mark.parametrize("cut", [False, True], ids=["", "reconnected"])
async def test_a_server_starts_on_an_empty_nats_beside_a_journal_that_cannot_be_read(
    world: World, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass tells of it. They are read once for their tokens, also if the line is cut meanwhile."""
    await (await world.server(settings=ALONE)).stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    line, reads = world.nats.connect("server"), 0

    async def fails(self: Reconciler) -> list[JournalFolder]:
        nonlocal reads
        reads += 1
        if cut:
            line.cut()
            line.heal()
            await asyncio.sleep(0.05)  # the reconnect looks at the streams, too
        raise OSError(5, "it cannot be read")

    monkeypatch.setattr(JournalReader, "read", fails)
    async with Server(line, ALONE, clock=world.clock, data=world.data / "worker-1") as server:
        assert reads == 1
        assert (await server.context.wal.state()).last_sequence == 0


async def test_streams_are_made_anew_while_a_pass_is_under_way(world: World) -> None:
    """It may wait for them, or for another worker's turn: a reconnect does not wait for it."""
    server, line = await world.server_and_line(settings=ALONE)
    await reconciled(server)
    assert server.reconciler is not None
    async with server.reconciler._passing:
        line.cut()
        world.lose(WAL, SNAPSHOTS, STATUS)
        line.heal()
        await until(lambda: so(STATUS in world.nats.stores))


@pytest.mark.parametrize("begun", ["forked", "restored"])
async def test_a_deletion_ends_what_was_forked_or_restored_many_owners_ago(
    world: World, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    """The server that forked or restored it was away, and does not revive it."""
    monkeypatch.setattr(incarnation, "ANCESTORS_MAX", 2)
    if begun == "forked":
        one = await machine(world, "one")
        await world.probe.start("source")
        await world.write(2, "source")
        await world.probe.call("fork", "source", to="doc")
        await one.stop()
    else:
        await visit(world, "one", "write", "delete", "restore")
    await visit(world, "two")
    await visit(world, "two")
    await visit(world, "two", "delete")
    one = await reconciled(await machine(world, "one"))
    assert (await facts(one)).deleted


@pytest.mark.parametrize("lost", [False, True], ids=["stored", "NATS lost it"])
async def test_an_import_lives_beside_an_old_deletion_of_the_same_content(world: World, lost: bool) -> None:
    """NATS lost the tombstone, somebody imported a copy, and the server that knows the deletion returns."""
    await deleted_at_one(world)
    two = await machine(world, "two")
    await world.probe.start("doc")
    await world.probe.call("import", "doc", payload=world.writer.doc.export(ExportMode.Snapshot()))
    await two.stop()
    if lost:
        world.lose(WAL, SNAPSHOTS, STATUS)
    await machine(world, "one")
    two = await reconciled(await machine(world, "two"))
    assert not (await facts(two)).deleted
    await world.is_whole()


async def test_a_restored_import_lives_beside_an_old_deletion_of_the_same_content(world: World) -> None:
    """`lorogo restore` keeps its term: the journals that it read may be gone when the server returns."""
    await deleted_at_one(world)
    two = await machine(world, "two")
    await world.probe.start("doc")
    await world.probe.call("import", "doc", payload=world.writer.doc.export(ExportMode.Snapshot()))
    await two.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    folder = world.data.parent
    await restored(folder, world.nats, folder / "two")
    assert not (await facts(await machine(world, "one"))).deleted
    await world.is_whole()


async def test_a_document_restored_under_another_id_lives_beside_an_old_deletion_there(world: World) -> None:
    """It was restored under that id and deleted before, NATS lost all, and only an absent server knows."""
    await visit(world, "two", "write")
    world.lose(WAL, SNAPSHOTS, STATUS)
    folder = world.data.parent
    copy = RestoreRequest(document="doc", to="copy")
    await restored(folder, world.nats, folder / "two", wanted=copy)
    one = await machine(world, "one")
    await world.probe.start("copy")
    await world.probe.call("delete", "copy")
    await one.stop()
    world.lose(WAL, SNAPSHOTS, STATUS)
    await restored(folder, world.nats, folder / "two", wanted=copy)
    await machine(world, "one")
    await world.is_whole("copy")
