"""Compaction: a snapshot with 30 days of history into the ObjectStore, then the WAL is trimmed.

The order is the point: mark and export, adopt the new trim line, store by compare-and-swap, read back,
journal durable, confirm the lease, check the epoch, purge. Every step but the last may fail without harm.
"""

from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from lorogo_protocol import subjects
from lorogo_protocol.calls import Refused
from lorogo_protocol.crdt import Applied, CrdtPanic, Replica
from lorogo_protocol.errors import LorogoError
from lorogo_server.document import history
from lorogo_server.document.host import Host
from lorogo_server.document.wal_bounds import first_needed
from lorogo_server.ownership.lease import LeaseLost
from lorogo_server.sandbox.call_costs import Call
from lorogo_server.sandbox.child_process import Fork, Work
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import OutcomeUnknown, TooLarge, TransportError, WrongLastSequence
from lorogo_transport.stores.snapshots import SnapshotDamaged, SnapshotHead

_TRIES = 3


class CompactionFailed(LorogoError):
    """The document was not compacted; nothing was purged."""

    code = "failed"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    snapshot_bytes: int
    purged: int
    sequence: int


@dataclass(frozen=True, slots=True)
class VerifiedSnapshot:
    """A snapshot that is stored and read back, and what of the WAL nobody needs since."""

    revision: int  # of the snapshot object
    before: int  # messages below this are in it
    epoch: int  # in which they were read
    snapshot_bytes: int
    sequence: int
    wal_bytes: int  # of the messages that it covers


@dataclass(frozen=True, slots=True)
class _Mark:
    """The document at one moment, ready to be stored."""

    data: bytes
    facts: SnapshotMetadata
    purge_before: int  # messages below this are in the snapshot and nobody needs them
    wal_bytes: int
    new_bytes: int  # of accepted updates that the snapshot before did not hold
    epoch: int
    life: int  # of the document in memory


async def compact(host: Host) -> Compacted:
    """Store a snapshot and purge what it covers. Raises CompactionFailed, LeaseLost, TransportError."""
    async with host.compacting:
        covering = await _cover(host)
        purged = await purge(host, covering.before, covering.epoch)
        host.log.info(
            "compacted",
            snapshot_bytes=covering.snapshot_bytes,
            purged=purged,
            sequence=covering.sequence,
        )
        return Compacted(covering.snapshot_bytes, purged, covering.sequence)


async def cover(host: Host) -> VerifiedSnapshot:
    """Store a snapshot and purge nothing yet: `purge_rest` or `purge_prefix` do (docs/decisions/0014).

    Raises CompactionFailed, LeaseLost, JournalStopped, TransportError.
    """
    async with host.compacting:
        return await _cover(host)


async def _cover(host: Host) -> VerifiedSnapshot:
    await host.answers.retry_quarantine(host.epoch)
    try:
        mark, head = await _store(host)
        await _read_back(host, head, mark.data)
    except LorogoError:
        if host.answers.trimming and not host.must_store:
            host.doubt_stored()  # our trim line may not be stored: what is stored decides
        raise
    holds_all = mark.life == host.answers.life  # else the stream may have lost what came behind the mark
    host.adopt_snapshot(head, mark.facts, mark.wal_bytes, mark.new_bytes, holds_all=holds_all)
    host.answers.trim_line_stored(host.epoch)
    await host.journalling.compacted(mark.data, mark.facts)
    host.context.counters.compactions += 1
    return VerifiedSnapshot(
        head.revision, mark.purge_before, mark.epoch, len(mark.data), mark.facts.sequence, mark.wal_bytes
    )


async def _read_back(host: Host, head: SnapshotHead, data: bytes) -> None:
    """See that it is there. If it is not, what was there before is gone, too: only we have it now.

    And if nobody can tell, that may be so.
    """
    try:
        found = await host.context.snapshots.get(head, bytes_max=host.context.settings.snapshot_bytes_max)
        if found != data:
            raise CompactionFailed("the stored snapshot does not read back as it was written")
    except TooLarge:
        raise  # it is there, and would be each time
    except (CompactionFailed, TransportError):
        host.must_store = host.doubts_snapshot = True
        raise


async def _store(host: Host) -> tuple[_Mark, SnapshotHead]:
    for _ in range(_TRIES):
        if not await host.knows_snapshot():
            await _learn_other_snapshot(host)
            host.doubts_snapshot = False
        # The child's turn comes first: `busy` is not held while exports of other documents take long.
        async with AsyncExitStack() as stack:
            try:
                fork = await stack.enter_async_context(child_if_needed(host, Call.COMPACT))
            except Refused as error:
                raise CompactionFailed(str(error)) from None
            await stack.enter_async_context(host.busy)
            try:
                mark = await _mark(host, fork)
            except CrdtPanic as error:
                host.broken(str(error))
                raise CompactionFailed("the document is being loaded afresh") from error
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
    raise CompactionFailed("others keep writing this document's snapshot")


def _still_ours(host: Host) -> None:
    """The upload may have been long, and a bucket that was made anew counts its revisions from 1 again."""
    if not host.lease.valid():
        raise CompactionFailed("the lease is in doubt")


def child_if_needed(host: Host, call: Call) -> AbstractAsyncContextManager[Fork | None]:
    """The turn of a child that exports the document, to be waited for before `busy`; None: the loop may."""
    if host.needs_child(call):
        return host.context.children.turn(host.document_id, exports=True)
    return nullcontext()


async def _mark(host: Host, fork: Fork | None) -> _Mark:
    """Export and adopt the new trim line; its caller holds `busy`, so nothing comes between.

    `fork`: a child process exports; other documents go on, this one waits.
    """
    loaded, clock = host.loaded, host.context.clock
    intake = loaded.intake
    if intake.deleted:
        raise CompactionFailed("the document is deleted")
    replica = intake.replica
    frontiers = replica.frontiers()
    # By the stream's clock, which dated the versions: ours may be wrong, and what is trimmed is gone.
    dated = [version.time_ns for version in intake.history.versions(frontiers)]
    now_ns = min(clock.wall_ns(), loaded.follower.time_ns or max(dated, default=clock.wall_ns()))
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
        raise CompactionFailed("the snapshot does not hold what the document holds")
    if fresh.trimmed() != replica.trimmed():
        # From here on we refuse what a fresh load of this snapshot would refuse.
        intake.replica = fresh
        host.answers.trimming = True  # nobody is refused for it before it is stored
        if oldest is not None:
            intake.history.drop_before(oldest.time_ns)
    facts = replace(
        loaded.facts,
        sequence=intake.head,
        epoch=host.epoch,
        frontiers=frontiers,
        trim=fresh.trimmed(),
        dated=history.encode(intake.history.versions(frontiers)),
        lease=host.lease.token,
    )
    needed = first_needed(loaded, host.answers)
    return _Mark(data, facts, needed, intake.wal_bytes, intake.new_bytes, host.epoch, host.answers.life)


async def _exported(host: Host, replica: Replica, fork: Fork, export: Work) -> bytes:
    """Export in a child process. Raises CompactionFailed."""
    stands = _stands(host)
    try:
        data, seconds = await fork(lambda: export)
    except Refused as error:
        raise CompactionFailed(str(error)) from None
    if host.loaded.intake.replica is not replica or _stands(host) != stands:
        raise CompactionFailed("the document changed while it was exported")
    host.costs.took(Call.COMPACT, host.size, seconds)
    return data


def _stands(host: Host) -> tuple[object, ...]:
    """What must not change between an export and the mark of it."""
    intake = host.loaded.intake
    return intake.replica.version(), intake.head, intake.deleted, host.epoch, host.answers.life


async def _learn_other_snapshot(host: Host) -> None:
    """Somebody stored a snapshot since we loaded: step down for a newer owner, else merge it."""
    head = await host.context.snapshots.head(host.document_id)
    if head is None:
        host.adopt_no_snapshot()
        return
    facts = SnapshotMetadata.parse(head.facts)
    if facts.lease > host.lease.token:
        why = f"a snapshot with token {facts.lease} is stored, ours is {host.lease.token}"
        host.lease.lose(why)
        raise LeaseLost(why)
    async with host.busy:
        if facts.deleted:
            if not facts.erased_ns and facts.generation < host.loaded.facts.generation:
                # It was restored since, and that snapshot is lost: a journal that did not hear of it
                # brought the tombstone back. What lives here goes over it.
                host.loaded.snapshot = head
                return
            await host.reload()
            return
        if head.size:
            try:
                data = await host.context.snapshots.get(
                    head, bytes_max=host.context.settings.snapshot_bytes_max
                )
            except SnapshotDamaged:
                if facts.lease != host.lease.token:
                    raise
                host.loaded.snapshot = head  # our own: what it held is here, and goes over it
                host.must_store = True
                return
            other, ours = Replica.from_snapshot(data, lazy=True), host.loaded.intake.replica
            if other.shallow and not ours.includes(other.version().vector):
                vector = ours.version().vector
                if not other.can_serve_since(vector):
                    await host.reload()  # a trimmed one is a beginning: what the WAL has goes on top of it
                    return
                applied = ours.apply(other.updates_since(vector))  # nothing that we hold is put away
            else:
                applied = ours.apply(data)
            await host.journalling.merged(data, other.version(), host.loaded, host.epoch)
            if isinstance(applied, Applied) and applied.new:
                await host.answers.tell_restored(host.loaded.intake.head)  # nobody was sent what it adds
        known = host.loaded.facts
        both = replace(
            known,
            generation=max(known.generation, facts.generation),
            past=max(known.past, facts.past),
            past_ns=max(known.past_ns, facts.past_ns),
        )
        host.adopt_snapshot(head, both, 0, 0, holds_all=False)


async def purge(host: Host, before: int, epoch: int) -> int:
    """Remove the subject's messages below `before`, but never its newest; returns how many."""
    context = host.context
    await host.journalled()
    await host.lease.confirm()
    if await context.check_epoch() or context.epochs.current != epoch or host.epoch != epoch:
        host.log.warning("not purged: the stream went backwards since the snapshot")
        return 0
    subject = subjects.wal(host.document_id)
    newest = await context.wal.last(subject)
    if newest is None:
        return 0
    if not host.lease.valid():
        raise LeaseLost("the lease ran out before the purge")
    before = min(before, newest.sequence)
    purged = await context.wal.purge(subject, before=before)
    host.purged(before, purged)
    return purged
