"""A small world that writes journals as servers do: loads, replays, pendings, zombies, losses, purges.

It follows docs/JOURNAL.md, not the server's code: what the rules of the journal promise is what the
feed may rely on.
"""

from dataclasses import dataclass, field

from loro import ID, VersionVector

from lorogo_protocol.journal.pages import EVERYTHING, FeedPage, FeedStart, PageEntry
from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    DocumentRecord,
    UpdateRecord,
)
from tests.journals import restored_record

Change = tuple[int, int]  # peer, counter


@dataclass(frozen=True)
class Sent:
    """An update as its sender made it: one change or more of one peer, on top of what it saw."""

    log_id: str
    spans: tuple[tuple[int, int, int], ...]
    needs: frozenset[Change]

    @property
    def changes(self) -> frozenset[Change]:
        return frozenset((peer, at) for peer, first, end in self.spans for at in range(first, end))


@dataclass
class Owner:
    """A server that has, or believes to have, the document."""

    server: str
    lease: int
    has: set[Change]
    read: int  # how far it took the WAL, as a place in World.wal
    waiting: list[tuple[int, int, Sent]] = field(default_factory=list)


@dataclass
class Server:
    """One server, its journal, and its ledger."""

    journal: list[PageEntry] = field(default_factory=list)
    covers: dict[str, tuple[int, int]] = field(default_factory=dict)  # (epoch, sequence), by document
    base: dict[str, frozenset[Change]] = field(default_factory=dict)  # the snapshot that it covers
    up: bool = True


@dataclass
class Document:
    """One document: its WAL, its snapshot, its owners."""

    wal: list[tuple[int, Sent]] = field(default_factory=list)  # what is still stored
    taken: int = 0  # how many messages were ever stored; a place in the WAL is counted from the beginning
    purged: int = 0  # how many of them are gone
    snapshot: frozenset[Change] = frozenset()
    owner: Owner | None = None
    zombie: Owner | None = None
    made: dict[int, int] = field(default_factory=dict)  # by peer: changes made
    unsent: list[Sent] = field(default_factory=list)
    covers: tuple[int, int] = (0, 0)  # what the snapshot covers: epoch, sequence
    deleted: bool = False
    generation: int = 0


class World:
    """Servers, documents and one stream."""

    def __init__(self, servers: int, documents: int) -> None:
        self.servers = {f"s{number}": Server() for number in range(servers)}
        self.documents = {f"d{number}": Document() for number in range(documents)}
        self.sequence = 0
        self.lease = 0
        self.epoch = 1
        self.accepted: dict[str, list[UpdateRecord]] = {
            name: [] for name in self.documents
        }  # first time each
        self.markers: dict[str, list[str]] = {name: [] for name in self.documents}
        self.sent: dict[str, Sent] = {}
        self._ids = 0

    # --- clients ----------------------------------------------------------------------------------

    def make(self, document: str, peer: int, changes: int) -> None:
        """A client edits: on top of everything that was made, by anybody."""
        doc = self.documents[document]
        peer += 10 * doc.generation  # after a restore clients rebase, under new names
        first = doc.made.get(peer, 0)
        needs = frozenset((one, end - 1) for one, end in doc.made.items())
        doc.made[peer] = first + changes
        self._ids += 1
        sent = Sent(f"u{self._ids}", ((peer, first, first + changes),), needs)
        self.sent[sent.log_id] = sent
        doc.unsent.append(sent)

    def send(self, document: str, which: int) -> None:
        """One of the unsent updates reaches the stream, in any order."""
        doc = self.documents[document]
        if doc.unsent:
            self._store(doc, doc.unsent.pop(which % len(doc.unsent)))

    def _store(self, doc: Document, sent: Sent) -> None:
        self.sequence += 1
        doc.wal.append((self.sequence, sent))
        doc.taken += 1

    # --- servers ----------------------------------------------------------------------------------

    def take_over(self, document: str, server: str, *, forgetful: bool) -> None:
        """A server loads the document; whoever had it may not know yet."""
        doc, here = self.documents[document], self.servers[server]
        if not here.up:
            return
        self.lease += 1
        if doc.owner is not None and doc.owner.server != server:
            doc.zombie = doc.owner
        if doc.zombie is not None and doc.zombie.server == server:
            doc.zombie = None
        owner = doc.owner = Owner(server, self.lease, set(doc.snapshot), doc.purged)
        covered = (0, 0) if forgetful else here.covers.get(document, (0, 0))
        self._load(document, owner, covered, again=forgetful)

    def _load(self, document: str, owner: Owner, covered: tuple[int, int], *, again: bool = False) -> None:
        doc, here = self.documents[document], self.servers[owner.server]
        if doc.snapshot and not doc.deleted and (again or here.base.get(document) != doc.snapshot):
            vector = _vector(doc.snapshot)
            record = BaseRecord(*doc.covers, owner.lease, doc.generation, "", vector, b"", b"")
            self._journal(owner.server, document, record)
            here.base[document] = doc.snapshot
        self._read(document, owner, covered=covered)
        self._cover(document, owner)

    def work(self, document: str, count: int, *, zombie: bool = False) -> None:
        """The owner (or one that was it) takes some messages of the WAL."""
        doc = self.documents[document]
        owner = doc.zombie if zombie else doc.owner
        if owner is not None and self.servers[owner.server].up:
            self._read(document, owner, count=count)

    def _read(
        self, document: str, owner: Owner, *, covered: tuple[int, int] = (0, 0), count: int = -1
    ) -> None:
        doc = self.documents[document]
        owner.read = max(owner.read, doc.purged)
        while count and owner.read - doc.purged < len(doc.wal):
            sequence, sent = doc.wal[owner.read - doc.purged]
            owner.read += 1
            count -= 1
            if doc.deleted:
                continue  # refused
            owner.waiting.append((self.epoch, sequence, sent))
            progress = True
            while progress:
                progress = False
                for one in list(owner.waiting):
                    epoch, at, waiting = one
                    if not waiting.needs <= owner.has:
                        continue
                    owner.waiting.remove(one)
                    progress = True
                    if waiting.changes <= owner.has:
                        continue
                    owner.has |= waiting.changes
                    self._accept(document, owner, epoch, at, waiting, covered)

    def _accept(
        self, document: str, owner: Owner, epoch: int, at: int, sent: Sent, covered: tuple[int, int]
    ) -> None:
        record = UpdateRecord(
            epoch, at, sent.log_id, "1", owner.lease, self.documents[document].generation, sent.spans, b""
        )
        if epoch == covered[0] and at <= covered[1]:
            return  # the ledger knows that it is in the journal
        self._journal(owner.server, document, record)
        if all(one.log_id != sent.log_id for one in self.accepted[document]):
            self.accepted[document].append(record)

    def _journal(self, server: str, document: str, record: DocumentRecord) -> None:
        journal = self.servers[server].journal
        journal.append(PageEntry(len(journal), 0, document, record))

    def _cover(self, document: str, owner: Owner) -> None:
        doc, here = self.documents[document], self.servers[owner.server]
        read = [sequence for sequence, _ in doc.wal[: owner.read - doc.purged]]
        through = min([at - 1 for _, at, _ in owner.waiting] + [max(read, default=0)])
        here.covers[document] = (self.epoch, through)

    def compact(self, document: str) -> None:
        """The owner stores a snapshot of what it has, and purges what it read."""
        doc = self.documents[document]
        owner = doc.owner
        if owner is None or not self.servers[owner.server].up:
            return
        doc.snapshot = frozenset(owner.has)
        doc.covers = self._head(doc, owner)
        self.servers[owner.server].base[document] = doc.snapshot
        keep = min([at for _, at, _ in owner.waiting], default=self.sequence + 1)
        while doc.purged < owner.read and doc.wal[0][0] < keep:
            doc.wal.pop(0)
            doc.purged += 1
        self._cover(document, owner)

    def _head(self, doc: Document, owner: Owner) -> tuple[int, int]:
        """How far the WAL was read."""
        read = [sequence for sequence, _ in doc.wal[: owner.read - doc.purged]]
        return max((self.epoch, max(read, default=0)), doc.covers)

    def delete(self, document: str) -> None:
        """The owner, sure of its lease, deletes the document, or restores it if it is deleted."""
        doc = self.documents[document]
        owner = doc.owner
        if owner is None or not self.servers[owner.server].up:
            return
        doc.zombie = None
        record: DocumentRecord
        if not doc.deleted:
            doc.deleted, doc.snapshot = True, frozenset(owner.has)
            doc.covers = self._head(doc, owner)
            owner.waiting.clear()
            doc.unsent.clear()
            doc.made = {}
            for peer, at in doc.snapshot:
                doc.made[peer] = max(doc.made.get(peer, 0), at + 1)
            record = DeletedRecord("tombstone", (), owner.lease, doc.generation, self.sequence)
            self.markers[document].append(f"deleted {doc.generation}")
        else:
            doc.deleted, doc.generation = False, doc.generation + 1
            record = restored_record(owner.lease, doc.generation)
            self.markers[document].append(f"restored {doc.generation}")
        while doc.purged < owner.read:
            doc.wal.pop(0)
            doc.purged += 1
        self._journal(owner.server, document, record)
        if not doc.deleted:  # it is loaded again
            owner.has = set(doc.snapshot)
            self._load(document, owner, self.servers[owner.server].covers.get(document, (0, 0)))

    def lose(self, document: str, count: int) -> None:
        """The stream forgets its last messages of a document; every owner reads all of it again.

        What a journal has and the stream has not comes back by reconciliation, under its own log id.
        """
        doc = self.documents[document]
        count = min(count, len(doc.wal))
        if not count:
            return
        lost = [sent for _, sent in doc.wal[-count:]]
        del doc.wal[-count:]
        doc.taken -= count
        self.epoch += 1
        for other in self.documents.values():  # all of the stream counts in the new epoch
            other.owner = other.zombie = None
        for sent in lost:
            self._store(doc, sent)

    # --- for readers ------------------------------------------------------------------------------

    def page(self, server: str, after: str, count: int, start: FeedStart = EVERYTHING) -> FeedPage | None:
        """Some records; None if the server does not answer."""
        here = self.servers[server]
        if not here.up:
            return None
        first = int(after.split(":", maxsplit=1)[0]) if after else 0
        found = here.journal[first : first + count]
        behind = first + len(found)
        entries = tuple(entry for entry in found if start.wants(entry.time_ns, entry.record))
        return FeedPage(entries, f"{behind}:0:0", behind >= len(here.journal))


def _vector(changes: frozenset[Change]) -> bytes:
    ends: dict[int, int] = {}
    for peer, at in changes:
        ends[peer] = max(ends.get(peer, 0), at + 1)
    vector = VersionVector()
    for peer, end in ends.items():
        vector.set_end(ID(peer, end))
    return bytes(vector.encode())
