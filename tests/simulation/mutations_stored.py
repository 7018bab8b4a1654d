"""Mistakes with what is stored: snapshots, purges, tombstones, refusals."""

from tests.simulation.mutating import Mutation
from tests.simulation.mutations_owner import HELD
from tests.simulation.plan import Wish

_COMPACTED = Wish(
    kinds=("compact", "server-kill", "client-cut", "storm"),
    every=2.0,
    settings={"compact_every_seconds": 4.0},
    others={"think_seconds": 0.3},
)
_LOSSY = Wish(
    kinds=("storm", "compact", "compact"),
    every=1.5,
    settings={"compact_every_seconds": 4.0},
    others={"servers": 1, "documents": 3, "think_seconds": 0.3},
)
_UNHEARD = Wish(
    kinds=("swap-unheard", "compact"),
    every=2.0,
    seconds=40.0,
    settings={"compact_every_seconds": 4.0, "idle_seconds": 300.0},
    others={"servers": 1, "think_seconds": 0.3, "documents": 1},
)
_DELETED = Wish(
    kinds=("server-kill", "client-cut", "client-kill"),
    every=4.0,
    others={"deletes": True, "documents": 1, "think_seconds": 0.3},
)
_DELETED_AND_LOST = Wish(
    kinds=("snapshots-gone", "everything-gone", "server-kill"),
    every=4.0,
    others={"deletes": True, "documents": 1, "think_seconds": 0.3},
)

STORED: tuple[Mutation, ...] = (
    Mutation(
        "snapshot-without-swap",
        "SnapshotStore._swap",
        "self._stream.append(subject, body, headers=headers, expected_last=expected_revision)",
        "self._stream.append(subject, body, headers=headers)",
        "a snapshot is stored by compare-and-swap, and never goes back",
        HELD,
    ),
    Mutation(
        "unknown-taken-as-stored",
        "SnapshotStore._swap",
        """
            try:
                stored = await self._stream.last(subject)
            except TransportError:
                raise OutcomeUnknown(f"the snapshot of {head.document_id!r} may be stored") from error
        """,
        """
            if isinstance(error, OutcomeUnknown):
                return replace(head, revision=expected_revision + 1)
            try:
                stored = await self._stream.last(subject)
            except TransportError:
                raise OutcomeUnknown(f"the snapshot of {head.document_id!r} may be stored") from error
        """,
        "a swap with an unknown outcome is looked up before anything is purged",
        _LOSSY,
        begin=42,
    ),
    Mutation(
        "unknown-taken-as-failed",
        "SnapshotStore.put",
        "return await self._swap(head, expected_revision)",
        """
            try:
                return await self._swap(head, expected_revision)
            except OutcomeUnknown:
                await self._discard(nuid)
                raise
        """,
        "the bytes of a snapshot that may be stored are not thrown away",
        _UNHEARD,
    ),
    Mutation(
        "purged-before-journal",
        "purge",
        "await host.journalled()",
        "",
        "the journal is on the disk before the WAL is purged",
        Wish(
            kinds=("disk-slow", "disk-slow", "compact", "compact"),
            every=1.5,
            settings={"compact_every_seconds": 4.0},
            others={"servers": 1, "think_seconds": 0.3},
        ),
        begin=4,
    ),
    Mutation(
        "purged-though-needed",
        "_mark",
        "needed = first_needed(loaded, host.refused)",
        "needed = loaded.follower.position.sequence + 1",
        "a purge leaves what is unfinished, early, or not moved yet",
        _COMPACTED,
        begin=6,
    ),
    Mutation(
        "purged-before-stored",
        "_cover",
        "mark, head = await _store(host)",
        """
            await purge(host, first_needed(host.loaded, host.refused), host.epoch)
            mark, head = await _store(host)
        """,
        "a snapshot is stored before the WAL behind it is purged",
        _COMPACTED,
    ),
    Mutation(
        "trim-line-not-adopted",
        "_mark",
        "intake.replica = fresh",
        "",
        "what a live owner accepts, a fresh load of its snapshot accepts",
        Wish(
            kinds=("compact", "client-cut", "client-parted", "server-kill"),
            every=1.5,
            seconds=40.0,
            settings={"compact_every_seconds": 15.0, "history_seconds": 1.0},
            others={"clients": 3, "think_seconds": 0.3, "documents": 1},
        ),
        begin=50,
    ),
    Mutation(
        "tombstone-after-purge",
        "delete",
        "loaded.intake.history.thin(context.clock.wall_ns())",
        """
            loaded.intake.history.thin(context.clock.wall_ns())
            await purge(host, loaded.follower.position.sequence + 1, host.epoch)
        """,
        "a tombstone is stored before the WAL is purged",
        _DELETED,
        begin=4,
    ),
    Mutation(
        "tombstone-not-journalled",
        "delete",
        "await host.journal.deleted(facts)",
        "",
        "a tombstone is journalled before the deletion is answered",
        _DELETED_AND_LOST,
    ),
    Mutation(
        "tombstone-not-brought-back",
        "plan",
        "desired.deleted",
        "bool(desired.erasure) and desired.deleted",
        "what was deleted stays deleted, though the stream lost its tombstone",
        _DELETED_AND_LOST,
        begin=16,
    ),
    Mutation(
        "edits-after-deletion",
        "delete",
        "loaded.intake.deleted = True",
        "",
        "nothing is accepted once the document is deleted",
        _DELETED,
        begin=4,
    ),
    Mutation(
        "restored-as-it-was",
        "SnapshotMetadata.restored",
        "self.generation + 1",
        "self.generation",
        "a restored document is another generation",
        _DELETED,
        begin=4,
    ),
    Mutation(
        "refused-comes-back",
        "restore",
        "await context.wal.purge(subjects.wal(host.document_id), before=before)",
        "pass",
        "what was refused because the document was deleted does not come back with it",
        Wish(
            kinds=("storm",),
            # many edits on the way to one owner whenever the document is deleted
            every=3.0,
            seconds=60.0,
            others={
                "deletes": True,
                "rogue": False,
                "kept": 0.0,
                "servers": 1,
                "documents": 1,
                "clients": 6,
                "think_seconds": 0.1,
            },
        ),
        begin=62,
    ),
    Mutation(
        "deleted-before-copied",
        "Quarantine._move_one",
        """
            await self._copy(lease.document_id, stored, no)
            if not (lease.valid() and still_valid()):
                return False
            return await self._wal.delete(sequence)
        """,
        """
            if not (lease.valid() and still_valid()):
                return False
            gone = await self._wal.delete(sequence)
            await self._copy(lease.document_id, stored, no)
            return gone
        """,
        "what is refused for good is kept before it is deleted from the WAL",
        Wish(kinds=("server-kill", "storm"), every=4.0, others={"rogue": True}),
    ),
)
