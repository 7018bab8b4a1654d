"""Deleting a document so that it stays deleted, and bringing it back.

The tombstone is the snapshot object's metadata, beside a last snapshot of the content: tombstone first,
then NACK `deleted`, then the WAL is purged. Offline clients that come back are told; `restore` raises
the generation, so that their replicas rebase.
"""

from contextlib import suppress
from dataclasses import replace

from lorogo_protocol.messages import reasons, subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.compaction.compaction import child_if_needed, purge
from lorogo_server.document import history
from lorogo_server.document.host import Host
from lorogo_server.ownership.lease import LeaseLost
from lorogo_server.sandbox.call_costs import Call
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import OutcomeUnknown, StreamMissing, WrongLastSequence
from lorogo_transport.stores.overwrite import overwrite
from lorogo_transport.stores.snapshots import SnapshotHead


async def delete(host: Host) -> int:
    """Delete the document; returns when, in Unix nanoseconds. Deleting twice is no error."""
    # The child's turn comes before `busy`, as in a compaction.
    async with host.compacting, child_if_needed(host, Call.EXPORT) as fork, host.busy:
        loaded, context = host.loaded, host.context
        if loaded.intake.deleted:
            await _affirm(host)
            return loaded.facts.deleted_ns
        replica = loaded.intake.replica
        data = replica.snapshot() if fork is None else (await fork(lambda: replica.snapshot))[0]
        await host.lease.confirm()
        await _know_snapshot(host)
        deleted_ns = (await context.wal.state()).now_ns or context.clock.wall_ns()
        frontiers = replica.frontiers()
        loaded.intake.history.thin(context.clock.wall_ns())
        facts = replace(
            loaded.facts,
            position=loaded.intake.head,
            frontiers=frontiers,
            trim=replica.trimmed(),
            dated=history.encode(loaded.intake.history.versions(frontiers)),
            lease=host.lease.token,
            deleted_ns=deleted_ns,
            deleted_by=host.lease.token,
        )
        try:
            head = await context.snapshots.put(
                host.document_id,
                data,
                facts.render(),
                expected_revision=host.snapshot_revision,
            )
        except (WrongLastSequence, OutcomeUnknown) as error:
            host.doubt_stored()
            raise Refused(Reason.BUSY, "it may be deleted, or not; ask again") from error
        host.adopt_snapshot(head, facts, loaded.intake.wal_bytes, loaded.intake.new_bytes)
        loaded.intake.deleted = True
        host.log.info("deleted", generation=facts.generation)
        await host.answers.tell_deleted()
        await host.journalling.deleted(facts)
        await purge(host, loaded.follower.position.sequence + 1, host.epoch)
        return facts.deleted_ns


async def _affirm(host: Host) -> None:
    """It is deleted, and somebody asks for that again: from now on it is by us.

    The tombstone may be one of before a life that NATS has lost, and that a journal still knows. And whoever
    was asked before may have ended between the tombstone and its record.
    """
    loaded, snapshots = host.loaded, host.context.snapshots
    await host.lease.confirm()
    await _know_snapshot(host, ask=True)  # another may have brought back a later life
    if not loaded.facts.erased_ns and loaded.facts.deleted_by < host.lease.token:
        facts = replace(loaded.facts, deleted_by=host.lease.token)
        try:
            head = await snapshots.put_facts_on(loaded.snapshot, host.document_id, facts.render())
        except (WrongLastSequence, OutcomeUnknown) as error:
            host.doubt_stored()
            raise Refused(Reason.BUSY, "it is deleted, and may not stay so; ask again") from error
        host.adopt_snapshot(head, facts, loaded.intake.wal_bytes, loaded.intake.new_bytes)
    await host.journalling.deleted(loaded.facts)


async def erase(host: Host) -> int:
    """Delete the document and everything that is left of it but the tombstone; returns when. Safe twice.

    The tombstone first, so that nothing can come back; then what NATS has; then a record in the journal,
    and every server removes the document's records from its segments (docs/JOURNAL.md, "Erasure").
    """
    async with host.compacting, host.busy:
        loaded, context = host.loaded, host.context
        await host.lease.confirm()
        await _know_snapshot(host)
        old = loaded.snapshot
        now_ns = (await context.wal.state()).now_ns or context.clock.wall_ns()
        now_ns = max(now_ns, loaded.facts.deleted_ns)
        if not loaded.facts.erased_ns or (old is not None and old.size):  # an old snapshot may have come back
            facts = SnapshotMetadata(
                position=loaded.intake.head,
                lease=host.lease.token,
                generation=loaded.facts.generation,
                deleted_ns=loaded.facts.deleted_ns or now_ns,
                deleted_by=loaded.facts.deleted_by or host.lease.token,
                erased_ns=loaded.facts.erased_ns or now_ns,
                past=loaded.facts.past,
                past_ns=loaded.facts.past_ns,
            )
            try:
                head = await context.snapshots.put(
                    host.document_id, b"", facts.render(), expected_revision=host.snapshot_revision
                )
            except (WrongLastSequence, OutcomeUnknown) as error:
                host.doubt_stored()
                raise Refused(Reason.BUSY, "it may be erased, or not; ask again") from error
            host.adopt_snapshot(head, facts, loaded.intake.wal_bytes, loaded.intake.new_bytes)
            loaded.intake.forget_content()
            host.log.info("erased", generation=facts.generation)
            await host.answers.tell_deleted(reasons.ERASED)
        erased_ns = loaded.facts.erased_ns
        await host.journalling.erased(erased_ns, loaded.facts.generation)
        await _erase_stored(host, old)
        context.erased(host.document_id)
        await context.transport.bus.publish(subjects.erased(host.document_id))
        return erased_ns


async def _know_snapshot(host: Host, *, ask: bool = False) -> None:
    """Raises Refused if another snapshot is stored than we think: the document is loaded afresh then."""
    if not await host.knows_snapshot(ask=ask):
        host.doubt_stored()
        raise Refused(Reason.BUSY, "it is being loaded afresh; ask again")


async def _erase_stored(host: Host, old: SnapshotHead | None) -> None:
    """What NATS has beside the tombstone: the last snapshot, the whole WAL, refusals, kept presence."""
    context, loaded = host.context, host.loaded
    if old is not None and loaded.snapshot is not None and old.nuid != loaded.snapshot.nuid:
        await context.snapshots.discard(old)
    await host.lease.confirm()
    if not await context.check_epoch() and loaded.follower.position.sequence:
        before = loaded.follower.position.sequence + 1
        await overwrite(context.wal, subjects.wal(host.document_id), before=before)
        loaded.follower.rewind(host.epoch)
    await context.quarantine.forget(host.document_id)
    with suppress(StreamMissing):
        presence = context.transport.stream(subjects.PRESENCE_STREAM)
        await overwrite(presence, subjects.presence_key(host.document_id))


async def restore(host: Host) -> int:
    """Undo a deletion within its retention; returns the new generation."""
    async with host.compacting, host.busy:
        loaded, context = host.loaded, host.context
        if not loaded.intake.deleted or loaded.snapshot is None:
            raise Refused(Reason.CONFLICT, "the document is not deleted")
        if loaded.facts.erased_ns:
            raise Refused(Reason.NOT_FOUND, "it was erased: nothing is left that could be restored")
        age = (context.clock.wall_ns() - loaded.facts.deleted_ns) / 1e9
        if age > context.settings.deleted_keep_seconds:
            raise Refused(Reason.NOT_FOUND, "it was deleted too long ago to be restored")
        await host.settle_epoch()  # what was refused may have other sequences now: it is found again
        await host.read_to_the_end()  # what was stored until now is refused: its sender may have been told so
        await host.lease.confirm()  # behind that: what another owner ACKed since is not ours to purge
        # Nor is what a server brought back that knows of a later life: it has stored that life before.
        await _know_snapshot(host, ask=True)
        restored_ns = (await context.wal.state()).now_ns or context.clock.wall_ns()
        if await context.check_epoch() or host.epoch != context.epochs.current:
            raise Refused(Reason.BUSY, "the stream lost messages, and is being read afresh; ask again")
        # What the WAL still holds up to our position was refused, or is in the snapshot: it must not
        # come back with the document.
        if loaded.follower.position.sequence:
            if not host.lease.valid():
                raise LeaseLost("the lease ran out before the purge")
            before = loaded.follower.position.sequence + 1
            await context.wal.purge(subjects.wal(host.document_id), before=before)
        facts = replace(
            loaded.facts,
            deleted_ns=0,
            deleted_by=0,
            generation=loaded.facts.generation + 1,
            lease=host.lease.token,
            cutoff=loaded.follower.position,
        )
        try:
            await context.snapshots.put_facts(
                host.document_id, facts.render(), expected_revision=loaded.snapshot.revision
            )
        except (WrongLastSequence, OutcomeUnknown) as error:
            host.doubt_stored()
            raise Refused(Reason.BUSY, "it may be restored, or not; ask again") from error
        loaded.facts = facts  # from here on we know it as living, whatever NATS may lose before it is read
        await host.journalling.restored(facts.generation, restored_ns)
        await host.reload()
        host.log.info("restored", generation=facts.generation)
        await host.answers.tell_restored(host.loaded.intake.head.sequence)
        return facts.generation
