"""`lorogo token keys`: files of keys that mint tokens, and the set of keys that verify them."""

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from lorogo_cli.errors import CommandError
from lorogo_cli.render.output import say, say_json, say_result, say_table
from lorogo_client.tokens import new_key
from lorogo_protocol.access.tokens import Key, keys_of
from lorogo_protocol.errors import LorogoError
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.secret_files import read_file, write_file, write_secret

_PUBLIC_MODE = 0o644
_LOCK_SECONDS = 10.0
_READ_SECONDS = 10  # services read the file again every 5 s


def new(
    out: Path, public: Path | None, *, kind: Literal["EdDSA", "HS256"], key_id: str | None, as_json: bool
) -> None:
    """Make a key and, with `public`, add it to that set. Existing keys are never overwritten."""
    key = new_key(kind, key_id)
    if public is None:
        write_secret(out, _text(key.private()), "the key")
    else:
        with _locked(public):
            before = _read(public) if _exists(public) else {"keys": []}
            if any(one["kid"] == key.key_id for one in before["keys"]):
                raise CommandError(f"{str(public)!r} already has a key {key.key_id!r}: choose another --id")
            write_secret(out, _text(key.private()), "the key")
            try:
                _write(public, {**before, "keys": [*before["keys"], key.public()]})
            except LorogoError:
                with suppress(OSError):
                    out.unlink()  # unused; it would block the next attempt
                raise
    if as_json:
        say_json(
            {**_facts(key), "out": str(out), "public": None if public is None else str(public)}, pretty=False
        )
        return
    say(f"{out} has the new key {key.key_id}: it mints tokens, keep it secret")
    if public is not None:
        secret = "; keep it secret, too" if kind == "HS256" else ""
        say(f"{public} has the key that verifies them{secret}")
        say(f"wait {_READ_SECONDS} s before you mint with it, until serve, gateway and auth have read it")


def show(file: Path, *, as_json: bool) -> None:
    """List the keys in a file."""
    keys = KeySource.from_file(file).keys.all
    if as_json:
        say_json({"keys": [_facts(key) for key in keys]})
        return
    say_table(
        ("KEY", "ALGORITHM", "CAN"),
        [(key.key_id, key.algorithm, "mint and verify" if key.mints else "verify") for key in keys],
    )


def remove(key_id: str, public: Path, *, as_json: bool) -> None:
    """Remove a key from the set."""
    with _locked(public):
        before = _read(public)
        there = [one["kid"] for one in before["keys"]]
        if key_id not in there:
            raise CommandError(f"{str(public)!r} has no key {key_id!r}: it has {', '.join(there)}")
        if len(there) == 1:
            raise CommandError(
                f"{key_id!r} is the last key in {str(public)!r}: add another first (`keys new`)"
            )
        _write(public, {**before, "keys": [one for one in before["keys"] if one["kid"] != key_id]})
    facts = {"removed": key_id, "keys": [one for one in there if one != key_id]}
    words = f"key {key_id} is removed from {public}: tokens that it signed are refused"
    say_result(facts, words, as_json=as_json)


def _facts(key: Key) -> dict[str, Any]:
    return {"kid": key.key_id, "algorithm": key.algorithm, "mints": key.mints}


def _read(path: Path) -> dict[str, Any]:
    """Read and check the key set in the file; unknown members are kept."""
    text, _ = read_file(path, "the key set")
    KeySource.from_file(path)  # raises if they cannot be used
    jwks: dict[str, Any] = json.loads(text)
    return jwks if "keys" in jwks else {"keys": [jwks]}


def _write(path: Path, jwks: dict[str, Any]) -> None:
    """Write the set atomically; with mode 0600 if it has a secret, else with its previous mode."""
    if any(key.secret for key in keys_of(jwks).all):
        mode = 0o600
    elif _exists(path):
        mode = stat.S_IMODE(path.stat().st_mode)
    else:
        mode = _PUBLIC_MODE
    write_file(path, _text(jwks), "the key set", mode=mode, replace=True)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read {str(path)[:100]!r}: {error}") from None


def _text(value: object) -> str:
    return json.dumps(value, indent=2)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the set: two processes that add a key at the same time would lose one."""
    try:
        descriptor = os.open(Path(os.path.realpath(path)).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        raise CommandError(f"cannot write {str(path)[:100]!r}: its folder does not exist") from None
    deadline = time.monotonic() + _LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CommandError(f"another process is changing {str(path)!r}: try again") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
