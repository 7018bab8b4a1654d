"""RPC methods of a document's owner: `loro.doc.{verb}.{id}` (docs/PROTOCOL.md, "Calls")."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from lorogo_protocol import ids
from lorogo_protocol.errors import (
    CrdtError,
    InvalidDocumentId,
    InvalidUpdate,
    TooLong,
    TooManyPeers,
)
from lorogo_protocol.limits import LOOP_OPERATIONS_MAX
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import CrdtPanic, Replica, Version
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import EncodedBody, Refused, maybe, need
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack
from lorogo_protocol.messages.wire import WIRE, later
from lorogo_protocol.status import Down, Failed
from lorogo_server.compaction import compaction, deletion
from lorogo_server.compaction.compaction import CompactionFailed
from lorogo_server.document.document_journal import new_term
from lorogo_server.document.document_state import Phase
from lorogo_server.document.host import Host
from lorogo_server.journal.disk_journal import JournalStopped
from lorogo_server.ownership.lease import LeaseLost
from lorogo_server.rpc import document_tasks
from lorogo_server.rpc.document_tasks import no_version
from lorogo_server.rpc.execution import execute, export, require_readable, shared, updates_since
from lorogo_server.sandbox.call_costs import Call
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import StorageFull, WrongLastSequence
from lorogo_transport.timestamps import format_time_ns

Answer = Mapping[str, object]
Arguments = Mapping[str, object]

_SUBMIT_SECONDS = 30.0
_HISTORY_MAX = 1000
_COUNTED_TOGETHER = 50  # versions counted before the event loop runs other tasks


async def answer(host: Host, verb: str, arguments: Arguments) -> Answer:
    """Execute one call. Raises calls.Refused with a reason and a message."""
    handler = _VERBS.get(verb)
    if handler is None:
        raise Refused(Reason.UNKNOWN_VERB, f"{verb!r} is not one of {', '.join(sorted(_VERBS))}")
    if host.state.phase is Phase.REREADING or (host.state.is_up and host.loaded.intake.replica.is_due):
        await _wait_for_turn(host)
    require_readable(host, deleted=verb in _OF_DELETED)
    try:
        return await handler(host, arguments)
    except LeaseLost as error:
        raise Refused(Reason.NOT_OWNER, str(error)) from error
    except StorageFull as error:
        raise Refused(Reason.STORAGE_FULL, str(error)) from error
    except CrdtPanic as error:
        host.loro_panicked(str(error))
        raise Refused(Reason.BUSY, "the document is being loaded again; retry") from error
    except (CompactionFailed, JournalStopped) as error:
        raise Refused(Reason.FAILED, str(error)) from error
    except TimeoutError:
        raise Refused(Reason.BUSY, "the change was not accepted in time; it may be accepted later") from None


async def _wait_for_turn(host: Host) -> None:
    """Wait for a re-read, or for an import in steps, whose remaining steps a read would run at once."""
    try:
        async with asyncio.timeout(_SUBMIT_SECONDS), host.busy:
            pass
    except TimeoutError:
        raise Refused(Reason.BUSY, "the document is being imported or read again; retry") from None


async def _sync(host: Host, arguments: Arguments) -> Answer:
    if problem := later(arguments.get("wire"), "the client", advice="update the servers before the clients"):
        raise Refused(Reason.INVALID_REQUEST, problem)
    replica, intake = host.loaded.intake.replica, host.loaded.intake
    frontiers = maybe(arguments, "frontiers", bytes)
    vector = maybe(arguments, "vector", bytes)
    generation = maybe(arguments, "generation", int)
    here = replica.version()
    facts: dict[str, object] = {
        **_version_facts(here, intake.head.sequence),
        "lease": host.lease.token,
        "generation": host.loaded.facts.generation,
        "presence": host.endpoint.presence.encode_all(),
        "incomplete": bool(host.incomplete),
        "wire": WIRE,
    }
    other_generation = generation is not None and generation != host.loaded.facts.generation
    try:
        known = vector
        if known is None and frontiers is not None:
            known = replica.vector_of(frontiers)
            if known is None:
                return {**facts, "mode": "vector"}
        if (
            known is None
            or known == crdt.nothing_known()
            or other_generation
            or not replica.can_serve_since(known)
        ):
            exported = await export(host)
            stands = _version_facts(exported.version, exported.sequence)
            return {**facts, **stands, "mode": "snapshot", "payload": exported.data}
        if frontiers == here.frontiers or known == here.vector:
            return {**facts, "mode": "current", "payload": b""}
        if replica.operations - sum(crdt.counters(known).values()) > LOOP_OPERATIONS_MAX:
            payload, here, sequence = await updates_since(host, known)
            return {**facts, **_version_facts(here, sequence), "mode": "updates", "payload": payload}
        return {**facts, "mode": "updates", "payload": replica.updates_since(known)}
    except InvalidUpdate as error:
        raise Refused(Reason.INVALID_REQUEST, f"frontiers or vector do not decode: {error}") from None


def _version_facts(here: Version, sequence: int) -> dict[str, object]:
    return {"frontiers": here.frontiers, "vector": here.vector, "sequence": sequence}


async def _version(host: Host, arguments: Arguments) -> Answer:
    wal: dict[str, object] = {}
    if maybe(arguments, "wal", bool):
        context = host.context
        wal["wal_bytes_left"] = await context.wal_usage.left(context.wal, now=context.clock.now())
    here = host.loaded.intake.replica.version()
    return {
        **wal,
        "frontiers": here.frontiers,
        "vector": here.vector,
        "sequence": host.loaded.intake.head.sequence,
        "lease": host.lease.token,
        "generation": host.loaded.facts.generation,
    }


async def _status(host: Host, _: Arguments) -> Answer:
    loaded = host.loaded
    intake = loaded.intake
    doc = intake.replica.doc
    with crdt.guard():
        operations, changes = doc.len_ops, doc.len_changes
    return {
        "document": host.document_id,
        "server": host.context.server_id,
        "lease": host.lease.token,
        "since_ns": host.since_ns,
        "sequence": intake.head.sequence,
        "epoch": host.epoch,
        "generation": loaded.facts.generation,
        "deleted": intake.deleted,
        "operations": operations,
        "changes": changes,
        "wal_messages": await host.context.wal.count(subjects.wal(host.document_id)),
        "wal_bytes": intake.wal_bytes,
        "document_bytes": intake.document_bytes,
        "snapshot_bytes": 0 if loaded.snapshot is None else loaded.snapshot.size,
        "unfinished": intake.unfinished,
        "pending": intake.pending,
        "present": len(host.endpoint.presence.states()),
        "idle_seconds": host.idle_seconds(),
        "durability": host.context.journal.durability,
        "incomplete": list(host.incomplete),
    }


async def _get(host: Host, arguments: Arguments) -> Answer:
    paths = maybe(arguments, "paths", list)
    if paths is not None and not all(isinstance(path, str) for path in paths):
        raise Refused(Reason.INVALID_REQUEST, "'paths' must be a list of text")
    old = arguments.get("at") is not None
    wanted = _requested_version(host, arguments) if old else None
    task = partial(document_tasks.read, wanted=wanted, paths=paths)
    vector = host.loaded.intake.replica.version().vector
    key = ("get", wanted, None if paths is None else tuple(paths), vector)
    call = None if old else Call.VALUE
    return EncodedBody(await shared(host, key, lambda: execute(host, task, call=call, private=old)))


async def _patch(host: Host, arguments: Arguments) -> Answer:
    operations = need(arguments, "operations", list)
    expected = maybe(arguments, "if_frontiers", bytes)

    def check_version() -> None:
        if expected is not None and expected != host.loaded.intake.replica.frontiers():
            raise Refused(Reason.CONFLICT, "the document has changed since the version in 'if_frontiers'")

    async with host.editing:
        task = partial(document_tasks.patched, operations=operations)
        update = await execute(host, task, call=Call.PATCH, private=True, check=check_version)
        check_version()  # again: the document may have changed while a child made the patch
        return await _submit(host, update)


async def _revert(host: Host, arguments: Arguments) -> Answer:
    if arguments.get("at") is None:
        raise Refused(Reason.INVALID_REQUEST, "'at' is missing")
    async with host.editing:
        task = partial(document_tasks.reverted, wanted=_requested_version(host, arguments))
        return await _submit(host, await execute(host, task, private=True))


async def _submit(host: Host, update: bytes) -> Answer:
    """Send the update through the WAL unless it is empty, and return the facts of its ACK."""
    if not update:
        head = host.loaded.intake.head.sequence
        return _receipt(host, Ack("", "", head, host.context.journal.durability, host.lease.token))
    return _receipt(host, await host.acks.submit(update, _SUBMIT_SECONDS))


def _receipt(host: Host, ack: Ack) -> Answer:
    return {
        "frontiers": host.loaded.intake.replica.frontiers(),
        "sequence": ack.sequence,
        "lease": ack.lease,
        "durability": ack.durability,
        "log_id": ack.log_id,
    }


async def _history(host: Host, arguments: Arguments) -> Answer:
    limit = maybe(arguments, "limit", int)
    count = _HISTORY_MAX if limit is None else max(1, min(limit, _HISTORY_MAX))
    counted = maybe(arguments, "operations", bool) or False
    intake = host.loaded.intake
    replica = intake.replica
    versions = intake.history.versions(replica.frontiers())[::-1][:count]
    listed: list[dict[str, object]] = []
    for version in versions:
        facts = {"time_ns": version.time_ns, "frontiers": version.frontiers, "sequence": version.sequence}
        if counted:
            facts["operations"] = replica.operations_at(version.frontiers)
            if len(listed) % _COUNTED_TOGETHER == 0:
                await asyncio.sleep(0)  # counting is slow for versions with many heads
        listed.append(facts)
    return {"versions": listed}


async def _fork(host: Host, arguments: Arguments) -> Answer:
    try:
        target = ids.check_document_id(need(arguments, "to", str))
    except InvalidDocumentId as error:
        raise Refused(Reason.INVALID_DOCUMENT_ID, str(error)) from None
    context = host.context
    if target == host.document_id:
        raise Refused(Reason.CONFLICT, f"cannot fork {target} onto itself; choose a new id")
    content = dict(await _content(host, arguments))
    data, frontiers = need(content, "payload", bytes), need(content, "frontiers", bytes)
    most = context.settings.document_bytes_max
    if 0 < most < len(data):
        raise Refused(Reason.DOCUMENT_FULL, f"the fork has {len(data)} bytes, above the limit of {most}")
    entry = await context.statuses.read(target)
    if entry is not None and not isinstance(entry.status, Down | Failed):
        raise Refused(Reason.CONFLICT, f"{target} exists; choose another id")
    if await context.wal.last(subjects.wal(target)) is not None:
        raise Refused(Reason.CONFLICT, f"{target} exists; choose another id")
    # A journal may have a tombstone of this id that NATS lost: the new term is not ended by it.
    term = new_term(context.new_id)
    facts = SnapshotMetadata(frontiers=frontiers, lease=host.lease.token, term=term, founded=(term,))
    try:
        await context.snapshots.put(target, data, facts.render(), expected_revision=0)
    except WrongLastSequence:
        raise Refused(Reason.CONFLICT, f"{target} exists; choose another id") from None
    await host.journal.forked(target, data, frontiers, host.epoch, facts)
    return {"document": target}


async def _import(host: Host, arguments: Arguments) -> Answer:
    payload = need(arguments, "payload", bytes)
    if len(payload) > host.context.settings.update_bytes_max:
        limit = host.context.settings.update_bytes_max
        raise Refused(Reason.TOO_LARGE, f"the snapshot has {len(payload)} bytes, above the limit of {limit}")
    async with host.editing:
        try:
            await host.context.validate(payload, bounded=True)
            Replica.from_snapshot(payload, foreign=True)
        except TooLong as error:
            raise Refused(Reason.TOO_LARGE, str(error)) from None
        except TooManyPeers as error:
            raise Refused(Reason.TOO_LARGE, f"{error}; a snapshot may hold more") from None
        except CrdtError as error:
            raise Refused(Reason.INVALID_UPDATE, f"not a whole Loro snapshot: {error}") from None
        if host.loaded.intake.replica.version().vector != crdt.nothing_known():
            raise Refused(Reason.CONFLICT, "the document is not empty; import into a new one")
        ack = await host.acks.submit(payload, _SUBMIT_SECONDS)
        # A journal may have a deletion of the same operations that NATS lost: the import is not ended by it.
        term = await host.journal.created()
        host.loaded.facts = host.loaded.facts.founded_by(term)
        return _receipt(host, ack)


async def _delete(host: Host, arguments: Arguments) -> Answer:
    if maybe(arguments, "purge", bool):
        return {"erased_ns": await deletion.erase(host)}
    answer: dict[str, object] = {"deleted_ns": await deletion.delete(host)}
    if erased_ns := host.loaded.facts.erased_ns:  # it was erased before
        answer["erased_ns"] = erased_ns
    return answer


async def _restore(host: Host, _: Arguments) -> Answer:
    return {"generation": await deletion.restore(host)}


async def _compact(host: Host, _: Arguments) -> Answer:
    done = await compaction.compact(host)
    return {"snapshot_bytes": done.snapshot_bytes, "purged": done.purged, "sequence": done.sequence}


def _requested_version(host: Host, arguments: Arguments) -> bytes:
    """Return the frontiers of `at`, which is a time in Unix nanoseconds or frontiers."""
    at = arguments.get("at")
    if isinstance(at, bytes):
        if not crdt.is_version(at):
            raise no_version(at)
        return at
    if isinstance(at, int) and not isinstance(at, bool):
        intake = host.loaded.intake
        version = intake.history.at(at, intake.replica.frontiers())
        if version is None:
            raise Refused(
                Reason.UNKNOWN_VERSION, f"the document has no version that old: {format_time_ns(at)}"
            )
        return version.frontiers
    raise Refused(Reason.INVALID_REQUEST, "'at' must be a time in nanoseconds or frontiers")


async def _content(host: Host, arguments: Arguments) -> Answer:
    """Return a snapshot of the document, current or as of `at`, and its frontiers."""
    if arguments.get("at") is None:
        exported = await export(host)
        return {"payload": exported.data, "frontiers": exported.version.frontiers}
    wanted = _requested_version(host, arguments)
    task = partial(document_tasks.content_at, wanted=wanted)
    start = partial(execute, host, task, private=True)
    return EncodedBody(await shared(host, ("export", wanted), start))


_VERBS: dict[str, Callable[[Host, Arguments], Awaitable[Answer]]] = {
    "sync": _sync,
    "version": _version,
    "status": _status,
    "get": _get,
    "patch": _patch,
    "history": _history,
    "revert": _revert,
    "fork": _fork,
    "export": _content,
    "import": _import,
    "delete": _delete,
    "restore": _restore,
    "compact": _compact,
}
_OF_DELETED = frozenset({"status", "delete", "restore"})
