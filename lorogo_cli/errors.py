"""Errors of the command: one sentence on stderr, exit code 2, no traceback."""

from lorogo_protocol.errors import LorogoError

INTERRUPTED = 130  # the exit code of shells after Ctrl-C


class CommandError(LorogoError):
    """An error that the user can correct; its text explains how."""

    code = "cli"


def one_line(error: BaseException) -> str:
    """Return the error's message on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def brief(value: str, chars_max: int = 60) -> str:
    """Return text from the user, quoted and cut to `chars_max`."""
    return repr(value if len(value) <= chars_max else value[:chars_max] + "...")
