"""Compaction: store a snapshot with 30 days of history in the ObjectStore, then purge the WAL behind it.

The order is essential: mark and export, adopt the new trim line, store by compare-and-swap, read back,
make the journal durable, confirm the lease, check the epoch, purge. All steps before the purge may fail
without harm.
"""

from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.loro.crdt import Applied, CrdtPanic, Replica
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.position import Position
from lorogo_server.document import startup
from lorogo_server.document.host import Host
from lorogo_server.document.wal_bounds import first_needed
from lorogo_server.intake import history
from lorogo_server.ownership.lease import LeaseLost
from lorogo_server.sandbox.call_costs import Call
from lorogo_server.sandbox.child_process import ChildKind, Fork, Work
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import OutcomeUnknown, TooLarge, TransportError, WrongLastSequence
from lorogo_transport.stores.snapshots import SnapshotDamaged, SnapshotHead

_TRIES = 3


class CompactionFailed(LorogoError):
    """The document was not compacted; nothing was purged."""

    code = "failed"


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a compaction."""

    snapshot_bytes: int
    purged: int
    sequence: int


@dataclass(frozen=True, slots=True)
class VerifiedSnapshot:
    """A snapshot that was stored and read back, and the part of the WAL that it makes obsolete."""

    revision: int  # of the snapshot object
    position: Position  # of the last update in it
    before: int  # the snapshot covers messages below this sequence of that epoch
    snapshot_bytes: int
    wal_bytes: int  # of the covered messages


@dataclass(frozen=True, slots=True)
class _Mark:
    """An exported document with the state to store."""

    data: bytes
    facts: SnapshotMetadata
    purge_before: int  # the snapshot makes messages below this sequence obsolete
    wal_bytes: int
    new_bytes: int  # of accepted updates since the previous snapshot
    reads: int  # of the WAL from its beginning, before the export


async def compact(host: Host) -> Compacted:
    """Store a snapshot and purge the messages it covers.

    Raises CompactionFailed, LeaseLost, JournalStopped, TransportError.
    """
    async with host.compacting:
        covering = await _cover(host)
        purged = await purge(host, covering.before, covering.position.epoch)
        host.log.info(
            "compacted",
            snapshot_bytes=covering.snapshot_bytes,
            purged=purged,
            sequence=covering.position.sequence,
        )
        return Compacted(covering.snapshot_bytes, purged, covering.position.sequence)


async def cover(host: Host) -> VerifiedSnapshot:
    """Store a snapshot without a purge; `purge_one` or `purge_prefix` follow (docs/decisions/0014).

    Raises CompactionFailed, LeaseLost, JournalStopped, TransportError.
    """
    async with host.compacting:
        return await _cover(host)


async def _cover(host: Host) -> VerifiedSnapshot:
    await host.refused.move_all(host.epoch)
    try:
        mark, head = await _store(host)
        await _read_back(host, head, mark.data)
    except LorogoError:
        if host.refused.trim_unstored and not host.state.memory_is_only_copy:
            host.request_reload()  # the new trim line may not be stored: load the stored one
        raise
    holds_all = mark.reads == host.state.reads  # otherwise the stream may have lost later messages
    host.adopt_snapshot(head, mark.facts, mark.wal_bytes, mark.new_bytes, holds_all=holds_all)
    if host.refused.trim_stored():
        host.spawn(host.refused.move_all(host.epoch))
    await host.journal.compacted(mark.data, mark.facts)
    host.context.counters.compactions += 1
    return VerifiedSnapshot(
        head.revision, mark.facts.position, mark.purge_before, len(mark.data), mark.wal_bytes
    )


async def _read_back(host: Host, head: SnapshotHead, data: bytes) -> None:
    """Read the stored snapshot back.

    The upload replaced the previous snapshot. If the new one is missing or cannot be verified, assume that
    memory holds the only copy.
    """
    try:
        found = await host.context.snapshots.get(head, bytes_max=host.context.settings.snapshot_bytes_max)
        if found != data:
            raise CompactionFailed("the stored snapshot differs from the data written")
    except TooLarge:
        raise  # it is stored; every later attempt would fail alike
    except (CompactionFailed, TransportError):
        host.snapshot_not_readable()
        raise


async def _store(host: Host) -> tuple[_Mark, SnapshotHead]:
    for _ in range(_TRIES):
        if not await host.verify_snapshot():
            await _learn_other_snapshot(host)
            host.snapshot_verified()
        # Wait for a child process first, so that exports of other documents do not block this one.
        async with AsyncExitStack() as stack:
            try:
                fork = await stack.enter_async_context(child_if_needed(host, Call.COMPACT))
            except Refused as error:
                raise CompactionFailed(str(error)) from None
            await stack.enter_async_context(host.busy)
            try:
                mark = await _mark(host, fork)
            except CrdtPanic as error:
                host.loro_panicked(str(error))
                raise CompactionFailed("the document is being loaded again") from error
            expected = host.snapshot_revision
        try:
            head = await host.context.snapshots.put(
                host.document_id,
                mark.data,
                mark.facts.render(),
                expected_revision=expected,
                check=lambda: _still_ours(host),
            )
        except (WrongLastSequence, OutcomeUnknown):
            await _learn_other_snapshot(host)
            continue
        return mark, head
    raise CompactionFailed("other servers keep writing this document's snapshot")


def _still_ours(host: Host) -> None:
    """Check the lease after the upload: in a recreated bucket an old revision could match."""
    if not host.lease.valid():
        raise CompactionFailed("the lease is unconfirmed")


def child_if_needed(host: Host, call: Call) -> AbstractAsyncContextManager[Fork | None]:
    """Return a context that reserves a child process for an export; it yields None if the loop may export.

    Enter it before `busy`, so that exports of other documents do not block this one.
    """
    if host.needs_child(call):
        return host.context.children.turn(host.document_id, ChildKind.EXPORT)
    return nullcontext()


async def _mark(host: Host, fork: Fork | None) -> _Mark:
    """Export the document and adopt the new trim line.

    The caller holds `busy`, so the document cannot change. `fork`: a child process exports; other documents
    are served meanwhile, this one is not.
    """
    loaded, clock = host.loaded, host.context.clock
    intake = loaded.intake
    if intake.deleted:
        raise CompactionFailed("the document is deleted")
    replica = intake.replica
    frontiers = replica.frontiers()
    # By the stream's clock, which dated the versions: the local clock may be wrong, and a trim is final.
    dated = [version.time_ns for version in intake.history.versions(frontiers)]
    now_ns = min(clock.wall_ns(), loaded.follower.position.time_ns or max(dated, default=clock.wall_ns()))
    horizon_ns = now_ns - int(host.context.settings.history_seconds * 1e9)
    intake.history.thin(now_ns)
    oldest = intake.history.at(horizon_ns, frontiers)
    if oldest is None or replica.vector_of(oldest.frontiers) is None:
        export: Work = replica.snapshot
    else:
        export = partial(replica.shallow_snapshot, oldest.frontiers)
    if fork is not None:
        data = await _exported(host, replica, fork, export)
    else:
        began = clock.now()
        data = export()
        host.costs.took(Call.COMPACT, host.size, clock.now() - began)
    fresh = Replica.from_snapshot(data, lazy=True)
    if fresh.frontiers() != frontiers and fresh.version().vector != replica.version().vector:
        raise CompactionFailed("the snapshot differs from the document")
    if fresh.trimmed() != replica.trimmed():
        # From now on refuse the updates that a load of this snapshot would refuse.
        intake.replica = fresh
        host.refused.trim_unstored = True  # send no NACKs because of it before the snapshot is stored
        if oldest is not None:
            intake.history.drop_before(oldest.time_ns)
    facts = replace(
        loaded.facts,
        position=intake.head,
        frontiers=frontiers,
        trim=fresh.trimmed(),
        dated=history.encode(intake.history.versions(frontiers)),
        lease=host.lease.token,
    )
    needed = first_needed(loaded, host.refused)
    return _Mark(data, facts, needed, intake.wal_bytes, intake.new_bytes, host.state.reads)


async def _exported(host: Host, replica: Replica, fork: Fork, export: Work) -> bytes:
    """Export in a child process. Raises CompactionFailed."""
    version_key = _version_key(host)
    try:
        data, seconds = await fork(lambda: export)
    except Refused as error:
        raise CompactionFailed(str(error)) from None
    if host.loaded.intake.replica is not replica or _version_key(host) != version_key:
        raise CompactionFailed("the document changed while it was exported")
    host.costs.took(Call.COMPACT, host.size, seconds)
    return data


def _version_key(host: Host) -> tuple[object, ...]:
    """Return the state that must not change between an export and its mark."""
    intake = host.loaded.intake
    return intake.replica.version(), intake.head, intake.deleted, host.state.reads


async def _learn_other_snapshot(host: Host) -> None:
    """Handle a snapshot stored by another server since the load: step down for a newer owner, else merge."""
    head = await host.context.snapshots.head(host.document_id)
    if head is None:
        host.adopt_no_snapshot()
        return
    facts = SnapshotMetadata.parse(head.facts)
    if facts.lease > host.lease.token:
        why = f"a snapshot with token {facts.lease} is stored; this server's token is {host.lease.token}"
        host.lease.lose(why)
        raise LeaseLost(why)
    async with host.busy:
        if facts.deleted:
            if not facts.erased_ns and facts.generation < host.loaded.facts.generation:
                # The document was restored later, and that snapshot is lost: a journal without the restore
                # stored the tombstone again. Overwrite it with the document in memory.
                host.loaded.snapshot = head
                return
            await startup.reload(host)
            return
        if head.size:
            try:
                data = await host.context.snapshots.get(
                    head, bytes_max=host.context.settings.snapshot_bytes_max
                )
            except SnapshotDamaged:
                if facts.lease != host.lease.token:
                    raise
                host.adopt_unreadable_snapshot(head)  # written by this lease, so memory has its content
                return
            other, ours = Replica.from_snapshot(data, lazy=True), host.loaded.intake.replica
            if other.shallow and not ours.includes(other.version().vector):
                vector = ours.version().vector
                if not other.can_serve_since(vector):
                    await startup.reload(host)  # a trimmed snapshot is a new base for the WAL
                    return
                applied = ours.apply(other.updates_since(vector))  # keeps all changes in memory
            else:
                applied = ours.apply(data)
            await host.journal.merged(data, other.version(), facts, host.loaded)
            if isinstance(applied, Applied) and applied.new:
                await host.request_sync()
                if host.loaded.intake.pending:
                    host.rewind()  # early updates, which are in the WAL only, may be ready
        both = host.loaded.facts.merged(facts)
        host.adopt_snapshot(head, both, 0, 0, holds_all=False)


async def purge(host: Host, before: int, epoch: int) -> int:
    """Remove the subject's messages below `before`, except its newest; return their number."""
    context = host.context
    await host.journalled()
    await host.lease.confirm()
    if await context.epochs.check() or context.epochs.current != epoch or host.epoch != epoch:
        host.log.warning("purge skipped: the stream lost messages since the snapshot")
        return 0
    subject = subjects.wal(host.document_id)
    newest = await context.wal.last(subject)
    if newest is None:
        return 0
    if not host.lease.valid():
        raise LeaseLost("the lease expired before the purge")
    before = min(before, newest.sequence)
    purged = await context.wal.purge(subject, before=before)
    host.purged(before, purged)
    return purged
