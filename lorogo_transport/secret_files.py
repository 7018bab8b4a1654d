"""Secrets in files and environment variables: read safely, written readable only by their owner.

A secret is never a process argument: every user of the machine can list arguments.
No message of this module contains a secret.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lorogo_protocol.errors import LorogoError
from lorogo_transport.atomic_file import write_atomically

SECRET_BYTES_MAX: Final = 64 * 1024
_FLAGS: Final = (
    os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
)  # opening a pipe without a writer must not block


#: LOROGO_ variables that any process may inherit; all others may hold a secret
_HARMLESS: Final = frozenset(
    {"LOROGO_LAKE", "LOROGO_LOG", "LOROGO_NATS", "LOROGO_NATS_SERVER", "LOROGO_OPEN"}
)


#: patterns of secrets in any text, their name, and the variable to use instead
_PATTERNS: Final = (
    (re.compile(r"eyJ[\w-]{16,}(?:\.[\w-]+){0,2}"), "the token", "LOROGO_TOKEN"),
    (re.compile(r"(?<![A-Z0-9])S[UAOCNX][A-Z2-7]{40,}"), "the seed", "LOROGO_NATS_SEED"),
    (re.compile(r"\{.*\"(?:kty|keys)\\*\"\s*:.*\}?", re.DOTALL), "the key", ""),
)


class SecretUnusable(LorogoError):
    """A secret cannot be read or written; the message has the remedy, but never the secret."""

    code = "secret-unusable"


def read_secret(*, path: Path | str | None, environment: str, what: str) -> str | None:
    """Read the secret from the file, else the variable, else the file that {variable}_FILE names, else None.

    `what` is used in the message of SecretUnusable, as in "the token". Surrounding white space is
    removed; an empty variable counts as unset, an empty file is an error.
    """
    if path is not None:
        return read_secret_file(path, what)
    if value := os.environ.get(environment, "").strip():
        if len(value.encode(errors="replace")) > SECRET_BYTES_MAX:
            raise SecretUnusable(
                f"{what} in {environment} has more than {SECRET_BYTES_MAX} bytes: is it the right one?"
            )
        return value
    if named := os.environ.get(f"{environment}_FILE", ""):
        return read_secret_file(named, what)
    return None


def misplaced_secret(text: str) -> str:
    """Return advice if the text is a token, a seed or a key instead of a file name; else ""."""
    for pattern, what, variable in _PATTERNS:
        if pattern.search(text):
            instead = f", or put it into {variable}" if variable else ""
            return f"that is {what} itself, not a file: write it to a file{instead}"
    return ""


def redacted(text: str) -> str:
    """Replace tokens, seeds and keys in the text."""
    for pattern, what, _ in _PATTERNS:
        text = pattern.sub(f"[{what}]", text)
    return text


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without secrets, for child processes: an editor, nats-server, a helper."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("LOROGO_")
        or (name in _HARMLESS and "@" not in value)  # an address with a password
    }


def read_secret_file(path: Path | str, what: str) -> str:
    """Read a secret from a file, stripped. Raises SecretUnusable, also if other users may read the file."""
    content, status = read_file(path, what)
    check_private(path, status, what)
    if not content:
        raise SecretUnusable(f"{what} cannot be read: {str(path)!r} is empty")
    return content


def read_file(path: Path | str, what: str) -> tuple[str, os.stat_result]:
    """Read a small file, stripped, with its stat result; any permissions. Raises SecretUnusable."""
    text, status = read_whole(path, what)
    return text.strip(), status


def read_whole(path: Path | str, what: str) -> tuple[str, os.stat_result]:
    """Read a small file unchanged, with its stat result. Raises SecretUnusable."""
    _check_name(path, what)
    try:
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError) as error:
        raise SecretUnusable(f"{what} cannot be read: {_why(path, error)}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SecretUnusable(f"{what} cannot be read: {str(path)!r} is not a plain file")
        if status.st_size > SECRET_BYTES_MAX:
            raise SecretUnusable(
                f"{what} cannot be read: {str(path)!r} has more than {SECRET_BYTES_MAX} bytes;"
                " is it the right file?"
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise SecretUnusable(f"{what} cannot be read: {_why(path, error)}") from None
    finally:
        os.close(descriptor)
    if len(content) > SECRET_BYTES_MAX:  # it grew meanwhile
        raise SecretUnusable(f"{what} cannot be read: {str(path)!r} has more than {SECRET_BYTES_MAX} bytes")
    try:
        return content.decode("utf-8-sig"), status
    except UnicodeDecodeError:
        raise SecretUnusable(f"{what} cannot be read: {str(path)!r} is not text") from None


def check_private(path: Path | str, status: os.stat_result, what: str) -> None:
    """Raise SecretUnusable unless the file's permissions are private.

    Its group may read it only if the file belongs to another user: a secret mounted for this process.
    """
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        problem = "other users may read or change it"
    elif mode & stat.S_IWGRP:
        problem = "its group may change it"
    elif mode & stat.S_IRGRP and status.st_uid == os.geteuid():
        problem = "its group may read it"
    else:
        return
    raise SecretUnusable(f"{what} in {str(path)!r} is not secret, {problem}: chmod 600 {path}")


def write_secret(path: Path | str, text: str, what: str, *, replace: bool = False) -> None:
    """Write the file atomically, for its owner only (0600). Raises SecretUnusable.

    Without `replace`, an existing file is an error and is not changed.
    """
    write_file(path, text, what, mode=0o600, replace=replace)


def write_file(path: Path | str, text: str, what: str, *, mode: int, replace: bool) -> None:
    """Write the file atomically, with exactly this mode and a final newline. Raises SecretUnusable."""
    _check_name(path, what)
    target = Path(path)
    if replace:
        target = Path(os.path.realpath(target))  # a link stays a link
    try:
        write_atomically(target, text.encode() + b"\n", mode=mode, replace=replace)
    except FileExistsError:
        raise SecretUnusable(f"{what} cannot be written: {str(path)!r} exists already") from None
    except (OSError, ValueError) as error:
        raise SecretUnusable(f"{what} cannot be written: {_why(path, error)}") from None


def _check_name(path: Path | str, what: str) -> None:
    if wrong := misplaced_secret(str(path)):
        raise SecretUnusable(f"{what} has no file: {wrong}")


def _why(path: Path | str, error: OSError | ValueError) -> str:
    match error:
        case FileNotFoundError():
            return f"there is no {str(path)!r}"
        case PermissionError():
            return f"permission denied for {str(path)!r}"
        case OSError():
            return f"{str(path)!r}: {error.strerror}"
        case _:
            return f"{str(path)[:100]!r} is not the name of a file"
