"""Secrets from files and the environment: read with care, written for their owner's eyes only.

A secret is never an argument of a process: everybody on the machine can list those.
No message in here has a secret in it.
"""

import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from lorogo_protocol.errors import LorogoError

SECRET_BYTES_MAX: Final = 64 * 1024
_FLAGS: Final = (
    os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
)  # a pipe without a writer does not hang


#: what any process may inherit of our variables; each that is not named here may hold a secret
_HARMLESS: Final = frozenset(
    {"LOROGO_LAKE", "LOROGO_LOG", "LOROGO_NATS", "LOROGO_NATS_SERVER", "LOROGO_OPEN"}
)


#: what a secret looks like, wherever it is in a text, and what to do with one that is where a file should be
_LOOKS: Final = (
    (re.compile(r"eyJ[\w-]{16,}(?:\.[\w-]+){0,2}"), "the token", "LOROGO_TOKEN"),
    (re.compile(r"(?<![A-Z0-9])S[UAOCNX][A-Z2-7]{40,}"), "the seed", "LOROGO_NATS_SEED"),
    (re.compile(r"\{.*\"(?:kty|keys)\\*\"\s*:.*\}?", re.DOTALL), "the key", ""),
)


class SecretUnusable(LorogoError):
    """A secret cannot be read or written; the sentence says what to do, and never what the secret is."""

    code = "secret-unusable"


def read_secret(*, path: Path | str | None, environment: str, what: str) -> str | None:
    """The secret in the file, else in the variable, else in the file that {variable}_FILE names, else None.

    `what` is for the sentence of SecretUnusable, as in "the token". Spaces and line ends around it are
    taken off; an empty variable counts as none, an empty file does not.
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


def itself(text: str) -> str:
    """What to do, in one sentence, if the text names no file but is a token, a seed or a key; else ""."""
    for looks, what, variable in _LOOKS:
        if looks.search(text):
            instead = f", or put it into {variable}" if variable else ""
            return f"that is {what} itself, not a file: write it to a file{instead}"
    return ""


def hidden(text: str) -> str:
    """The text without the tokens, seeds and keys that are in it."""
    for looks, what, _ in _LOOKS:
        text = looks.sub(f"[{what}]", text)
    return text


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that needs no secret of ours: an editor, nats-server, a helper."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("LOROGO_")
        or (name in _HARMLESS and "@" not in value)  # an address with a password
    }


def read_secret_file(path: Path | str, what: str) -> str:
    """The secret in the file, stripped. Raises SecretUnusable, also if others may read the file."""
    content, status = read_file(path, what)
    check_private(path, status, what)
    if not content:
        raise SecretUnusable(f"{what} cannot be read: {str(path)!r} is empty")
    return content


def read_file(path: Path | str, what: str) -> tuple[str, os.stat_result]:
    """The text of a small file, stripped, and its facts, whoever may read it. Raises SecretUnusable."""
    text, status = read_whole(path, what)
    return text.strip(), status


def read_whole(path: Path | str, what: str) -> tuple[str, os.stat_result]:
    """The text of a small file, with all its lines, and its facts. Raises SecretUnusable."""
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
    """Raise SecretUnusable unless only those can read the file who must.

    Its group may read it only if the file is another user's: a secret that was mounted for us.
    """
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        problem = "others may read or change it"
    elif mode & stat.S_IWGRP:
        problem = "its group may change it"
    elif mode & stat.S_IRGRP and status.st_uid == os.geteuid():
        problem = "its group may read it"
    else:
        return
    raise SecretUnusable(f"{what} in {str(path)!r} is not secret, {problem}: chmod 600 {path}")


def write_secret(path: Path | str, text: str, what: str, *, replace: bool = False) -> None:
    """Write the file whole or not at all, for its owner only (0600). Raises SecretUnusable.

    Without `replace`, a file that is there already stays as it is, and that is an error.
    """
    write_file(path, text, what, mode=0o600, replace=replace)


def write_file(path: Path | str, text: str, what: str, *, mode: int, replace: bool) -> None:
    """Write the file whole or not at all, with exactly this mode and a line end. Raises SecretUnusable."""
    _check_name(path, what)
    target = Path(path)
    if replace:
        target = Path(os.path.realpath(target))  # a link stays a link
    beside = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(
            beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(text.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if replace:
                beside.replace(target)
            else:
                os.link(beside, target, follow_symlinks=False)
        finally:
            with suppress(FileNotFoundError):
                beside.unlink()
        _sync_directory(target.parent)
    except FileExistsError:
        raise SecretUnusable(f"{what} cannot be written: {str(path)!r} exists already") from None
    except (OSError, ValueError) as error:
        raise SecretUnusable(f"{what} cannot be written: {_why(path, error)}") from None


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_name(path: Path | str, what: str) -> None:
    if wrong := itself(str(path)):
        raise SecretUnusable(f"{what} has no file: {wrong}")


def _why(path: Path | str, error: OSError | ValueError) -> str:
    match error:
        case FileNotFoundError():
            return f"there is no {str(path)!r}"
        case PermissionError():
            return f"we may not open {str(path)!r}"
        case OSError():
            return f"{str(path)!r}: {error.strerror}"
        case _:
            return f"{str(path)[:100]!r} is not the name of a file"
