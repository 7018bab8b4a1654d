"""The memory budget of received fragments whose update is incomplete, over all connections. Pure."""

from collections import Counter
from typing import Final

UNKEYED: Final = ""  # a key without a limit of its own


class FragmentBudget:
    """A budget of `bytes_max` bytes, of which one key gets at most `key_bytes_max`."""

    __slots__ = ("_bytes_max", "_key_bytes_max", "_keys", "bytes")

    def __init__(self, bytes_max: int, key_bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._key_bytes_max = key_bytes_max
        self._keys: Counter[str] = Counter()

    def take(self, key: str, size: int) -> bool:
        """Take `size` bytes if they are free; returns whether they were taken. Pair with `give_back`."""
        if self.bytes + size > self._bytes_max:
            return False
        if key != UNKEYED:
            if self._keys[key] + size > self._key_bytes_max:
                return False
            self._keys[key] += size
        self.bytes += size
        return True

    def give_back(self, key: str, size: int) -> None:
        """Return `size` bytes to the budget."""
        self.bytes -= size
        if key != UNKEYED:
            self._keys[key] -= size
            if not self._keys[key]:
                del self._keys[key]
