"""What goes wrong with a log's directory, as one sentence for the person at the keyboard."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lorogo_cli.errors import CommandError, one_line
from lorogo_cli.render.output import say_json

#: which extra brings a library that may be missing
_EXTRAS = {"pyarrow": "export", "zstandard": "export"}
_EXTRA = "server"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class AlreadyReported(CommandError):
    """A problem that the printed JSON names already."""


@contextmanager
def translated(directory: Path, *, as_json: bool = False) -> Iterator[None]:
    """Errors of the log and of the disk become a Problem; with `as_json` stdout gets it as JSON too."""
    try:
        with _sentences(directory):
            yield
    except AlreadyReported:
        raise
    except CommandError as problem:
        if as_json:
            with suppress(OSError):  # there may be nobody to tell; stderr gets the sentence anyway
                say_json({"directory": str(directory), "error": one_line(problem)}, pretty=False)
        raise


@contextmanager
def _sentences(directory: Path) -> Iterator[None]:
    try:
        from lorogo_log.errors import FormatError, LockedError, LogError
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    try:
        yield
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    except BrokenPipeError:
        raise  # whoever read our output has gone: not the log's fault
    except LockedError:
        raise CommandError(
            f"another process is at work on {directory}: stop it first, or wait for it"
        ) from None
    except FormatError as error:
        raise CommandError(not_readable(error)) from None
    except LogError as error:
        raise CommandError(one_line(error)) from None
    except OSError as error:
        raise CommandError(disk_sentence(error, directory)) from None


def _missing(error: ModuleNotFoundError) -> CommandError:
    name = (error.name or "").partition(".")[0]
    if name.startswith("lorogo"):
        raise error
    return CommandError(f"this needs {name}: pip install 'lorogo[{_EXTRAS.get(name, _EXTRA)}]'")


def not_readable(error: Exception) -> str:
    """What is no log, or none for this program; and what to do."""
    text = one_line(error)
    if "format version" in text:
        return f"{text}: use a newer lorogo; nothing was touched"
    return text


def disk_sentence(error: OSError, directory: Path) -> str:
    """What the disk said, about which file, and what to do."""
    named = error.filename2 or error.filename
    where = str(directory / named) if isinstance(named, str) else str(directory)
    if error.errno in _NO_SPACE:
        return f"no space left for {where} ({error.strerror}): make room and try again, nothing was lost"
    match error:
        case PermissionError():
            return f"{where} cannot be opened: permission denied; run this as the user who owns the log"
        case FileNotFoundError():
            return f"{where} is gone: somebody removed it meanwhile; try again"
        case IsADirectoryError():
            return f"{where} is a directory, not a file of the log: move it away"
        case _ if error.errno == errno.EIO:
            return f"{where} cannot be read: the disk says {error.strerror}; copy the log off this disk first"
        case _:
            return f"{where} cannot be read or written: {error.strerror or one_line(error)}"


@contextmanager
def printing(*, flush: bool = True) -> Iterator[None]:
    """For what goes to stdout: if that cannot take it, the log is not to blame."""
    try:
        yield
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        with suppress(OSError, ValueError):  # what Python still holds must not be tried again at its end
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        why = error.strerror or one_line(error)
        raise AlreadyReported(f"the output is not whole, it could not be written: {why}") from None


def warn(sentence: str) -> None:
    """Something that the user must know though the work goes on; on stderr, for scripts too."""
    with printing():
        pass
    sys.stderr.write(f"lorogo: {' '.join(sentence.split())}\n")
    sys.stderr.flush()
