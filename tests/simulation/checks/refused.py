"""(5) No refused update ever appears in another replica.

Refused for good are updates that no load takes: `invalid-update`, `history-trimmed`; and `deleted`, of what
the tombstone does not hold. No owner shows them afterwards, and at the end their operations are neither in
a fresh load nor in a session of any client but their sender. This does not hold for retriable refusals, nor
for `too-large` and `document-full`: they are one owner's limits, and a load takes what is stored.

The same operations may come by another way: under another id that was accepted, or, after `deleted`, when
the same message is stored once more, since then it is judged again. A lost tombstone takes its refusals
with it.
"""

from typing import TYPE_CHECKING

from lorogo_protocol.journal.records import Span
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record

_FOR_EVER = (Reason.INVALID_UPDATE, Reason.HISTORY_TRIMMED)


class _Refusal:
    __slots__ = ("event", "token", "update")

    def __init__(self, event: ev.Nacked, update: ev.Update, token: int) -> None:
        self.event = event
        self.update = update
        self.token = token  # of the server that refused


class RefusedStaysOut:
    name = "refused"
    wants: Kinds = (ev.Nacked, ev.Accepted, ev.Sent, ev.Lost)

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._refused: dict[int, _Refusal] = {}  # by identity of the update

    def look(self, event: ev.Event) -> None:
        match event:
            case ev.Nacked(update=ev.Update() as update):
                self._nacked(event, update)
            case ev.Accepted(update=ev.Update() as update):
                self._accepted(event, update)
            case ev.Sent(update=update) if (no := self._refused.get(id(update))) is not None:
                if no.event.reason is Reason.DELETED:
                    del self._refused[id(update)]
            case ev.Lost(stream=subjects.SNAPSHOT_STREAM, documents=documents):
                for key, no in list(self._refused.items()):
                    if no.event.reason is Reason.DELETED and no.update.document in documents:
                        del self._refused[key]
            case _:
                pass

    def _nacked(self, event: ev.Nacked, update: ev.Update) -> None:
        if event.reason is Reason.DELETED:
            head = self._record.snapshots.heads.get(update.document)
            buried = head is not None and head.facts.deleted and head.ends is not None
            if not buried or head is None or ev.covers(head.ends or {}, update.spans or ()):
                return
        elif event.reason not in _FOR_EVER:
            return
        token = self._record.newest_token.get((event.line, update.document), 0)
        self._refused.setdefault(id(update), _Refusal(event, update, token))

    def _accepted(self, event: ev.Accepted, update: ev.Update) -> None:
        no = self._refused.get(id(update))
        # What was accepted before may be announced late; only a refusal that came first counts.
        if no is None or no.event.reason is Reason.DELETED or event.lease < no.token:
            return
        raise Violation(self.name, f"{event.line} shows {_words(no)}", event.document)

    async def at_rest(self, world: Rest) -> None:
        for no in self._refused.values():
            update, document = no.update, no.update.document
            spans = [span for span in update.spans or () if not self._otherwise(update, span)]
            if not spans:
                continue
            ends = await self._record.fresh_ends(world, document)
            if ends is not None and any(ev.reaches_into(ends, span) for span in spans):
                raise Violation(self.name, f"a fresh load holds {_words(no)}", document)
            for client in world.clients:
                session = client.sessions.get(document)
                if session is None or client.name == update.line:
                    continue
                theirs = crdt.counters(session.version().vector)
                if any(ev.reaches_into(theirs, span) for span in spans):
                    raise Violation(self.name, f"{client.name} holds {_words(no)}", document)

    def _otherwise(self, refused: ev.Update, span: Span) -> bool:
        """True if an update that was accepted holds some of the same operations."""
        peer, first, end = span
        return any(
            other is not refused
            and other.document == refused.document
            and (other.accepted or other.acked)
            and any(who == peer and first < last and start < end for who, start, last in other.spans or ())
            for other in self._record.wal.all()
        )


def _words(no: _Refusal) -> str:
    return f"{no.update.words}, which {no.event.line} had refused: {no.event.reason.value}"
