"""Mistakes of a document's owner: what it answers, journals, loads, and when it steps down."""

from tests.simulation.mutating import Mutation
from tests.simulation.plan import Wish

_LOSSES = Wish(
    kinds=("stream-rewind", "stream-gone", "server-power", "client-kill", "disk-slow", "server-kill"),
    every=2.0,
    others={"think_seconds": 0.3},
)
_OWNERS = Wish(
    kinds=("server-pause", "server-cut", "server-kill", "compact", "storm"),
    every=2.0,
    settings={"compact_every_seconds": 4.0, "idle_seconds": 300.0},
    others={"servers": 3, "think_seconds": 0.3, "documents": 1},
)
HELD = Wish(
    kinds=("swap-held", "compact"),
    every=2.0,
    seconds=40.0,
    settings={"compact_every_seconds": 4.0, "idle_seconds": 300.0},
    others={"servers": 2, "think_seconds": 0.3, "documents": 1},
)
_LOST = Wish(
    kinds=("stream-gone", "stream-rewind", "everything-gone", "server-kill"),
    every=3.0,
    settings={"reconcile_every_seconds": 60.0},
    others={"think_seconds": 0.3},
)

OWNER: tuple[Mutation, ...] = (
    Mutation(
        "ack-before-journal",
        "AckQueue.run",
        """
            if first.durable is not None:
                await safe(first.durable)
        """,
        "",
        "an update is on the disk before it is ACKed",
        _LOSSES,
        begin=1,
    ),
    Mutation(
        "receipt-before-journal",
        "AckQueue.add",
        "self._pending[key] = _PendingAck(durable, log_id, digest, inbox, sequence, received_at)",
        """
            self._pending[key] = _PendingAck(durable, log_id, digest, inbox, sequence, received_at)
            if (waiting := self._submitted.get(log_id)) is not None and not waiting.done():
                waiting.set_result(
                    Ack(log_id, digest, sequence, self._context.journal.durability, self._lease.token)
                )
        """,
        "what a call changes is on the disk before the call is answered",
        _LOSSES,
        begin=19,
    ),
    Mutation(
        "missing-accepted-live",
        "Intake._apply",
        "return self._note_early(candidate, now)",
        "return [self._accept(candidate, now, False, (), None)]",
        "an update is applied before it is ACKed",
        Wish(kinds=("storm", "client-cut"), every=2.0, others={"think_seconds": 0.3}),
    ),
    Mutation(
        "replay-not-journalled",
        "DocumentJournal.loaded",
        """
            for accepted in loaded.replayed:
                last = await self.accepted(accepted, facts.generation)
        """,
        "",
        "what the WAL replays is journalled before the document is UP",
        _LOSSES,
        begin=10,
    ),
    Mutation(
        "load-stops-early",
        "_read_through",
        "loaded.follower.position.sequence >= newest.sequence",
        "loaded.follower.position.sequence <= newest.sequence",
        "a load reads up to the leader's last message, though a replica lags",
        Wish(kinds=("stale-reads", "server-kill", "server-pause"), every=2.0, others={"think_seconds": 0.3}),
        begin=55,
    ),
    Mutation(
        "claim-left-out",
        "_load",
        "await claim(context.snapshots, host.document_id, loaded, token=token, term=term)",
        "host.lease.token",
        "no owner before us can change what is stored once we have loaded it",
        HELD,
    ),
    Mutation(
        "lost-lease-adopted",
        "Lease.on_status",
        "self.lose(why)",
        "self._adopt(entry.revision)",
        "an owner that sees another's status steps down, and renews no more",
        Wish(
            kinds=("server-pause", "server-parted"),
            every=2.0,
            others={"servers": 2, "think_seconds": 0.3, "documents": 2},
        ),
        begin=10,
    ),
    Mutation(
        "renewal-without-swap",
        "Statuses.write_unconfirmed",
        """
            self._stream.append_unconfirmed(
                subjects.status_key(document_id),
                value,
                headers=_headers(facts),
                expected_last=expected_revision,
            )
        """,
        """
            self._stream.append_unconfirmed(
                subjects.status_key(document_id),
                value,
                headers=_headers(facts),
            )
        """,
        "a renewal is a compare-and-swap: a late one changes nothing",
        _OWNERS,
        begin=12,
    ),
    Mutation(
        "status-without-swap",
        "Statuses.write",
        """
            self._stream.append(
                subjects.status_key(document_id),
                value,
                headers=headers,
                expected_last=expected_revision,
                timeout=timeout,
            )
        """,
        """
            self._stream.append(
                subjects.status_key(document_id),
                value,
                headers=headers,
                timeout=timeout,
            )
        """,
        "every move of a status is a compare-and-swap",
        _OWNERS,
        begin=1,
    ),
    Mutation(
        "ledger-believes-too-much",
        "Position.includes",
        "other.epoch == self.epoch and other.sequence <= self.sequence and other.time_ns <= self.time_ns",
        "other.epoch == self.epoch",
        "what another server accepted meanwhile is not taken to be in our journal",
        _OWNERS,
        begin=15,
    ),
    Mutation(
        "key-not-read-again",
        "Lease.confirm",
        """
            if self.view is StatusView.INTERRUPTED and not self.ended:
                await self._reread()
        """,
        "",
        "after a lost connection an owner reads its key before it writes: its revision may be another's",
        Wish(
            kinds=("stream-rewind",),
            every=3.0,
            seconds=40.0,
            others={"servers": 2, "documents": 1, "think_seconds": 0.3},
        ),
        begin=8,
    ),
    Mutation(
        "position-kept-after-rewind",
        "reread",
        "loaded.follower.rewind(epoch)",
        """
            position = loaded.follower.position
            loaded.follower.position = type(position)(epoch, position.sequence, position.time_ns)
        """,
        "after the stream went back, everything in it is read again",
        Wish(kinds=("stream-rewind", "stream-gone"), every=8.0),
        begin=9,
    ),
    Mutation(
        "any-peer-is-enough",
        "includes",
        "return all(have.get(peer, 0) >= end for peer, end in wanted.items())",
        "return any(have.get(peer, 0) >= end for peer, end in wanted.items())",
        "reconciliation brings back every update that the stream lost",
        Wish(kinds=("stream-rewind", "stream-hole", "stream-gone", "server-kill", "client-kill"), every=3.0),
        begin=3,
    ),
    Mutation(
        "served-before-recovery",
        "first_load",
        "await _recover(host)",
        "",
        "a document that NATS may have lost is brought back before it is served",
        _LOST,
        begin=5,
    ),
)
