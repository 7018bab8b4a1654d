"""(14) No document is UP without ACKed content while a journal that has it is reachable.

After the broker lost data of a document, a server that takes it compares journals before it writes UP. It
then serves every ACKed update that a reachable journal holds: its own, and that of every server
which answered from the taking to the UP. Else the document is marked incomplete, and not before the
servers had time to answer (docs/decisions/0021). A deletion since the update ends the promise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Up
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation
from tests.simulation.platter import Platter

if TYPE_CHECKING:
    from tests.simulation.record import Record

_STREAMS = (subjects.WAL_STREAM, subjects.SNAPSHOT_STREAM)
_ANSWER_SECONDS = 1.99  # silent servers are waited for 2 s at least, by the owner's clock, which may be fast


@dataclass(frozen=True, slots=True)
class Served:
    """A document in the memory of its owner."""

    ends: ev.Ends
    incomplete: bool  # marked so


class Servers(Protocol):
    """State of servers as seen from outside."""

    def served(self, line: str, document: str) -> Served | None:
        """The document as its owner serves it; None: it is not loaded there, or deleted."""

    def connection(self, line: str) -> object | None:
        """The connection over which the server answers now; None: it does not."""


@dataclass(frozen=True, slots=True)
class _Taken:
    number: int
    at: float
    connections: Mapping[str, object | None]  # of every server


class ServedWhole:
    name = "served"
    wants: Kinds = (ev.StatusStored,)

    def __init__(self, record: "Record", platters: Mapping[str, Platter], servers: Servers) -> None:
        """`platters`: of every server."""
        self._record = record
        self._platters = platters
        self._servers = servers
        self._taken: dict[tuple[str, int], _Taken] = {}  # documents and tokens, until they are UP

    def look(self, event: ev.Event) -> None:
        assert isinstance(event, ev.StatusStored)
        entry, document = event.entry, event.document
        if entry.server and not entry.lease and not isinstance(entry.status, Up):
            connections = {line: self._servers.connection(line) for line in self._platters}
            self._taken[document, entry.revision] = _Taken(event.number, event.at, connections)
        elif isinstance(entry.status, Up) and event.line in self._platters:
            taken = self._taken.pop((document, entry.token), None)
            if taken is not None:
                self._came_up(event, taken)

    async def at_rest(self, world: Rest) -> None:
        """Checks nothing more: `acked` and `recovered` judge the end."""

    def _came_up(self, event: ev.StatusStored, taken: _Taken) -> None:
        document, record = event.document, self._record
        losses = [lost for lost in record.losses if lost.stream in _STREAMS and document in lost.documents]
        served = self._servers.served(event.line, document)
        if not losses or losses[-1].number > taken.number or served is None:
            return  # `on-disk` judges it; or it was lost since, and the owner has yet to notice
        if served.incomplete:
            if event.at < losses[-1].at + _ANSWER_SECONDS:
                words = f"{event.line} marks it incomplete before others can have answered"
                raise Violation(self.name, words, document)
            return
        reachable = [line for line in self._platters if self._is_reachable(line, event.line, taken)]
        kept = {line: self._platters[line].of(document).ends for line in reachable}
        for update in record.wal.all():
            if update.document != document or not (update.firm and 0 < update.acked < taken.number):
                continue
            spans = update.spans or ()
            if ev.covers(served.ends, spans) or record.forgiven(document, update.number):
                continue
            holders = [line for line, ends in kept.items() if ev.covers(ends, spans)]
            if holders:
                words = f"{event.line} is UP without {update.words}, which the journal of {holders[0]} has"
                raise Violation(self.name, f"{words}, and the document is not marked incomplete", document)

    def _is_reachable(self, line: str, owner: str, taken: _Taken) -> bool:
        """True for the owner, and for a server with one connection since the document was taken."""
        now = self._servers.connection(line)
        return line == owner or (now is not None and now == taken.connections[line])
