"""A list of callbacks for change notifications."""

from collections.abc import Callable
from contextlib import suppress

from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

Listener = Callable[[], None]


class ConnectionListeners:
    """Callbacks that are called together; an exception in one does not affect the others."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """Register a callback; returns an idempotent function that removes it."""
        entry: Listener = lambda: listener()  # noqa: E731, PLW0108  # the same function may be added twice

        def stop() -> None:
            with suppress(ValueError):
                self._listeners.remove(entry)

        self._listeners.append(entry)
        return stop

    def notify(self) -> None:
        for listener in list(self._listeners):
            try:
                listener()
            except Exception:  # the callback belongs to a caller
                log.exception("listener failed")
