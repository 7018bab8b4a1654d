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
        "lorogo_transport.snapshots",
        "subject, body, headers=headers, expected_last=expected_revision\n",
        "subject, body, headers=headers\n",
        "a snapshot is stored by compare-and-swap, and never goes back",
        HELD,
    ),
    Mutation(
        "unknown-taken-as-stored",
        "lorogo_transport.snapshots",
        """\
            except (WrongLastSequence, OutcomeUnknown) as error:
                try:
""",
        """\
            except OutcomeUnknown:
                return _at(head, expected_revision + 1)
            except WrongLastSequence as error:
                try:
""",
        "a swap of which nobody knows the outcome is looked up before anything is purged",
        _LOSSY,
        begin=130,
    ),
    Mutation(
        "unknown-taken-as-failed",
        "lorogo_transport.snapshots",
        """\
        except WrongLastSequence:
            await self._take_back(document_id, nuid)  #""",
        """\
        except (WrongLastSequence, OutcomeUnknown):
            await self._discard(nuid)  #""",
        "the bytes of a snapshot that may be stored are not thrown away",
        _UNHEARD,
    ),
    Mutation(
        "purged-before-journal",
        "lorogo_server.compaction",
        """\
    await host.journalled()
    await host.lease.confirm()
""",
        """\
    await host.lease.confirm()
""",
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
        "lorogo_server.compaction",
        "needed = first_needed(loaded, host.answers)",
        "needed = loaded.follower.position + 1",
        "a purge leaves what is unfinished, pending, or not moved yet",
        _COMPACTED,
    ),
    Mutation(
        "purged-before-stored",
        "lorogo_server.compaction",
        """\
        mark, head = await _store(host)
""",
        """\
        await purge(host, first_needed(host.loaded, host.answers), host.epoch)
        mark, head = await _store(host)
""",
        "a snapshot is stored before the WAL behind it is purged",
        _COMPACTED,
    ),
    Mutation(
        "trim-line-not-adopted",
        "lorogo_server.compaction",
        """\
        intake.replica = fresh
        host.answers.trimming = True""",
        """\
        host.answers.trimming = True""",
        "what a live owner accepts, a fresh load of its snapshot accepts",
        Wish(
            kinds=("compact", "client-cut", "client-parted", "server-kill"),
            every=1.5,
            seconds=40.0,
            settings={"compact_every_seconds": 15.0, "history_seconds": 1.0},
            others={"clients": 3, "think_seconds": 0.3, "documents": 1},
        ),
        begin=5,
    ),
    Mutation(
        "tombstone-after-purge",
        "lorogo_server.deletion",
        """\
            deleted_by=host.lease.token,
        )
        try:
""",
        """\
            deleted_by=host.lease.token,
        )
        await purge(host, loaded.follower.position + 1, host.epoch)
        try:
""",
        "a tombstone is stored before the WAL is purged",
        _DELETED,
    ),
    Mutation(
        "tombstone-not-journalled",
        "lorogo_server.deletion",
        """\
        await host.answers.tell_deleted()
        await host.journalling.deleted(facts)
""",
        """\
        await host.answers.tell_deleted()
""",
        "a tombstone is journalled before the deletion is answered",
        _DELETED_AND_LOST,
    ),
    Mutation(
        "tombstone-not-brought-back",
        "lorogo_server.reconcile",
        "if row.deleted_ns and (there.deleted or row.erased_ns or there.generation <= row.generation):",
        "if row.erased_ns and (there.deleted or row.erased_ns or there.generation <= row.generation):",
        "what was deleted stays deleted, though the stream lost its tombstone",
        _DELETED_AND_LOST,
    ),
    Mutation(
        "edits-after-deletion",
        "lorogo_server.deletion",
        """\
        host.adopt_snapshot(head, facts, loaded.intake.wal_bytes, loaded.intake.new_bytes)
        loaded.intake.deleted = True
""",
        """\
        host.adopt_snapshot(head, facts, loaded.intake.wal_bytes, loaded.intake.new_bytes)
""",
        "nothing is accepted once the document is deleted",
        _DELETED,
    ),
    Mutation(
        "restored-as-it-was",
        "lorogo_server.deletion",
        "generation=loaded.facts.generation + 1,",
        "generation=loaded.facts.generation,",
        "a restored document is another generation",
        _DELETED,
    ),
    Mutation(
        "refused-comes-back",
        "lorogo_server.deletion",
        "await context.wal.purge(subjects.wal(host.document_id), before=loaded.follower.position + 1)\n",
        "pass\n",
        "what was refused because the document was deleted does not come back with it",
        Wish(
            kinds=("storm",),
            every=6.0,
            seconds=60.0,
            others={"deletes": True, "documents": 1, "clients": 3, "think_seconds": 0.3},
        ),
        begin=2,
    ),
    Mutation(
        "deleted-before-copied",
        "lorogo_server.quarantine",
        """\
        await self._copy(lease.document_id, stored, no)
        if not (lease.valid() and still_so()):
            return False
        return await self._wal.delete(sequence)
""",
        """\
        if not (lease.valid() and still_so()):
            return False
        gone = await self._wal.delete(sequence)
        await self._copy(lease.document_id, stored, no)
        return gone
""",
        "what is refused for good is kept before it is deleted from the WAL",
        Wish(kinds=("server-kill", "storm"), every=4.0, others={"rogue": True}),
    ),
)
