"""(11) Everything recovers within a bounded time after the faults stop.

The world waits for that time, and no longer. Then every session shows `saved` with nothing unsaved, or
failed for a reason that is on the record: the document was deleted, or an update of this client was refused
for good. No document is in ERROR, and each can be loaded.
"""

from typing import TYPE_CHECKING

from lorogo_client import Session
from lorogo_client.errors import DocumentDeleted, UpdateRefused
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.status import Failed
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record


class EverythingRecovers:
    name = "recovered"
    wants: Kinds = (ev.Nacked,)

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._refused: set[tuple[str, str]] = (
            set()
        )  # (client, document) of whom something was refused for good

    def look(self, event: ev.Event) -> None:
        assert isinstance(event, ev.Nacked)
        if event.update is not None and not event.reason.retriable:
            self._refused.add((event.update.line, event.update.document))

    def unrest(self, world: Rest) -> list[str]:
        """Sentences about what is not recovered yet."""
        words = [
            f"{document} is in ERROR"
            for document in world.documents
            if document in self._record.statuses
            and isinstance(self._record.statuses[document][0].status, Failed)
        ]
        for client in world.clients:
            for document, session in client.sessions.items():
                if why := self._wrong(client.name, document, session):
                    words.append(f"{client.name} with {document}: {why}")
        return words

    async def at_rest(self, world: Rest) -> None:
        if words := self.unrest(world):
            raise Violation(self.name, "; ".join(words))
        for document in world.documents:
            try:
                await self._record.fresh(world, document)
            except LorogoError as error:
                raise Violation(self.name, f"it cannot be loaded: {error}", document) from error

    def _wrong(self, client: str, document: str, session: Session) -> str:
        match session.problem:
            case None:
                fine = str(session.state) == "saved" and not session.unsaved
                return "" if fine else f"its state is {session.state}, with {session.unsaved} unsaved"
            case DocumentDeleted() if self._record.snapshots.life(document).deletions:
                return ""
            case UpdateRefused() if (client, document) in self._refused:
                return ""
            case problem:
                return f"it failed without a cause: {problem}"
