"""Server id, stored in the server's folder, which one process at a time may use.

HOME/server-id    the id, written once
HOME/lock         locked (flock) until the process ends
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import is_token
from lorogo_transport.atomic_file import write_atomically

_ID = "server-id"


class HomeUnusable(LorogoError):
    """The folder of a server cannot be used; the message has the reason."""

    code = "invalid-settings"


class HomeInUse(HomeUnusable):
    """Another process has locked the folder."""


@contextmanager
def held(home: Path, new_id: Callable[[], str]) -> Iterator[str]:
    """Lock the folder inside the block, and yield its server id. Raises HomeUnusable, HomeInUse."""
    try:
        home.mkdir(0o750, parents=True, exist_ok=True)  # writable for its owner, readable for the group
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
    """Return the server id of a folder without locking it; None if it is missing or unreadable."""
    try:
        server_id = (home / _ID).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return server_id if is_token(server_id) else None


def kept(folder: Path, new_id: Callable[[], str]) -> str:
    """Return the id stored in a journal's folder, for a server without a home folder. Raises HomeUnusable."""
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
        write_atomically(path, f"{server_id}\n".encode(), mode=0o644, replace=True)
    if not is_token(server_id):
        raise HomeUnusable(f"{path} does not contain a server id; remove the file to get a new id")
    return server_id
