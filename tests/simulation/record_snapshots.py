"""The stored snapshots as the record knows them: what each document has now, and its lives and deaths."""

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from loro import LoroDoc

from lorogo_protocol.errors import CrdtError, MalformedMessage
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.subjects import SNAPSHOT_BUCKET
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.ports import StoredMessage
from tests.simulation.events import Ends, Head, SnapshotStored

_METADATA = f"$O.{SNAPSHOT_BUCKET}.M."
_CHUNKS = f"$O.{SNAPSHOT_BUCKET}.C."


@dataclass(slots=True)
class Life:
    """Numbers of the events that deleted, erased and restored a document."""

    deletions: list[int] = field(default_factory=list)
    erasures: list[int] = field(default_factory=list)
    restorations: list[int] = field(default_factory=list)


class Snapshots:
    """The current snapshot of every document."""

    def __init__(self) -> None:
        self.heads: dict[str, Head] = {}
        self.before_loss: dict[str, Head] = {}  # what a document had when the broker lost it
        self._lives: dict[str, Life] = {}
        self._chunks: dict[str, list[bytes]] = {}  # by nuid
        self._ends: dict[str, Ends | None] = {}  # by nuid

    def life(self, document: str) -> Life:
        return self._lives.setdefault(document, Life())

    def named(self, nuid: str) -> Head | None:
        """The current snapshot that has these chunks."""
        return next((head for head in self.heads.values() if head.nuid == nuid and head.size), None)

    def stored(self, number: int, at: float, stored: StoredMessage, line: str) -> SnapshotStored | None:
        """Take one message of the bucket; metadata are an event."""
        if stored.subject.startswith(_CHUNKS):
            self._chunks.setdefault(stored.subject[len(_CHUNKS) :], []).append(stored.data)
            return None
        head = self._parse(stored)
        if head is None:
            return None
        before = self.heads.get(head.document)
        self.heads[head.document] = head
        self._note(number, before, head)
        return SnapshotStored(number, at, line, before, head)

    def removed(self, gone: Iterable[StoredMessage]) -> list[str]:
        """The nuids whose chunks were removed."""
        nuids: dict[str, None] = {}
        for stored in gone:
            if stored.subject.startswith(_CHUNKS):
                nuids[stored.subject[len(_CHUNKS) :]] = None
        return list(nuids)

    def lost(self, gone: Iterable[StoredMessage]) -> set[str]:
        """The broker lost these: the documents that have no whole snapshot any more."""
        documents: set[str] = set()
        for stored in gone:
            if stored.subject.startswith(_METADATA):
                documents.add(_document(stored.subject))
            elif (head := self.named(stored.subject[len(_CHUNKS) :])) is not None:
                documents.add(head.document)
        for document in documents:
            if (old := self.heads.pop(document, None)) is not None:
                self.before_loss[document] = old
        return documents

    def _note(self, number: int, before: Head | None, head: Head) -> None:
        life = self.life(head.document)
        was, now = before is not None and before.facts.deleted, head.facts.deleted
        if now and not was:
            life.deletions.append(number)
        elif was and not now:
            life.restorations.append(number)
        if head.facts.erased_ns and not (before is not None and before.facts.erased_ns):
            life.erasures.append(number)

    def _parse(self, stored: StoredMessage) -> Head | None:
        try:
            body = json.loads(stored.data)
            nuid, size = str(body["nuid"]), int(body["size"])
            facts = SnapshotMetadata.parse(body["metadata"])
        except (ValueError, KeyError, TypeError, MalformedMessage):
            return None
        return Head(_document(stored.subject), stored.sequence, nuid, size, facts, self._reach(nuid, size))

    def _reach(self, nuid: str, size: int) -> Ends | None:
        if not size:
            return {}
        if nuid not in self._ends:
            data = b"".join(self._chunks.pop(nuid, ()))
            self._ends[nuid] = _ends(data) if len(data) == size else None
        return self._ends[nuid]


def _ends(snapshot: bytes) -> Ends | None:
    try:
        with crdt.guard():
            meta = LoroDoc.decode_import_blob_meta(snapshot, False)
            return crdt.counters(meta.partial_end_vv.encode())
    except CrdtError:
        return None


def _document(subject: str) -> str:
    try:
        return base64.urlsafe_b64decode(subject[len(_METADATA) :]).decode()
    except (binascii.Error, UnicodeDecodeError):
        return subject
