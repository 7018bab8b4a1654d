"""A client for one command; what can be wrong is told in one sentence before anything is done."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import lorogo_client
from lorogo_cli.errors import Problem
from lorogo_client import Client, DocumentDeleted, DocumentFailed
from lorogo_protocol import ids, subjects
from lorogo_protocol.lease import Entry
from lorogo_protocol.status import Failed
from lorogo_transport.addresses import parse_servers, place
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import NoResponders, RequestTimeout, StreamMissing, Unreachable
from lorogo_transport.ports import Transport
from lorogo_transport.snapshots import SnapshotHead, SnapshotStore
from lorogo_transport.statuses import Statuses

_PING = "$SRV.PING.lorogo"
_PING_SECONDS = 2.0


@asynccontextmanager
async def connected(url: str, *document_ids: str, serving: bool = True) -> AsyncIterator[Client]:
    """A client whose NATS has our streams and, with `serving`, a server; ids are checked first."""
    for document_id in document_ids:
        ids.check_document_id(document_id)
    places = ", ".join(place(server) for server in parse_servers(url))
    try:
        async with lorogo_client.connect(url, name="lorogo") as client:
            await _check_streams(client.transport, places)
            if serving:
                await _check_server(client.transport, places)
            yield client
    except Unreachable as error:
        raise unreachable(error) from None


def unreachable(error: Unreachable) -> Problem:
    """The same, with what to do about it."""
    words = str(error).removesuffix("; is nats-server running there?")
    if words.startswith(("nothing answers", "no answer")):
        return Problem(f"{words}: start one with `lorogo dev`, or name another with --nats")
    return Problem(words)


async def _check_streams(transport: Transport, places: str) -> None:
    try:
        await transport.stream(subjects.STATUS_STREAM).state()
    except StreamMissing:
        raise Problem(
            f"no lorogo server has ever run on {places}: start one with `lorogo serve --nats {places}`"
        ) from None


async def _check_server(transport: Transport, places: str) -> None:
    try:
        await transport.bus.request(_PING, timeout=_PING_SECONDS)
    except NoResponders:
        raise Problem(
            f"no lorogo server is running on {places}: start one with `lorogo serve --nats {places}`"
        ) from None
    except RequestTimeout:
        pass  # we may lack the right to ask; the call itself will tell


@dataclass(frozen=True, slots=True)
class Sight:
    """What is stored of a document, seen without starting it."""

    document_id: str
    in_wal: bool
    snapshot: SnapshotHead | None
    status: Entry | None

    @property
    def known(self) -> bool:
        """Whether it has ever existed."""
        return self.in_wal or self.snapshot is not None or self.status is not None

    @property
    def deleted(self) -> bool:
        return self.snapshot is not None and bool(self.snapshot.facts.get("deleted_ns"))

    @property
    def erased(self) -> bool:
        return is_erased(self.snapshot)


def is_erased(head: SnapshotHead | None) -> bool:
    """Whether a document was erased for good."""
    return head is not None and head.facts.get("erased_ns", "0") not in {"", "0"}


async def look(transport: Transport, document_id: str) -> Sight:
    """What is stored of a document. Starts and creates nothing."""
    last, head, entry = await asyncio.gather(
        transport.stream(subjects.WAL_STREAM).last(subjects.wal(document_id)),
        snapshots(transport).head(document_id),
        Statuses(transport).read(document_id),
    )
    return Sight(document_id, last is not None, head, entry)


async def require_known(client: Client, document_id: str, *, deleted: bool = False) -> None:
    """Raise if the document has never existed, cannot be loaded, or (unless `deleted`) was deleted."""
    sight = await look(client.transport, document_id)
    if not sight.known:
        raise unknown(document_id)
    if sight.status is not None and isinstance(sight.status.status, Failed):
        raise DocumentFailed(document_id, sight.status.status.trace_id)
    if sight.deleted and not deleted:
        raise DocumentDeleted(document_id, erased=sight.erased)


def unknown(document_id: str) -> Problem:
    """There is no such document."""
    return Problem(f"there is no document {document_id!r}; `lorogo status` lists those that there are")


def snapshots(transport: Transport) -> SnapshotStore:
    """The snapshots, for reading."""
    return SnapshotStore(
        transport.stream(subjects.SNAPSHOT_STREAM),
        max_payload=transport.bus.max_payload,
        clock=SystemClock(),
        new_id=_no_id,
    )


def _no_id() -> str:
    raise AssertionError("the command only reads snapshots")
