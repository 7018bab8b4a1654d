"""`lorogo token revoke`: refuse a token, or all tokens of a subject, before they expire."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lorogo_cli.connect.client import shown, unreachable
from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.errors import CommandError
from lorogo_cli.render.output import say, say_json, say_result
from lorogo_cli.render.values import parse_duration, show_count
from lorogo_client.versions import show_time
from lorogo_protocol.access import revocation, tokens
from lorogo_transport.auth.anonymous_access import allows_anonymous
from lorogo_transport.auth.revocations import Revocations
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import NotAuthorized, PermissionDenied, StreamMissing, Unreachable
from lorogo_transport.nats.connection import connect
from lorogo_transport.secret_files import read_secret_file
from lorogo_transport.telemetry import audit

_KEPT_SECONDS: Final = 5.0  # time for the first server to write it to its disk


async def revoke(
    way: ConnectionOptions,
    token_id: str | None,
    subject: str | None,
    token_file: Path | None,
    lasting: str | None,
    *,
    as_json: bool,
) -> None:
    """Write the entry; when this returns, it is stored and published to all connected services."""
    if sum(one is not None for one in (token_id, subject, token_file)) != 1:
        raise CommandError(
            "choose one token to revoke: its id, --token-file, or --subject for all of a subject"
        )
    until = None if lasting is None else time.time() + parse_duration(lasting)
    if token_file is not None:
        token = tokens.peek(read_secret_file(token_file, "the token"))
        token_id, until = token.token_id, max(token.expires, until or 0)
    if token_id is not None:
        _check_id(token_id)
        servers = await _write(way, token_id, None, until)
        what, revoked = {"token_id": token_id}, f"the token {token_id}"
    else:
        assert subject is not None
        servers = await _write(way, None, _checked(subject), until)
        what, revoked = {"subject": subject}, f"every existing token of {subject}"
    audit.record(
        "revoke", token=None, outcome="done", **{f"revoked_{name}": value for name, value in what.items()}
    )
    if as_json:
        say_json({**what, "until": until, "kept_by": list(servers)})
        return
    kept = "permanently" if until is None else f"until {show_time(int(until * 1e9))}"
    if servers:
        on_disk = f"NATS and {show_count(len(servers), 'server')} have stored it"
        say(f"{revoked} is refused from now on; the entry is kept {kept}: {on_disk}")
    else:
        say(f"{revoked} is refused from now on; NATS keeps the entry {kept}")
        say(
            "no server has confirmed that it stored the entry:"
            " if NATS loses its files before a server has it, revoke again"
        )
    with suppress(Unreachable):  # the entry is already stored
        if await allows_anonymous(way.url):
            say("this NATS accepts anonymous clients, so tokens are not checked: see `lorogo auth setup`")
    if token_id is None:
        say(f"tokens minted for {subject} after {tokens.CLOCK_SECONDS:g} s from now are valid")


async def complete(way: ConnectionOptions, *, as_json: bool) -> None:
    """Mark the list of revoked tokens as complete: there is no other copy to wait for."""
    with _problems(way):
        async with await connect(way.url, name="lorogo", seed=way.seed) as transport:
            revocations = Revocations(transport, SystemClock())
            await revocations.read()
            entries = len(revocations.entries)
            await revocations.mark_complete()
    audit.record("revocations-complete", token=None, outcome="done")
    words = f"the list of revoked tokens is marked complete: it has {entries} entries"
    say_result({"entries": entries}, words, as_json=as_json)


async def _write(
    way: ConnectionOptions, token_id: str | None, subject: str | None, until: float | None
) -> tuple[str, ...]:
    """Write the entry; return the servers that have it on their disks."""
    with _problems(way):
        async with await connect(way.url, name="lorogo", seed=way.seed) as transport:
            revocations = Revocations(transport, SystemClock())
            await revocations.read()  # needed to remove expired entries
            sequence = 0
            if token_id is not None:
                sequence = await revocations.revoke_token(token_id, until)
            if subject is not None:
                sequence = await revocations.revoke_subject(subject, until)
            return await revocations.wait_kept(sequence, _KEPT_SECONDS if revocations.complete else 0.0)


@contextmanager
def _problems(way: ConnectionOptions) -> Iterator[None]:
    """Turn errors of NATS into CommandError."""
    try:
        yield
    except NotAuthorized as error:
        if way.known:
            raise CommandError(f"NATS at {shown(way)} refuses these credentials: {error}") from None
        raise CommandError(
            f"NATS at {shown(way)} requires credentials: use --nats-seed with the seed of an operator"
        ) from None
    except Unreachable as error:
        raise unreachable(error) from None
    except PermissionDenied:
        raise CommandError(
            "this NATS user may not revoke: use --nats-seed with the seed of an operator"
        ) from None
    except StreamMissing:
        raise CommandError(
            f"no lorogo server has ever run on {shown(way)}: there is nothing to revoke"
        ) from None


def _check_id(token_id: str) -> None:
    if tokens.looks_like(token_id):
        raise CommandError(
            "this is a token, not its id; every user of this machine could read it from the process list:"
            " use --token-file"
        )
    try:
        revocation.token_key(token_id)
    except ValueError as error:
        raise CommandError(str(error)) from None


def _checked(subject: str) -> str:
    try:
        return tokens.checked_subject(subject)
    except ValueError:
        raise CommandError(
            f"{subject[:40]!r} is not a subject: a subject has 1 to 128 printable characters"
        ) from None
