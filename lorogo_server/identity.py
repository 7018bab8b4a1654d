"""A server's own id, kept in its folder, which one process at a time may use.

HOME/server-id    the id, written once
HOME/lock         held (flock) for as long as the process lives
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import is_token

_ID = "server-id"


class HomeUnusable(LorogoError):
    """The folder of a server cannot be used; says why."""

    code = "invalid-settings"


class HomeInUse(HomeUnusable):
    """Another process holds it."""


@contextmanager
def held(home: Path, new_id: Callable[[], str]) -> Iterator[str]:
    """The server id of that folder, ours alone inside the block. Raises HomeUnusable, HomeInUse."""
    try:
        home.mkdir(
            0o750, parents=True, exist_ok=True
        )  # what is in it is for its owner, and a group that reads
        lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise HomeUnusable(f"the folder {home} cannot be used: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HomeInUse(f"{home} is in use by another server") from None
        try:
            server_id = _read_or_make(home / _ID, new_id)
        except OSError as error:
            raise HomeUnusable(f"the folder {home} cannot be used: {error.strerror}") from None
        yield server_id
    finally:
        os.close(lock)


def read(home: Path) -> str | None:
    """The server id of that folder, whoever holds it; None: there is none, or it cannot be read."""
    try:
        server_id = (home / _ID).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return server_id if is_token(server_id) else None


def kept(folder: Path, new_id: Callable[[], str]) -> str:
    """The id of a server without a home of its own, in the folder of its journal. Raises HomeUnusable."""
    try:
        folder.mkdir(0o750, parents=True, exist_ok=True)
        return _read_or_make(folder / _ID, new_id)
    except OSError as error:
        raise HomeUnusable(f"the folder {folder} cannot be used: {error.strerror}") from None


def _read_or_make(path: Path, new_id: Callable[[], str]) -> str:
    try:
        server_id = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        server_id = new_id()
        _write(path, server_id)
    if not is_token(server_id):
        raise HomeUnusable(f"{path} does not hold a server id: remove it, and a new one is made")
    return server_id


def _write(path: Path, text: str) -> None:
    """Whole or not at all, also after a power cut."""
    draft = path.with_name(f"{path.name}.new")
    with draft.open("w", encoding="ascii") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
