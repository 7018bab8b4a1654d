"""Mistakes of a client: what it calls saved, what it sends again, what it believes."""

from tests.simulation.mutating import Mutation
from tests.simulation.plan import Wish

_BAD_LINE = Wish(kinds=("storm", "client-cut", "server-kill"), every=2.0, others={"think_seconds": 0.3})

CLIENT: tuple[Mutation, ...] = (
    Mutation(
        "saved-when-sent",
        "Room.state",
        "return State.SAVED if self.mirror.outbox.empty else State.SAVING",
        "return State.SAVING if self.mirror.outbox.queued else State.SAVED",
        "a client shows saved when everything is ACKed, and not before",
        _BAD_LINE,
        begin=4,
    ),
    Mutation(
        "flushed-when-sent",
        "Outbox.saved_through",
        "return all(flight.first > commit for flight in self._flights.values())",
        """
            return all(
                flight.first > commit
                for log_id, flight in self._flights.items()
                if log_id not in self._waiting
            )
        """,
        "flush returns when every edit is ACKed",
        _BAD_LINE,
        begin=2,
    ),
    Mutation(
        "resent-under-new-id",
        "Outbox.next_to_send",
        "return first if first.due <= now else None",
        """
            if first.attempts and first.due <= now:
                self.drop(first.log_id)
                first.log_id, first.stored = new_id(), False
                self._add_flight(first)
                self._flights.move_to_end(first.log_id, last=False)
            return first if first.due <= now else None
        """,
        "what was sent once keeps its id until it is ACKed",
        Wish(
            kinds=("server-pause", "disk-slow", "server-parted", "client-parted"),
            every=2.0,
            seconds=60.0,
            others={"think_seconds": 1.0, "servers": 1},
        ),
        begin=1,
    ),
    Mutation(
        "tail-unnoticed",
        "AcceptedChain.behind",
        "head > self.head",
        "not self.head and head > 0",
        "a client that missed the last update hears of it from the owner's renewals, and syncs",
        # Few faults and many documents, each with a last update: chosen by trial, one hit in about 15 seeds.
        Wish(
            kinds=("client-parted",),
            every=8.0,
            seconds=20.0,
            others={
                "rogue": False,
                "deletes": False,
                "kept": 0.0,
                "servers": 1,
                "clients": 6,
                "documents": 6,
                "think_seconds": 1.0,
            },
        ),
        begin=164,
    ),
)
