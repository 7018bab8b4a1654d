"""Logs of the command: to stderr, for people in a terminal and as JSON lines elsewhere."""

import os

from lorogo_cli.errors import CommandError, brief

LEVELS = ("debug", "info", "warning", "error")
ENVIRONMENT = "LOROGO_LOG"


def level_of(default: str, *, verbose: bool, environment: str) -> str:
    """The level that was asked for: by --verbose, by LOROGO_LOG, or the command's own."""
    if verbose:
        return "debug"
    chosen = environment.strip().lower() or default
    if chosen not in LEVELS:
        raise CommandError(f"{ENVIRONMENT} is {brief(environment)}: it can be {', '.join(LEVELS)}")
    return chosen


def configure(default: str = "warning", *, verbose: bool = False) -> str:
    """Set up structlog, once per process; returns the level."""
    level = level_of(default, verbose=verbose, environment=os.environ.get(ENVIRONMENT, ""))
    begin(level)
    return level


def begin(level: str) -> None:
    """Set up structlog with this level, once per process."""
    from lorogo_transport.telemetry.logs import to_stderr

    to_stderr(level)
