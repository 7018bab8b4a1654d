"""Logs of the command on stderr: readable in a terminal, JSON lines elsewhere."""

import os

from lorogo_cli.errors import CommandError, brief

LEVELS = ("debug", "info", "warning", "error")
ENVIRONMENT = "LOROGO_LOG"


def level_of(default: str, *, verbose: bool, environment: str) -> str:
    """Return the log level: from --verbose, from LOROGO_LOG, or the command's default."""
    if verbose:
        return "debug"
    chosen = environment.strip().lower() or default
    if chosen not in LEVELS:
        raise CommandError(f"{ENVIRONMENT} must be one of {', '.join(LEVELS)}, not {brief(environment)}")
    return chosen


def configure(default: str = "warning", *, verbose: bool = False) -> str:
    """Configure structlog, once per process, and return the level."""
    level = level_of(default, verbose=verbose, environment=os.environ.get(ENVIRONMENT, ""))
    begin(level)
    return level


def begin(level: str) -> None:
    """Configure structlog with this level, once per process."""
    from lorogo_transport.telemetry.logs import to_stderr

    to_stderr(level)
