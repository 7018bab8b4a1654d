"""Presence of one document: the merged entries of all clients, bounded in bytes and number.

Above the bound the oldest entries are dropped; clients that are still present send them again.
"""

from collections.abc import Callable, Iterable

from lorogo_protocol.limits import PRESENT_BYTES_MAX, PRESENT_ENTRIES_MAX
from lorogo_protocol.loro import crdt, ephemeral


class BoundedPresenceStore:
    """A merged EphemeralStore with a bound."""

    def __init__(
        self,
        timeout_seconds: float,
        *,
        bytes_max: int = PRESENT_BYTES_MAX,
        entries_max: int = PRESENT_ENTRIES_MAX,
        gone: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`gone` is called with every removed key."""
        self._timeout_seconds = timeout_seconds
        self._bytes_max = bytes_max
        self._entries_max = entries_max
        self._gone = gone
        self._presence = ephemeral.PresenceStore(timeout_seconds)
        self._sizes: dict[str, int] = {}  # by key; the newest entry is last
        self._changed: list[str] = []
        self._removed: list[str] = []
        self._unswept_bytes = 0
        self.bytes = 0  # of all entries
        self._listen()

    def size(self, key: str) -> int:
        """Return the bytes of one entry; 0 if it does not exist."""
        return self._sizes.get(key, 0)

    def changed_entries(self, updates: Iterable[bytes]) -> dict[str, int]:
        """Return the entries that these updates would add or change, with their bytes. Raises CrdtError."""
        probe = ephemeral.PresenceStore(self._timeout_seconds)
        for data in updates:
            probe.apply(data)
        with crdt.guard():
            entries = {key: probe.store.encode(key) for key in probe.store.keys()}  # noqa: SIM118 - not a dict
            store = self._presence.store
            return {
                key: len(entry)
                for key, entry in entries.items()
                if key not in self._sizes or store.encode(key) != entry
            }

    def apply(self, data: bytes) -> list[str]:
        """Merge an update; return the added and changed keys. Raises CrdtError."""
        self._unswept_bytes += len(data)
        if self._unswept_bytes > self._bytes_max:
            self.sweep()
        self._presence.apply(data)
        changed = self._settle()
        if self.bytes > self._bytes_max or len(self._sizes) > self._entries_max:
            self._drop_oldest()
        return [key for key in changed if key in self._sizes]

    def delete(self, keys: Iterable[str]) -> bytes:
        """Remove keys; return the deletion as an update for other clients, empty if no key existed."""
        gone = ephemeral.PresenceStore(self._timeout_seconds)
        here = [key for key in keys if key in self._sizes]
        with crdt.guard():
            for key in here:
                self._presence.store.delete(key)
                gone.store.apply(self._presence.store.encode(key))
            self._settle()
            return gone.store.encode_all() if here else b""

    def sweep(self) -> None:
        """Drop expired entries, and the marks of removed entries if these are too large."""
        self._unswept_bytes = 0
        with crdt.guard():
            self._presence.store.remove_outdated()
            self._settle()
            if len(self._presence.store.encode_all()) > self._bytes_max:
                self._keep_only(tuple(self._sizes))

    def encode_all(self) -> bytes:
        """Return all entries as one update for a new client, within the bound."""
        self.sweep()
        return self._presence.encode_all()

    def states(self) -> dict[str, object]:
        """Return the values of all current entries."""
        return self._presence.states()

    def _listen(self) -> None:
        # Not `self`: Loro keeps a reference to the callback, and Python cannot collect a cycle through it.
        changed_keys, removed_keys = self._changed, self._removed

        def changed(event: object) -> bool:
            changed_keys.extend([*getattr(event, "added", ()), *getattr(event, "updated", ())])
            removed_keys.extend(getattr(event, "removed", ()))
            return True

        self._subscription = self._presence.store.subscribe(changed)

    def _settle(self) -> set[str]:
        """Update the sizes from the store's events; return the changed keys."""
        changed, removed = set(self._changed), set(self._removed)
        self._changed.clear()
        self._removed.clear()
        with crdt.guard():
            if both := changed & removed:
                here = both & set(self._presence.store.keys())
                changed, removed = changed - both | here, removed - here
            for key in changed | removed:
                self.bytes -= self._sizes.pop(key, 0)
            for key in changed:
                self._sizes[key] = size = len(self._presence.store.encode(key))
                self.bytes += size
        for key in removed:
            self._gone(key)
        return changed

    def _drop_oldest(self) -> None:
        """Drop the oldest entries down to three quarters of the bound, so that this runs rarely."""
        bytes_left, entries_left = self._bytes_max * 3 // 4, self._entries_max * 3 // 4
        kept: list[str] = []
        for key in reversed(self._sizes):
            bytes_left -= self._sizes[key]
            if bytes_left < 0 or len(kept) >= entries_left:
                break
            kept.append(key)
        self._keep_only(reversed(kept))

    def _keep_only(self, keys: Iterable[str]) -> None:
        before, self._sizes = self._sizes, {key: self._sizes[key] for key in keys}
        self.bytes = sum(self._sizes.values())
        self._presence.keep_only(self._sizes)
        self._listen()
        for key in before.keys() - self._sizes.keys():
            self._gone(key)
