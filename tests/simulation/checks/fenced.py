"""(3) No two hosts have successful fenced writes with interleaved tokens, and every ACK is true.

Fenced writes are statuses that carry a token, metadata of snapshots, and purges. Statuses: their tokens
never go back. Snapshots: neither, and from a token's first UP on nothing older is stored (before that, it
is not on the snapshot yet). Purges: the purging server has stored or claimed a snapshot that covers the
purge, and written its status with its own token after that. A token that the status bucket gave out before it
was lost is compared with none that came after; a lost snapshot frees the document of its tokens.

An ACK: the update is whole in the WAL before it, and its lease is a token that this server has got for this
document. (That it is in a fresh load, too, is the question of `acked`.)
"""

from collections import deque
from typing import TYPE_CHECKING

from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Up
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record

_REMEMBERED = 16


class _Covering:
    """A snapshot that a server stored or claimed, and whether it wrote its status after that."""

    __slots__ = ("confirmed", "ends")

    def __init__(self, ends: ev.Ends) -> None:
        self.ends = ends
        self.confirmed = False


class WritesAreFenced:
    name = "fenced"
    wants: Kinds = (ev.StatusStored, ev.SnapshotStored, ev.WalRemoved, ev.Acked, ev.Accepted, ev.Lost)

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._old: set[int] = set()  # tokens of a bucket that is gone
        self._status: dict[str, int] = {}  # the newest token on a status
        self._snapshot: dict[str, int] = {}  # the newest token on a snapshot, or that came UP
        self._up: set[int] = set()  # tokens that came UP
        self._covering: dict[tuple[str, str], deque[_Covering]] = {}

    def look(self, event: ev.Event) -> None:
        match event:
            case ev.StatusStored():
                self._status_stored(event)
            case ev.SnapshotStored():
                self._snapshot_stored(event)
            case ev.WalRemoved(how="purge"):
                self._purged(event)
            case ev.Acked():
                self._acked(event)
            case ev.Accepted():
                self._token_of(event.line, event.document, event.lease, f"shows {event.log_id} to all")
            case ev.Lost(stream=subjects.STATUS_STREAM):
                self._old.update(self._record.tokens)
                self._status.clear()
                self._snapshot.clear()
            case ev.Lost(stream=subjects.SNAPSHOT_STREAM, documents=documents):
                for document in documents:
                    self._snapshot.pop(document, None)
            case _:
                pass

    async def at_rest(self, world: Rest) -> None:
        """All checks were made at the events."""

    def _status_stored(self, event: ev.StatusStored) -> None:
        document, entry = event.document, event.entry
        if not entry.server:
            return
        for covering in self._covering.get((entry.server, document), ()):
            covering.confirmed = True
        if entry.token in self._old:
            return
        if entry.token < (newest := self._status.get(document, 0)):
            words = f"{entry.server} wrote a status with token {entry.token} after token {newest} had written"
            raise Violation(self.name, words, document)
        self._status[document] = entry.token
        if isinstance(entry.status, Up) and entry.token not in self._up:
            self._up.add(entry.token)
            if entry.lease:  # else the bucket lost its key: it is UP, and has not claimed the snapshot again
                self._snapshot[document] = max(entry.token, self._snapshot.get(document, 0))

    def _snapshot_stored(self, event: ev.SnapshotStored) -> None:
        head = event.head
        document, token = head.document, head.facts.lease
        if head.ends is not None:
            known = self._covering.setdefault((event.line, document), deque(maxlen=_REMEMBERED))
            known.append(_Covering(head.ends))
        if token in self._old:
            return
        if token < (newest := self._snapshot.get(document, 0)):
            words = f"{event.line} stored a snapshot with token {token} after token {newest} had the document"
            raise Violation(self.name, words, document)
        self._snapshot[document] = token

    def _purged(self, event: ev.WalRemoved) -> None:
        document = event.document
        head = self._record.snapshots.heads.get(document)
        if head is None or head.ends is None or head.facts.deleted:
            return
        spans = tuple(
            span
            for update in self._record.wal.of(document, event.messages)
            for span in update.spans or ()
            if ev.covers(head.ends, (span,))
        )
        for covering in self._covering.get((event.line, document), ()):
            if covering.confirmed and ev.covers(covering.ends, spans):
                return
        if spans:
            words = f"{event.line} purged and had not confirmed its lease since it stored what covers it"
            raise Violation(self.name, words, document)

    def _acked(self, event: ev.Acked) -> None:
        update = event.update
        if update is None:
            words = f"{event.line} ACKed {event.log_id}, which was never whole in the WAL with that digest"
            raise Violation(self.name, words)
        if event.sequence not in update.sequences:
            words = f"{event.line} ACKed {update.words} at sequence {event.sequence}, where it never was"
            raise Violation(self.name, words, update.document)
        self._token_of(event.line, update.document, event.lease, f"ACKs {event.log_id}")

    def _token_of(self, line: str, document: str, lease: int, what: str) -> None:
        if (line, document) not in self._record.tokens.get(lease, ()):
            words = f"{line} {what} with token {lease}, which it never got for this document"
            raise Violation(self.name, words, document)
