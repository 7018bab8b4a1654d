"""Catalogue of documents, read without starting one: state, owner, lease, sizes, last edit."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.ids import is_document_id
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.limits import STALE_SECONDS
from lorogo_protocol.messages import calls, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.status import Down, Failed, Starting, Up
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.errors import NoResponders, RequestTimeout
from lorogo_transport.ports import StoredMessage, Transport
from lorogo_transport.stores.snapshots import SnapshotHead, SnapshotStore
from lorogo_transport.stores.statuses import Statuses

Row = dict[str, Any]

_OWNER_SECONDS = 3.0
_NAMES_SECONDS_MAX = 1.0  # age of a cached list of names
_TURN_NAMES = 1_000  # examined before yielding to the loop
_NAMES_SHARE = 0.05  # of the time may be spent reading names, whatever the request rate


@dataclass(frozen=True, slots=True)
class DocumentSummary:
    """The stored state of a document."""

    document_id: str
    last: StoredMessage | None  # its last message in the WAL
    snapshot: SnapshotHead | None
    status: StatusEntry | None

    @property
    def known(self) -> bool:
        """True if the document exists or has existed."""
        return self.last is not None or self.snapshot is not None or self.status is not None

    @property
    def deleted(self) -> bool:
        return is_deleted(self.snapshot)

    @property
    def erased(self) -> bool:
        return is_erased(self.snapshot)


def is_deleted(head: SnapshotHead | None) -> bool:
    """True if the document was deleted or erased."""
    return head is not None and bool(head.facts.get("deleted_ns"))


def is_erased(head: SnapshotHead | None) -> bool:
    """True if the document was erased."""
    return head is not None and head.facts.get("erased_ns", "0") not in {"", "0"}


async def read_summary(transport: Transport, document_id: str) -> DocumentSummary:
    """Read the stored state of a document. Starts and creates nothing."""
    last, head, entry = await asyncio.gather(
        transport.stream(subjects.WAL_STREAM).last(subjects.wal(document_id)),
        snapshots(transport).head(document_id),
        Statuses(transport).read(document_id),
    )
    return DocumentSummary(document_id, last, head, entry)


async def of_one(transport: Transport, sight: DocumentSummary, *, now_ns: int) -> Row:
    """Return the row of one document."""
    document_id = sight.document_id
    messages = await transport.stream(subjects.WAL_STREAM).count(subjects.wal(document_id))
    return row(document_id, sight.status, sight.snapshot, messages, now_ns=now_ns)


async def ask_owner(transport: Transport, document_id: str, token: str = "") -> Row | None:
    """Return the owner's status facts; None if it does not answer. Starts nothing."""
    subject = subjects.call("status", document_id)
    headers = {h.TOKEN: token} if token else None
    try:
        answer = await transport.bus.request(subject, headers=headers, timeout=_OWNER_SECONDS)
    except (NoResponders, RequestTimeout):
        return None
    try:
        facts = calls.decode(answer.data)
    except MalformedMessage:
        return None
    return facts if "since_ns" in facts else None


async def rows(transport: Transport, *, now_ns: int) -> list[Row]:
    """Return the rows of all documents, by id."""
    entries = {document: entry async for document, entry in Statuses(transport).all()}
    heads = {head.document_id: head async for head in snapshots(transport).list()}
    counts = await transport.stream(subjects.WAL_STREAM).subjects(subjects.wal("*"))
    messages = {subjects.document_of(subject): count for subject, count in counts.items()}
    names = sorted({*entries, *heads, *messages})
    return [
        row(name, entries.get(name), heads.get(name), messages.get(name, 0), now_ns=now_ns) for name in names
    ]


def row(
    document_id: str, entry: StatusEntry | None, head: SnapshotHead | None, messages: int, *, now_ns: int
) -> Row:
    """Return a document's row: state, server, time of the last change, lease and sizes."""
    row: Row = {
        "document": document_id,
        "state": "DOWN",
        "server": "",
        "changed_ns": None,
        "lease": 0,
        "deleted": is_deleted(head),
        "erased": is_erased(head),
        "snapshot_bytes": 0 if head is None else head.size,
        "wal_messages": messages,
    }
    if entry is None:
        return row
    row |= {"changed_ns": entry.status.time_ns, "server": entry.server, "lease": entry.token}
    match entry.status:
        case Down():
            row |= {"lease": 0, "server": ""}
        case Up(server_id):
            row |= {"state": "UP", "server": server_id}
            row["stale"] = now_ns - entry.status.time_ns > STALE_SECONDS * 1e9
        case Starting(_, retries):
            row |= {"state": "STARTING", "retries": retries}
        case Failed(trace_id):
            row |= {"state": "ERROR", "trace": trace_id}
    return row


def edited_ns(last: StoredMessage | None, head: SnapshotHead | None) -> int | None:
    """Return when the document was last edited, by the stream's clock; None if unknown.

    Taken from the last WAL message, else from the last dated version of the snapshot, else from
    the snapshot's own time.
    """
    times = [last.time_ns] if last is not None else []
    if head is not None:
        dated = _last_dated(head.facts.get("dated", ""))
        times += [dated] if dated is not None else [] if times else [head.time_ns]
    return max(times, default=None)


def _last_dated(text: str) -> int | None:
    """Return the time of the last entry of `[[time_ns, frontiers, sequence], ...]`, without parsing all."""
    first = text[text.rfind("[") + 1 :].partition(",")[0].strip()
    return int(first) if first.isascii() and first.isdigit() and len(first) <= 19 else None


def snapshots(transport: Transport) -> SnapshotStore:
    """Return a read-only view of the snapshots."""
    return SnapshotStore(
        transport.stream(subjects.SNAPSHOT_STREAM),
        max_payload=transport.bus.max_payload,
        clock=SystemClock(),
        new_id=_no_id,
    )


def _no_id() -> str:
    raise AssertionError("snapshots are only read here")


@dataclass(frozen=True, slots=True)
class _Names:
    """All document ids in order, and the number of WAL messages of each."""

    ids: Sequence[str]
    messages: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CataloguePage:
    """Some documents by id; `next` starts the following page, None on the last page."""

    rows: list[Row]
    next: str | None


class Catalogue:
    """All documents in pages.

    Names are read without bodies and cached for twenty times the reading time, at most a second: with
    few documents, a new one appears at once. Everything else is read only for the documents of the page.
    """

    def __init__(self, transport: Transport, clock: Clock | None = None) -> None:
        self._transport = transport
        self._clock = clock or SystemClock()
        self._reading = asyncio.Lock()
        self._names: _Names | None = None
        self._good_until = 0.0

    async def page(
        self, *, after: str = "", prefix: str = "", limit: int, only: Callable[[str], bool] | None = None
    ) -> CataloguePage:
        """Return at most `limit` documents that start with `prefix`, come after `after`, and pass `only`."""
        names = await self._all_names()
        ids = names.ids
        start = max(bisect_right(ids, after), bisect_left(ids, prefix))
        wanted: list[str] = []
        for count, one in enumerate(islice(ids, start, None), 1):
            if len(wanted) > limit or not one.startswith(prefix):
                break
            if only is None or only(one):
                wanted.append(one)
            if count % _TURN_NAMES == 0:  # `only` may reject nearly all of very many
                await asyncio.sleep(0)
        shown = wanted[:limit]
        more = shown[-1] if len(wanted) > limit else None
        return CataloguePage(await self._rows(shown, names.messages), more)

    async def _rows(self, ids: Sequence[str], messages: Mapping[str, int]) -> list[Row]:
        entries, heads, lasts = await asyncio.gather(
            Statuses(self._transport).read_many(ids),
            snapshots(self._transport).heads_of(ids),
            self._lasts([one for one in ids if one in messages]),
        )
        now_ns = self._clock.wall_ns()
        found = []
        for one in ids:
            head = heads.get(one)
            shown = row(one, entries.get(one), head, messages.get(one, 0), now_ns=now_ns)
            found.append(shown | {"edited_ns": edited_ns(lasts.get(one), head)})
        return found

    async def _lasts(self, ids: Sequence[str]) -> dict[str, StoredMessage]:
        wal = self._transport.stream(subjects.WAL_STREAM)
        wanted = [subjects.wal(one) for one in ids]
        return {subjects.document_of(stored.subject): stored async for stored in wal.newest_of(wanted)}

    async def _all_names(self) -> _Names:
        async with self._reading:
            began = self._clock.now()
            if self._names is None or began >= self._good_until:
                self._names = await _names(self._transport)
                ended = self._clock.now()
                self._good_until = ended + min(_NAMES_SECONDS_MAX, (ended - began) / _NAMES_SHARE)
            return self._names


async def _names(transport: Transport) -> _Names:
    started, kept, counts = await asyncio.gather(
        Statuses(transport).names(),
        snapshots(transport).names(),
        transport.stream(subjects.WAL_STREAM).subjects(subjects.wal("*")),
    )
    messages = {subjects.document_of(subject): count for subject, count in counts.items()}
    return _Names(sorted(filter(is_document_id, {*started, *kept, *messages})), messages)
