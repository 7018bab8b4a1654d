"""The document server on the wire: what it answers, and that nothing stops it. In both worlds."""

import asyncio
import base64
import gc
import os
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest
from loro import ExportMode, LoroDoc, VersionVector

from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.loro.ephemeral import PresenceStore
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.chunks import Chunk
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_protocol.status import Down, Failed, Starting, Up
from lorogo_server import InvalidSettings, ServerSettings
from lorogo_server.snapshot_metadata import FORMAT
from tests.freed import no_collection, until_freed
from tests.server.support import QUICK, Probe, Serve, Writer, until


async def test_an_update_is_stored_applied_published_journalled_and_acked(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """The sender gets a receipt, all others get the update once."""
    await serve()
    entry = await probe.start(unique)
    received = await probe.hear(subjects.accepted(unique))
    writer = Writer()
    update = writer.type("hello")
    ack = await probe.accept(unique, update)
    assert ack.lease == entry.token
    assert ack.durability == "journal"
    message = await asyncio.wait_for(received.get(), 5)
    assert message.data == update
    assert message.headers[h.SEQUENCE] == str(ack.sequence)
    assert message.headers[h.LEASE] == str(ack.lease)
    assert await probe.value(unique) == {"body": "hello"}
    second = await probe.accept(unique, writer.type(" world"))
    message = await asyncio.wait_for(received.get(), 5)
    assert message.headers[h.PREVIOUS] == str(ack.sequence)
    assert second.sequence > ack.sequence


async def test_a_resend_is_acked_again_and_published_once(serve: Serve, probe: Probe, unique: str) -> None:
    """The owner remembers ACKed log ids."""
    await serve()
    await probe.start(unique)
    received = await probe.hear(subjects.accepted(unique))
    update = Writer().type("once")
    first = await probe.send(unique, update, "same-id")
    again = await probe.send(unique, update, "same-id")
    assert first == again
    await probe.accept(unique, Writer().type("x"))
    ids = [(await received.get()).headers[h.LOG_ID] for _ in range(2)]
    assert ids.count("same-id") == 1
    assert received.empty()


async def test_an_update_that_changes_nothing_is_no_gap_for_readers(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """The same bytes under another id are ACKed and not published; the next update is no gap."""
    await serve()
    await probe.start(unique)
    received = await probe.hear(subjects.accepted(unique))
    writer = Writer()
    update = writer.type("once ")
    first = await probe.accept(unique, update)
    again = await probe.accept(unique, update)
    assert again.sequence > first.sequence
    await probe.accept(unique, writer.type("twice"))
    await received.get()
    message = await asyncio.wait_for(received.get(), 5)
    assert message.headers[h.PREVIOUS] == str(first.sequence)


def _history_less() -> bytes:
    """An update whose beginning is missing."""
    writer = Writer()
    writer.type("a")
    return writer.type("b")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", Reason.INVALID_UPDATE),
        (b"x", Reason.INVALID_UPDATE),
        (os.urandom(1000), Reason.INVALID_UPDATE),
        (b"loro" + bytes(200), Reason.INVALID_UPDATE),
        (Writer().type("cut")[:-1], Reason.INVALID_UPDATE),
        (bytes(300_000), Reason.TOO_LARGE),
        (_history_less(), Reason.MISSING_DEPENDENCIES),
    ],
    ids=["empty", "one byte", "random", "header only", "cut", "too large", "missing dependencies"],
)
async def test_a_bad_update_is_refused_alone(
    serve: Serve, probe: Probe, unique: str, payload: bytes, reason: Reason
) -> None:
    """Each gets its reason; the document and the server go on."""
    await serve(replace(QUICK, update_bytes_max=250_000))
    await probe.start(unique)
    nack = await probe.refuse(unique, payload)
    assert nack.reason is reason
    assert nack.message
    await probe.accept(unique, Writer().type("still here"))
    assert await probe.value(unique) == {"body": "still here"}


async def test_a_wrong_digest_is_refused_and_the_same_id_may_try_again(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """A NACKed id is forgotten at once."""
    await serve()
    await probe.start(unique)
    update = Writer().type("digest")
    (good,) = probe.split(update, "the-id")
    await probe.put(unique, [replace(good, digest="12345")])
    reply = await probe.answer()
    assert isinstance(reply, Nack)
    assert reply.reason is Reason.DIGEST_MISMATCH
    assert isinstance(await probe.send(unique, update, "the-id"), Ack)


async def test_a_missing_chunk_is_answered_within_the_senders_patience(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """The final chunk gets chunk-missing; sent whole again, the same id is accepted."""
    await serve()
    await probe.start(unique)
    update = Writer().type("many chunks " * 10)
    parts = probe.split(update, "gap", size=20)
    assert len(parts) > 3
    await probe.put(unique, [*parts[:1], *parts[2:]])
    reply = await probe.answer()
    assert isinstance(reply, Nack)
    assert reply.reason is Reason.CHUNK_MISSING
    await probe.put(unique, parts)
    assert isinstance(await probe.answer(), Ack)


async def test_chunks_may_be_interleaved_doubled_and_out_of_order(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """Three updates come in at once, in any order."""
    await serve()
    await probe.start(unique)
    streams = [probe.split(Writer().type(letter * 100), f"id-{letter}", size=30) for letter in "abc"]
    mixed: list[Chunk] = []
    for group in zip(*streams, strict=False):
        mixed += group
    mixed = [*mixed[::-1], *[part for parts in streams for part in parts if part not in mixed], mixed[0]]
    await probe.put(unique, mixed)
    answers = [await probe.answer() for _ in range(3)]
    assert all(isinstance(answer, Ack) for answer in answers)
    assert {answer.log_id for answer in answers} == {"id-a", "id-b", "id-c"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {h.LOG_ID: "x"},
        {h.LOG_ID: "x", h.CHUNK_INDEX: "-1"},
        {h.LOG_ID: "a b", h.CHUNK_INDEX: "0"},
        {h.LOG_ID: "x", h.CHUNK_INDEX: "0", h.FINAL: "yes"},
        {h.LOG_ID: "x", h.CHUNK_INDEX: "0", h.FINAL: "true", h.CHUNK_COUNT: "99999999999999"},
    ],
)
async def test_a_malformed_message_is_quarantined(
    serve: Serve, probe: Probe, unique: str, headers: dict[str, str]
) -> None:
    """It is copied to loro-rejected with its reason, then deleted from the WAL."""
    await serve()
    await probe.start(unique)
    sequence = await probe.wal.append(subjects.wal(unique), b"what?", headers=headers)
    copy = await until(lambda: probe.rejected.last(subjects.rejected(unique)))
    assert copy.data == b"what?"
    assert copy.headers[h.REASON] == "invalid-update"
    assert copy.headers[h.SEQUENCE] == str(sequence)

    async def gone() -> bool:
        return await probe.wal.get(sequence) is None

    await until(gone)
    await probe.accept(unique, Writer().type("fine"))


async def test_an_update_with_missing_dependencies_is_accepted_when_it_is_sent_after_them(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """The owner keeps nothing of it: the NACK `missing-dependencies` has the client send it again."""
    await serve()
    await probe.start(unique)
    writer = Writer()
    first, second = writer.type("one "), writer.type("two")
    nack = await probe.refuse(unique, second)
    assert nack.reason is Reason.MISSING_DEPENDENCIES
    await probe.accept(unique, first)
    assert await probe.value(unique) == {"body": "one "}
    await probe.accept(unique, second)
    assert await probe.value(unique) == {"body": "one two"}


async def test_what_waits_too_long_is_quarantined_and_never_appears(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """After its time an update with missing dependencies leaves the WAL; a load does not find it."""
    await serve()
    await probe.start(unique)
    writer = Writer()
    first, second = writer.type("one "), writer.type("two")
    await probe.refuse(unique, second)
    copy = await until(lambda: probe.rejected.last(subjects.rejected(unique)))
    assert copy.data == second
    await probe.accept(unique, first)
    assert await probe.value(unique) == {"body": "one "}


async def test_a_second_server_loads_what_the_first_accepted(serve: Serve, probe: Probe, unique: str) -> None:
    """After a graceful stop the document is DOWN, and the next server serves the same content."""
    first = await serve()
    await probe.start(unique)
    writer = Writer()
    for word in ("a ", "b ", "c "):
        await probe.accept(unique, writer.type(word))
    await first.stop()
    assert isinstance((await probe.status(unique)).status, Down)
    await serve()
    await probe.start(unique)
    assert await probe.value(unique) == {"body": "a b c "}


async def test_compaction_leaves_the_tail_and_a_loadable_snapshot(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """The WAL is empty but for its newest message; a fresh load gives the same."""
    first = await serve()
    await probe.start(unique)
    writer = Writer()
    for _ in range(20):
        await probe.accept(unique, writer.type("word "))
    done = await probe.call("compact", unique)
    assert done["purged"] == 19
    assert await probe.wal.count(subjects.wal(unique)) == 1
    await probe.accept(unique, writer.type("after"))
    await first.stop()
    await serve()
    await probe.start(unique)
    assert await probe.value(unique) == {"body": "word " * 20 + "after"}
    versions = (await probe.call("history", unique))["versions"]
    assert isinstance(versions, list)
    assert len(versions) >= 1


async def test_a_fork_needs_a_free_id(serve: Serve, probe: Probe, unique: str) -> None:
    """A document is forked neither onto itself nor onto another that exists; the answer has the remedy."""
    await serve()
    for name in (unique, f"{unique}-other"):
        await probe.start(name)
        await probe.accept(name, Writer().type("text"))
    with pytest.raises(Refused, match=f"^cannot fork {unique} onto itself; choose a new id$"):
        await probe.call("fork", unique, to=unique)
    with pytest.raises(Refused, match=f"^{unique}-other exists; choose another id$"):
        await probe.call("fork", unique, to=f"{unique}-other")


@pytest.mark.parametrize("at", [b"", b"\x00", b"\x00\x00\x00", b"\xff\xff", None])
async def test_what_is_no_version_changes_nothing(
    serve: Serve, probe: Probe, unique: str, at: bytes | None
) -> None:
    """A mistyped version is refused by every call that takes one; None: a version with bytes behind it."""
    await serve()
    await probe.start(unique)
    await probe.accept(unique, Writer().type("text"))
    frontiers = (await probe.call("version", unique))["frontiers"]
    assert isinstance(frontiers, bytes)
    wrong = frontiers + b"\x00\x00" if at is None else at
    for verb, others in (("get", {}), ("revert", {}), ("export", {}), ("fork", {"to": f"{unique}-copy"})):
        with pytest.raises(Refused, match="its history lists them"):
            await probe.call(verb, unique, at=wrong, **others)
    assert await probe.value(unique) == {"body": "text"}


async def test_a_revert_leaves_younger_roots_empty(serve: Serve, probe: Probe, unique: str) -> None:
    """Loro has no operation that removes a root: the content is that of the version, beside empty roots."""
    await serve()
    await probe.start(unique)
    await probe.accept(unique, Writer().type("text"))
    before = (await probe.call("version", unique))["frontiers"]
    young = [{"op": "add", "path": "/list", "value": [1]}, {"op": "add", "path": "/map", "value": {"k": 1}}]
    await probe.call("patch", unique, operations=young)
    await probe.call("revert", unique, at=before)
    assert await probe.value(unique) == {"body": "text", "list": [], "map": {}}
    assert (await probe.call("get", unique, at=before))["value"] == {"body": "text"}


async def test_compaction_spares_what_is_unfinished_or_waits(serve: Serve, probe: Probe, unique: str) -> None:
    """A purge stops before the first chunk of an unfinished update: it can still become whole."""
    await serve()
    await probe.start(unique)
    writer = Writer()
    await probe.accept(unique, writer.type("early "))
    parts = probe.split(writer.type("in chunks " * 10), "slow", size=50)
    await probe.put(unique, parts[:1])
    await probe.accept(unique, Writer().type("late"))
    await probe.call("compact", unique)
    assert await probe.wal.count(subjects.wal(unique)) >= 2
    await probe.put(unique, parts[1:])
    assert isinstance(await probe.answer(), Ack)


async def test_edits_older_than_the_kept_history_are_refused_by_the_live_owner_and_by_a_fresh_one(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """The trim line is adopted at the mark: accepted by any host means accepted by a fresh load."""
    settings = replace(QUICK, history_seconds=0)
    first = await serve(settings)
    await probe.start(unique)
    writer = Writer()
    await probe.accept(unique, writer.type("old "))
    offline = Writer(writer.everything())
    stale = offline.type("from the past ")
    await probe.accept(unique, writer.type("new "))
    await probe.call("compact", unique)
    nack = await probe.refuse(unique, stale)
    assert nack.reason is Reason.HISTORY_TRIMMED
    await probe.accept(unique, writer.type("newer"))
    await first.stop()
    await serve(settings)
    await probe.start(unique)
    assert await probe.value(unique) == {"body": "old new newer"}
    assert (await probe.refuse(unique, stale)).reason is Reason.HISTORY_TRIMMED
    reply = await probe.call("sync", unique, vector=offline.doc.oplog_vv.encode())
    assert reply["mode"] == "snapshot"


async def test_sync_sends_what_is_missing_and_no_more(serve: Serve, probe: Probe, unique: str) -> None:
    """Frontiers first; the vector where the oplog does not know them; a snapshot for the empty."""
    await serve()
    await probe.start(unique)
    writer = Writer()
    await probe.accept(unique, writer.type("one "))
    behind = Writer(writer.everything())
    await probe.accept(unique, writer.type("two"))
    here = writer.doc.oplog_frontiers.encode()
    assert (await probe.call("sync", unique, frontiers=here))["mode"] == "current"
    reply = await probe.call("sync", unique, frontiers=behind.doc.oplog_frontiers.encode())
    assert reply["mode"] == "updates"
    assert isinstance(reply["payload"], bytes)
    behind.doc.import_(reply["payload"])
    assert behind.text == "one two"
    behind.type("own edit")
    strange = behind.doc.oplog_frontiers.encode()
    assert (await probe.call("sync", unique, frontiers=strange))["mode"] == "vector"
    reply = await probe.call("sync", unique, frontiers=strange, vector=behind.doc.oplog_vv.encode())
    assert reply["mode"] in {"current", "updates"}
    fresh = await probe.call("sync", unique)
    assert fresh["mode"] == "snapshot"
    with pytest.raises(Refused) as no:
        await probe.call("sync", unique, frontiers=b"\xff\xff\xff")
    assert no.value.reason is Reason.INVALID_REQUEST


async def test_the_owner_writes_up_over_down_and_error(serve: Serve, probe: Probe, unique: str) -> None:
    """A foreign DOWN or ERROR on a served document is overruled."""
    await serve()
    up = await probe.start(unique)
    for status in (Down(1), Failed("trace", 1)):
        entry = await probe.status(unique)
        while True:
            try:
                await probe.statuses.write(unique, status, expected_revision=entry.revision)
                break
            except Exception:  # noqa: BLE001  # a renewal came between: read and write again
                entry = await probe.status(unique)
        again = await probe.until_up(unique)
        assert again.token == up.token


async def test_a_foreign_starting_makes_the_owner_step_down(serve: Serve, probe: Probe, unique: str) -> None:
    """The old owner closes without another write; the one that takes the init serves the content."""
    await serve()
    await probe.start(unique)
    await probe.accept(unique, Writer().type("kept"))

    async def moved() -> str | None:
        try:
            return await probe.move(unique)
        except Exception:  # noqa: BLE001  # lost against a renewal
            return None

    operation = await until(moved)
    await probe.init(unique, operation.encode())
    entry = await probe.until_up(unique)
    assert isinstance(entry.status, Up)
    assert await probe.value(unique) == {"body": "kept"}


async def test_a_document_that_cannot_be_loaded_ends_in_error_with_its_trace(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """After the retries a server writes ERROR with the trace id of the failure; a reset brings it back."""
    server = await serve(replace(QUICK, retries_max=1))
    store = server.context.snapshots
    head = await store.put(unique, b"not a snapshot", {"format": FORMAT}, expected_revision=0)
    traces: list[str] = []
    for retry in range(3):
        operation = await probe.move(unique, retry)
        message = await probe.init(unique, operation.encode())
        if h.REASON in message.headers:
            break

        async def failed() -> str | None:
            trace = (await probe.status(unique)).trace  # of the load before, until this one has failed
            return None if trace in traces else trace

        traces.append(await until(failed))
    status = (await probe.status(unique)).status
    assert isinstance(status, Failed)
    assert status.trace_id == traces[-1]
    await store.put(
        unique, LoroDoc().export(ExportMode.Snapshot()), {"format": FORMAT}, expected_revision=head.revision
    )
    await probe.start(unique)
    assert await probe.value(unique) == {}


async def test_init_is_declined_with_a_reason_when_it_does_not_fit(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """No STARTING, another operation, nonsense: the answer has the reason."""
    await serve()
    for body in (b"some-operation", b"\xff\xfe", b"a b c"):
        message = await probe.init(unique, body)
        assert message.headers[h.REASON] == "conflict"
        assert message.headers[h.MESSAGE]


async def test_an_empty_init_lets_the_server_make_the_move(serve: Serve, probe: Probe, unique: str) -> None:
    """For clients without rights on the bucket; a served document is not taken away."""
    await serve()
    message = await probe.init(unique, b"")
    assert h.SERVER in message.headers
    before = await probe.until_up(unique)
    again = await probe.init(unique, b"")
    assert again.headers[h.REASON] == "conflict"
    assert (await probe.status(unique)).token == before.token


async def test_a_server_that_is_left_the_move_takes_it_with_one_write(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """The entry after the one that the asker saw is STARTING in the server's name: its token."""
    server = await serve()
    message = await probe.init(unique, b"op-1", expected=0)
    up = await probe.until_up(unique)
    assert message.headers[h.LEASE] == str(up.token)
    server.hosts[unique].stop("for this test")

    async def down() -> StatusEntry | None:
        entry = await probe.status(unique)
        return entry if isinstance(entry.status, Down) and unique not in server.hosts else None

    before = await until(down)
    message = await probe.init(unique, b"op-2", expected=before.revision)
    assert message.headers[h.LEASE] == str((await probe.until_up(unique)).token)


@pytest.mark.parametrize("expected", [0, 1], ids=["none was seen", "an old one was seen"])
async def test_a_move_that_is_left_to_a_server_takes_nothing_away(
    serve: Serve, probe: Probe, unique: str, expected: int
) -> None:
    """Whatever revision the request names: the document is UP, so it stays where it is."""
    await serve()
    before = await probe.start(unique)
    other = await serve()
    for _ in range(4):  # either of the servers is asked
        message = await probe.init(unique, b"op-1", expected=expected)
        assert message.headers[h.REASON] == "conflict"
    assert (await probe.status(unique)).token == before.token
    assert unique not in other.hosts


async def test_a_document_without_a_status_is_loaded_with_what_it_has(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """Its snapshot is older than its status, so a new one is not made in its place; its WAL is read."""
    server = await serve()
    writer = Writer()
    doc = LoroDoc()
    doc.import_(writer.type("stored"))
    store = server.context.snapshots
    await store.put(unique, doc.export(ExportMode.Snapshot()), {"format": FORMAT}, expected_revision=0)
    await probe.init(unique, b"op-1", expected=0)
    await probe.until_up(unique)
    assert await probe.value(unique) == {"body": "stored"}
    head = await store.head(unique)
    assert head is not None
    assert head.size > 0
    assert head.facts["lease"] == str((await probe.status(unique)).token)


async def test_an_idle_document_is_unloaded(serve: Serve, probe: Probe, unique: str) -> None:
    """It goes DOWN by itself, and comes back with its content."""
    server = await serve(replace(QUICK, idle_seconds=0.2))
    await probe.start(unique)
    await probe.accept(unique, Writer().type("sleep"))

    async def down() -> bool:
        return isinstance((await probe.status(unique)).status, Down) and unique not in server.hosts

    await until(down)
    await probe.start(unique)
    assert await probe.value(unique) == {"body": "sleep"}


async def test_a_deleted_document_stays_deleted_until_it_is_restored(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """Tombstone, then NACK deleted, also after a restart; what was refused does not come back."""
    first = await serve()
    await probe.start(unique)
    writer = Writer()
    await probe.accept(unique, writer.type("precious"))
    await probe.call("delete", unique)
    assert (await probe.refuse(unique, writer.type(" LOST"))).reason is Reason.DELETED
    with pytest.raises(Refused) as no:
        await probe.call("get", unique)
    assert no.value.reason is Reason.DELETED
    await first.stop()
    await serve()
    await probe.start(unique)
    assert (await probe.refuse(unique, writer.type(" LOST TOO"))).reason is Reason.DELETED
    assert (await probe.call("restore", unique))["generation"] == 1
    assert await probe.value(unique) == {"body": "precious"}
    reply = await probe.call("sync", unique, vector=writer.doc.oplog_vv.encode(), generation=0)
    assert reply["mode"] == "snapshot"
    with pytest.raises(Refused) as no:
        await probe.call("restore", unique)
    assert no.value.reason is Reason.CONFLICT


async def test_presence_is_merged_for_newcomers(serve: Serve, probe: Probe, unique: str) -> None:
    """Nonsense on the presence subject has no effect."""
    await serve()
    await probe.start(unique)
    mine = PresenceStore(30)
    mine.store.set("ana", {"cursor": 3})
    await probe.bus.publish(subjects.awareness(unique), b"\xff" * 50)
    await probe.bus.publish(subjects.awareness(unique), mine.encode_all())

    async def there() -> dict[str, object] | None:
        other = PresenceStore(30)
        data = (await probe.call("sync", unique))["presence"]
        assert isinstance(data, bytes)
        other.apply(data)
        return other.states()

    assert await until(there) == {"ana": {"cursor": 3}}


async def test_a_whole_large_update_goes_through_and_is_announced(
    serve: Serve, probe: Probe, unique: str
) -> None:
    """Above the inline limit readers get an announcement to sync, and the sync reply comes in windows."""
    await serve(replace(QUICK, accepted_inline_bytes_max=1_000_000))
    await probe.start(unique)
    received = await probe.hear(subjects.accepted(unique))
    doc = LoroDoc()
    doc.get_map("files").insert("blob", os.urandom(9_000_000))
    doc.commit()
    ack = await probe.accept(unique, doc.export(ExportMode.Updates(VersionVector())))
    message = await asyncio.wait_for(received.get(), 5)
    assert int(message.headers[h.OMITTED]) > 9_000_000
    assert message.headers[h.SEQUENCE] == str(ack.sequence)
    reply = await probe.call("sync", unique)
    assert isinstance(reply["payload"], bytes)
    copy = LoroDoc()
    copy.import_(reply["payload"])
    assert copy.get_deep_value() == doc.get_deep_value()


async def test_starting_is_renewed_while_it_loads(serve: Serve, probe: Probe, unique: str) -> None:
    """A queued load keeps its STARTING fresh, so no other server takes it over."""
    server = await serve(replace(QUICK, loads_max=1))
    async with server.context.load_slots:
        operation = await probe.move(unique)
        await probe.init(unique, operation.encode())
        first = await probe.status(unique)

        async def renewed() -> bool:
            entry = await probe.status(unique)
            return entry.revision > first.revision + 1 and entry.token == first.token

        await until(renewed)
        assert isinstance((await probe.status(unique)).status, Starting)
    await probe.until_up(unique)


async def test_a_closed_document_is_freed_at_once(serve: Serve, probe: Probe, unique: str) -> None:
    """A server on which documents come and go does not grow by those that went, whenever Python collects."""
    server = await serve()
    await probe.start(unique)
    await probe.accept(unique, Writer().type("hello"))
    await probe.value(unique)
    await probe.call("compact", unique)
    with no_collection():
        host = server.hosts[unique]
        freed = [weakref.ref(one) for one in (host, host.loaded.intake, host.endpoint.presence)]
        host.stop("idle")
        await host.closed.wait()
        del host
        for one in freed:
            await until_freed(one)


def test_settings_are_checked_before_the_start() -> None:
    """An impossible setting is an error with its name."""
    for bad in ({"renew_seconds": 9}, {"replicas": 2}, {"durability": "maybe"}, {"server_id": "a b"}):
        with pytest.raises(InvalidSettings):
            ServerSettings(**bad)


_EXPORT_PANICS = base64.b64decode(
    "bG9ybwAAAAAAAAAAAAAAAHZoucUABGQADQANARABBQAAAAAAAAABAQAAAAAABQEAAAEAEAMEAXgAAgQBAAAEBAEBAAYL"
    "AWsEYm9keQFtAWwAFAEEBAEABAICBgAEAQUECwQBCwQBABMLaGVsbG8gd29ybGQFAXYHAQMB"
)


@pytest.fixture
def broken_documents() -> Iterator[None]:
    """Loro also panics when such a document is thrown away; see to it that this happens here."""
    yield
    gc.collect()


@pytest.mark.usefixtures("broken_documents")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("verb", ["compact", "sync", "export"])
async def test_a_forged_update_that_breaks_loro_later_is_found_and_quarantined(
    serve: Serve, probe: Probe, unique: str, verb: str
) -> None:
    """Loro imports it and panics at the next export: the document is loaded again without it."""
    first = await serve()
    await probe.start(unique)
    await probe.accept(unique, Writer().type("good "))
    await probe.accept(unique, _EXPORT_PANICS)
    writer = Writer()
    await probe.accept(unique, writer.type("also good"))
    with pytest.raises(Refused):
        await probe.call(verb, unique)
    copy = await until(lambda: probe.rejected.last(subjects.rejected(unique)))
    assert copy.data == _EXPORT_PANICS

    async def works() -> dict[str, object]:
        return await probe.call(verb, unique)

    await until(works)
    value = await probe.value(unique)
    assert isinstance(value, dict)
    assert sorted(value["body"]) == sorted("good also good")
    await first.stop()
    await serve()
    await probe.start(unique)
    assert await probe.value(unique) == value
