"""Bytes of a fuzzer, taken for choices: numbers, texts, JSON values. At their end everything is zero."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
_NUMBERS = (0, 1, -1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, -(2**63), 2**63, 2**64, 1 << 80)
_FLOATS = (0.0, -0.0, 0.5, -1.0, 1e308, 1e-308, float("inf"), float("nan"))


class Source:
    """Takes choices off the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """The number of remaining bytes."""
        return max(0, len(self._data) - self._at)

    def take(self, size: int) -> bytes:
        """So many bytes, or as many as there are."""
        part = self._data[self._at : self._at + size]
        self._at += size
        return part

    def rest(self) -> bytes:
        return self.take(self.left)

    def byte(self) -> int:
        return self.take(1)[0] if self.left else 0

    def below(self, bound: int) -> int:
        """A number from 0 on, below the bound."""
        if bound <= 256:
            return self.byte() % bound
        return int.from_bytes(self.take(4), "little") % bound

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def blob(self) -> bytes:
        """Bytes behind their length."""
        return self.take(self.byte())

    def text(self) -> str:
        """Any text, lone surrogates too."""
        return self.blob().decode("utf-8", "surrogateescape")

    def number(self) -> int:
        if self.byte() % 2:
            return self.pick(_NUMBERS)
        return int.from_bytes(self.take(2), "little", signed=True)

    def value(self, keys: Sequence[str] = (), depth: int = 0) -> object:
        """A JSON value; `keys` are names that a map would do well to have."""
        kind = self.byte() % (10 if depth < 5 and self.left else 7)
        match kind:
            case 0:
                return None
            case 1:
                return bool(self.byte() % 2)
            case 2 | 3:
                return self.number()
            case 4:
                return self.pick(_FLOATS)
            case 5 | 6:
                return self.pick(keys) if keys and self.byte() % 2 else self.text()
            case 7 | 8:
                return {self._key(keys): self.value(keys, depth + 1) for _ in range(self.below(6))}
            case _:
                return [self.value(keys, depth + 1) for _ in range(self.below(6))]

    def _key(self, keys: Sequence[str]) -> str:
        return self.pick(keys) if keys and self.byte() % 4 else self.text()
