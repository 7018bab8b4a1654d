"""(10) The state that a client shows is true.

A session shows `saved` only if it has nothing that is not ACKed, and every operation that was committed in
its document is in an update whose ACK reached this client (or before one, of the same peer: an owner takes
no update without those before it). The same holds whenever it counts no unsaved updates, and when `flush()`
returns. A session that failed permanently never shows `saved`.
"""

from typing import TYPE_CHECKING

from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record

_SAVED = ("saved", "flushed")
_LASTING = frozenset({"deleted", "invalid-update", "history-trimmed", "too-large", "document-full"})


class StateWordsAreHonest:
    name = "honest"
    wants: Kinds = (ev.AckReceived, ev.Sampled)

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._acked: dict[tuple[str, str, int], int] = {}  # (client, document, peer): how far

    def look(self, event: ev.Event) -> None:
        match event:
            case ev.AckReceived(line=line, update=update):
                for peer, _, end in update.spans or ():
                    key = (line, update.document, peer)
                    self._acked[key] = max(end, self._acked.get(key, 0))
            case ev.Sampled():
                self._sampled(event)
            case _:
                pass

    def _sampled(self, event: ev.Sampled) -> None:
        shown = f"{event.client} shows {event.state}"
        if event.state == "saved" and event.unsaved:
            raise Violation(self.name, f"{shown} with {event.unsaved} unsaved updates", event.document)
        if event.state == "saved" and event.problem in _LASTING:
            raise Violation(self.name, f"{shown}, and it failed: {event.problem}", event.document)
        if event.state not in _SAVED and (event.unsaved or event.problem):
            return
        acked = self._acked.get((event.client, event.document, event.peer), 0)
        if acked < event.end:
            words = (
                f"{shown} ({event.unsaved} unsaved), made operations up to {event.end} as peer {event.peer},"
                f" and has received ACKs up to {acked}"
            )
            raise Violation(self.name, words, event.document)

    async def at_rest(self, world: Rest) -> None:
        """All checks were made at the events."""
