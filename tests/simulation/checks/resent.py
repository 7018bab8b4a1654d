"""A resent update keeps its id, until the answer has come.

Then an owner that took it before answers again, and judges nothing twice. The same bytes get another id only
when an owner lacks what they build on: it refused something, or the broker lost something of the document.
Then all that it lacks is prepared again. A message may be slow, so that counts for a while.
"""

from typing import TYPE_CHECKING

from lorogo_protocol.messages.reasons import Reason
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record

_SLOW_SECONDS = 12.0  # longer than any message is on its way


class ResentKeepsItsId:
    name = "resent"
    wants: Kinds = (ev.Sent, ev.Nacked, ev.Lost)

    def __init__(self, record: "Record") -> None:
        self._record = record
        # (who, document, digest): the id, and since when
        self._ids: dict[tuple[str, str, str], tuple[str, float]] = {}
        self._refused: dict[tuple[str, str], float] = {}  # when an owner last refused an update of a sender
        self._lost: dict[str, float] = {}  # when the broker last lost something of a document

    def look(self, event: ev.Event) -> None:
        match event:
            case ev.Nacked(update=ev.Update() as update, reason=reason, at=at):
                if reason is not Reason.NOT_OWNER:
                    self._refused[update.line, update.document] = at
            case ev.Lost(documents=documents, at=at):
                self._lost.update(dict.fromkeys(documents, at))
            case ev.Sent(line=line, update=update, at=at) if line.startswith("client-"):
                self._sent(line, update, at)
            case _:
                pass

    def _sent(self, line: str, update: ev.Update, at: float) -> None:
        document = update.document
        known, since = self._ids.setdefault((line, document, update.digest), (update.log_id, at))
        if known == update.log_id:
            return
        if (
            max(self._refused.get((line, document), 0.0), self._lost.get(document, 0.0))
            < since - _SLOW_SECONDS
        ):
            raise Violation(self.name, f"{line} sent {known} again as {update.log_id}", document)

    async def at_rest(self, world: Rest) -> None:
        """All checks were made at the events."""
