"""A client for one command; what can be wrong is told in one sentence before anything is done."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import lorogo_client
from lorogo_cli.errors import Problem
from lorogo_client import Client
from lorogo_client.overview import look
from lorogo_protocol import ids, subjects
from lorogo_transport.addresses import parse_servers, place
from lorogo_transport.errors import NoResponders, RequestTimeout, StreamMissing, Unreachable
from lorogo_transport.ports import Transport

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


async def require_known(client: Client, document_id: str, *, deleted: bool = False) -> None:
    """Raise if the document has never existed, cannot be loaded, or (unless `deleted`) was deleted."""
    sight = await look(client.transport, document_id)
    if not sight.known:
        raise unknown(document_id)
    sight.check(deleted=deleted)


def unknown(document_id: str) -> Problem:
    """There is no such document."""
    return Problem(f"there is no document {document_id!r}; `lorogo status` lists those that there are")
