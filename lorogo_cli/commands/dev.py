"""`lorogo dev`: run nats-server, a document server and the gateway, and print next steps.

With --closed also an auth service: every client needs a token.
"""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from lorogo_cli.commands import dev_screen
from lorogo_cli.connect import closed_folder
from lorogo_cli.connect.closed_folder import ClosedFolder
from lorogo_cli.connect.runtime import stop_signals, until
from lorogo_cli.connect.telemetry import telemetry
from lorogo_cli.errors import CommandError, one_line
from lorogo_cli.render.output import say
from lorogo_cli.render.program_name import typed
from lorogo_cli.services import worker_identity
from lorogo_cli.services.document_server import document_server
from lorogo_cli.services.gateway import chosen
from lorogo_cli.services.service_keys import ServiceKeys
from lorogo_client import tokens
from lorogo_gateway.server.lifecycle import CannotListen, GatewaySettings, running
from lorogo_server import ServerSettings
from lorogo_server.server import new_nanoid
from lorogo_transport.auth import accounts, auth_service
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedError, EmbeddedNats
from lorogo_transport.secret_files import write_secret

OPERATOR_TOKEN = "operator.token"
_LOOK_SECONDS = 1.0


async def dev(port: int, web_port: int, store: Path, origins: Sequence[str], *, closed: bool = False) -> None:
    """Run until Ctrl-C or SIGTERM; the gateway stops first, then the document server, nats-server last."""
    web = chosen(port=web_port, origins=tuple(origins))
    if closed:  # a separate folder: the closed NATS account has other documents
        store /= "closed"
        await asyncio.to_thread(closed_folder.make_private, store)
    with stop_signals() as stop:
        lorogo = typed(sys.argv[0], sys.executable, Path.cwd(), shutil.which)
        if port and await _answers(port):
            other = port % 65535 + 1
            raise CommandError(
                f"port {port} is taken: if another `lorogo dev` uses it, use that one or stop it;"
                f" otherwise choose other ports and another folder, as in"
                f" `{lorogo} dev --port {other} --web-port {web_port and web_port % 65535 + 1}"
                f" --store .lorogo-{other}`"
            )
        if web_port and await _answers(web_port):
            raise CommandError(
                f"port {web_port} is taken by another program: choose another port for the gateway, as in"
                f" `{lorogo} dev --web-port {web_port % 65535 + 1}`"
            )
        with worker_identity.held(
            store / "server", 0, new_nanoid, closed=closed, option="--store"
        ) as server_id:
            keys = await asyncio.to_thread(closed_folder.make_once, store / "keys") if closed else None
            configuration = "" if keys is None else keys.accounts
            nats = EmbeddedNats(store / "nats", port=port, configuration=configuration)
            try:
                await nats.start()
            except EmbeddedError as error:
                raise CommandError(
                    f"{one_line(error)}; choose another port or folder: --port, --store"
                ) from None
            data = worker_identity.folder(store / "server", 0)
            try:
                async with _running(nats, keys, server_id, data, web) as words:
                    say(words)
                    code = await until(stop, nats.wait())
                    if code is not None:
                        raise CommandError(f"nats-server exited with code {code}; see {nats.log_path}")
                    say("stopping")
            except CannotListen as error:
                raise CommandError(f"{one_line(error)}; choose another port with --web-port") from None
            finally:
                await nats.stop()


@asynccontextmanager
async def _running(
    nats: EmbeddedNats, keys: ClosedFolder | None, server_id: str, data: Path, web: GatewaySettings
) -> AsyncIterator[str]:
    """Run a server and a gateway, with keys also an auth service; yield the text of the screen."""
    settings = ServerSettings(server_id=server_id)
    guard = web_guard = ServiceKeys(None)
    source = None
    if keys is not None:
        settings = replace(settings, revocations_wait_seconds=0.0)  # the only server
        source = await asyncio.to_thread(KeySource.from_file, keys.key_set)
        guard = ServiceKeys(source, keys.seeds[accounts.SERVER])
        web_guard = ServiceKeys(source, keys.seeds[accounts.GATEWAY])
    async with AsyncExitStack() as stack:
        spans = await stack.enter_async_context(telemetry("lorogo-dev"))
        transport = await stack.enter_async_context(
            await connect(nats.url, name="lorogo dev", **guard.server_identity())
        )
        await stack.enter_async_context(document_server(transport, nats.url, settings, data, guard, spans))
        if keys is not None and source is not None:
            await stack.enter_async_context(auth_service.running(nats.url, source, keys.seeds))
        identity = web_guard.gateway_identity()
        address = await stack.enter_async_context(
            running(nats.url, web, keys=web_guard.keys, identity=identity, tracer_provider=spans)
        )
        if keys is None:
            yield dev_screen.open_(nats.url, address)
        else:
            token = await asyncio.to_thread(_operator_token, keys)
            yield dev_screen.closed(nats.url, address, keys, token)


def _operator_token(keys: ClosedFolder) -> Path:
    """Write a new token that grants admin on all documents; return its file."""
    path = keys.path / OPERATOR_TOKEN
    key = tokens.load_key(keys.signing_key)
    text = tokens.mint(key, subject="operator", documents={"*": "admin"}, expires=dev_screen.OPERATOR_LASTS)
    write_secret(path, text, "the operator's token", replace=True)
    return path


async def _answers(port: int) -> bool:
    """Return whether a program listens on this port."""
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
