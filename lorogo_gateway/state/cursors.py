"""The merged presence of one document in this gateway, and the connection that set each key.

A client that joins sends its whole store, which includes other clients' keys. Only keys that are newer than
the merged presence are its own. When it leaves, these are deleted for all clients.
"""

from collections.abc import Hashable

from lorogo_client import PresenceTooLarge
from lorogo_protocol.limits import AWARENESS_BYTES_MAX, PRESENCE_SECONDS, PRESENT_BYTES_MAX
from lorogo_protocol.loro.present import BoundedPresenceStore


class Cursors:
    """The merged presence, and the setter of every key that was set through this gateway."""

    def __init__(
        self, *, bytes_max: int = PRESENT_BYTES_MAX, setter_bytes_max: int = AWARENESS_BYTES_MAX
    ) -> None:
        self._bytes_max = bytes_max
        self._setter_bytes_max = setter_bytes_max
        self._present = BoundedPresenceStore(PRESENCE_SECONDS, bytes_max=bytes_max, gone=self._take)
        self._setters: dict[str, Hashable] = {}
        self._keys: dict[Hashable, set[str]] = {}  # the same, by setter
        self._last = b""  # the newest data, to skip its echo
        self.members = 0

    def set_by(self, setter: Hashable, *updates: bytes) -> None:
        """Apply presence from a member of this gateway, all of it or nothing.

        Raises CrdtError if an update is not presence, PresenceTooLarge if it exceeds a limit.
        """
        self._check_room(setter, self._present.changed_entries(updates))
        for data in updates:
            self._last = data
            for key in self._present.apply(data):
                self._give(key, setter)

    def receive(self, data: bytes) -> None:
        """Apply presence from the relay, which may be an echo of a member's. Raises CrdtError."""
        if not data or data is self._last:
            return
        self._last = data
        for key in self._present.apply(data):
            self._take(key)

    def all(self) -> bytes:
        """Return the whole presence, within the size limit; empty if there is none."""
        data = self._present.encode_all()
        return data if self._present.bytes else b""

    def deletion(self, setter: Hashable) -> bytes:
        """Delete the keys of this setter and return the update to publish; empty if it has none."""
        return self._present.delete(tuple(self._keys.get(setter, ())))

    def _check_room(self, setter: Hashable, news: dict[str, int]) -> None:
        if self._problem(setter, news):
            self._present.sweep()  # expired keys make room
            if problem := self._problem(setter, news):
                raise PresenceTooLarge(problem)

    def _problem(self, setter: Hashable, news: dict[str, int]) -> str:
        """Return the exceeded limit as a sentence; empty if there is none."""
        size, new = self._present.size, sum(news.values())
        own = new + sum(size(key) for key in self._keys.get(setter, ()) if key not in news)
        if own > self._setter_bytes_max:
            return f"the client would have {own} bytes of presence; the limit is {self._setter_bytes_max}"
        everything = self._present.bytes + new - sum(map(size, news))
        if everything > self._bytes_max:
            return f"the document would have {everything} bytes of presence; the limit is {self._bytes_max}"
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
