"""A client for one command; what can be wrong is told in one sentence before anything is done."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import lorogo_client
from lorogo_cli.errors import Problem
from lorogo_client import Client
from lorogo_client.overview import look
from lorogo_protocol import ids, subjects
from lorogo_transport.addresses import parse_servers, place
from lorogo_transport.errors import NoResponders, RequestTimeout, StreamMissing, Unreachable
from lorogo_transport.ports import Message, Transport

_PING = "$SRV.PING.lorogo"
_STATS = "$SRV.STATS.lorogo"
_PING_SECONDS = 2.0
_GATHER_SECONDS = 0.25  # for more servers to answer, after the last one that did
_SERVERS_MAX = 1000


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


async def servers(transport: Transport) -> list[dict[str, Any]]:
    """What each server that answers says of itself, through the NATS services protocol."""
    found: list[dict[str, Any]] = []
    arrived = asyncio.Event()
    nobody = False

    def on_answer(message: Message) -> None:
        nonlocal nobody
        if message.data and len(found) < _SERVERS_MAX:
            found.append(json.loads(message.data))
        else:
            nobody = True
        arrived.set()

    inbox = transport.bus.new_inbox()
    subscription = await transport.bus.subscribe(inbox, on_answer)
    try:
        await transport.bus.publish(_STATS, reply=inbox)
        wait = _PING_SECONDS
        while not nobody:
            arrived.clear()
            try:
                async with asyncio.timeout(wait):
                    await arrived.wait()
            except TimeoutError:
                break
            wait = _GATHER_SECONDS
    finally:
        await subscription.close()
    return found
