"""(2) All replicas converge.

At rest every session of a document, and a fresh load of what is stored, have the same operations and the
same content. A session that failed for good keeps its own refused edits: it is no replica any more. A fresh
load may hold more in one case: updates that no owner accepted, because it did not hear of them or dropped
them (chunks that came late, what they build on was missing), and whose sender is gone, lie in the WAL. The
next load may take them.
"""

from typing import TYPE_CHECKING

from lorogo_protocol.loro import crdt
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record


class ReplicasConverge:
    name = "converge"
    wants: Kinds = ()

    def __init__(self, record: "Record") -> None:
        self._record = record

    def look(self, event: ev.Event) -> None:
        """Nothing is promised before everything is at rest."""

    async def at_rest(self, world: Rest) -> None:
        for document in world.documents:
            ends = await self._record.fresh_ends(world, document)
            if ends is not None:
                loaded = await self._record.fresh(world, document)
                self._compare(world, document, ends, loaded.intake.replica.value())

    def _compare(self, world: Rest, document: str, ends: ev.Ends, value: object) -> None:
        first: tuple[str, ev.Ends, object] | None = None
        for client in world.clients:
            session = client.sessions.get(document)
            if session is None or session.problem is not None:
                continue
            mine = (client.name, crdt.counters(session.version().vector), session.doc.get_deep_value())
            first = first or mine
            if mine[1] != first[1]:
                self._differ(document, f"{client.name} and {first[0]}", mine[1], first[1])
            if mine[2] != first[2]:
                words = f"{client.name} and {first[0]} have the same history and other content"
                raise Violation(self.name, words, document)
        if first is None:
            return
        name, theirs, content = first
        if theirs != ends:
            if any(ends.get(peer, 0) < end for peer, end in theirs.items()):
                self._differ(document, f"{name} and a fresh load", theirs, ends)
            if not self._left_over(document, theirs, ends):
                self._differ(document, f"a fresh load and {name}", ends, theirs)
        elif content != value:
            raise Violation(self.name, f"{name} and a fresh load have other content", document)

    def _differ(self, document: str, who: str, one: ev.Ends, other: ev.Ends) -> None:
        peers = sorted({*one, *other})
        parts = [f"{peer}: {one.get(peer, 0)} and {other.get(peer, 0)}" for peer in peers]
        differing = [
            part for peer, part in zip(peers, parts, strict=True) if one.get(peer) != other.get(peer)
        ]
        raise Violation(self.name, f"{who} differ in {'; '.join(differing)}", document)

    def _left_over(self, document: str, theirs: ev.Ends, ends: ev.Ends) -> bool:
        """True if all that a fresh load has more are updates that no owner accepted."""
        loose = [
            span
            for update in self._record.wal.all()
            if update.document == document and update.spans and not (update.acked or update.accepted)
            for span in update.spans
        ]
        for peer, end in ends.items():
            at = theirs.get(peer, 0)
            while at < end:
                reached = [last for who, first, last in loose if who == peer and first <= at < last]
                if not reached:
                    return False
                at = max(reached)
        return True
