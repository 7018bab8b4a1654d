"""What a user is told when something cannot be done: one sentence, exit code 2, no traceback."""

from lorogo_protocol.errors import LorogoError

INTERRUPTED = 130  # the exit code after Ctrl-C, as shells have it


class CommandError(LorogoError):
    """Something that the person at the keyboard can put right; the text says how."""

    code = "cli"


def one_line(error: BaseException) -> str:
    """The error's sentence, on one line whatever it quotes."""
    return " ".join(str(error).split()) or type(error).__name__


def brief(value: str, chars_max: int = 60) -> str:
    """Text from the user, quoted for a sentence and not longer than it is useful."""
    return repr(value if len(value) <= chars_max else value[:chars_max] + "...")
