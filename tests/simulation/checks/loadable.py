"""(4) What any host accepted, a fresh load accepts.

An update published on `loro.accepted.{id}` was whole in the WAL before, and is in a fresh load of the stored
snapshot and the WAL at the end. It may vanish if the document was deleted after it, or if the broker lost
messages of the document after it came and no ACK had named a disk of ours as its storage.
"""

from typing import TYPE_CHECKING

from lorogo_protocol.messages import subjects
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record

_STREAMS = (subjects.WAL_STREAM, subjects.SNAPSHOT_STREAM)


class AcceptedIsLoadable:
    name = "loadable"
    wants: Kinds = (ev.Accepted,)

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._accepted: dict[int, ev.Update] = {}  # by identity

    def look(self, event: ev.Event) -> None:
        assert isinstance(event, ev.Accepted)
        update = event.update
        if update is None:
            words = f"{event.line} shows {event.log_id}, which was never whole in the WAL"
            raise Violation(self.name, words, event.document)
        if update.spans is None:
            raise Violation(
                self.name, f"{event.line} shows {update.words}, which is no update", event.document
            )
        self._accepted[id(update)] = update

    async def at_rest(self, world: Rest) -> None:
        record = self._record
        for update in self._accepted.values():
            document = update.document
            ends = await record.fresh_ends(world, document)
            if ends is None or ev.covers(ends, update.spans or ()):
                continue
            if record.forgiven(document, update.number):
                continue
            if not update.firm and record.lost_since(update.number, document, *_STREAMS):
                continue
            words = f"{update.words} was accepted (event {update.accepted}), and a fresh load is without it"
            raise Violation(self.name, words, document)
