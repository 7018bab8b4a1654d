"""The presence of one document in this gateway: merged, and which connection set which key.

A client sends its whole store when it joins, with the keys of others in it. Only keys that are newer than
what is known here are its own; when it goes, those are deleted for everybody.
"""

from collections.abc import Hashable

from lorogo_client import PresenceTooLarge
from lorogo_protocol.limits import AWARENESS_BYTES_MAX, PRESENCE_SECONDS, PRESENT_BYTES_MAX
from lorogo_protocol.present import BoundedPresenceStore


class Cursors:
    """What is present, and the setter of every key that was set through this gateway."""

    def __init__(
        self, *, bytes_max: int = PRESENT_BYTES_MAX, setter_bytes_max: int = AWARENESS_BYTES_MAX
    ) -> None:
        self._bytes_max = bytes_max
        self._setter_bytes_max = setter_bytes_max
        self._present = BoundedPresenceStore(PRESENCE_SECONDS, bytes_max=bytes_max, gone=self._take)
        self._setters: dict[str, Hashable] = {}
        self._keys: dict[Hashable, set[str]] = {}  # the same, by setter
        self._last = b""
        self.members = 0

    def set_by(self, setter: Hashable, *updates: bytes) -> None:
        """A member of this gateway sent these: all of them or none.

        Raises CrdtError if one is no presence, PresenceTooLarge if there is no room for them.
        """
        self._check_room(setter, self._present.news(updates))
        for data in updates:
            self._last = data  # its echo brings nothing new
            for key in self._present.apply(data):
                self._give(key, setter)

    def receive(self, data: bytes) -> None:
        """It came from elsewhere, or is an echo of our own. Raises CrdtError."""
        if not data or data is self._last:
            return
        self._last = data
        for key in self._present.apply(data):
            self._take(key)

    def all(self) -> bytes:
        """For a newcomer, within the bound; empty if nobody is here."""
        data = self._present.encode_all()
        return data if self._present.bytes else b""

    def deletion(self, setter: Hashable) -> bytes:
        """The deletion of what this one set, to be told to everybody; empty if there is nothing."""
        return self._present.delete(tuple(self._keys.get(setter, ())))

    def _check_room(self, setter: Hashable, news: dict[str, int]) -> None:
        if self._problem(setter, news):
            self._present.sweep()  # some of it may have expired
            if problem := self._problem(setter, news):
                raise PresenceTooLarge(problem)

    def _problem(self, setter: Hashable, news: dict[str, int]) -> str:
        """Why there is no room; "" if there is."""
        size, new = self._present.size, sum(news.values())
        own = new + sum(size(key) for key in self._keys.get(setter, ()) if key not in news)
        if own > self._setter_bytes_max:
            return f"one client would show {own} bytes of presence, at most {self._setter_bytes_max} may be"
        everything = self._present.bytes + new - sum(map(size, news))
        if everything > self._bytes_max:
            return f"the document would show {everything} bytes of presence, at most {self._bytes_max} may be"
        return ""

    def _give(self, key: str, setter: Hashable) -> None:
        self._take(key)
        self._setters[key] = setter
        self._keys.setdefault(setter, set()).add(key)

    def _take(self, key: str) -> None:
        if (setter := self._setters.pop(key, None)) is not None:
            keys = self._keys[setter]
            keys.discard(key)
            if not keys:
                del self._keys[setter]
