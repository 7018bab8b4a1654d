"""Presence: Loro's EphemeralStore with our errors."""

from collections.abc import Iterable

from loro import EphemeralStore

from lorogo_protocol.crdt import guard, reading


def check_presence(data: bytes) -> None:
    """Raises InvalidUpdate if the bytes are not those of an EphemeralStore; takes about 1 us."""
    with reading():
        EphemeralStore(1).apply(data)


class PresenceStore:
    """Keys that vanish when they are not renewed."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_ms = int(timeout_seconds * 1000)
        self.store = EphemeralStore(self._timeout_ms)

    def apply(self, data: bytes) -> None:
        """Merge what came from others. Raises CrdtError."""
        with guard():
            self.store.apply(data)

    def encode_all(self) -> bytes:
        """The merged state, for a newcomer."""
        with guard():
            self.store.remove_outdated()
            return self.store.encode_all()

    def forget_removed(self) -> None:
        """Let go of the marks that removed entries leave; one that comes late may be back then."""
        with guard():
            self.keep_only(self.store.keys())

    def keep_only(self, keys: Iterable[str]) -> None:
        """Let go of everything but these, without a mark; `store` is another one then."""
        with guard():
            fresh = EphemeralStore(self._timeout_ms)
            for key in keys:
                fresh.apply(self.store.encode(key))
            self.store = fresh

    def states(self) -> dict[str, object]:
        """Everything that has not expired."""
        with guard():
            self.store.remove_outdated()
            return dict(self.store.get_all_states())
