"""Deletion, erasure and restore of a document.

The tombstone is the metadata of a last snapshot. The owner stores it, NACKs updates with `deleted`, and then
purges the WAL. `restore` raises the generation, so that the replicas of offline clients rebase.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages import reasons, subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.position import NOWHERE
from lorogo_server.compaction.compaction import child_if_needed, purge
from lorogo_server.document import startup, wal_reader
from lorogo_server.document.document_journal import new_term
from lorogo_server.document.host import Host
from lorogo_server.intake import history
from lorogo_server.ownership.lease import LeaseLost
from lorogo_server.sandbox.call_costs import Call
from lorogo_transport.errors import OutcomeUnknown, StreamMissing, WrongLastSequence
from lorogo_transport.stores.overwrite import overwrite
from lorogo_transport.stores.snapshots import SnapshotHead


async def delete(host: Host) -> int:
    """Delete the document; return the time in Unix nanoseconds. A repeated deletion is no error."""
    # Reserve the child process before `busy`, as a compaction does.
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
            loaded.facts.deleted_as(
                context.new_id(),
                replica.version().vector,
                deleted_ns,
                known=context.living_terms(host.document_id),
            ),
            position=loaded.intake.head,
            frontiers=frontiers,
            trim=replica.trimmed(),
            dated=history.encode(loaded.intake.history.versions(frontiers)),
            lease=host.lease.token,
        )
        with _stored_or_reloaded(host, "deletion"):
            head = await context.snapshots.put(
                host.document_id,
                data,
                facts.render(),
                expected_revision=host.snapshot_revision,
            )
        host.adopt_snapshot(head, facts, loaded.intake.wal_bytes, loaded.intake.new_bytes)
        loaded.intake.deleted = True
        host.log.info("deleted", generation=facts.generation)
        await host.acks.publish_deleted()
        await host.journal.deleted(facts)
        await purge(host, loaded.follower.position.sequence + 1, host.epoch)
        return facts.deleted_ns


async def _affirm(host: Host) -> None:
    """Journal the tombstone of a deleted document: the owner that stored it may have stopped before that."""
    await host.lease.confirm()
    await _know_snapshot(host, ask=True)  # another server may have restored the document
    await host.journal.deleted(host.loaded.facts)


async def erase(host: Host) -> int:
    """Delete the document and all its data but the tombstone; return the time. Idempotent.

    The tombstone is stored first, so that no content returns; then a record in the journal, then NATS is
    overwritten, and every server removes the document's records (docs/JOURNAL.md, "Erasure").
    """
    async with host.compacting, host.busy:
        loaded, context = host.loaded, host.context
        await host.lease.confirm()
        await _know_snapshot(host)
        old = loaded.snapshot
        now_ns = (await context.wal.state()).now_ns or context.clock.wall_ns()
        now_ns = max(now_ns, loaded.facts.deleted_ns)
        if not loaded.facts.erased_ns or (old is not None and old.size):  # NATS may have an old one again
            stone, deleted_ns = context.new_id(), now_ns
            vector = loaded.intake.replica.version().vector
            if loaded.facts.deleted:
                stone, deleted_ns, vector = (
                    loaded.facts.tombstone,
                    loaded.facts.deleted_ns,
                    loaded.facts.vector,
                )
            facts = replace(
                loaded.facts.deleted_as(
                    stone, vector, deleted_ns, known=context.living_terms(host.document_id)
                ),
                position=loaded.intake.head,
                frontiers=b"",
                trim=b"\x00",
                dated="[]",
                lease=host.lease.token,
                erased_ns=loaded.facts.erased_ns or now_ns,
                cutoff=NOWHERE,
            )
            with _stored_or_reloaded(host, "erasure"):
                head = await context.snapshots.put(
                    host.document_id, b"", facts.render(), expected_revision=host.snapshot_revision
                )
            host.adopt_snapshot(head, facts, loaded.intake.wal_bytes, loaded.intake.new_bytes)
            loaded.intake.forget_content()
            host.log.info("erased", generation=facts.generation)
            await host.acks.publish_deleted(reasons.ERASED)
        erased_ns = loaded.facts.erased_ns
        await host.journal.deleted(loaded.facts)
        await _erase_stored(host, old)
        await context.transport.bus.publish(subjects.erased(host.document_id))
        return erased_ns


@contextmanager
def _stored_or_reloaded(host: Host, what: str) -> Iterator[None]:
    """Request a reload, and raise Refused, if the write in this block failed or may have."""
    try:
        yield
    except (WrongLastSequence, OutcomeUnknown) as error:
        host.request_reload()
        raise Refused(Reason.BUSY, f"the outcome of the {what} is unknown; retry") from error


async def _know_snapshot(host: Host, *, ask: bool = False) -> None:
    """Raise Refused, and request a reload, if another snapshot is stored than the known one."""
    if not await host.verify_snapshot(always=ask):
        host.request_reload()
        raise Refused(Reason.BUSY, "the document is being loaded again; retry")


async def _erase_stored(host: Host, old: SnapshotHead | None) -> None:
    """Overwrite the last snapshot, the WAL, the refused updates and the stored presence."""
    context, loaded = host.context, host.loaded
    if old is not None and loaded.snapshot is not None and old.nuid != loaded.snapshot.nuid:
        await context.snapshots.discard(old)
    await host.lease.confirm()
    if not await context.epochs.check() and loaded.follower.position.sequence:
        before = loaded.follower.position.sequence + 1
        await overwrite(context.wal, subjects.wal(host.document_id), before=before)
        loaded.follower.rewind(host.epoch)
    await context.quarantine.forget(host.document_id)
    with suppress(StreamMissing):
        presence = context.transport.stream(subjects.PRESENCE_STREAM)
        await overwrite(presence, subjects.presence_key(host.document_id))


async def restore(host: Host) -> int:
    """Undo a deletion within its retention; return the new generation."""
    async with host.compacting, host.busy:
        loaded, context = host.loaded, host.context
        if not loaded.intake.deleted or loaded.snapshot is None:
            raise Refused(Reason.CONFLICT, "the document is not deleted")
        if loaded.facts.erased_ns:
            raise Refused(Reason.NOT_FOUND, "the document was erased and cannot be restored")
        age = (context.clock.wall_ns() - loaded.facts.deleted_ns) / 1e9
        if age > context.settings.deleted_keep_seconds:
            raise Refused(Reason.NOT_FOUND, "the document was deleted too long ago to be restored")
        await wal_reader.settle_epoch(host)  # refused messages may have other sequences now
        await wal_reader.read_to_the_end(host)  # refuse what was stored until now: its sender may have a NACK
        await host.lease.confirm()  # after the read: updates ACKed by another owner must stay
        # Nor updates of a later incarnation, which a server restored: its snapshot is stored before them.
        await _know_snapshot(host, ask=True)
        restored_ns = (await context.wal.state()).now_ns or context.clock.wall_ns()
        if await context.epochs.check() or host.epoch != context.epochs.current:
            raise Refused(Reason.BUSY, "the stream lost messages and is being read again; retry")
        # The messages up to the position are refused, or in the snapshot: a load must not accept them.
        if loaded.follower.position.sequence:
            if not host.lease.valid():
                raise LeaseLost("the lease expired before the purge")
            before = loaded.follower.position.sequence + 1
            await context.wal.purge(subjects.wal(host.document_id), before=before)
        facts = loaded.facts.restored(new_term(context.new_id), host.lease.token, loaded.follower.position)
        with _stored_or_reloaded(host, "restore"):
            await context.snapshots.put_facts(loaded.snapshot, host.document_id, facts.render())
        loaded.facts = facts  # restored, also if NATS loses that before the reload
        await host.journal.restored(facts, restored_ns)
        try:
            async with asyncio.timeout(context.settings.recover_seconds_max):
                await context.after_restore(host.document_id)
        except (LorogoError, OSError, TimeoutError) as error:  # the next pass brings it back
            host.log.warning("restored before its journals were compared", problem=repr(error))
        await startup.reload(host)  # and have clients sync
        host.log.info("restored", generation=facts.generation)
        return facts.generation
