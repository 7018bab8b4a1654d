"""Histories made by hand, for the tests of checkers: given to a record as by a broker."""

import base64
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from loro import ExportMode, LoroDoc, VersionVector

from lorogo_client import Session
from lorogo_protocol import status as st
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.loro.crdt import Replica, Version
from lorogo_protocol.messages import calls, chunks, replies, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_protocol.position import Position
from lorogo_protocol.status import Starting, Status, Up
from lorogo_server import ServerSettings
from lorogo_server.document.loading import Loaded
from lorogo_server.intake.follower import WalFollower
from lorogo_server.intake.history import History
from lorogo_server.intake.intake import (
    Intake,
)
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.ports import Message, StoredMessage
from tests.simulation.checks import Violation, all_checkers
from tests.simulation.checks.checker import Someone
from tests.simulation.record import Record

DOCUMENT = "doc"
SERVER, OTHER, CLIENT, READER = "server-0", "server-1", "client-0", "client-1"


class Writer:
    """A writer: each commit is an update."""

    def __init__(self, peer: int) -> None:
        self.doc = LoroDoc()
        self.doc.peer_id = peer

    def commit(self, text: str = "x") -> bytes:
        before = VersionVector.decode(self.doc.oplog_vv.encode())
        self.doc.get_text("body").insert(0, text)
        self.doc.commit()
        return self.doc.export(ExportMode.Updates(before))

    def took(self, *updates: bytes) -> "Writer":
        for update in updates:
            self.doc.import_(update)
        return self

    @property
    def snapshot(self) -> bytes:
        return self.doc.export(ExportMode.Snapshot())


@dataclass
class FakeSession:
    """The part of a session that checkers see."""

    doc: LoroDoc
    state: str = "saved"
    unsaved: int = 0
    problem: LorogoError | None = None

    def version(self) -> Version:
        return Replica(self.doc).version()


@dataclass
class FakeClient:
    name: str
    sessions: dict[str, Session] = field(default_factory=dict)


def client(name: str, doc: LoroDoc, document: str = DOCUMENT, **facts: Any) -> FakeClient:
    """A client with one session."""
    return FakeClient(name, {document: cast("Session", FakeSession(doc, **facts))})


@dataclass
class FakeRest:
    """A world at rest."""

    loaded: dict[str, Loaded]
    clients: Sequence[Someone] = ()

    @property
    def documents(self) -> list[str]:
        return list(self.loaded)

    async def fresh(self, document_id: str) -> Loaded:
        return self.loaded[document_id]


def fresh(doc: LoroDoc | None = None, **facts: Any) -> Loaded:
    """Result of a load: that document, or a deleted one."""
    known = SnapshotMetadata(**facts)
    replica = Replica(LoroDoc() if doc is None else doc)
    intake = Intake(replica, History(), ServerSettings(), head=Position(1), deleted=known.deleted)
    return Loaded(intake, WalFollower(1), None, known)


class Story:
    """One run, event by event."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.record = Record(lambda: self.now)
        self.checkers = all_checkers(self)
        self.record.checkers = self.checkers
        self.wal: dict[int, StoredMessage] = {}
        self.statuses: dict[str, StoredMessage] = {}
        self.metadata: dict[str, StoredMessage] = {}
        self._sequences = dict.fromkeys(
            (subjects.WAL_STREAM, subjects.STATUS_STREAM, subjects.SNAPSHOT_STREAM, subjects.REJECTED_STREAM),
            0,
        )
        self._names = itertools.count()

    def only(self, name: str) -> None:
        """From now on one checker listens: another may find the same mistake first."""
        (chosen,) = (checker for checker in self.checkers if checker.name == name)
        self.checkers = self.record.checkers = [chosen]

    @property
    def broken(self) -> str:
        """Which checker has found something; "" none."""
        return "" if self.record.violation is None else self.record.violation.checker

    async def rest(self, world: FakeRest) -> str:
        """Which checker finds something at the end; "" none."""
        try:
            for checker in self.checkers:
                await checker.at_rest(world)
        except Violation as violation:
            return violation.checker
        return self.broken

    def store(
        self, stream: str, subject: str, data: bytes, headers: dict[str, str], line: str
    ) -> StoredMessage:
        self._sequences[stream] += 1
        stored = StoredMessage(subject, self._sequences[stream], int(self.now * 1e9), data, headers)
        self.record.stored(stream, stored, 0, line)
        return stored

    # --- statuses

    def status(
        self, line: str, status: Status, *, server: str = "", lease: int = 0, failures: int = 0
    ) -> int:
        """Write a status and return its revision."""
        headers = {h.SERVER: server} if server else {}
        if lease:
            headers[h.LEASE] = str(lease)
        if failures:
            headers[h.FAILURES] = str(failures)
        key = subjects.status_key(DOCUMENT)
        stored = self.store(subjects.STATUS_STREAM, key, st.encode(status), headers, line)
        self.statuses[DOCUMENT] = stored
        return stored.sequence

    def ask_for(self, operation: str, line: str = CLIENT, count: int = 0) -> None:
        """A client requests an owner."""
        self.status(line, Starting(operation, count, 0))

    def take(self, server: str = SERVER) -> int:
        """A server takes the document, which has no owner, and is UP: its token."""
        operation = f"op{next(self._names)}"
        self.ask_for(operation)
        token = self.status(server, Starting(operation, 0, 0), server=server)
        self.up(server, token)
        return token

    def up(self, server: str, token: int) -> int:
        return self.status(server, Up(server, 0), server=server, lease=token)

    # --- updates

    def send(self, update: bytes, log_id: str, line: str = CLIENT, *, size: int = 1 << 20) -> list[int]:
        """An update goes into the WAL: the sequences of its messages."""
        return [
            self.chunk(part, line)
            for part in chunks.split(update, log_id, chunk_bytes_max=size, inbox="_INBOX.me")
        ]

    def chunk(self, part: chunks.Chunk, line: str = CLIENT) -> int:
        subject = subjects.wal(DOCUMENT)
        stored = self.store(subjects.WAL_STREAM, subject, part.data, part.headers(), line)
        self.wal[stored.sequence] = stored
        return stored.sequence

    def ack(
        self,
        update: bytes,
        log_id: str,
        sequence: int,
        token: int,
        line: str = SERVER,
        *,
        how: str = "journal",
    ) -> None:
        """A server ACKs it, and the sender receives the ACK."""
        body, headers = replies.encode(Ack(log_id, digest(update), sequence, how, token))
        message = Message("_INBOX.me", body, headers)
        self.record.published(line, message)
        self.record.delivered(CLIENT, message)

    def nack(self, update: bytes, log_id: str, reason: Reason, line: str = SERVER) -> None:
        body, headers = replies.encode(Nack(log_id, digest(update), reason, ""))
        self.record.published(line, Message("_INBOX.me", body, headers))

    def accept(self, update: bytes, log_id: str, token: int, line: str = SERVER) -> None:
        """The owner publishes it as accepted."""
        for part in chunks.split(update, log_id, chunk_bytes_max=1 << 20):
            headers = {**part.headers(), h.SEQUENCE: "1", h.PREVIOUS: "0", h.LEASE: str(token)}
            self.record.published(line, Message(subjects.accepted(DOCUMENT), part.data, headers))

    # --- snapshots, removals, losses

    def snapshot(self, content: bytes, facts: SnapshotMetadata, line: str = SERVER) -> str:
        """A snapshot is stored in the place of the one before: its nuid."""
        nuid, bucket = f"n{next(self._names)}", subjects.SNAPSHOT_BUCKET
        if content:
            self.store(subjects.SNAPSHOT_STREAM, f"$O.{bucket}.C.{nuid}", content, {}, line)
        self._put(nuid, len(content), facts, line)
        return nuid

    def refact(self, facts: SnapshotMetadata, line: str = SERVER) -> None:
        """Only the facts of the snapshot are replaced."""
        body = json.loads(self.metadata[DOCUMENT].data)
        self._put(body["nuid"], body["size"], facts, line)

    def _put(self, nuid: str, size: int, facts: SnapshotMetadata, line: str) -> None:
        name = base64.urlsafe_b64encode(DOCUMENT.encode()).decode()
        body = json.dumps({"nuid": nuid, "size": size, "metadata": facts.render()}).encode()
        subject = f"$O.{subjects.SNAPSHOT_BUCKET}.M.{name}"
        self.metadata[DOCUMENT] = self.store(subjects.SNAPSHOT_STREAM, subject, body, {}, line)

    def drop_chunks(self, nuid: str, line: str = SERVER) -> None:
        gone = [StoredMessage(f"$O.{subjects.SNAPSHOT_BUCKET}.C.{nuid}", 1, 0, b"")]
        self.record.removed(subjects.SNAPSHOT_STREAM, gone, "purge", line)

    def purge(self, sequences: Iterable[int], line: str = SERVER, how: str = "purge") -> None:
        gone = [self.wal.pop(sequence) for sequence in sequences]
        self.record.removed(subjects.WAL_STREAM, gone, how, line)

    def keep_copy(self, sequence: int, line: str = SERVER) -> None:
        """A refused message is copied to loro-rejected."""
        stored = self.wal[sequence]
        headers = {**stored.headers, h.SEQUENCE: str(sequence), h.REASON: Reason.INVALID_UPDATE.value}
        self.store(subjects.REJECTED_STREAM, subjects.rejected(DOCUMENT), stored.data, headers, line)

    def lose(self, stream: str) -> None:
        """The broker loses all of a stream."""
        kept: dict[str, list[StoredMessage]] = {
            subjects.WAL_STREAM: list(self.wal.values()),
            subjects.STATUS_STREAM: list(self.statuses.values()),
            subjects.SNAPSHOT_STREAM: list(self.metadata.values()),
        }
        self.record.removed(stream, kept[stream], "loss", "")

    def lose_end(self, messages: int) -> None:
        """The broker loses the newest messages of the WAL, and uses their sequences again."""
        gone = [self.wal.pop(sequence) for sequence in sorted(self.wal)[-messages:]]
        self._sequences[subjects.WAL_STREAM] -= messages
        self.record.removed(subjects.WAL_STREAM, gone, "loss", "")

    # --- calls

    def call(self, verb: str, answer: dict[str, object] | Reason, line: str = SERVER) -> None:
        """A client calls the owner, and gets an answer."""
        inbox = self.ask(verb)
        self.reply(inbox, answer, line)

    def ask(self, verb: str) -> str:
        name = f"c{next(self._names)}"
        inbox = f"_INBOX.calls.{name}"
        (part,) = chunks.split(calls.encode({}), name, chunk_bytes_max=1 << 20)
        message = Message(subjects.call(verb, DOCUMENT), part.data, part.headers(), inbox)
        self.record.published(CLIENT, message)
        return inbox

    def reply(self, inbox: str, answer: dict[str, object] | Reason, line: str = SERVER) -> None:
        if isinstance(answer, Reason):
            self.record.published(line, Message(inbox, b"", {h.REASON: answer.value}))
            return
        for part in chunks.split(calls.encode(answer), inbox.rpartition(".")[2], chunk_bytes_max=1 << 20):
            self.record.published(line, Message(inbox, part.data, part.headers()))


def tombstone(facts: SnapshotMetadata) -> SnapshotMetadata:
    return replace(facts, deleted_ns=7)
