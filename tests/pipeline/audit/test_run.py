"""Journals against a real system: nothing differs until something is changed by hand, and then just that."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from loro import LoroDoc

from lorogo_client.connection import new_nanoid
from lorogo_pipeline.audit import live_documents
from lorogo_pipeline.audit.audit_report import AuditReport
from lorogo_pipeline.audit.comparison import JournalDocument, LiveState
from lorogo_pipeline.audit.live_documents import LiveReadFailed, LiveReadSettings
from lorogo_pipeline.audit.run import Again, audit
from lorogo_protocol.journal.records import Record, UpdateRecord
from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.status import Down, Failed, Up
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import Disconnected
from lorogo_transport.nats import connection
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.rpc.calls import ReplyBudget, Responder
from lorogo_transport.stores.snapshots import SnapshotStore
from lorogo_transport.stores.statuses import Statuses
from tests.pipeline.living import everything, serving, write
from tests.pipeline.replaying import again, copied, damage, replay

pytestmark = pytest.mark.nats

PAUSES = (0.05, 0.2, 0.5)


async def audited(
    url: str,
    replayed: dict[str, JournalDocument],
    reread: Again | None,
    settings: LiveReadSettings | None = None,
    progress: list[tuple[str, int, int]] | None = None,
) -> AuditReport:
    async with live_documents.live(url, settings) as live:
        return await audit(
            replayed.values(),
            live,
            again=reread,
            pauses=PAUSES,
            on_progress=lambda *step: None if progress is None else progress.append(step),
        )


def kinds(report: AuditReport) -> dict[str, list[str]]:
    """Of each document, what differs."""
    found: dict[str, list[str]] = {}
    for one in report.differences:
        found.setdefault(one.document_id, []).append(one.kind.value)
    return found


async def statuses(url: str) -> dict[str, object]:
    async with await connection.connect(url) as transport:
        return {name: entry async for name, entry in Statuses(transport).all()}


@pytest.mark.slow
async def test_a_clean_system_has_no_difference(tmp_path: Path, fresh_nats: EmbeddedNats) -> None:
    """Documents that are open, down, deleted, restored, erased, forked, trimmed, empty or being edited
    meanwhile are equal; none that was down is started, and nothing is written.
    """
    url, data = fresh_nats.url, tmp_path / "data"
    names = await everything(url, data)
    down = await statuses(url)
    [trimmed] = [one async for one in live_documents.read_documents(url, ["trimmed"])]
    assert trimmed.replica is not None
    assert trimmed.replica.shallow
    first = await audited(url, replay(data), again(data))
    assert (kinds(first), first.skipped) == ({}, ())
    assert (first.documents, first.equal, first.ahead, first.asked) == (len(names), len(names), 0, 0)
    assert first.clean
    assert await statuses(url) == down

    async with serving(url, data / "worker-1") as client:
        stop = asyncio.Event()

        async def type_on(name: str) -> None:
            async with client.open(name) as session:
                while not stop.is_set():
                    body = session.doc.get_text("body")
                    body.insert(len(body), "word ")
                    session.commit()
                    await session.flush(timeout=30)

        async with asyncio.TaskGroup() as typing:
            for name in ("plain", "trimmed", "fork", "new"):
                typing.create_task(type_on(name))
            await write(client, "new", "first ")
            old = replay(data)
            progress: list[tuple[str, int, int]] = []
            for name in ("plain", "trimmed", "fork", "new"):
                await write(client, name, "newer than what was replayed ")
            second = await audited(url, old, again(data), progress=progress)
            third = await audited(url, old, None)
            stop.set()
        assert (kinds(second), second.skipped) == ({}, ())
        assert second.equal == second.documents == len(names) + 1
        assert second.ahead >= 4
        assert second.asked == 4
        assert progress[-1][0] == "comparing again"
        assert (kinds(third), third.ahead) == ({}, second.ahead), "what is newer is no difference by itself"
        untouched = names - {"plain", "trimmed", "fork", "new"}
        now = await statuses(url)
        assert {name: now.get(name) for name in untouched} == {name: down.get(name) for name in untouched}


async def test_through_servers_every_document_is_asked_of_an_owner(
    tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """With that option, the audit starts documents without an owner, and creates none."""
    url, data = fresh_nats.url, tmp_path / "data"
    names = await everything(url, data)
    async with serving(url, data / "worker-1"):
        replayed = replay(data)
        replayed["nowhere"] = JournalDocument("nowhere")
        report = await audited(url, replayed, again(data), LiveReadSettings(through_servers=True))
        assert (kinds(report), report.skipped) == ({}, ())
        assert report.asked == len(names - {"gone", "erased"})
        seen = {
            one.document_id: one
            async for one in live_documents.read_documents(url, ["plain", "gone", "nowhere"])
        }
    assert seen["plain"].where == "server"
    assert seen["plain"].value() == {"body": "one two "}
    assert seen["gone"].state is LiveState.DELETED
    assert seen["nowhere"].state is LiveState.UNKNOWN
    assert "nowhere" not in await statuses(url)


async def test_an_open_document_whose_owner_is_gone_is_read_as_the_next_one_would(
    tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """A status UP is no proof: without an answer of the owner, the audit reads the snapshot and the WAL."""
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        await write(client, "one", "abc")
    async with await connection.connect(url) as transport:
        bucket = Statuses(transport)
        entry = await bucket.read("one")
        assert entry is not None
        assert isinstance(entry.status, Down)
        await bucket.write("one", Up("nobody", 1), expected_revision=entry.revision)
    report = await audited(url, replay(data), None)
    assert (report.clean, report.asked, report.equal) == (True, 0, 1)
    progress: list[tuple[str, int, int]] = []
    async for one in live_documents.read_documents(url, on_progress=lambda *step: progress.append(step)):
        assert (one.document_id, one.where, one.value()) == ("one", "store", {"body": "abc"})
        assert one.content_hash() == replay(data)["one"].content_hash
    assert progress == [("reading documents", 1, 1)]


async def test_what_happens_meanwhile_is_settled_by_reading_again(
    tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """Documents that were deleted, restored, erased, made or edited since the journals were replayed are
    equal once the journals are read again; without that, only being ahead is forgiven.
    """
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        for name in ("deleted", "restored", "erased", "edited"):
            await write(client, name, "one ")
        await client.document("restored").delete()
        old = replay(data)
        await client.document("deleted").delete()
        await client.document("restored").restore()
        await client.document("erased").delete(purge=True)
        await write(client, "edited", "two ")
        await write(client, "made", "three ")
        report = await audited(url, old, again(data))
        assert (kinds(report), report.skipped, report.equal, report.ahead) == ({}, (), 5, 2)
        blind = await audited(url, old, None)
    assert kinds(blind) == {name: ["deletion-differs"] for name in ("deleted", "restored", "erased")}
    assert (blind.equal, blind.ahead) == (2, 2)


async def _refuses(_verb: str, _arguments: dict[str, object]) -> dict[str, object]:
    raise Refused(Reason.FAILED, "the disk is on fire")


async def _is_busy(_verb: str, _arguments: dict[str, object]) -> dict[str, object]:
    raise Refused(Reason.BUSY, "ask again")


async def _gives_junk(_verb: str, _arguments: dict[str, object]) -> dict[str, object]:
    return {"payload": b"junk", "generation": 0}


async def _gives_little(_verb: str, _arguments: dict[str, object]) -> dict[str, object]:
    return {"payload": Replica().snapshot(), "generation": 0}


async def _is_silent(_verb: str, _arguments: dict[str, object]) -> dict[str, object]:
    await asyncio.Event().wait()
    return {}


@pytest.mark.parametrize(
    ("serve", "kind", "words"),
    [
        (_refuses, "not-readable", "its owner refuses the sync: the disk is on fire"),
        (_is_busy, "not-readable", "ask again"),
        (_gives_junk, "not-readable", "the answer of its owner does not decode"),
        (_gives_little, "missing-on-server", "0..2"),
        (_is_silent, "not-readable", "did not answer in 0.1 s"),
    ],
)
async def test_a_wrong_answer_of_an_owner_is_a_difference(
    tmp_path: Path,
    fresh_nats: EmbeddedNats,
    serve: Callable[[str, dict[str, object]], Awaitable[dict[str, object]]],
    kind: str,
    words: str,
) -> None:
    """For an open document, the answer of its owner counts, not the stored data."""
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        await write(client, "one", "abc")
    async with await connection.connect(url) as transport, asyncio.TaskGroup() as tasks:
        bucket = Statuses(transport)
        entry = await bucket.read("one")
        assert entry is not None
        await bucket.write("one", Up("somebody", 1), expected_revision=entry.revision)
        responder = Responder(
            transport.bus,
            SystemClock(),
            lambda _: serve,
            spawn=lambda work: begun.append(tasks.create_task(work)),
            budget=ReplyBudget(1 << 20),
        )
        begun: list[asyncio.Task[None]] = []
        await transport.bus.subscribe(subjects.calls("one"), responder.on_message)
        await transport.bus.barrier()
        report = await audited(
            url, replay(data), None, LiveReadSettings(call_seconds=0.1 if serve is _is_silent else 5.0)
        )
        for task in begun:
            task.cancel()
    assert kinds(report) == {"one": [kind]}
    assert words in report.differences[0].sentence


async def test_a_nats_without_servers_is_an_error(fresh_nats: EmbeddedNats) -> None:
    """The audit of a wrong NATS ends with that error, and compares nothing."""
    with pytest.raises(LiveReadFailed, match="no lorogo server has ever run"):
        async with live_documents.live(fresh_nats.url):
            pytest.fail("there is nothing to read")


async def test_an_audit_ends_when_nats_stays_away(tmp_path: Path, fresh_nats: EmbeddedNats) -> None:
    """It does not go on to call every document unreadable."""
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        await write(client, "one", "abc")
    async with live_documents.live(url, LiveReadSettings(reconnect_seconds=0.2)) as live:
        await fresh_nats.stop()
        with pytest.raises(Disconnected, match="restore it and audit again"):
            await audit(replay(data).values(), live, again=None)
        with pytest.raises(Disconnected):
            await live.documents()


# --- seeded faults --------------------------------------------------------------------------------


class Tampering:
    """A tool that changes stored data on NATS without the servers."""

    def __init__(self, transport: connection.JetStreamTransport) -> None:
        self.wal = transport.stream(subjects.WAL_STREAM)
        self.objects = transport.stream(subjects.SNAPSHOT_STREAM)
        self.bucket = Statuses(transport)
        self.store = SnapshotStore(
            self.objects,
            max_payload=transport.bus.max_payload,
            clock=SystemClock(),
            new_id=new_nanoid,
        )

    async def lose(self, name: str) -> None:
        """Delete the WAL and the snapshot of a document; the status stays."""
        head = await self.store.head(name)
        await self.wal.purge(subjects.wal(name))
        if head is not None:
            await self.objects.delete(head.revision)

    async def change(self, name: str, **facts: int) -> None:
        head = await self.store.head(name)
        assert head is not None
        changed = replace(SnapshotMetadata.parse(head.facts), **facts)  # type: ignore[arg-type]
        await self.store.put_facts(head, name, changed.render())

    async def put(self, name: str, doc: LoroDoc) -> None:
        head = await self.store.head(name)
        assert head is not None
        await self.wal.purge(subjects.wal(name))
        facts = SnapshotMetadata.parse(head.facts).render()
        await self.store.put(name, Replica(doc).snapshot(), facts, expected_revision=head.revision)

    async def forge(self, name: str, now: str) -> None:
        """The same operations by number, with another text."""
        _, snapshot = await self.stored(name)
        [peer] = (span for span in Replica.from_snapshot(snapshot).doc.oplog_vv.sub_iter(LoroDoc().oplog_vv))
        doc = LoroDoc()
        doc.peer_id = peer.peer
        doc.get_text("body").insert(0, now)
        doc.commit()
        await self.put(name, doc)

    async def stored(self, name: str) -> tuple[int, bytes]:
        head = await self.store.head(name)
        assert head is not None
        return head.revision, await self.store.get(head, bytes_max=1 << 20)

    async def cut(self, name: str) -> None:
        """The snapshot's bytes are gone."""
        head = await self.store.head(name)
        assert head is not None
        assert await self.objects.purge(f"$O.{subjects.SNAPSHOT_BUCKET}.C.{head.nuid}")

    async def fail(self, name: str) -> None:
        entry = await self.bucket.read(name)
        assert entry is not None
        await self.bucket.write(name, Failed("trace7", 1), expected_revision=entry.revision)


SERVER_FAULTS: dict[str, tuple[Callable[[Tampering], Awaitable[object]], str, str]] = {
    "wal-lost": (lambda nats: nats.wal.purge(subjects.wal("wal-lost")), "missing-on-server", "0..3"),
    "all-lost": (lambda nats: nats.lose("all-lost"), "unknown-document", "the server does not have it"),
    "tombstone": (lambda nats: nats.lose("tombstone"), "unknown-document", "its deletion"),
    "forged": (
        lambda nats: nats.forge("forged", "abcX"),
        "content-differs",
        '"abcd" in the journals, "abcX" on',
    ),
    "deleted": (
        lambda nats: nats.change("deleted", deleted_ns=1),
        "deletion-differs",
        "live in the journals",
    ),
    "undeleted": (
        lambda nats: nats.change("undeleted", deleted_ns=0),
        "deletion-differs",
        "live on the server",
    ),
    "erased": (
        lambda nats: nats.change("erased", deleted_ns=1, erased_ns=1),
        "deletion-differs",
        "still hold its content",
    ),
    "generation": (
        lambda nats: nats.change("generation", generation=3),
        "generation-differs",
        "3 on the server",
    ),
    "cut": (lambda nats: nats.cut("cut"), "not-readable", "the snapshot of 'cut' is damaged"),
    "failed": (lambda nats: nats.fail("failed"), "not-readable", "trace7"),
    "extra": (lambda nats: _longer(nats, "extra"), "missing-in-journal", "no journal here has"),
}


async def _longer(nats: Tampering, name: str) -> None:
    _, snapshot = await nats.stored(name)
    doc = Replica.from_snapshot(snapshot).doc
    doc.peer_id = 77
    doc.get_text("body").insert(0, "more ")
    doc.commit()
    await nats.put(name, doc)


@pytest.mark.slow
async def test_each_change_on_nats_is_one_difference_of_its_kind(
    tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """One fault per document on the side of NATS: one difference each, and none in the others."""
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        for name in [*SERVER_FAULTS, "well"]:
            await write(client, name, "ab", "cd")
            if name != "wal-lost":
                await client.document(name).compact()
            if name in {"tombstone", "undeleted"}:
                await client.document(name).delete()
    assert (await audited(url, replay(data), again(data))).clean
    async with await connection.connect(url) as transport:
        tampering = Tampering(transport)
        for fault, _, _ in SERVER_FAULTS.values():
            await fault(tampering)
    report = await audited(url, replay(data), again(data))
    assert kinds(report) == {name: [kind] for name, (_, kind, _) in SERVER_FAULTS.items()}
    for one in report.differences:
        assert SERVER_FAULTS[one.document_id][2] in one.sentence
    assert report.documents == len(SERVER_FAULTS) + 1
    assert (report.equal, report.skipped, report.clean) == (1, (), False)
    assert [one.severity for one in report.differences] == sorted(one.severity for one in report.differences)
    facts = report.to_json()
    assert facts["kinds"] == report.kinds
    assert "1 of 12 documents are equal" in report.sentence


def last_word(record: Record) -> bool:
    return isinstance(record, UpdateRecord) and b"cd" in record.payload


def other_bytes(record: UpdateRecord) -> UpdateRecord:
    return replace(record, payload=record.payload.replace(b"cd", b"cX"))


def with_digest(record: UpdateRecord, payload: bytes) -> UpdateRecord:
    return replace(record, payload=payload, digest=digest(payload))


async def test_each_change_of_a_journal_is_one_difference_of_its_kind(
    tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """One fault per document on the side of the journals: one difference each, and none in the others."""
    url, data = fresh_nats.url, tmp_path / "data"
    names = ["lost-record", "lost-document", "changed", "garbage", "well"]
    async with serving(url, data) as client:
        for name in names:
            await write(client, name, "ab", "cd")

        def change(name: str, record: Record) -> Record | None:
            if name == "lost-document" or (name == "lost-record" and last_word(record)):
                return None
            if isinstance(record, UpdateRecord) and last_word(record):
                if name == "changed":
                    return other_bytes(record)
                if name == "garbage":
                    return with_digest(record, b"cd is no update")
            return record

        assert (await audited(url, replay(data), again(data))).clean
        hurt = copied(data, tmp_path / "hurt", change)
        report = await audited(url, replay(hurt), again(hurt))
        assert kinds(report) == {
            "lost-record": ["missing-in-journal"],
            "lost-document": ["unjournalled-document"],
            "changed": ["bad-digest"],
            "garbage": ["does-not-decode"],
        }
        assert (report.asked, report.equal, report.documents) == (5, 1, 5)
        two = tmp_path / "two"
        for number, one in enumerate((data, hurt)):
            copied(one, two / str(number), lambda _, record: record)
        repaired = await audited(url, replay(two), again(two))
        assert kinds(repaired) == {"garbage": ["does-not-decode"]}, "what one journal has lost another has"


async def test_a_damaged_segment_is_a_difference_of_its_own(tmp_path: Path, fresh_nats: EmbeddedNats) -> None:
    """The damaged segment is listed beside the updates that are missing because of it."""
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        await write(client, "hurt", "one ", "two ", "three ")
    segment = next((data / "journal" / "00").glob("*.seg"))
    whole = segment.read_bytes()
    at = whole.index(b"three ")
    segment.write_bytes(whole[:at] + b"X" + whole[at + 1 :])
    async with live_documents.live(url) as live:
        report = await audit(
            replay(data).values(), live, again=again(data), damaged=damage(data), pauses=PAUSES
        )
    assert kinds(report) == {"": ["damaged-segment"], "hurt": ["missing-in-journal"]}
    assert segment.name in next(one.sentence for one in report.differences if not one.document_id)


async def test_a_document_that_cannot_be_looked_at_is_skipped_with_its_reason(
    tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """An invalid name, or a read that takes too long, is listed with its reason, and the audit is
    not clean.
    """
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        await write(client, "one", "abc")
    odd = {**replay(data), "no id!": JournalDocument("no id!", ends={1: 1})}
    report = await audited(url, odd, None)
    assert [one.document_id for one in report.skipped] == ["no id!"]
    assert (report.equal, report.clean, report.differences) == (1, False, ())
    slow = await audited(url, replay(data), None, LiveReadSettings(document_seconds=0.0))
    assert [one.reason for one in slow.skipped] == ["one could not be read: it took longer than 0 s"]
    assert "1 not compared" in slow.sentence
