"""The text that `lorogo dev` prints: addresses, and commands that work from the current folder."""

import os
import shlex
import shutil
import sys
from datetime import timedelta
from pathlib import Path

from lorogo_cli.connect.closed_folder import ClosedFolder
from lorogo_cli.connect.options import NATS_DEFAULT, NATS_ENVIRONMENT
from lorogo_cli.render.program_name import python_beside, typed
from lorogo_gateway.server.pages import Pages

OPERATOR_LASTS = timedelta(days=30)


def _pages(web: str, editor: str, dashboard: str) -> str:
    if not Pages().built:
        return "  pages       are not built: `make pages` builds the editor and the dashboard"
    return f"  editor      {web}/d/welcome    {editor}\n  dashboard   {web}/dashboard{dashboard}"


def open_(url: str, web: str) -> str:
    """Return the text for a lorogo without tokens."""
    cwd = Path.cwd()
    lorogo = typed(sys.argv[0], sys.executable, cwd, shutil.which)
    python = python_beside(sys.executable, cwd)
    plain = url == NATS_DEFAULT and os.environ.get(NATS_ENVIRONMENT, url) == url
    at = "" if plain else f" --nats {shlex.quote(url)}"
    return f"""\
lorogo is running    (Ctrl-C stops it; documents stay)
{_pages(web, "(open it in two windows)", "")}
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


def closed(url: str, web: str, keys: ClosedFolder, token: Path) -> str:
    """Return the text for a lorogo with tokens; `token` is the operator's file."""
    cwd = Path.cwd()
    lorogo = typed(sys.argv[0], sys.executable, cwd, shutil.which)
    there = "" if url == NATS_DEFAULT else f" --nats {shlex.quote(url)}"
    at = f" --token-file {_shown(token, cwd)}{there}"
    return f"""\
lorogo is running, closed    (Ctrl-C stops it; documents and keys stay)
{_pages(web, "(needs a token)", "    (for operators)")}
  HTTP        {web}/v1/documents
  NATS        {url}
  operator    {_shown(token, cwd)}    (a token for all documents, valid for {OPERATOR_LASTS.days} days)
  keys        {_shown(keys.path, cwd)}
Its documents are separate from those of `{lorogo} dev` without --closed.

Try, in a second terminal, as the operator:
  {lorogo} doc set hello title '"Hello"'{at}
  {lorogo} doc get hello{at}
Make a token for ann that grants write on hello and minutes-* for an hour, and use it:
  {lorogo} token mint --key {_shown(keys.signing_key, cwd)} --subject ann \\
    --grant hello=write --grant 'minutes-*=write' --expires 1h --out ann.token
  {lorogo} doc get hello --token-file ann.token{there}
  curl -H "Authorization: Bearer $(cat ann.token)" {web}/v1/documents/hello
"""


def _shown(path: Path, cwd: Path) -> str:
    return shlex.quote(str(path.relative_to(cwd) if path.is_relative_to(cwd) else path))
