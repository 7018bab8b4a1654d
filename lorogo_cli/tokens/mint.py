"""`lorogo token mint` and `show`: mint tokens and show their content."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lorogo_cli.connect.options import TOKEN_ENVIRONMENT
from lorogo_cli.errors import CommandError, brief
from lorogo_cli.render.output import note, say, say_json, say_table
from lorogo_cli.render.values import parse_duration
from lorogo_cli.services.service_keys import keys_of
from lorogo_client import tokens as minting
from lorogo_client.versions import show_age, show_time
from lorogo_protocol.access import tokens
from lorogo_protocol.access.tokens import Key, Keys, Token, TokenRefused
from lorogo_protocol.errors import LorogoError
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.secret_files import (
    SECRET_BYTES_MAX,
    misplaced_secret,
    read_file,
    read_secret,
    write_secret,
)

_SECONDS_MAX = 10 * 365 * 86_400


def mint(
    key: Path, *, subject: str, grants: Sequence[str], expires: str, token_id: str | None, out: Path | None
) -> None:
    """Mint a token, and print it or write it to a file."""
    documents = _documents(grants)
    if out is not None and os.path.realpath(out) == os.path.realpath(key):
        raise CommandError("--out and --key are the same file: choose another file for the token")
    if out is not None and not misplaced_secret(str(out)):  # write_secret reports that
        _check_free(out)
    seconds = parse_duration(expires)
    if seconds > _SECONDS_MAX:
        raise CommandError(f"--expires {brief(expires)} is more than ten years: choose less, for example 30d")
    signing = _signing_key(key)
    try:
        text = minting.mint(signing, subject=subject, documents=documents, expires=seconds, token_id=token_id)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if out is None:
        say(text)
    else:
        write_secret(out, text, "the token", replace=True)
        note(f"{out} has the token of {subject}")


def show(token_file: Path | None, keys: Path | None, *, as_json: bool) -> bool:
    """Print the token's content; return False if verification was requested and failed."""
    text, source = _token(token_file)
    trusted, now = keys_of(keys), time.time()
    known = None if trusted is None else trusted.keys
    token, problem = _looked_at(text, known, now)
    facts: dict[str, Any] = {
        "subject": token.subject,
        "token_id": token.token_id,
        "key": token.key_id,
        "issued": token.issued,
        "expires": token.expires,
        "documents": token.grants.words(),
        "verified": None if known is None else not problem,
        "problem": problem,
    }
    if as_json:
        say_json(facts)
        return not problem
    say_table(
        ("TOKEN", f"of {source}"),
        [
            ("subject", token.subject),
            ("id", token.token_id + ("" if token.token_id != token.user else " (no jti)")),
            ("key", token.key_id or "not named"),
            ("issued", "not stated" if token.issued is None else _when(token.issued, now)),
            ("expires", _when(token.expires, now)),
            ("verified", _verdict(token, known, problem)),
        ],
    )
    say("")
    documents = [(pattern, access.word) for pattern, access in token.grants.table]
    say_table(("DOCUMENT", "ACCESS"), documents or [("none", "-")])
    return not problem


def _signing_key(path: Path) -> Key:
    """Load the key. Raises CommandError if the file is a public set, and the errors of `load_key`."""
    try:
        return minting.load_key(path)
    except LorogoError:
        if _is_public(path):
            raise CommandError(
                f"{str(path)!r} has public keys, which only verify tokens: use the private key, tokens.jwk in"
                " the folder of `lorogo auth setup`"
            ) from None
        raise


def _is_public(path: Path) -> bool:
    try:
        return not any(key.secret for key in KeySource.from_file(path).keys.all)
    except LorogoError:
        return False


def _check_free(out: Path) -> None:
    """Raise CommandError unless the file is missing, empty or a token: other files are not overwritten."""
    try:
        empty = out.stat().st_size == 0
    except FileNotFoundError:
        return
    except OSError as error:
        raise CommandError(f"cannot write the token to {str(out)!r}: {error.strerror}") from None
    if not empty and not tokens.looks_like(read_file(out, "the file of --out")[0]):
        raise CommandError(f"{str(out)!r} exists and is not a token: choose another --out")


def _documents(grants: Sequence[str]) -> dict[str, str]:
    documents: dict[str, str] = {}
    for grant in grants:
        pattern, equals, access = grant.rpartition("=")  # an id may have = in it, access may not
        if not equals or not pattern:
            raise CommandError(
                f"{brief(grant)} is not a grant: write ID=ACCESS, for example 'minutes-*=write'"
            )
        if documents.get(pattern, access) != access:
            raise CommandError(f"{brief(pattern)} is granted both {documents[pattern]} and {brief(access)}")
        documents[pattern] = access
    return documents


def _token(path: Path | None) -> tuple[str, str]:
    """Return the token and its source."""
    if path is not None and tokens.looks_like(str(path)):
        raise CommandError(
            "a token must not be an argument, which every user of this machine can list: use a file or stdin"
        )
    if path is not None and str(path) != "-":
        text = read_secret(path=path, environment=TOKEN_ENVIRONMENT, what="the token")
        return text or "", str(path)
    if path is None and (text := read_secret(path=None, environment=TOKEN_ENVIRONMENT, what="the token")):
        return text, TOKEN_ENVIRONMENT if os.environ.get(TOKEN_ENVIRONMENT) else f"{TOKEN_ENVIRONMENT}_FILE"
    if path is None and sys.stdin.isatty():
        raise CommandError(
            f"no token given: use --token-file FILE, set {TOKEN_ENVIRONMENT}, or pipe it to stdin"
        )
    return sys.stdin.buffer.read(SECRET_BYTES_MAX).decode(errors="replace").strip(), "stdin"


def _looked_at(text: str, keys: Keys | None, now: float) -> tuple[Token, str]:
    """Return the token and why it is invalid; "" if it is valid, or if there are no keys to verify it."""
    token = tokens.peek(text)
    try:
        if keys is not None:
            keys.verify(text, now=now)
    except TokenRefused as error:
        return token, str(error)
    return token, ""


def _verdict(token: Token, keys: Keys | None, problem: str) -> str:
    if keys is None:
        return "not verified: use --keys FILE to verify it"
    if problem:
        return f"NO: {problem}"
    return f"yes, by key {token.key_id or keys.all[0].key_id}; revocation is not checked"


def _when(seconds: float, now: float) -> str:
    shown = show_time(int(seconds * 1e9))
    if seconds > now:
        return f"{shown} (in {show_age(seconds - now)})"
    return f"{shown} ({show_age(now - seconds)} ago)"
