"""(9) The history of a document's status is a legal path.

The legal moves, as in `lorogo_protocol/lease.py` and docs/PROTOCOL.md:

    STARTING, unsigned   anyone: over nothing, DOWN, UP (count 0); over a STARTING that stood 5 s: over a
                         signed one the count is one more, over an unsigned one the same or one more
    STARTING, signed     who takes it: over the unsigned one of the same operation, or with the move itself,
                         over what anyone may move (an unsigned one with its count; one above three
                         restarts at 0); its revision is the token
    STARTING, UP, token  the owner, over its own, or over a DOWN or ERROR that no other server signed
    UP                   without a token: the owner whose key the bucket lost, over nothing
    DOWN, token          the owner, over its own
    DOWN, unsigned       a reset, over ERROR; a person, over anything
    ERROR                a server that names more than three failures, over an unsigned STARTING, or over a
                         signed one that stood 5 s

Failures are no more than the attempts since the document was UP or DOWN.
"""

from collections import Counter
from typing import TYPE_CHECKING

from lorogo_protocol import limits
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.status import Down, Failed, Starting, Up
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record

_PACE = 0.99  # a clock may be a little too fast


class StatusesAreLegal:
    name = "statuses"
    wants: Kinds = (ev.StatusStored,)

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._doubtful: set[str] = set()  # documents whose key was lost: revisions may be used again
        self._attempts: Counter[str] = Counter()  # by document, since it was UP or DOWN

    def look(self, event: ev.Event) -> None:
        assert isinstance(event, ev.StatusStored)
        if event.lost:
            self._doubtful.add(event.document)
        self._count(event)
        if why := self._wrong(event):
            words = f"{event.line} wrote {_words(event.entry)} over {_words(event.before)}: {why}"
            raise Violation(self.name, words, event.document)

    async def at_rest(self, world: Rest) -> None:
        """All checks were made at the events."""

    def _count(self, event: ev.StatusStored) -> None:
        match event.entry.status:
            case Up() | Down():
                self._attempts[event.document] = 0
            case Starting() if event.entry.server and not event.entry.lease:
                self._attempts[event.document] += 1
            case _:
                pass

    def _wrong(self, event: ev.StatusStored) -> str:
        """The reason against the move; "" if it is legal."""
        entry = event.entry
        if entry.server and entry.server != event.line:
            return "it is signed with the name of another"
        if entry.failures > self._attempts[event.document] and event.document not in self._doubtful:
            return f"{entry.failures} failures of {self._attempts[event.document]} attempts"
        match entry.status:
            case Starting() if not entry.server:
                return self._started(event, entry.status)
            case Starting() | Up():
                return self._owned(event)
            case Down():
                return _ended(event)
            case Failed():
                return self._failed(event)

    def _started(self, event: ev.StatusStored, status: Starting) -> str:
        match event.before:
            case None | StatusEntry(status=Down() | Up()):
                return "" if status.retry_count == 0 else "the count must be 0"
            case StatusEntry(status=Failed()):
                return "ERROR is for a person to end"
            case StatusEntry(status=Starting(retry_count=count, operation_id=operation)):
                if status.retry_count not in _counts(event, count):
                    return f"the count was {count}"
                if status.operation_id == operation:
                    return "the operation must be a new one"
                return self._young(event)
        return "there is no such status"

    def _young(self, event: ev.StatusStored) -> str:
        """The reason against giving up the server that starts it; "": it stood long enough."""
        stood = event.at - event.before_at
        if stood < limits.STALE_SECONDS * _PACE and event.document not in self._doubtful:
            return f"it stood for {stood:.2f} s only"
        return ""

    def _owned(self, event: ev.StatusStored) -> str:
        """A server's own STARTING, or its UP."""
        entry, before = event.entry, event.before
        if not entry.lease:
            if before is None and event.lost:
                return ""
            match entry.status:
                case Starting() as status:
                    return self._acquired(event, status)
                case _:
                    return "this key was not lost"
        if before is None:
            return "the key is gone, so the token is, too"
        match before.status:
            case Up() | Starting():
                if before.server != entry.server or before.token != entry.lease:
                    return f"it belongs to {before.server or 'no server'} with token {before.token}"
                if isinstance(before.status, Up) and isinstance(entry.status, Starting):
                    return "it is UP already"
                if isinstance(entry.status, Starting) and isinstance(before.status, Starting):
                    same = entry.status.operation_id == before.status.operation_id
                    return "" if same else "the operation is another"
                return ""
            case Down() | Failed():
                if before.server not in ("", entry.server):
                    return f"{before.server} signed it: another may have owned it meanwhile"
                known = (entry.server, event.document) in self._record.tokens.get(entry.lease, ())
                return "" if known else f"token {entry.lease} was never its own"

    def _acquired(self, event: ev.StatusStored, status: Starting) -> str:
        """Taken: the requested operation, or one that the key did not have before."""
        if status.retry_count > limits.RETRIES_MAX:
            return f"the count is {status.retry_count}: it must restart"
        match event.before:
            case StatusEntry(status=Starting(operation, count, _), server="") if (
                operation == status.operation_id
            ):
                same = status.retry_count == _restarted(count)
                return "" if same else "it takes another count than the request has"
            case _:
                return self._started(event, status)

    def _failed(self, event: ev.StatusStored) -> str:
        before = event.before
        if not event.entry.server:
            return "a client never writes ERROR" if event.line.startswith("client-") else ""
        if before is None or not isinstance(before.status, Starting):
            return "only a STARTING is given up"
        if event.entry.failures <= limits.RETRIES_MAX:
            return f"it failed {event.entry.failures} times only"
        return self._young(event) if before.server else ""


def _counts(event: ev.StatusStored, count: int) -> tuple[int, ...]:
    """The counts allowed over a STARTING: a server that took it has failed, one that answered may have."""
    if event.entry.server:
        return (_restarted(count + bool(event.before is not None and event.before.server)),)
    if event.before is not None and event.before.server:
        return (count + 1,)
    return (count, count + 1)


def _restarted(count: int) -> int:
    """The count that a server writes when it takes a document."""
    return 0 if count > limits.RETRIES_MAX else count


def _ended(event: ev.StatusStored) -> str:
    entry, before = event.entry, event.before
    if entry.server:
        if before is not None and before.server == entry.server and before.token == entry.lease:
            return ""
        return "only the owner writes DOWN"
    if event.line.startswith("client-"):
        return "a client never writes DOWN"
    if event.line.startswith("server-") and not (before is not None and isinstance(before.status, Failed)):
        return "a reset is for what is in ERROR"
    return ""


def _words(entry: StatusEntry | None) -> str:
    if entry is None:
        return "nothing"
    name = type(entry.status).__name__.upper()
    count = f" count {entry.status.retry_count}" if isinstance(entry.status, Starting) else ""
    return f"{name}{count} of {entry.server or 'no server'} (revision {entry.revision}, token {entry.token})"
