"""Bytes of fragments that wait for the rest of their update, of all connections together. Pure."""

from collections import Counter
from typing import Final

EVERYBODY: Final = ""  # the key of those who are not told apart


class FragmentBudget:
    """So many bytes may wait, and no key has more than its part of them: others find room."""

    __slots__ = ("_bytes_max", "_key_bytes_max", "_keys", "bytes")

    def __init__(self, bytes_max: int, key_bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._key_bytes_max = key_bytes_max
        self._keys: Counter[str] = Counter()

    def take(self, key: str, size: int) -> bool:
        """Whether there is room for it; who gets True gives it back."""
        if self.bytes + size > self._bytes_max:
            return False
        if key != EVERYBODY:
            if self._keys[key] + size > self._key_bytes_max:
                return False
            self._keys[key] += size
        self.bytes += size
        return True

    def give_back(self, key: str, size: int) -> None:
        """They do not wait any more."""
        self.bytes -= size
        if key != EVERYBODY:
            self._keys[key] -= size
            if not self._keys[key]:
                del self._keys[key]
