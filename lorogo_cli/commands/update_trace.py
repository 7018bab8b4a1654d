"""Search for one update by its log id: WAL, journals, refused updates, document.

Reads only and starts no document. It is a tool for operators, so it may read much; page by page.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from lorogo_client.context import ClientContext
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.journal import pages
from lorogo_protocol.journal.pages import FeedStart, PageRequest
from lorogo_protocol.journal.records import Span, UpdateRecord
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import calls, chunks, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.calls import Body
from lorogo_protocol.messages.chunks import Chunk
from lorogo_protocol.messages.replies import number, sentence
from lorogo_protocol.position import NOWHERE, Position
from lorogo_transport.errors import StreamMissing
from lorogo_transport.ports import Headers, StoredMessage, Transport
from lorogo_transport.rpc.calls import Caller
from lorogo_transport.rpc.discovery import FoundServer, find_servers
from lorogo_transport.stores.catalogue import is_deleted, snapshots
from lorogo_transport.stores.snapshots import SnapshotHead

_JOURNALS_AT_ONCE = 8
_PAGE_SECONDS = 30.0  # a page may be read from 64 MiB of a journal
_OWNER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class InWal:
    """The update's messages in the WAL."""

    document: str
    sequences: tuple[int, ...]
    time_ns: int  # of the last message
    bytes: int
    whole: bool  # all chunks are present


@dataclass(frozen=True, slots=True)
class InJournal:
    """The update's record in a journal: it was accepted."""

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
    """The update's entry in `loro-rejected`: it was refused for good."""

    document: str
    reason: str
    message: str
    sequence: int  # in the WAL
    time_ns: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotCoverage:
    """The WAL position that the stored snapshot covers."""

    position: Position
    deleted: bool


@dataclass(frozen=True, slots=True)
class UpdateTrace:
    """The search result for one update."""

    log_id: str
    document: str = ""  # empty: unknown
    wal: tuple[InWal, ...] = ()
    journals: tuple[InJournal, ...] = ()
    rejected: tuple[Quarantined, ...] = ()
    snapshot: SnapshotCoverage | None = None
    in_document: bool | None = None  # by its owner's version; None: not served, or unknown
    unreadable: tuple[str, ...] = ()  # servers whose journals could not be read, with the error

    @property
    def known(self) -> bool:
        """True if the update was found anywhere."""
        return bool(self.wal or self.journals or self.rejected)


async def search(
    context: ClientContext,
    log_id: str,
    *,
    document: str = "",
    since_ns: int = 0,
    on_full_scan: Callable[[], None] = lambda: None,
) -> UpdateTrace:
    """Search everywhere. Without `document`, journals and refusals name it.

    If they do not, the WAL of all documents is read, after a call of `on_full_scan`. Raises TransportError.
    """
    transport, caller = context.transport, context.caller
    journals, unreadable = await _in_journals(transport, caller, log_id, document, since_ns)
    rejected = await _in_rejected(transport, log_id, document)
    named = [one.document for one in journals] + [one.document for one in rejected]
    name = document or next(iter(named), "")
    if not name:
        on_full_scan()
    wal = await _in_wal(transport, log_id, name)
    name = name or next((one.document for one in wal), "")
    if not name:
        return UpdateTrace(log_id, unreadable=unreadable)
    head = await snapshots(transport).head(name)
    inside = await _in_document(caller, name, [span for one in journals for span in one.spans])
    return UpdateTrace(log_id, name, wal, journals, rejected, _covered(head), inside, unreadable)


def verdict(found: UpdateTrace) -> str:
    """Return the result as one sentence."""
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
        return f"accepted, but missing from the document: {kept}; reconciliation restores it"
    if many:
        return f"accepted: {kept}; no server serves the document now, so its content is unknown"
    if found.rejected:
        no = found.rejected[-1]
        return f"refused: {no.reason}: {no.message}" if no.message else f"refused: {no.reason}"
    if held is not None:
        return (
            f"in the WAL at {held.sequences[-1]}, but in no journal that answered: not accepted yet,"
            " or accepted with durability stream"
        )
    if found.wal:
        return "incomplete: some of its chunks are in the WAL, others are missing"
    return "not found: it did not reach NATS, or its records have expired"


def _compacted(found: UpdateTrace) -> bool:
    """True if the stored snapshot covers the update's WAL position."""
    if found.snapshot is None:
        return False
    covered = found.snapshot.position
    return any(covered.includes(Position(one.epoch, one.sequence, one.time_ns)) for one in found.journals)


# --- places to search----------------------------------------------------------------------------


async def _in_journals(
    transport: Transport, caller: Caller, log_id: str, document: str, since_ns: int
) -> tuple[tuple[InJournal, ...], tuple[str, ...]]:
    """Search the journals of every server that answers; return records and unreadable journals."""
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
            # an older server ignores the filter by log id
            if isinstance(record, UpdateRecord) and record.log_id == wanted.log_id:
                yield InJournal(
                    server.server_id,
                    journal,
                    entry.sequence,
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
        reason = sentence(stored.headers[h.REASON])  # untrusted where NATS is open to anonymous clients
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
            continue  # its owner refuses it; `loro-rejected` has the reason
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
        return  # no server has ever run on this NATS


async def _in_document(caller: Caller, document: str, spans: Sequence[Span]) -> bool | None:
    """Return whether the owner has these changes, None without an owner. Starts nothing."""
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
    try:
        position = Position.parse(head.facts.get("position", str(NOWHERE)))
    except ValueError:
        position = NOWHERE
    return SnapshotCoverage(position, is_deleted(head))


def _sequence(headers: Headers) -> int:
    try:
        return number(headers, h.SEQUENCE, 0)
    except MalformedMessage:
        return 0
