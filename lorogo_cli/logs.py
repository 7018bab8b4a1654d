"""Logs of the command: to stderr, for people in a terminal and as JSON lines elsewhere."""

import logging
import os
import sys

from lorogo_cli.errors import Problem, brief

LEVELS = ("debug", "info", "warning", "error")
ENVIRONMENT = "LOROGO_LOG"


def level_of(default: str, *, verbose: bool, environment: str) -> str:
    """The level that was asked for: by --verbose, by LOROGO_LOG, or the command's own."""
    if verbose:
        return "debug"
    chosen = environment.strip().lower() or default
    if chosen not in LEVELS:
        raise Problem(f"{ENVIRONMENT} is {brief(environment)}: it can be {', '.join(LEVELS)}")
    return chosen


def configure(default: str = "warning", *, verbose: bool = False) -> str:
    """Set up structlog, once per process; returns the level."""
    level = level_of(default, verbose=verbose, environment=os.environ.get(ENVIRONMENT, ""))
    begin(level)
    return level


def begin(level: str) -> None:
    """Set up structlog with this level, once per process."""
    import structlog

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
