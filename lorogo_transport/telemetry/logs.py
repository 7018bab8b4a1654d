"""Logs of a library: quiet in an app that did not ask for them. And of our own processes: JSON lines.

If the app has configured structlog, its configuration counts. Otherwise our events go to the standard
library's logging under our module's name, as `event key=value ...`: debug and info are silent by
default there, and warnings go to standard error, never to standard output. A process of ours says
`to_stderr()` when it begins.
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
    """A logger that looks at the app's configuration each time it has something to say."""

    __slots__ = ("_always", "_bound", "_name")

    def __init__(self, name: str, bound: dict[str, Any] | None = None, *, always: bool = False) -> None:
        self._name = name
        self._bound = bound or {}
        self._always = always  # whatever level the app's structlog lets through

    def bind(self, **facts: Any) -> "StructuredLogger":
        """The same logger, with facts that every event carries."""
        return StructuredLogger(self._name, {**self._bound, **facts}, always=self._always)

    @property
    def debugging(self) -> bool:
        """Whether debug events are let through now: asked once by whoever would say much."""
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


def get_logger(name: str, *, always: bool = False) -> StructuredLogger:
    """The logger of one module; `always`: what it says is not for a level to leave out."""
    return StructuredLogger(name, always=always)


def to_stderr(level: str) -> None:
    """Everything from this level on to standard error: for people in a terminal, as JSON lines elsewhere.

    What libraries say through the standard library's logging, from warnings on, becomes a line like ours.
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
    for handler in [one for one in root.handlers if isinstance(one, _Others)]:
        root.removeHandler(handler)
    root.addHandler(_Others(logging.WARNING))


class _Others(logging.Handler):
    """Passes on records of the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        if not structlog.is_configured():  # not any more
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        try:
            level = min(record.levelno // 10 * 10, logging.CRITICAL)  # one that structlog has a name for
            facts = {"exc_info": record.exc_info} if record.exc_info else {}
            structlog.get_logger(record.name).log(level, record.getMessage(), logger=record.name, **facts)
        except Exception:  # noqa: BLE001 - as every handler: a line that cannot be said ends nobody
            self.handleError(record)
