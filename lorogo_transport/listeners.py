"""A list of callbacks for change notifications."""

from collections.abc import Callable
from typing import Generic, TypeVarTuple, Unpack

from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

Facts = TypeVarTuple("Facts")


class Listeners(Generic[*Facts]):
    """Callbacks that are called together; an exception in one does not affect the others."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[Unpack[Facts]], object]] = {}

    def add(self, listener: Callable[[Unpack[Facts]], object]) -> Callable[[], None]:
        """Register a callback; returns an idempotent function that removes it."""
        key = object()  # the same callback may be added twice
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    def clear(self) -> None:
        self._listeners.clear()

    def notify(self, *facts: *Facts) -> None:
        for listener in list(self._listeners.values()):
            try:
                listener(*facts)
            except Exception:  # the callback belongs to a caller
                log.exception("listener failed")
