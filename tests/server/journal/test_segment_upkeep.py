"""A server and its old segments: erased, shipped, expired."""

import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lorogo_log import BlockingLog, FileStorage
from lorogo_log import Record as Stored
from lorogo_protocol.journal.records import (
    LAYOUT,
    BaseRecord,
    DocumentRecord,
    ErasedRecord,
    TermRecord,
    UpdateRecord,
)
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server import Server, ServerSettings
from lorogo_server.journal import coverage
from lorogo_server.journal.archive import ArchiveError, ArchiveStorage
from lorogo_server.journal.erasures import Erasures
from lorogo_server.journal.record_sorter import decode
from lorogo_server.journal.segment_upkeep import SegmentUpkeep
from lorogo_server.recovery.restore import gather, rebuild
from lorogo_server.recovery.restore_sources import find
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.clock import SystemClock
from tests.server.support import QUICK, Probe, Writer, services_of, until

_names = itertools.count()


class Later(SystemClock):
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead

    def wall_ns(self) -> int:
        return super().wall_ns() + int(self.ahead * 1e9)


class World:
    """A NATS in memory, servers whose journals are on the disk, and a client of them."""

    def __init__(self, nats: MemoryNats, folder: Path, probe: Probe) -> None:
        self.nats = nats
        self.folder = folder
        self.probe = probe
        self.clock = Later()

    @asynccontextmanager
    async def serving(self, name: str = "one", settings: ServerSettings = QUICK) -> AsyncIterator[Server]:
        settings = replace(settings, server_id=f"server-{name}")
        transport = self.nats.connect()
        async with Server(transport, settings, data=self.folder / name, clock=self.clock) as server:
            yield server

    def records(self, place: str, document_id: str) -> list[DocumentRecord]:
        stored = (one for source in find(place) for one in source.records(document_id))
        return [record for one in stored if (record := decode(one.payload)) is not None]

    def journalled(self, name: str, document_id: str) -> list[DocumentRecord]:
        return self.records(str(self.folder / name), document_id)


def kinds(world: World, document_id: str, name: str = "one") -> list[type[DocumentRecord]]:
    """The kinds of a document's records in that server's journal."""
    return [type(record) for record in world.journalled(name, document_id)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    nats = MemoryNats()
    async with Probe(nats.connect()) as probe:
        yield World(nats, tmp_path, probe)


def kept(server: Server) -> SegmentUpkeep:
    return services_of(server).upkeep


async def fill(world: World, document_id: str, *words: str) -> Writer:
    writer = Writer()
    await world.probe.start(document_id)
    for word in words:
        await world.probe.accept(document_id, writer.type(word))
    return writer


async def only_the_erasure(world: World, name: str, document_id: str) -> None:
    async def run_once() -> bool:
        return all(isinstance(one, ErasedRecord) for one in world.journalled(name, document_id))

    await until(run_once)


# --- enough ---------------------------------------------------------------------------------------


async def test_the_journal_of_the_last_owner_is_enough_however_often_the_owner_changed(world: World) -> None:
    """Also where every snapshot was trimmed: a base carries what the journal does not have."""
    settings = replace(QUICK, history_seconds=0.0)
    writer = Writer()
    for turn, name in enumerate(["one", "two", "one", "three"]):
        async with world.serving(name, settings):
            await world.probe.start("minutes")
            for word in range(3):
                await world.probe.accept("minutes", writer.type(f"{turn}.{word} "))
            await world.probe.call("compact", "minutes")
            await world.probe.accept("minutes", writer.type("after "))
    for name, whole in (("one", False), ("three", True)):
        stored = [one for source in find(str(world.folder / name)) for one in source.records("minutes")]
        places = [(one.time, place) for place, one in enumerate(stored)]

        def fetch(place: int, stored: list[Stored] = stored) -> DocumentRecord | None:
            return decode(stored[place].payload)

        rebuilt = rebuild(gather(places, fetch), fetch, now_ns=world.clock.wall_ns())
        assert rebuilt.left == {}
        assert rebuilt.replica.trimmed() != b"\x00"
        text = rebuilt.replica.settled().get_text("body").to_string()
        assert writer.text.startswith(text)
        assert (text == writer.text) is whole


# --- erasing --------------------------------------------------------------------------------------


async def test_an_erased_document_leaves_nothing_but_its_tombstone(world: World) -> None:
    """`delete` with `purge` removes snapshot, WAL and refusals from NATS and the records from the journal;
    the tombstone and one record of the erasure stay, and nothing brings the document back.
    """
    async with world.serving() as server:
        writer = await fill(world, "secret", "one ", "two ")
        await fill(world, "other", "stays")
        await world.probe.call("compact", "secret")
        last = writer.type("three")
        await world.probe.accept("secret", last)
        await world.probe.refuse("secret", b"no update at all, and more")
        old = await server.context.snapshots.head("secret")
        assert old is not None
        answer = await world.probe.call("delete", "secret", purge=True)
        head = await server.context.snapshots.head("secret")
        assert head is not None
        facts = SnapshotMetadata.parse(head.facts)
        assert (head.size, facts.erased_ns, facts.deleted) == (0, answer["erased_ns"], True)
        snapshots = world.nats.connect()
        chunks = await snapshots.stream(subjects.SNAPSHOT_STREAM).subjects("$O.*.C.>")
        assert not any(old.nuid in subject for subject in chunks)
        assert await world.probe.wal.last(subjects.wal("secret")) is None
        assert await world.probe.rejected.last(subjects.rejected("secret")) is None
        await only_the_erasure(world, "one", "secret")
        assert len(world.journalled("one", "secret")) == 1
        assert kinds(world, "other") == [TermRecord, UpdateRecord]

        async def counted() -> bool:
            return server.stats()["journal_erased"] == 4  # a term and three updates

        await until(counted)
        # for good
        no = await world.probe.refuse("secret", writer.type("!"))
        assert (no.reason, no.message) == (Reason.DELETED, "the document was erased for good")
        with pytest.raises(Refused, match="erased"):
            await world.probe.call("restore", "secret")
        again = await world.probe.call("delete", "secret", purge=True)
        assert again["erased_ns"] == answer["erased_ns"]
    async with world.serving():  # and after a restart
        await world.probe.start("secret")
        with pytest.raises(Refused, match="the document was erased for good"):
            await world.probe.value("secret")
        no = await world.probe.refuse("secret", writer.type("?"))
        assert no.message == "the document was erased for good"


async def test_a_deleted_document_can_still_be_erased(world: World) -> None:
    """Deleting first and erasing later leaves as little."""
    async with world.serving() as server:
        await fill(world, "secret", "one ")
        await world.probe.call("delete", "secret")
        await world.probe.call("delete", "secret", purge=True)
        head = await server.context.snapshots.head("secret")
        assert head is not None
        assert head.size == 0
        await only_the_erasure(world, "one", "secret")


async def test_a_server_that_was_away_erases_when_it_returns(world: World) -> None:
    """The tombstones tell it, and its replicas of others' journals are cleaned too."""
    async with world.serving("one"):
        await fill(world, "secret", "one ")
    copy = world.folder / "one" / "replicas" / "server-two" / "00"
    with BlockingLog(copy) as log:
        log.append(["x", LAYOUT], key=b"secret")
        log.append(["x", LAYOUT], key=b"other")
    async with world.serving("two"):
        await world.probe.start("secret")
        await world.probe.call("delete", "secret", purge=True)
        await only_the_erasure(world, "two", "secret")
        # the other did not get the announcement: its own records, and those of the copy
        assert kinds(world, "secret") == [TermRecord, UpdateRecord]
    async with world.serving("one"):

        async def clean() -> bool:
            return not any(
                list(source.records("secret")) for source in find(str(world.folder / "one")) if source.size
            )

        await until(clean)
    assert len([record for source in find(str(copy)) for record in source.records("other")]) == 1


async def test_servers_that_run_erase_at_once_and_believe_only_the_tombstone(world: World) -> None:
    """An announced erasure makes servers check, and no more."""
    async with world.serving("one") as one:
        await fill(world, "secret", "one ")
        await fill(world, "safe", "stays")
        one.hosts["secret"].stop("moved")
        await until(lambda: _gone(one, "secret"))
        async with world.serving("two") as two:
            assert one._inits is not None
            await one._inits.close()  # the first takes no more
            await world.probe.start("secret")
            assert "secret" in two.hosts
            await world.probe.bus.publish(subjects.erased("safe"))
            await world.probe.call("delete", "secret", purge=True)
            await only_the_erasure(world, "one", "secret")
            assert kinds(world, "safe") == [TermRecord, UpdateRecord]


async def _gone(server: Server, document_id: str) -> bool:
    return document_id not in server.hosts


async def test_an_erasure_reaches_segments_that_only_the_archive_has(world: World) -> None:
    """Shipped segments are replaced there, also where the journal itself has let it go."""
    url = f"memory://erased-{next(_names)}"
    settings = replace(QUICK, archive=url, journal_keep_seconds=3600.0)
    async with world.serving(settings=settings) as server:
        await fill(world, "secret", "one ", "two ")
        await fill(world, "other", "stays")
        await _sealed_and_shipped(world, server)
        await _sealed_and_shipped(world, server, "more")
        world.clock.ahead += 2 * 86_400  # the first segment expires here, not there
        await kept(server).run_once()
        assert len(world.records(url, "secret")) >= 2
        await world.probe.start("secret")
        await world.probe.call("delete", "secret", purge=True)

        async def clean() -> bool:
            await kept(server).run_once()
            return all(isinstance(one, ErasedRecord) for one in world.records(url, "secret"))

        await until(clean)
        assert any(isinstance(one, UpdateRecord) for one in world.records(url, "other"))


def test_an_erasure_that_comes_while_a_segment_is_cleaned_is_done_the_next_time(tmp_path: Path) -> None:
    """A segment counts as free only of the documents that were known when its cleaning began."""

    class Interrupted(Erasures):
        def drop(self, path: str, record: Stored) -> bool:
            gone = super().drop(path, record)
            self.add(["late"])
            return gone

    with BlockingLog(tmp_path) as written:
        for key in (b"late", b"secret", b"other"):
            written.append(["x", 1], key=key)
    erasures, directory = Interrupted(), FileStorage().directory(tmp_path, create=False)
    erasures.add(["secret"])
    assert [erasures.clean(directory), erasures.clean(directory)] == [1, 1]
    (source,) = find(str(tmp_path))
    assert [record.key for record in source.records()] == [b"other"]


async def test_an_erasure_reaches_partitions_without_a_writer(world: World) -> None:
    """Those above a number of partitions that was lowered, and those of a worker that is gone, also where
    it left its last segment open; a partition that another process holds is left to it.
    """
    names = [f"secret-{number}" for number in range(6)]
    async with world.serving("worker-0", replace(QUICK, journal_partitions=2)) as server:
        for name in names:
            await fill(world, name, "SECRET")
        assert server.journal is not None
        assert {server.journal.partition(name) for name in names} == {0, 1}
        gone = world.folder / "worker-7" / "journal" / "00"
        gone.parent.mkdir(parents=True)
        shutil.copytree(world.folder / "worker-0" / "journal" / "01", gone)  # as it was at a crash
    held = world.folder / "worker-8" / "journal" / "00"
    shutil.copytree(world.folder / "worker-0" / "journal" / "01", held)
    with BlockingLog(held):
        async with world.serving("worker-0"):
            for name in names:
                await world.probe.start(name)
                await world.probe.call("delete", name, purge=True)
            for name in names:
                await only_the_erasure(world, "worker-0", name)
                await only_the_erasure(world, "worker-7", name)
    assert b"SECRET" in b"".join(path.read_bytes() for path in held.glob("*.seg"))
    for home in ("worker-0", "worker-7"):
        left = b"".join(path.read_bytes() for path in (world.folder / home).rglob("*.seg"))
        assert b"SECRET" not in left


async def test_a_partition_that_is_no_longer_open_is_shipped_and_expires(world: World) -> None:
    """Its segments are this server's, whatever the number of partitions is now."""
    url = f"memory://fewer-{next(_names)}"
    settings = replace(QUICK, archive=url, journal_keep_seconds=3600.0)
    async with world.serving(settings=replace(QUICK, journal_partitions=2)) as server:
        for _ in range(2):
            for number in range(6):
                await fill(world, f"minutes-{number}", "one ")
            assert server.journal is not None
            await server.journal.logs[1].rotate()
    unused = world.folder / "one" / "journal" / "01"
    before = {path.name for path in unused.glob("*.seg")}
    assert len(before) >= 2
    async with world.serving(settings=settings) as server:

        async def shipped() -> bool:
            await kept(server).run_once()
            files = ArchiveStorage(url).files("server-one/01")
            return before <= {name.rpartition("/")[2] for name in files}

        await until(shipped)
        world.clock.ahead += 2 * 86_400

        async def expired() -> bool:
            await kept(server).run_once()
            return {path.name for path in unused.glob("*.seg")} == {max(before)}

        await until(expired)


# --- shipping -------------------------------------------------------------------------------------


async def _sealed_and_shipped(world: World, server: Server, document_id: str = "filler") -> None:
    """Something is written, and everything written so far is in the archive."""
    await fill(world, document_id, "x")
    assert server.journal is not None
    await server.journal.logs[0].rotate()

    async def shipped() -> bool:
        await kept(server).run_once()
        assert server.journal is not None
        infos = server.journal.logs[0].segments()
        return all(info.sealed for info in infos[:-1]) and server.stats()["archive_waiting"] == 0

    await until(shipped)


async def test_what_is_written_is_sealed_and_shipped_after_a_while(world: World) -> None:
    """The archive is behind by a few minutes at most, however little is written."""
    url = f"memory://shipped-{next(_names)}"
    async with world.serving(settings=replace(QUICK, archive=url)) as server:
        await fill(world, "minutes", "one ", "two ")
        await kept(server).run_once()
        assert ArchiveStorage(url).files() == {}
        world.clock.ahead += 301

        async def shipped() -> bool:
            await kept(server).run_once()
            return bool(ArchiveStorage(url).files()) and len(world.records(url, "minutes")) == 3

        await until(shipped)
        assert server.stats()["archive"] == "open"


async def test_an_archive_that_is_away_slows_no_edit_and_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statistics show it; edits go on; segments arrive when it is back; nothing expires before."""
    url = f"memory://away-{next(_names)}"
    settings = replace(QUICK, archive=url, journal_keep_seconds=3600.0)

    def away(*_: object) -> None:
        raise ArchiveError("it is away")

    async with world.serving(settings=settings) as server:
        with monkeypatch.context() as patch:
            patch.setattr(ArchiveStorage, "write", away)
            await fill(world, "minutes", "one ")
            world.clock.ahead += 2 * 86_400  # due: to be sealed, shipped and expired
            await world.probe.start("minutes")

            async def reported() -> bool:
                await kept(server).run_once()
                return "it is away" in str(server.stats()["archive"])

            await until(reported)
            assert server.stats()["journal_expired"] == 0
            await fill(world, "more", "two ")  # ACKed as ever
        world.clock.ahead += 700

        async def back() -> bool:
            await kept(server).run_once()
            return server.stats()["archive"] == "open" and bool(ArchiveStorage(url).files())

        await until(back)
        assert len(world.records(url, "minutes")) >= 1


# --- retention ------------------------------------------------------------------------------------


async def test_with_retention_a_compaction_begins_the_journal_again(world: World) -> None:
    """The records inside the retention rebuild the document: the snapshot is journalled whole."""
    settings = replace(QUICK, journal_keep_seconds=3600.0)
    async with world.serving(settings=settings) as server:
        writer = await fill(world, "minutes", "one ", "two ")
        assert server.journal is not None
        await server.journal.logs[0].rotate()
        world.clock.ahead += 2 * 86_400
        await world.probe.start("minutes")
        await world.probe.call("compact", "minutes")
        await world.probe.accept("minutes", writer.type("three"))

        async def expired() -> bool:
            await kept(server).run_once()
            return bool(server.stats()["journal_expired"])

        await until(expired)
        kinds = [type(record) for record in world.journalled("one", "minutes")]
        assert kinds.count(BaseRecord) >= 1
        assert kinds.count(UpdateRecord) == 1  # the others are gone, and in the base
        assert kinds.index(TermRecord) < kinds.index(BaseRecord)  # the base's term keeps its ancestors


async def test_after_an_expiry_a_load_journals_what_the_ledger_had_called_covered(world: World) -> None:
    """The ledger forgets with the segments, so the next load writes the base and the WAL again."""
    settings = replace(QUICK, journal_keep_seconds=3600.0)
    async with world.serving(settings=settings) as server:
        await fill(world, "minutes", "one ", "two ")
        await world.probe.call("compact", "minutes")
    async with world.serving(settings=settings) as server:
        assert server.journal is not None
        assert server.journal.covered("minutes").base
        await fill(world, "other", "x")  # a newer segment, so that the old one may go
        world.clock.ahead += 2 * 86_400

        async def expired() -> bool:
            await kept(server).run_once()
            return bool(server.stats()["journal_expired"])

        await until(expired)
        assert not server.journal.covered("minutes").base
        assert world.journalled("one", "minutes") == []
        await world.probe.start("minutes")
        assert kinds(world, "minutes") == [TermRecord, BaseRecord]


async def test_a_document_that_is_open_while_its_records_expire_is_journalled_again(world: World) -> None:
    """An open document is compacted, and so begins its journal again without a load."""
    settings = replace(QUICK, journal_keep_seconds=3600.0, idle_seconds=1e9)
    async with world.serving(settings=settings) as server:
        await fill(world, "minutes", "one ", "two ")
        assert server.journal is not None
        await server.journal.logs[0].rotate()
        await fill(world, "other", "x")
        services_of(server).expired(world.clock.wall_ns() + 1)

        async def again() -> bool:
            return any(isinstance(one, BaseRecord) for one in world.journalled("one", "minutes"))

        await until(again)


async def test_nothing_expires_while_the_ledger_cannot_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old ledger calls covered what would go: the next start would leave it out of the journal."""
    settings = replace(QUICK, journal_keep_seconds=3600.0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with world.serving(settings=settings) as server:
        await fill(world, "minutes", "one ")
        assert server.journal is not None
        await server.journal.logs[0].rotate()
        await fill(world, "other", "x")
        world.clock.ahead += 2 * 86_400
        with monkeypatch.context() as patch:
            patch.setattr(coverage, "write", full)
            await kept(server).run_once()
            await kept(server).run_once()
            assert server.stats()["journal_expired"] == 0
            assert kinds(world, "minutes") == [TermRecord, UpdateRecord]

        async def expired() -> bool:
            await kept(server).run_once()
            return bool(server.stats()["journal_expired"])

        await until(expired)
