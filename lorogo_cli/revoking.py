"""`lorogo token revoke`: a token, or all that somebody has, refused everywhere before its time."""

import time
from pathlib import Path

from lorogo_cli.connection import shown, unreachable
from lorogo_cli.errors import Problem
from lorogo_cli.options import SEED_ENVIRONMENT
from lorogo_cli.output import say, say_json
from lorogo_cli.values import parse_lasting
from lorogo_cli.versions import show_time
from lorogo_cli.way import Way
from lorogo_protocol import revocation, tokens
from lorogo_transport import audit
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import NotAuthorized, PermissionDenied, StreamMissing, Unreachable
from lorogo_transport.jetstream import connect
from lorogo_transport.revocations import Revocations
from lorogo_transport.secret_files import read_secret, read_secret_file


async def revoke(
    url: str,
    nats_seed: Path | None,
    token_id: str | None,
    subject: str | None,
    token_file: Path | None,
    lasting: str | None,
    *,
    as_json: bool,
) -> None:
    """Write the entry; when this returns it is stored, and everybody who is connected hears of it."""
    if sum(one is not None for one in (token_id, subject, token_file)) != 1:
        raise Problem("what is to be revoked? Give a token's id, or --subject, or --token-file")
    until = None if lasting is None else time.time() + parse_lasting(lasting)
    if token_file is not None:
        token = tokens.peek(read_secret_file(token_file, "the token"))
        token_id, until = token.token_id, max(token.expires, until or 0)
    seed = read_secret(path=nats_seed, environment=SEED_ENVIRONMENT, what="the nkey seed")
    if token_id is not None:
        _check_id(token_id)
        await _write(Way(url, seed=seed), token_id, None, until)
        what, said = {"token_id": token_id}, f"the token {token_id}"
    else:
        assert subject is not None
        await _write(Way(url, seed=seed), None, _checked(subject), until)
        what, said = {"subject": subject}, f"every token that {subject} has"
    audit.record(
        "revoke", token=None, outcome="done", **{f"revoked_{name}": value for name, value in what.items()}
    )
    if as_json:
        say_json({**what, "until": until}, pretty=False)
        return
    kept = "for ever" if until is None else f"until {show_time(int(until * 1e9))}"
    say(f"{said} is refused from now on; that is remembered {kept}")
    if token_id is None:
        say(f"tokens that are minted for {subject} in {tokens.CLOCK_SECONDS:g} s or later are good")


async def _write(way: Way, token_id: str | None, subject: str | None, until: float | None) -> None:
    try:
        async with await connect(way.url, name="lorogo", seed=way.seed) as transport:
            revocations = Revocations(transport, SystemClock())
            await revocations.read()  # to remove what is over
            if token_id is not None:
                await revocations.revoke_token(token_id, until)
            if subject is not None:
                await revocations.revoke_subject(subject, until)
    except NotAuthorized as error:
        if way.known:
            raise Problem(f"NATS at {shown(way)} does not know who revokes: {error}") from None
        raise Problem(
            f"NATS at {shown(way)} asks who revokes: --nats-seed names the seed of an operator"
        ) from None
    except Unreachable as error:
        raise unreachable(error) from None
    except PermissionDenied:
        raise Problem("this NATS user may not revoke: --nats-seed names the seed of an operator") from None
    except StreamMissing:
        raise Problem(f"no lorogo server has ever run on {shown(way)}: there is nothing to revoke") from None


def _check_id(token_id: str) -> None:
    if tokens.looks_like(token_id):
        raise Problem("that is a token, not its id, and all who list processes saw it: use --token-file")
    try:
        revocation.token_key(token_id)
    except ValueError as error:
        raise Problem(str(error)) from None


def _checked(subject: str) -> str:
    try:
        return tokens.checked_subject(subject)
    except ValueError:
        raise Problem(
            f"no token has the subject {subject[:40]!r}: it is 1 to 128 printable characters"
        ) from None
