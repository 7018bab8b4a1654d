"""Logs of a library: quiet in an app that did not ask for them.

If the app has configured structlog, its configuration counts. Otherwise our events go to the standard
library's logging under our module's name, as `event key=value ...`: debug and info are silent by
default there, and warnings go to standard error, never to standard output.
"""

import logging
from typing import Any

import structlog

_PROCESSORS: list[Any] = [
    structlog.stdlib.filter_by_level,
    structlog.processors.format_exc_info,
    structlog.processors.KeyValueRenderer(key_order=["event"]),
]

_EVERYTHING = structlog.make_filtering_bound_logger(logging.NOTSET)


class Log:
    """A logger that looks at the app's configuration each time it has something to say."""

    __slots__ = ("_always", "_bound", "_name")

    def __init__(self, name: str, bound: dict[str, Any] | None = None, *, always: bool = False) -> None:
        self._name = name
        self._bound = bound or {}
        self._always = always  # whatever level the app's structlog lets through

    def bind(self, **facts: Any) -> "Log":
        """The same logger, with facts that every event carries."""
        return Log(self._name, {**self._bound, **facts}, always=self._always)

    def debug(self, event: str, **facts: Any) -> None:
        self._logger().debug(event, **facts)

    def info(self, event: str, **facts: Any) -> None:
        self._logger().info(event, **facts)

    def warning(self, event: str, **facts: Any) -> None:
        self._logger().warning(event, **facts)

    def error(self, event: str, **facts: Any) -> None:
        self._logger().error(event, **facts)

    def exception(self, event: str, **facts: Any) -> None:
        """An error, with the exception that is being handled."""
        self._logger().exception(event, **facts)

    def _logger(self) -> Any:
        if structlog.is_configured() and self._always:
            return structlog.wrap_logger(None, wrapper_class=_EVERYTHING, **self._bound)
        if structlog.is_configured():
            return structlog.get_logger(self._name, **self._bound)
        logger = logging.getLogger(self._name)
        return structlog.wrap_logger(
            logger, processors=_PROCESSORS, wrapper_class=structlog.stdlib.BoundLogger, **self._bound
        )


def get_logger(name: str, *, always: bool = False) -> Log:
    """The logger of one module; `always`: what it says is not for a level to leave out."""
    return Log(name, always=always)
