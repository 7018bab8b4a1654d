"""Those who want to hear that something has changed."""

from collections.abc import Callable
from contextlib import suppress

from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

Listener = Callable[[], None]


class ConnectionListeners:
    """Plain functions that are called together; one that fails does not keep others from hearing."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call it from now on; returns the function that stops it, which is safe twice."""
        entry: Listener = lambda: listener()  # noqa: E731, PLW0108  # the same function may be added twice

        def stop() -> None:
            with suppress(ValueError):
                self._listeners.remove(entry)

        self._listeners.append(entry)
        return stop

    def tell(self) -> None:
        for listener in list(self._listeners):
            try:
                listener()
            except Exception:  # it is somebody else's code
                log.exception("a listener failed")
