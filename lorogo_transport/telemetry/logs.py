"""Logs of a library, quiet by default in an app; and JSON lines for lorogo's own processes.

If the app has configured structlog, its configuration applies. Otherwise events go to the standard
library's logging under the module's name, as `event key=value ...`: debug and info are off by
default there, and warnings go to standard error, never to standard output. A lorogo process calls
`to_stderr()` at its start.
"""

import logging
import sys
from typing import Any

import structlog

_PROCESSORS: list[Any] = [
    structlog.stdlib.filter_by_level,
    structlog.processors.format_exc_info,
    structlog.processors.KeyValueRenderer(key_order=["event"]),
]

_EVERYTHING = structlog.make_filtering_bound_logger(logging.NOTSET)


class StructuredLogger:
    """A logger that reads the app's configuration on every event."""

    __slots__ = ("_always", "_bound", "_name")

    def __init__(self, name: str, bound: dict[str, Any] | None = None, *, always: bool = False) -> None:
        self._name = name
        self._bound = bound or {}
        self._always = always  # regardless of the level of the app's structlog

    def bind(self, **facts: Any) -> "StructuredLogger":
        """Return a logger that adds these facts to every event."""
        return StructuredLogger(self._name, {**self._bound, **facts}, always=self._always)

    @property
    def debugging(self) -> bool:
        """True if debug events are enabled; check it before expensive events."""
        if structlog.is_configured():
            bound = structlog.get_logger(self._name).bind()
            return not hasattr(type(bound), "is_enabled_for") or bool(bound.is_enabled_for(logging.DEBUG))
        return logging.getLogger(self._name).isEnabledFor(logging.DEBUG)

    def debug(self, event: str, **facts: Any) -> None:
        self._logger().debug(event, **facts)

    def info(self, event: str, **facts: Any) -> None:
        self._logger().info(event, **facts)

    def warning(self, event: str, **facts: Any) -> None:
        self._logger().warning(event, **facts)

    def error(self, event: str, **facts: Any) -> None:
        self._logger().error(event, **facts)

    def exception(self, event: str, **facts: Any) -> None:
        """Log an error with the current exception."""
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


def get_logger(name: str, *, always: bool = False) -> StructuredLogger:
    """Return the logger of a module; `always`: ignore the log level."""
    return StructuredLogger(name, always=always)


def to_stderr(level: str) -> None:
    """Write events from this level on to standard error: readable in a terminal, else as JSON lines.

    Warnings and errors of libraries through the standard library's logging become such lines, too.
    """
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if sys.stderr.isatty():
        plain = structlog.dev.plain_traceback
        processors.append(structlog.dev.ConsoleRenderer(exception_formatter=plain, sort_keys=False))
    else:
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(default=str),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, _StdlibHandler)]:
        root.removeHandler(handler)
    root.addHandler(_StdlibHandler(logging.WARNING))


class _StdlibHandler(logging.Handler):
    """Forwards records of the standard library's logging to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        if not structlog.is_configured():  # the configuration was reset
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        try:
            # round down to a level that structlog has
            level = min(record.levelno // 10 * 10, logging.CRITICAL)
            facts = {"exc_info": record.exc_info} if record.exc_info else {}
            structlog.get_logger(record.name).log(level, record.getMessage(), logger=record.name, **facts)
        except Exception:  # noqa: BLE001 - a failing log line must not raise, as in every handler
            self.handleError(record)
