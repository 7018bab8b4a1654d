"""`lorogo auth`: authorize connections with tokens for nats-server; `auth setup`: prepare a closed NATS."""

import asyncio
import shlex
import shutil
import sys
from pathlib import Path

from lorogo_cli.connect import closed_folder
from lorogo_cli.connect.client import unreachable
from lorogo_cli.connect.runtime import stop_signals
from lorogo_cli.errors import CommandError
from lorogo_cli.render.output import say
from lorogo_cli.render.program_name import typed
from lorogo_cli.services.service_keys import ServiceKeys, warn_of_minting
from lorogo_transport.auth import accounts, seeds
from lorogo_transport.auth.auth_service import NEEDED, WrongSeed, check_issuer, running
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.errors import NotAuthorized, Unreachable
from lorogo_transport.nats.embedded import EmbeddedError, find_nats_server
from lorogo_transport.secret_files import read_secret

_NOT_OPEN = "; an open NATS needs no `lorogo auth`"


async def auth(url: str, found: KeySource | None, folder: Path | None) -> None:
    """Run until SIGTERM or Ctrl-C."""
    if found is None:
        raise CommandError(
            "`lorogo auth` needs the keys that verify tokens: use --keys FILE (`lorogo auth setup DIR` makes"
            " them)"
        )
    warn_of_minting(found)
    needed = seeds_of(folder)
    with stop_signals() as stop:
        try:
            await ServiceKeys(found).check_nats(url, alternative=_NOT_OPEN)
            async with running(url, found, needed) as service:
                await check_issuer(url, service)
                say("lorogo auth is running    (Ctrl-C stops it)")
                await stop.wait()
                say("stopping")
        except WrongSeed as error:
            raise CommandError(str(error)) from None
        except NotAuthorized:
            raise CommandError(
                "NATS does not know the seeds of `lorogo auth`: run nats-server with the nats.conf that"
                " `lorogo auth setup` wrote into the same folder"
            ) from None
        except Unreachable as error:
            raise unreachable(error, closed=True) from None


def seeds_of(folder: Path | None) -> dict[str, str]:
    """Return the seeds of the service, from a folder or from the environment."""
    found = {}
    for name in NEEDED:
        word = name.upper().replace("-", "_")
        seed = read_secret(
            path=None if folder is None else folder / f"{name}.seed",
            environment=f"LOROGO_{word}_SEED",
            what=f"the seed of {name}",
        )
        if seed is None:
            raise CommandError(
                f"the seed of {name} is missing: set --seeds to the folder that `lorogo auth setup` made, or"
                f" LOROGO_{word}_SEED_FILE to a file"
            )
        found[name] = seed
        seeds.public_of(seed, accounts.KINDS[name], f"the seed of {name}")
    return found


async def setup(folder: Path) -> None:
    """Write all files and print the next steps."""
    made = await asyncio.to_thread(closed_folder.make, folder)
    say(next_steps(made.path))


def next_steps(folder: Path) -> str:
    """Return the next steps, as commands that work from the current folder."""
    lorogo = typed(sys.argv[0], sys.executable, Path.cwd(), shutil.which)
    here = shlex.quote(str(folder))
    nats = "nats-server" if shutil.which("nats-server") else _whole_nats()
    return f"""\
{folder} has all files of a closed NATS. Protect it like passwords.

  1. {nats} -c {here}/nats.conf
  2. {lorogo} auth --seeds {here} --keys {here}/keys.jwks
  3. {lorogo} serve --nats-seed {here}/server.seed --keys {here}/keys.jwks --data {here}/server
  4. {lorogo} gateway --nats-seed {here}/gateway.seed --keys {here}/keys.jwks

Mint a token for a user, valid for an hour:
  {lorogo} token mint --key {here}/tokens.jwk --subject ann --grant 'minutes-*=write' --expires 1h

  tokens.jwk     mints tokens: only for your app's backend
  keys.jwks      verifies tokens: for serve, gateway and auth
  issuer.seed    authorizes connections, with auth.seed, auth-list.seed and system.seed: for `lorogo auth`
  server.seed    for `lorogo serve`, gateway.seed for `lorogo gateway`, operator.seed for you
"""


def _whole_nats() -> str:
    """Return the path of nats-server where the shell does not find it."""
    try:
        return shlex.quote(str(find_nats_server()))
    except EmbeddedError:
        return "nats-server"
