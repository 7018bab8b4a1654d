"""Presence: Loro's EphemeralStore with translated errors."""

from collections.abc import Iterable

from loro import EphemeralStore

from lorogo_protocol.loro.crdt import guard, reading


def check_presence(data: bytes) -> None:
    """Raise InvalidUpdate unless the bytes are those of an EphemeralStore; takes about 1 us."""
    with reading():
        EphemeralStore(1).apply(data)


class PresenceStore:
    """Entries that expire unless they are renewed."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_ms = int(timeout_seconds * 1000)
        self.store = EphemeralStore(self._timeout_ms)

    def apply(self, data: bytes) -> None:
        """Merge an update. Raises CrdtError."""
        with guard():
            self.store.apply(data)

    def encode_all(self) -> bytes:
        """Return all entries as one update, for a new client."""
        with guard():
            self.store.remove_outdated()
            return self.store.encode_all()

    def forget_removed(self) -> None:
        """Drop the marks of removed entries; a late message may restore such an entry."""
        with guard():
            self.keep_only(self.store.keys())

    def keep_only(self, keys: Iterable[str]) -> None:
        """Drop all entries but these, without marks; this replaces `store`."""
        with guard():
            fresh = EphemeralStore(self._timeout_ms)
            for key in keys:
                fresh.apply(self.store.encode(key))
            self.store = fresh

    def states(self) -> dict[str, object]:
        """Return the values of all current entries."""
        with guard():
            self.store.remove_outdated()
            return dict(self.store.get_all_states())
