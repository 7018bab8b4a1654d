"""The record of a run: what crossed the broker, as events and indexes. It judges nothing; checkers do.

It is the broker's `Tap`, and gets the states that clients show. Nothing in here asks the code
under test what it believes: bytes are read as they travel, with the decoders of the protocol.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lorogo_client import Session
from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import replies, subjects
from lorogo_protocol.messages.replies import Ack
from lorogo_server.document.loading import Loaded
from lorogo_transport.ports import Message, StoredMessage
from lorogo_transport.stores import statuses
from tests.simulation import events as ev
from tests.simulation.checks.checker import Checker, Rest, Violation
from tests.simulation.record_calls import Calls
from tests.simulation.record_snapshots import Snapshots
from tests.simulation.record_wal import Wal
from tests.simulation.trace import Facts

_STATUS_KEY = f"$KV.{subjects.STATUS_BUCKET}."
_ANSWERS = (b"ACK", b"NACK")
_ANSWER_FACTS = (h.LOG_ID, h.DIGEST, h.SEQUENCE, h.LEASE, h.REASON)  # not the sentence of a NACK


class Record:
    """Everything that checkers need to know of one run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.violation: Violation | None = None  # the first
        self.broken: Callable[[], None] = lambda: None  # called at once: the trace is to end where it broke
        self.number = 0  # of the newest event
        self.wal = Wal()
        self.snapshots = Snapshots()
        self.calls = Calls()
        self.statuses: dict[
            str, tuple[StatusEntry, float]
        ] = {}  # the newest of each document, and since when
        self.tokens: dict[int, set[tuple[str, str]]] = {}  # every fencing token: whose, and of which document
        self.newest_token: dict[tuple[str, str], int] = {}  # of a server for a document
        self.losses: list[ev.Lost] = []
        self.facts = Facts(now)
        self._now = now
        self._gone_keys: set[str] = set()  # statuses that the bucket lost
        self._hearers: dict[type, list[Callable[[Any], None]]] = {}
        self._checkers: Sequence[Checker] = ()
        self._fresh: dict[str, Loaded] = {}
        self._fresh_ends: dict[str, ev.Ends] = {}
        self._fresh_of: Rest | None = None

    # --- checkers ------------------------------------------------------------------------------------

    @property
    def checkers(self) -> Sequence[Checker]:
        """The checkers that get every event."""
        return self._checkers

    @checkers.setter
    def checkers(self, checkers: Sequence[Checker]) -> None:
        self._checkers = checkers
        self._hearers = {}
        for checker in checkers:
            for kind in checker.wants:
                self._hearers.setdefault(kind, []).append(checker.look)

    async def fresh(self, world: Rest, document_id: str) -> Loaded:
        """The result of a fresh load at the end, made once."""
        if self._fresh_of is not world:
            self._fresh, self._fresh_ends, self._fresh_of = {}, {}, world
        if document_id not in self._fresh:
            self._fresh[document_id] = await world.fresh(document_id)
        return self._fresh[document_id]

    async def fresh_ends(self, world: Rest, document_id: str) -> ev.Ends | None:
        """The version of a fresh load at the end; None: the document is deleted."""
        loaded = await self.fresh(world, document_id)
        if loaded.intake.deleted:
            return None
        if document_id not in self._fresh_ends:
            self._fresh_ends[document_id] = crdt.counters(loaded.intake.replica.version().vector)
        return self._fresh_ends[document_id]

    def forget_fresh(self) -> None:
        """Time has passed: load again."""
        self._fresh_of = None

    def lost_since(self, number: int, document: str, *streams: str) -> bool:
        """True if the broker lost something of the document in one of these streams since then."""
        return any(
            lost.number > number and lost.stream in streams and document in lost.documents
            for lost in self.losses
        )

    def forgiven(self, document: str, number: int) -> bool:
        """True if content of that time may be gone, because it was deleted after that.

        A deletion that was undone brings everything back; but not where the tombstone, which holds the
        content, was lost before.
        """
        life = self.snapshots.life(document)
        deletions = [one for one in life.deletions if one > number]
        if not deletions:
            return False
        if any(one > number for one in life.erasures):
            return True
        restored = [one for one in life.restorations if one > deletions[-1]]
        if not restored:
            return True
        lost = [one.number for one in self.losses if one.stream == subjects.SNAPSHOT_STREAM]
        return any(deletions[0] < one < restored[0] for one in lost)

    def _tell(self, event: ev.Event) -> None:
        try:
            for hear in self._hearers.get(type(event), ()):
                hear(event)
        except Violation as violation:
            # Not raised from here: the code under test would catch it.
            self.violation = self.violation or violation
            self.broken()

    def _next(self) -> int:
        self.number += 1
        return self.number

    # --- the broker ----------------------------------------------------------------------------------

    def published(self, line: str, message: Message) -> None:
        """A message reached the broker."""
        subject = message.subject
        if message.data in _ANSWERS:
            self._fact_of_answer("answer", line, message)
            self._answer(line, message)
        elif subject.startswith("loro.accepted."):
            self._accepted(line, message)
        elif subject.startswith("loro.doc."):
            self._say(self.calls.asked(self._next(), self._now(), line, message))
        elif subject in self.calls.waiting:
            self._say(self.calls.answered(self._next(), self._now(), line, message))

    def delivered(self, line: str, message: Message) -> None:
        """A message was delivered."""
        if message.data != b"ACK":
            return
        self._fact_of_answer("heard", line, message)
        headers = message.headers
        update = self.wal.find(headers.get(h.LOG_ID, ""), headers.get(h.DIGEST, ""))
        if update is not None:
            self._tell(
                ev.AckReceived(self._next(), self._now(), line, update, replies.number(headers, h.LEASE, 0))
            )

    def stored(self, stream: str, stored: StoredMessage, previous: int, line: str) -> None:
        """A stream took a message."""
        self.facts.add("stored", line, stream, stored.sequence, stored.subject)
        if stream in (subjects.WAL_STREAM, subjects.STATUS_STREAM):
            self.facts.add("holds", line, stored.data, *map(str, sorted(stored.headers.items())))
        if stream == subjects.WAL_STREAM:
            number = self._next()
            update = self.wal.stored(number, self._now(), stored, line)
            if update is not None:
                self._tell(ev.Sent(number, self._now(), line, update))
        elif stream == subjects.STATUS_STREAM:
            if stored.subject != subjects.EPOCH_KEY:
                self._status(line, stored)
        elif stream == subjects.SNAPSHOT_STREAM:
            self._say(self.snapshots.stored(self._next(), self._now(), stored, line))
        elif stream == subjects.REJECTED_STREAM:
            self.wal.quarantined(self.number, stored)

    def removed(self, stream: str, gone: Sequence[StoredMessage], how: str, line: str) -> None:
        """A stream has messages no more."""
        self.facts.add("removed", line, stream, how, *(stored.sequence for stored in gone))
        if how == "loss":
            self._lost(stream, gone)
        elif stream == subjects.WAL_STREAM and how in ("purge", "delete"):
            for document, messages in _by_document(gone).items():
                event = ev.WalRemoved(self._next(), self._now(), line, document, tuple(messages), how)
                self._tell(event)
                self.wal.removed(document, messages)
        elif stream == subjects.SNAPSHOT_STREAM and how in ("purge", "delete"):
            for nuid in self.snapshots.removed(gone):
                self._tell(ev.ChunksRemoved(self._next(), self._now(), line, nuid))

    def refused(self, stream: str, message: Message, error: Exception, line: str) -> None:
        """A stream did not take a message: then nothing has happened."""

    # --- clients -------------------------------------------------------------------------------------

    def sampled(self, client: str, document_id: str, session: Session) -> None:
        """Record the state that a session shows."""
        self._sample(client, document_id, session, str(session.state))

    def committed(self, client: str, document_id: str, session: Session) -> None:
        """Record an edit, and the state shown at that moment."""
        self._sample(client, document_id, session, str(session.state))

    def flushed(self, client: str, document_id: str, session: Session) -> None:
        """Record that `flush()` returned without an error: everything counts as saved."""
        self._sample(client, document_id, session, "flushed")

    def _sample(self, client: str, document_id: str, session: Session, state: str) -> None:
        doc = session.doc
        if doc.get_pending_txn_len():
            return  # an open edit is no commit; and reading it would make it one
        peer = doc.peer_id
        last = doc.oplog_vv.get_last(peer)
        end = 0 if last is None else last + 1
        problem = "" if session.problem is None else session.problem.code
        self._tell(
            ev.Sampled(
                self._next(), self._now(), client, document_id, state, session.unsaved, problem, peer, end
            )
        )

    # --- inside --------------------------------------------------------------------------------------

    def _say(self, event: ev.Event | None) -> None:
        if event is not None:
            self._tell(event)

    def _fact_of_answer(self, kind: str, line: str, message: Message) -> None:
        values = (message.headers.get(name, "") for name in _ANSWER_FACTS)
        self.facts.add(kind, line, message.subject, message.data, *values)

    def _answer(self, line: str, message: Message) -> None:
        try:
            reply = replies.decode(message.data, message.headers)
        except MalformedMessage:
            return
        number, at = self._next(), self._now()
        update = self.wal.find(reply.log_id, reply.digest)
        if isinstance(reply, Ack):
            if update is not None:
                update.acked = update.acked or number
                update.firm |= reply.durability != "stream"
            durability = reply.durability
            event = ev.Acked(number, at, line, reply.log_id, update, reply.sequence, durability, reply.lease)
            self._tell(event)
        else:
            if update is not None:
                update.refusals.add(reply.reason)
            else:
                self.wal.refused(reply.log_id, reply.reason)
            self._tell(ev.Nacked(number, at, line, reply.log_id, update, reply.reason))

    def _accepted(self, line: str, message: Message) -> None:
        headers, document = message.headers, subjects.document_of(message.subject)
        log_id = headers.get(h.LOG_ID, "")
        if not log_id or (h.FINAL not in headers and h.OMITTED not in headers):
            return  # a tombstone, or more of it is to come
        number = self._next()
        update = self.wal.newest(document, log_id, headers.get(h.DIGEST, ""))
        if update is not None:
            update.accepted = update.accepted or number
        lease = replies.number(headers, h.LEASE, 0)
        self._tell(ev.Accepted(number, self._now(), line, document, log_id, update, lease))

    def _status(self, line: str, stored: StoredMessage) -> None:
        document, entry = subjects.document_of(stored.subject), statuses.entry(stored)
        before, since = self.statuses.get(document, (None, 0.0))
        at = self._now()
        self.statuses[document] = (entry, at)
        if entry.server and not entry.lease:
            self.tokens.setdefault(entry.revision, set()).add((entry.server, document))
            self.newest_token[entry.server, document] = entry.revision
        lost = document in self._gone_keys
        self._gone_keys.discard(document)
        self._tell(ev.StatusStored(self._next(), at, line, document, before, since, entry, lost))

    def _lost(self, stream: str, gone: Sequence[StoredMessage]) -> None:
        documents: set[str] = set()
        if stream == subjects.SNAPSHOT_STREAM:
            documents = self.snapshots.lost(gone)
        elif stream == subjects.WAL_STREAM:
            by_document = _by_document(gone)
            documents = set(by_document)
            for document, messages in by_document.items():
                self.wal.removed(document, messages)
        elif stream == subjects.STATUS_STREAM:
            for stored in gone:
                document = subjects.document_of(stored.subject)
                if document in self.statuses and self.statuses[document][0].revision == stored.sequence:
                    del self.statuses[document]
                    self._gone_keys.add(document)
                documents.add(document)
        event = ev.Lost(self._next(), self._now(), stream, frozenset(documents))
        self.losses.append(event)
        self._tell(event)


def _by_document(gone: Iterable[StoredMessage]) -> dict[str, list[StoredMessage]]:
    found: dict[str, list[StoredMessage]] = {}
    for stored in gone:
        found.setdefault(subjects.document_of(stored.subject), []).append(stored)
    return found
