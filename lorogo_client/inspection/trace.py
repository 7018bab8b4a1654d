"""What is known of one update, by its log id: in the WAL, in journals, refused, in the document.

Looks only: no document is started. An operator's question, so it may read much; page by page.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from lorogo_client.inspection.overview import is_deleted, snapshots
from lorogo_protocol import calls, chunks, crdt, pages, subjects
from lorogo_protocol import headers as h
from lorogo_protocol.calls import Body
from lorogo_protocol.chunks import Chunk
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.pages import FeedStart, PageRequest
from lorogo_protocol.records import Span, UpdateRecord
from lorogo_protocol.replies import number, sentence
from lorogo_transport.errors import StreamMissing
from lorogo_transport.ports import Headers, StoredMessage, Transport
from lorogo_transport.rpc.calls import Caller
from lorogo_transport.rpc.discovery import FoundServer, find_servers
from lorogo_transport.stores.snapshots import SnapshotHead

_JOURNALS_AT_ONCE = 8
_PAGE_SECONDS = 30.0  # a page may be read from 64 MiB of a journal
_OWNER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class InWal:
    """Messages of it that the WAL holds."""

    document: str
    sequences: tuple[int, ...]
    time_ns: int  # of the last
    bytes: int
    whole: bool  # every chunk is there


@dataclass(frozen=True, slots=True)
class InJournal:
    """A record of it: it was accepted."""

    server: str
    journal: str
    place: int  # the record's sequence in the journal
    document: str
    epoch: int
    sequence: int
    time_ns: int
    lease: int
    generation: int
    digest: str
    bytes: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """It was refused for good, and moved to `loro-rejected`."""

    document: str
    reason: str
    message: str
    sequence: int  # where the WAL had it
    time_ns: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotCoverage:
    """How far the stored snapshot goes."""

    epoch: int
    sequence: int
    deleted: bool


@dataclass(frozen=True, slots=True)
class UpdateTrace:
    """All that is known of one update."""

    log_id: str
    document: str = ""  # empty: nobody knows it
    wal: tuple[InWal, ...] = ()
    journals: tuple[InJournal, ...] = ()
    rejected: tuple[Quarantined, ...] = ()
    snapshot: SnapshotCoverage | None = None
    in_document: bool | None = None  # by its owner's version; None: nobody serves it, or it cannot be told
    unasked: tuple[str, ...] = ()  # servers whose journals could not be read, and why

    @property
    def known(self) -> bool:
        """Whether anybody has it or had it."""
        return bool(self.wal or self.journals or self.rejected)


async def trace(
    transport: Transport,
    caller: Caller,
    log_id: str,
    *,
    document: str = "",
    since_ns: int = 0,
    on_all: Callable[[], None] = lambda: None,
) -> UpdateTrace:
    """Look everywhere. Without a document, journals and refusals tell which it is.

    If they do not, the WAL of all documents is read; `on_all` is told before. Raises TransportError.
    """
    journals, unasked = await _in_journals(transport, caller, log_id, document, since_ns)
    rejected = await _in_rejected(transport, log_id, document)
    named = [one.document for one in journals] + [one.document for one in rejected]
    name = document or next(iter(named), "")
    if not name:
        on_all()
    wal = await _in_wal(transport, log_id, name)
    name = name or next((one.document for one in wal), "")
    if not name:
        return UpdateTrace(log_id, unasked=unasked)
    head = await snapshots(transport).head(name)
    inside = await _in_document(caller, name, [span for one in journals for span in one.spans])
    return UpdateTrace(log_id, name, wal, journals, rejected, _covered(head), inside, unasked)


def verdict(found: UpdateTrace) -> str:
    """In one sentence, for people."""
    many = len({one.server for one in found.journals})
    kept = f"in the journal{'s' if many > 1 else ''} of {many} server{'s' if many > 1 else ''}"
    held = next((one for one in found.wal if one.whole), None)
    if found.snapshot is not None and found.snapshot.deleted and found.known:
        return f"its document is deleted; the update is {kept}" if many else "its document is deleted"
    if many and held is not None:
        return f"accepted: in the WAL at {held.sequences[-1]}, {kept}"
    if many and (found.in_document or _compacted(found)):
        return f"accepted, and compacted since: in the stored snapshot, {kept}"
    if many and found.in_document is False:
        return f"accepted, and not in the document: {kept}; reconciliation brings it back"
    if many:
        return f"accepted: {kept}; nobody serves the document now to say whether it has it"
    if found.rejected:
        no = found.rejected[-1]
        return f"refused: {no.reason}: {no.message}" if no.message else f"refused: {no.reason}"
    if held is not None:
        return (
            f"in the WAL at {held.sequences[-1]}, and in no journal that answered: not accepted yet,"
            " or accepted with durability stream"
        )
    if found.wal:
        return "some of its chunks are in the WAL, others are missing: it was never whole"
    return "not known: it did not reach NATS, or what kept it has expired"


def _compacted(found: UpdateTrace) -> bool:
    """Whether the stored snapshot goes beyond where the WAL held it."""
    snapshot = found.snapshot
    if snapshot is None:
        return False
    return any((one.epoch, one.sequence) <= (snapshot.epoch, snapshot.sequence) for one in found.journals)


# --- where to look --------------------------------------------------------------------------------


async def _in_journals(
    transport: Transport, caller: Caller, log_id: str, document: str, since_ns: int
) -> tuple[tuple[InJournal, ...], tuple[str, ...]]:
    """From every server that answers, and which could not be read."""
    slots = asyncio.Semaphore(_JOURNALS_AT_ONCE)
    servers = await find_servers(transport.bus)

    async def one(server: FoundServer, journal: str) -> list[InJournal] | str:
        async with slots:
            try:
                return [found async for found in _in_journal(caller, server, journal, wanted)]
            except LorogoError as error:
                return f"{server.server_id}: {error}"

    wanted = PageRequest(
        "", "", FeedStart(time_ns=since_ns), frozenset({document}) if document else None, log_id=log_id
    )
    answers = await asyncio.gather(
        *(one(server, journal) for server in servers for journal in server.journals)
    )
    found = [record for answer in answers if not isinstance(answer, str) for record in answer]
    return tuple(found), tuple(answer for answer in answers if isinstance(answer, str))


async def _in_journal(
    caller: Caller, server: FoundServer, journal: str, wanted: PageRequest
) -> AsyncIterator[InJournal]:
    after, subject = "", subjects.server_feed(server.server_id)
    while True:
        ask = PageRequest(journal, after, wanted.start, wanted.documents, log_id=wanted.log_id)
        body: Body = await caller.ask(
            subject, ask.body(), timeout=_PAGE_SECONDS, whom=f"server {server.server_id}"
        )
        page = pages.decode(body)
        for entry in page.entries:
            record = entry.record
            # an older server does not know that it is asked for one update only
            if isinstance(record, UpdateRecord) and record.log_id == wanted.log_id:
                yield InJournal(
                    server.server_id,
                    journal,
                    entry.place,
                    entry.document,
                    record.epoch,
                    record.sequence,
                    entry.time_ns,
                    record.lease,
                    record.generation,
                    record.digest,
                    len(record.payload),
                    record.spans,
                )
        if page.end or page.next == after:
            return
        after = page.next


async def _in_rejected(transport: Transport, log_id: str, document: str) -> tuple[Quarantined, ...]:
    found: dict[tuple[str, str], Quarantined] = {}
    async for stored in _messages(transport, subjects.REJECTED_STREAM, subjects.rejected(document or "*")):
        if stored.headers.get(h.LOG_ID) != log_id or not stored.headers.get(h.REASON):
            continue
        reason = sentence(stored.headers[h.REASON])  # where NATS is open anybody may have written it
        name = subjects.document_of(stored.subject)
        before = found.get((name, reason))
        found[name, reason] = Quarantined(
            name,
            reason,
            sentence(stored.headers.get(h.MESSAGE, "")),
            _sequence(stored.headers),
            stored.time_ns,
            len(stored.data) + (0 if before is None else before.bytes),
        )
    return tuple(found.values())


async def _in_wal(transport: Transport, log_id: str, document: str) -> tuple[InWal, ...]:
    parts: dict[str, list[tuple[StoredMessage, Chunk]]] = {}
    async for stored in _messages(transport, subjects.WAL_STREAM, subjects.wal(document or "*")):
        if stored.headers.get(h.LOG_ID) != log_id:
            continue
        try:
            chunk = chunks.parse(stored.headers, b"")
        except MalformedMessage:
            continue  # its owner refuses it, and `loro-rejected` tells why
        name = subjects.document_of(stored.subject)
        parts.setdefault(name, []).append((stored, chunk))
    return tuple(_together(name, messages) for name, messages in parts.items())


def _together(document: str, messages: Sequence[tuple[StoredMessage, Chunk]]) -> InWal:
    counts = [chunk.count for _, chunk in messages if chunk.final]
    there = {chunk.index for _, chunk in messages}
    return InWal(
        document,
        tuple(stored.sequence for stored, _ in messages),
        messages[-1][0].time_ns,
        sum(len(stored.data) for stored, _ in messages),
        whole=any(there >= set(range(count)) for count in counts),
    )


async def _messages(transport: Transport, stream: str, subject: str) -> AsyncIterator[StoredMessage]:
    try:
        async for stored in transport.stream(stream).read(subject):
            yield stored
    except StreamMissing:
        return  # there has never been a server here


async def _in_document(caller: Caller, document: str, spans: Sequence[Span]) -> bool | None:
    """Whether its owner has those changes, if there is one: asking starts nothing."""
    if not spans:
        return None
    try:
        answer = await caller.call("version", document, {}, timeout=_OWNER_SECONDS)
        known = crdt.counters(calls.need(answer, "vector", bytes))
    except LorogoError:
        return None
    return all(end <= known.get(peer, 0) for peer, _, end in spans)


def _covered(head: SnapshotHead | None) -> SnapshotCoverage | None:
    if head is None:
        return None
    numbers = [head.facts.get(name, "0") for name in ("epoch", "sequence")]
    epoch, sequence = (int(one) if one.isascii() and one.isdigit() else 0 for one in numbers)
    return SnapshotCoverage(epoch, sequence, is_deleted(head))


def _sequence(headers: Headers) -> int:
    try:
        return number(headers, h.SEQUENCE, 0)
    except MalformedMessage:
        return 0
