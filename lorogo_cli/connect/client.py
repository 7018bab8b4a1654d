"""Connect a client for one command, and check streams and servers before the command starts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import lorogo_client
from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.errors import CommandError
from lorogo_client import Client, NotAllowed, NotAuthorized, TokenExpired
from lorogo_client.errors import check_stored
from lorogo_protocol import ids
from lorogo_protocol.loro.crdt import nothing_known
from lorogo_protocol.messages import subjects
from lorogo_transport.errors import (
    NoResponders,
    PermissionDenied,
    RequestTimeout,
    StreamMissing,
    Unreachable,
)
from lorogo_transport.nats.addresses import display_address, parse_servers
from lorogo_transport.ports import Transport
from lorogo_transport.stores.catalogue import read_summary

START_DEV = "start one with `lorogo dev`"
START_CLOSED = "start it with `nats-server -c DIR/nats.conf`, DIR as `lorogo auth setup` made it"
_PING = "$SRV.PING.lorogo"
_PING_SECONDS = 2.0


@asynccontextmanager
async def connected(
    way: ConnectionOptions, *document_ids: str, serving: bool = True
) -> AsyncIterator[Client]:
    """Yield a client after checking ids, that NATS has our streams and, with `serving`, that a server runs.

    With only a token, NATS permits neither check: the command's own request fails instead.
    """
    for document_id in document_ids:
        ids.check_document_id(document_id)
    places = shown(way)
    try:
        async with lorogo_client.connect(way.url, token=way.token, seed=way.seed, name="lorogo") as client:
            if not way.guarded:
                await _check_streams(client.transport, places)
                if serving:
                    await _check_server(client.transport, places)
            yield client
    except NotAuthorized as error:
        raise unauthorized(error, way) from None
    except NotAllowed as error:
        if way.token is not None:
            raise
        problem = f"{error}: add --token-file FILE to --nats-seed (`lorogo token mint` makes a token)"
        raise CommandError(problem) from None
    except Unreachable as error:
        raise unreachable(error) from None


def shown(way: ConnectionOptions) -> str:
    """Return the addresses without credentials."""
    return ", ".join(display_address(server) for server in parse_servers(way.url))


def unreachable(error: Unreachable, *, closed: bool = False) -> CommandError:
    """Return the error with a next step; `closed`: the command is a service of a closed lorogo."""
    words = str(error).removesuffix("; is nats-server running there?")
    if words.startswith(("nothing answers", "no answer")):
        return CommandError(
            f"{words}: {START_CLOSED if closed else START_DEV}, or choose another with --nats"
        )
    return CommandError(words)


def unauthorized(error: NotAuthorized, way: ConnectionOptions) -> CommandError:
    """Return the reason why NATS refused the connection, with a next step."""
    if isinstance(error, TokenExpired):
        return CommandError(str(error))
    if not way.known:
        return CommandError(f"NATS at {shown(way)} requires credentials: use --token-file or --nats-seed")
    if way.guarded:
        return CommandError(
            f"NATS at {shown(way)} refuses this token: its key is unknown there, it was revoked, it is for"
            " another NATS, or `lorogo auth` is not running"
        )
    if way.seed is not None:
        return CommandError(f"NATS at {shown(way)} does not know the user of this nkey seed, or {error}")
    return CommandError(str(error))


def beyond(way: ConnectionOptions, what: str) -> None:
    """Raise CommandError if the command has only a token: `what` needs a NATS user."""
    if way.guarded:
        raise CommandError(
            f"{what} needs the NATS user of an operator (--nats-seed): a token grants documents only"
        )


async def _check_streams(transport: Transport, places: str) -> None:
    try:
        await transport.stream(subjects.STATUS_STREAM).state()
    except StreamMissing:
        raise CommandError(
            f"no lorogo server has ever run on {places}: start one with `lorogo serve --nats {places}`;"
            " if NATS lost its files, run `lorogo restore` first"
        ) from None
    except PermissionDenied:
        pass  # a service may lack this permission


async def _check_server(transport: Transport, places: str) -> None:
    try:
        await transport.bus.request(_PING, timeout=_PING_SECONDS)
    except NoResponders:
        raise CommandError(
            f"no lorogo server is running on {places}: start one with `lorogo serve --nats {places}`"
        ) from None
    except (RequestTimeout, PermissionDenied):
        pass  # the permission may be missing; the command's own request will fail with the reason


async def require_known(client: Client, document_id: str, *, deleted: bool = False) -> None:
    """Raise if the document has never existed, cannot be loaded, or (unless `deleted`) was deleted.

    With only a token the owner is queried, and an empty document counts as never written.
    """
    if client.guarded:
        if not deleted and (await client.document(document_id).version())["vector"] == nothing_known():
            raise CommandError(f"document {document_id!r} does not exist or was never written")
        return
    sight = await read_summary(client.transport, document_id)
    if not sight.known:
        raise unknown(document_id)
    check_stored(sight, deleted=deleted)


async def is_known(client: Client, document_id: str) -> bool:
    """Return whether the document has ever existed; with only a token, True."""
    return client.guarded or (await read_summary(client.transport, document_id)).known


def unknown(document_id: str) -> CommandError:
    """Return the error for an unknown document."""
    return CommandError(f"document {document_id!r} does not exist; `lorogo status` lists all documents")
