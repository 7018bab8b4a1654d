"""The presence of one document in this gateway: merged, and which connection set which key.

A client sends its whole store when it joins, with the keys of others in it. Only keys that are newer than
what is known here are its own; when it goes, those are deleted for everybody.
"""

from collections.abc import Hashable

from lorogo_protocol import crdt
from lorogo_protocol.limits import PRESENCE_SECONDS

_ENTRIES_MAX = 10_000  # of one document
_SWEEP_EVERY = 256  # messages


class Cursors:
    """A merged EphemeralStore, and the setter of every key that was set through this gateway."""

    def __init__(self) -> None:
        self._presence = crdt.Presence(PRESENCE_SECONDS)
        self._setters: dict[str, Hashable] = {}
        self._changed: list[str] = []
        self._removed: list[str] = []
        self._last = b""
        self._applied = 0
        self._listen()
        self.members = 0

    def _listen(self) -> None:
        def changed(event: object) -> bool:
            self._changed += [*getattr(event, "added", ()), *getattr(event, "updated", ())]
            self._removed += getattr(event, "removed", ())
            return True

        self._subscription = self._presence.store.subscribe(changed)

    def set_by(self, setter: Hashable, data: bytes) -> None:
        """A member of this gateway sent this. Raises CrdtError if it is no presence."""
        self._last = data  # its echo brings nothing new
        for key in self._apply(data):
            self._setters[key] = setter

    def heard(self, data: bytes) -> None:
        """It came from elsewhere, or is an echo of our own. Raises CrdtError."""
        if not data or data is self._last:
            return
        self._last = data
        for key in self._apply(data):
            self._setters.pop(key, None)

    def all(self) -> bytes:
        """For a newcomer; empty if nobody is here."""
        return self._presence.encode_all() if self._presence.states() else b""

    def deletion(self, setter: Hashable) -> bytes:
        """The deletion of what this one set, to be told to everybody; empty if there is nothing."""
        keys = [key for key, who in self._setters.items() if who is setter]
        if not keys:
            return b""
        gone = crdt.Presence(PRESENCE_SECONDS)
        store = self._presence.store
        with crdt.guard():
            for key in keys:
                del self._setters[key]
                if store.get(key) is not None:
                    store.delete(key)
                    gone.store.apply(store.encode(key))
            return gone.store.encode_all()

    def _apply(self, data: bytes) -> list[str]:
        self._applied += 1
        if self._applied % _SWEEP_EVERY == 0:
            self._sweep()
        self._changed, self._removed = [], []
        self._presence.apply(data)
        for key in self._removed:
            self._setters.pop(key, None)
        return self._changed

    def _sweep(self) -> None:
        """Let go of what has expired, and of everything if it is far too much."""
        before = self._presence.store
        self._presence.sweep(_ENTRIES_MAX)
        if self._presence.store is not before:
            self._listen()
        with crdt.guard():
            here = set(self._presence.store.keys())
        self._setters = {key: setter for key, setter in self._setters.items() if key in here}
