"""Fleet compaction on real NATS, beside real servers and clients."""

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import lorogo_client
from lorogo_pipeline.jobs import fleet
from lorogo_pipeline.jobs.fleet import compact_fleet
from lorogo_pipeline.jobs.fleet_report import (
    FleetOptions,
    FleetProgress,
    FleetReport,
    FleetStopped,
    InvalidOptions,
)
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.replies import Ack
from lorogo_protocol.position import Position
from lorogo_protocol.status import Starting, Up
from lorogo_server import ServerSettings
from lorogo_server.compaction import compaction
from lorogo_server.compaction.purges import purge_prefix
from lorogo_server.identity import HomeInUse
from lorogo_server.journal.disk_journal import JournalStopped
from lorogo_server.ownership.epoch import EpochTracker, EpochWitness
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.nats.streams import JetStreamStream
from tests.pipeline.fleets import QUICK, World, expected, world_of
from tests.server.support import Probe, Writer

pytestmark = pytest.mark.nats
Before = Callable[[], Awaitable[None]]


@pytest.fixture
async def world(fresh_nats: EmbeddedNats, tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(fresh_nats, tmp_path) as made:
        yield made


def names_of(count: int, prefix: str = "doc") -> list[str]:
    return [f"{prefix}{number:03d}" for number in range(count)]


def just_before_the_purge(monkeypatch: pytest.MonkeyPatch, act: Before) -> None:
    """Something happens while the leases of a batch are held and its purge is planned; once."""
    done = False

    async def purge(*given: object, **named: object) -> int:
        nonlocal done
        if not done:
            done = True
            await act()
        return await purge_prefix(*given, **named)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(fleet, "purge_prefix", purge)


async def test_two_hundred_documents_go_with_one_purge(world: World) -> None:
    """Each keeps one message, its content and a snapshot; the job's journal has everything it purged."""
    names = names_of(200)
    async with world.server():
        await world.write(names)
    assert await world.counts() == dict.fromkeys(names, 5)
    progress: list[FleetProgress] = []
    report = await compact_fleet(world.url, world.options(), progress.append)
    assert report.failures == []
    assert (report.documents, report.cold, report.compacted, report.skipped) == (200, 200, 200, {})
    assert (report.prefix_purges, report.prefix_messages, report.single_purges) == (1, 800, 0)
    assert [json.loads(body)["filter"] for body in world.purges] == [">"]
    assert await world.counts() == dict.fromkeys(names, 1)
    assert (report.messages_before, report.messages_after) == (1000, 200)
    assert report.bytes_after < report.bytes_before
    assert await world.all_down(names)
    assert world.journalled() == dict.fromkeys(names, 6)  # five updates, and the term of their owner
    assert progress[-1].stage == "purging"
    assert {one.stage for one in progress} == {"looking", "compacting", "purging"}
    async with world.server() as server:
        for name in names[:20]:
            head = await server.context.snapshots.head(name)
            assert head is not None
            assert head.size > 0
            assert SnapshotMetadata.parse(head.facts).position.epoch == server.context.epochs.current
        assert await world.texts(names) == expected(names)
        await world.write(names[:3], 1, first=5)
        assert await world.texts(names[:3]) == expected(names[:3], 6)


async def test_a_second_run_has_nothing_to_do(world: World) -> None:
    """A second run chooses none of the compacted documents, and the journal gets no second copy."""
    names = names_of(5)
    async with world.server():
        await world.write(names)
    await compact_fleet(world.url, world.options())
    before = world.journalled()
    report = await compact_fleet(world.url, world.options())
    assert (report.documents, report.cold, report.compacted) == (5, 0, 0)
    assert world.journalled() == before


async def test_documents_one_behind_another_are_purged_one_by_one(world: World) -> None:
    """The newest message of the first ends the prefix at once: then each has its own purge."""
    names = names_of(4)
    async with world.server():
        for name in names:
            await world.write([name])
    report = await compact_fleet(world.url, world.options())
    assert (report.prefix_purges, report.single_purges) == (1, 3)  # the first document is the prefix
    assert report.prefix_messages + report.single_messages == 16
    assert await world.counts() == dict.fromkeys(names, 1)
    async with world.server():
        assert await world.texts(names) == expected(names)


async def test_messages_not_worth_a_purge_are_left_and_not_examined_again(world: World) -> None:
    """Below `messages_min` and `bytes_min` a document keeps the messages outside the prefix; the report
    counts them.
    """
    names = names_of(4)
    async with world.server():
        for name in names:
            await world.write([name], 4)
        await world.write([names[0]], 3, first=4)
    options = world.options(messages_min=5)
    report = await compact_fleet(world.url, options)
    assert (report.cold, report.compacted, report.prefix_purges, report.single_purges) == (1, 1, 1, 0)
    assert (report.prefix_messages, report.left_documents, report.left_messages) == (4, 1, 2)
    assert await world.counts() == {names[0]: 3, **dict.fromkeys(names[1:], 4)}
    report = await compact_fleet(world.url, options)
    assert (report.cold, report.left_documents) == (0, 0)
    async with world.server():
        await world.write([names[3]], 3, first=4)
        await world.write([names[1], names[2]], 2, first=4)
        await world.write([names[3]], 1, first=7)
    report = await compact_fleet(world.url, world.options(messages_min=5, bytes_min=1 << 20))
    assert (report.cold, report.compacted) == (3, 3)
    async with world.server():
        assert await world.texts([names[3]]) == expected([names[3]], 8)
        assert await world.texts(names[1:3]) == expected(names[1:3], 6)


async def test_a_document_that_a_server_owns_is_left_alone(world: World) -> None:
    """It keeps every message and its owner, and the prefix ends before its first one."""
    cold, hot = names_of(20), "hot"
    async with world.server("first"):
        await world.write(cold, 2)
    async with world.server("second") as owner, lorogo_client.connect(world.url) as client:
        session = await client.open(hot)
        for number in range(5):
            session.doc.get_text("body").insert(0, f"{number} ")
            session.commit()
            await session.flush()
        for name in cold:
            assert (await world.statuses.read(name)) is not None
        token = owner.hosts[hot].lease.token
        await world.write(cold, 2, first=2)
        for name in cold:
            owner.hosts[name].stop("the test")
            await owner.hosts[name].closed.wait()
        report = await compact_fleet(world.url, world.options())
        assert report.failures == []
        assert report.compacted == 20
        assert report.skipped == {"the document is up": 1}
        assert (await world.counts())[hot] == 5
        assert report.prefix_messages <= 40
        assert owner.hosts[hot].lease.token == token
        assert owner.hosts[hot].state.is_up
        session.doc.get_text("body").insert(0, "still ")
        session.commit()
        await session.flush()
        assert await world.counts() == {**dict.fromkeys(cold, 1), hot: 6}
        assert await world.texts(cold) == expected(cold, 4)


async def test_an_unfinished_update_keeps_its_chunks(world: World) -> None:
    """Its first chunk bounds the purge; when the rest comes, it is accepted."""
    writer = Writer()
    async with Probe(world.transport) as probe:
        async with world.server():
            await probe.start("half")
            for word in ("one ", "two ", "three "):
                await probe.accept("half", writer.type(word))
            parts = probe.split(writer.type("x" * 500), size=200)
            await probe.put("half", parts[:1])
            await world.write(["whole"])
        report = await compact_fleet(world.url, world.options())
        assert report.failures == []
        assert report.compacted == 2
        assert await world.counts() == {"half": 1, "whole": 1}
        left = [stored async for stored in world.wal.read(subjects.wal("half"))]
        assert [stored.data for stored in left] == [parts[0].data]
        async with world.server():
            await probe.start("half")
            await probe.put("half", parts[1:])
            while not isinstance(reply := await probe.answer(), Ack) or reply.log_id != parts[0].log_id:
                pass
            assert await probe.value("half") == {"body": writer.text}


async def test_a_client_that_opens_a_document_meanwhile_is_served_by_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit while leases are held is ACKed by the job, journalled, and kept; then another server has it."""
    names = names_of(10)
    async with world.server("other"):
        await world.write(names)
    async with lorogo_client.connect(world.url) as client, world.server("other") as other:
        sessions: list[lorogo_client.Session] = []

        async def edit() -> None:
            entry = await world.statuses.read(names[4])
            assert entry is not None
            assert isinstance(entry.status, Up)
            assert entry.status.server_id != other.server_id
            session = await client.open(names[4])
            assert session.doc.get_text("body").to_string() == expected(names)[names[4]]
            session.doc.get_text("body").insert(0, "meanwhile ")
            session.commit()
            await session.flush(timeout=10)
            sessions.append(session)

        just_before_the_purge(monkeypatch, edit)
        report = await compact_fleet(world.url, world.options())
        assert report.failures == []
        assert (report.compacted, report.prefix_purges, report.prefix_messages) == (10, 1, 40)
        assert world.journalled()[names[4]] == 7  # six updates, and the term of their owner
        (session,) = sessions
        session.doc.get_text("body").insert(0, "later ")
        session.commit()
        await session.flush(timeout=30)  # by the other server
        assert other.hosts[names[4]].state.is_up
        wanted = {**expected(names), names[4]: "later meanwhile " + expected(names)[names[4]]}
        assert await world.texts(names) == wanted


async def test_a_takeover_before_the_purge_takes_the_document_out_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages belong to another owner then: the prefix ends before them, and the new owner's
    ACK holds.
    """
    names = names_of(10)
    async with world.server("other"):
        await world.write(names)
    async with world.server("other") as other, Probe(world.transport) as probe:
        writer = Writer()

        async def take_over() -> None:
            await probe.start(names[4])
            assert other.hosts[names[4]].state.is_up
            await probe.accept(names[4], writer.type("new owner "))

        just_before_the_purge(monkeypatch, take_over)
        report = await compact_fleet(world.url, world.options())
        assert report.failures == []
        assert (await world.counts())[names[4]] == 6
        assert other.hosts[names[4]].state.is_up
        rest = [name for name in names if name != names[4]]
        counts = await world.counts()
        assert {name: counts[name] for name in rest} == dict.fromkeys(rest, 1)
        text = (await world.texts(names))[names[4]]
        assert "new owner " in text
        assert expected(names)[names[4]] in text.replace("new owner ", "")


async def test_a_purge_that_comes_late_destroys_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paused between check and purge, all taken over meanwhile: what goes is in the stored snapshots."""
    names = names_of(10)
    async with world.server("other"):
        await world.write(names)
    async with world.server("other") as other, Probe(world.transport) as probe:
        real = JetStreamStream.purge
        writers = {name: Writer() for name in names}

        async def late(self: JetStreamStream, subject: str, **given: object) -> int:
            if subject == ">":
                for name in names:
                    await probe.start(name)
                    await probe.accept(name, writers[name].type("new owner "))
                assert sorted(other.hosts) == names
            return await real(self, subject, **given)  # type: ignore[arg-type]  # passed on

        monkeypatch.setattr(JetStreamStream, "purge", late)
        report = await compact_fleet(world.url, world.options())
        assert report.prefix_messages == 40
        for text in (await world.texts(names)).values():
            assert "new owner " in text
        for host in list(other.hosts.values()):
            host.stop("load it again")
            await host.closed.wait()
        for name, text in (await world.texts(names)).items():
            assert "new owner " in text
            assert text.replace("new owner ", "") == expected(names)[name]


async def test_another_epoch_stops_the_purge(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences mean something else then: nothing is purged by those that were planned."""
    names = names_of(5)
    async with world.server():
        await world.write(names)
    epochs = EpochTracker(world.transport)

    async def rewind() -> None:
        await epochs.check()
        epochs.recall(EpochWitness(Position(epochs.current + 1)))
        await epochs.check()

    just_before_the_purge(monkeypatch, rewind)
    report = await compact_fleet(world.url, world.options())
    assert report.prefix_purges == 0
    assert report.single_messages == 0
    async with world.server():
        assert await world.texts(names) == expected(names)


async def test_a_compaction_asked_for_meanwhile_is_respected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another snapshot is stored since: the document leaves the plan, the others stay in it."""
    names = names_of(5)
    async with world.server():
        await world.write(names)
    async with lorogo_client.connect(world.url) as client:

        async def compact() -> None:
            await client.document(names[0]).compact()

        just_before_the_purge(monkeypatch, compact)
        report = await compact_fleet(world.url, world.options())
    assert report.failures == []
    assert await world.counts() == dict.fromkeys(names, 1)
    async with world.server():
        assert await world.texts(names) == expected(names)


async def test_two_jobs_and_a_server_at_once(world: World) -> None:
    """Each document has one owner at a time: together the jobs do everything once, and nothing is lost."""
    names = names_of(60)
    async with world.server():
        await world.write(names)
        reports = await asyncio.gather(
            compact_fleet(world.url, world.options("one", batch_documents=15)),
            compact_fleet(world.url, world.options("two", batch_documents=15)),
        )
        assert [report.failures for report in reports] == [[], []]
        assert sum(report.compacted for report in reports) == 0  # the server has them open
    reports = await asyncio.gather(
        compact_fleet(world.url, world.options("one", batch_documents=15)),
        compact_fleet(world.url, world.options("two", batch_documents=15)),
    )
    assert [report.failures for report in reports] == [[], []]
    assert sum(report.compacted for report in reports) >= 60
    assert await world.counts() == dict.fromkeys(names, 1)
    async with world.server():
        assert await world.texts(names) == expected(names)


async def test_documents_of_a_server_that_died_are_taken(world: World) -> None:
    """The job takes an ownerless UP document at once and a STARTING one when it is stale; it leaves ERROR."""
    names = names_of(3)
    async with world.server():
        await world.write(names)
    for name, status in (
        (names[0], Up("gone", 0)),
        (names[1], Starting("nobody", 0, 0)),
    ):
        entry = await world.statuses.read(name)
        assert entry is not None
        await world.statuses.write(name, status, expected_revision=entry.revision)
    report = await compact_fleet(world.url, world.options())
    assert report.failures == []
    assert (report.compacted, report.skipped) == (3, {})
    assert await world.counts() == dict.fromkeys(names, 1)


async def test_deleted_documents_and_young_ones_are_skipped(world: World) -> None:
    """A deleted document needs no snapshot; a document with recent edits is in use."""
    names = names_of(3)
    async with world.server(), lorogo_client.connect(world.url) as client, Probe(world.transport) as probe:
        await world.write(names)
        await client.document(names[0]).delete()
        await probe.refuse(names[0], Writer().type("too late"))
    report = await compact_fleet(world.url, world.options(cold_seconds=3600))
    assert (report.cold, report.skipped) == (0, {"edited not long ago": 3})
    report = await compact_fleet(world.url, world.options(dry_run=True))
    assert (report.cold, report.compacted) == (3, 0)
    report = await compact_fleet(world.url, world.options())
    assert (report.compacted, report.skipped) == (2, {"deleted": 1})
    assert await world.all_down(names)


async def _run_and_kill(world: World, stage: str, at: int) -> bool:
    """Run the job and kill it at a stage; return False if it ended before."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.pipeline.fleet_child",
        world.url,
        str(world.folder / "job"),
        "20",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while line := (await process.stdout.readline()).decode().split():
            if line[0] == "report":
                break
            if line[0] == stage and int(line[1]) >= at:
                process.kill()
                break
        await process.stdout.read()
        return await process.wait() != 0


@pytest.mark.slow
async def test_killed_at_any_point_and_run_again(world: World) -> None:
    """With kill -9 while it looks, folds and purges: every document stays whole, and the last run ends it."""
    names = names_of(60)
    async with world.server():
        await world.write(names, 4)
    rng = random.Random(7)
    killed = 0
    for stage, at in [
        ("looking", 5),
        ("compacting", 3),
        ("compacting", 20),
        ("purging", 0),
        ("compacting", 30),
    ]:
        killed += await _run_and_kill(world, stage, at)
        some = rng.sample(names, 10)
        async with world.server("other"):
            assert await world.texts(some) == expected(some, 4)
    assert killed >= 4
    report = await compact_fleet(world.url, world.options())
    assert report.failures == []
    assert await world.counts() == dict.fromkeys(names, 1)
    async with world.server("other"):
        assert await world.texts(names) == expected(names, 4)


async def test_a_journal_that_stops_ends_the_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job purges nothing that is not journalled; the error names the journal, and every
    document is DOWN.
    """
    names = names_of(3)
    async with world.server():
        await world.write(names)

    async def cover(_: object) -> compaction.VerifiedSnapshot:
        raise JournalStopped("no space left")

    monkeypatch.setattr(compaction, "cover", cover)
    with pytest.raises(FleetStopped, match=r"no space left.*worker-compact"):
        await compact_fleet(world.url, world.options())
    assert await world.counts() == dict.fromkeys(names, 5)
    assert await world.all_down(names)


async def test_one_job_per_folder(world: World) -> None:
    """The second job gets an error before it begins."""
    async with world.server():
        await world.write(["a"])
    second: list[asyncio.Task[FleetReport]] = []

    def tell(_: FleetProgress) -> None:
        second.append(asyncio.create_task(compact_fleet(world.url, world.options())))

    await compact_fleet(world.url, world.options(), tell)
    assert second
    for task in second:
        with pytest.raises(HomeInUse, match="in use"):
            await task


async def test_a_transport_may_be_given(world: World) -> None:
    """The job uses a given connection and leaves it open."""
    async with world.server():
        await world.write(["a", "b"])
    async with await connect(world.url) as transport:
        report = await compact_fleet(transport, world.options())
        assert report.compacted == 2
        assert transport.bus.connected


@pytest.mark.parametrize(
    "wrong",
    [
        {"cold_seconds": -1},
        {"messages_min": 0},
        {"bytes_min": -1},
        {"batch_documents": 0},
        {"concurrency": 0},
        {"settings": ServerSettings(durability="stream")},
    ],
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    """Each error names its option."""
    with pytest.raises(InvalidOptions):
        FleetOptions(data=Path("data"), **wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_the_settings_of_the_tests_are_those_of_a_server() -> None:
    """Quick leases change times, and nothing else."""
    assert QUICK.durability == FleetOptions(data=Path("data")).settings.durability == "journal"
