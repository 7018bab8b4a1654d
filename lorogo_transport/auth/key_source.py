"""Keys that verify tokens: from a file that is reloaded when it changes, or from text."""

import os
from pathlib import Path
from typing import Final

from lorogo_protocol.access import tokens
from lorogo_protocol.access.tokens import InvalidKey, Keys
from lorogo_protocol.errors import LorogoError
from lorogo_transport.secret_files import SecretUnusable, check_private, read_file
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_WHAT: Final = "the key set"
_Facts = tuple[int, int, int, int]


class KeySource:
    """The current `keys`. `refresh()` reloads a changed file; an invalid file changes nothing."""

    def __init__(self, keys: Keys, path: Path | None = None, facts: _Facts | None = None) -> None:
        self._keys = keys
        self._path = path
        self._facts = facts  # of the file at the last read
        self._logged_problem = ""

    @classmethod
    def from_file(cls, path: Path | str) -> "KeySource":
        """Read the keys of a file, a JWK set or one JWK. Raises SecretUnusable, InvalidKey.

        A file with secrets must be private; a file with public keys only may be readable by all users.
        """
        keys, facts = _read(Path(path))
        return cls(keys, Path(path), facts)

    @classmethod
    def from_text(cls, text: str) -> "KeySource":
        """Parse keys that never change. Raises InvalidKey."""
        return cls(tokens.keys_of(text))

    @property
    def keys(self) -> Keys:
        return self._keys

    @property
    def path(self) -> Path | None:
        """The file of the keys; None for keys from text."""
        return self._path

    def refresh(self) -> bool:
        """Reload the file if it changed; return whether there are new keys. Reads the disk.

        A missing or invalid file is logged once, and the current keys stay.
        """
        if self._path is None:
            return False
        try:
            if _facts(self._path.stat()) == self._facts:
                return False
            keys, facts = _read(self._path)
        except (LorogoError, OSError, ValueError) as error:
            if str(error) != self._logged_problem:
                log.warning("cannot use the new keys, the old ones stay", problem=str(error))
                self._logged_problem = str(error)
            return False
        self._keys, self._facts, self._logged_problem = keys, facts, ""
        log.info("keys reloaded", path=str(self._path), keys=[key.key_id for key in keys.all])
        return True


def _read(path: Path) -> tuple[Keys, _Facts]:
    text, status = read_file(path, _WHAT)
    if not text:
        raise SecretUnusable(f"{_WHAT} cannot be read: {str(path)!r} is empty")
    try:
        keys = tokens.keys_of(text)
    except InvalidKey as error:
        raise InvalidKey(f"{_WHAT} in {str(path)!r} cannot be used: {error}") from None
    if any(key.secret for key in keys.all):
        check_private(path, status, _WHAT)
    return keys, _facts(status)


def _facts(status: os.stat_result) -> _Facts:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
