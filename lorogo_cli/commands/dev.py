"""`lorogo dev`: run nats-server, a document server and the gateway, and print next steps."""

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from lorogo_cli.commands import dev_closed
from lorogo_cli.connect import closed_folder
from lorogo_cli.connect.options import NATS_DEFAULT, NATS_ENVIRONMENT
from lorogo_cli.connect.runtime import stop_signals
from lorogo_cli.connect.telemetry import telemetry
from lorogo_cli.errors import CommandError, one_line
from lorogo_cli.render.output import say
from lorogo_cli.render.program_name import python_beside, typed
from lorogo_cli.services import worker_identity
from lorogo_cli.services.gateway import chosen
from lorogo_gateway.server.lifecycle import CannotListen, GatewaySettings, running
from lorogo_gateway.server.pages import Pages
from lorogo_server import Server, ServerSettings
from lorogo_server.sandbox.decode_sandbox import DecodeSandbox
from lorogo_server.sandbox.keepalive import KeepaliveProcess
from lorogo_server.server import new_nanoid
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedError, EmbeddedNats

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
            accounts = "" if keys is None else keys.accounts
            nats = EmbeddedNats(store / "nats", port=port, configuration=accounts)
            try:
                await nats.start()
            except EmbeddedError as error:
                raise CommandError(
                    f"{one_line(error)}; choose another port or folder: --port, --store"
                ) from None
            data = worker_identity.folder(store / "server", 0)
            try:
                if keys is None:
                    await _until_stopped(nats, _open(nats, server_id, data, web), stop)
                else:
                    await _until_stopped(nats, dev_closed.running(nats, keys, server_id, data, web), stop)
            finally:
                await nats.stop()


@asynccontextmanager
async def _open(nats: EmbeddedNats, server_id: str, data: Path, web: GatewaySettings) -> AsyncIterator[str]:
    """Run a server and a gateway without tokens; yield the text of the screen."""
    settings = ServerSettings(server_id=server_id)
    async with (
        telemetry("lorogo-dev") as spans,
        await connect(nats.url, name="lorogo dev") as transport,
        Server(
            transport,
            settings,
            keepalive=KeepaliveProcess(nats.url),
            sandbox=DecodeSandbox(spare=False),
            data=data,
            tracer_provider=spans,
        ),
        running(nats.url, web, tracer_provider=spans) as address,
    ):
        yield screen(nats.url, address)


async def _until_stopped(
    nats: EmbeddedNats, serving: AbstractAsyncContextManager[str], stop: asyncio.Event
) -> None:
    """Serve until a stop signal, or until nats-server exits."""
    ended = asyncio.create_task(nats.wait())
    stopped = asyncio.create_task(stop.wait())
    try:
        async with serving as words:
            say(words)
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                raise CommandError(f"nats-server exited with code {ended.result()}; see {nats.log_path}")
            say("stopping")
    except CannotListen as error:
        raise CommandError(f"{one_line(error)}; choose another port with --web-port") from None
    finally:
        ended.cancel()
        stopped.cancel()


async def _answers(port: int) -> bool:
    """Return whether a program listens on this port."""
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def screen(url: str, web: str) -> str:
    """Return the text of the screen; its commands work from the current folder."""
    cwd = Path.cwd()
    lorogo = typed(sys.argv[0], sys.executable, cwd, shutil.which)
    python = python_beside(sys.executable, cwd)
    plain = url == NATS_DEFAULT and os.environ.get(NATS_ENVIRONMENT, url) == url
    at = "" if plain else f" --nats {shlex.quote(url)}"
    pages = f"""\
  editor      {web}/d/welcome    (open it in two windows)
  dashboard   {web}/dashboard
"""
    if not Pages().built:
        pages = "  pages       are not built: `make pages` builds the editor and the dashboard\n"
    return f"""\
lorogo is running    (Ctrl-C stops it; documents stay)
{pages}\
  HTTP        {web}/v1/documents
  NATS        {url}
No tokens needed: every user of this machine can read and write; `{lorogo} dev --closed` requires tokens.

Try, in a second terminal:
  {lorogo} doc set hello title '"Hello"'{at}
  {lorogo} doc get hello{at}
  {lorogo} doc set hello tasks.0 '{{"what": "write", "done": false}}'{at}
  {lorogo} doc history hello{at}
  {lorogo} status{at}
and watch edits arrive, in a third:
  {lorogo} doc watch hello{at}

From Python ({python}):
  import asyncio, lorogo_client
  async def main():
      async with lorogo_client.connect("{url}") as client, client.open("hello") as session:
          session.doc.get_text("title").insert(0, "Oh! ")
          session.commit()
          print(await session.flush())
  asyncio.run(main())
"""
