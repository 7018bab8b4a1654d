"""Turn errors of a log's directory and its disk into one sentence for the user."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lorogo_cli.errors import CommandError, one_line
from lorogo_cli.render.output import say_json
from lorogo_protocol.errors import LorogoError

#: the extra that installs a missing library
_EXTRAS = {"pyarrow": "export", "zstandard": "export"}
_EXTRA = "server"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class AlreadyReported(CommandError):
    """A problem that the printed JSON already reports."""


@contextmanager
def translated(directory: Path, *, as_json: bool = False) -> Iterator[None]:
    """Turn errors of the log and the disk into CommandError; with `as_json` also print it as JSON."""
    try:
        with _sentences(directory):
            yield
    except AlreadyReported:
        raise
    except LorogoError as problem:
        if as_json:
            with suppress(OSError):  # stdout may be closed; stderr gets the sentence anyway
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
        raise  # the reader of our output closed the pipe
    except LockedError:
        raise CommandError(
            f"another process uses {directory}: stop it first, or wait until it ends"
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
    return CommandError(f"`lorogo log` needs {name}: pip install 'lorogo[{_EXTRAS.get(name, _EXTRA)}]'")


def not_readable(error: Exception) -> str:
    """Return the reason why a file is not a log that this program can read, with a next step."""
    text = one_line(error)
    if "format version" in text:
        return f"{text}: use a newer lorogo; nothing was changed"
    return text


def disk_sentence(error: OSError, directory: Path) -> str:
    """Return the error of the disk with its file and a next step."""
    named = error.filename2 or error.filename
    where = str(directory / named) if isinstance(named, str) else str(directory)
    if error.errno in _NO_SPACE:
        return f"no space left for {where} ({error.strerror}): free space and try again; nothing was lost"
    match error:
        case PermissionError():
            return f"{where} cannot be opened: permission denied; run this as the user who owns the log"
        case FileNotFoundError():
            return f"{where} was removed meanwhile: try again"
        case IsADirectoryError():
            return f"{where} is a directory, not a file of the log: move it away"
        case _ if error.errno == errno.EIO:
            return f"{where} cannot be read: {error.strerror} from the disk; copy the log off this disk first"
        case _:
            return f"{where} cannot be read or written: {error.strerror or one_line(error)}"


@contextmanager
def printing(*, flush: bool = True) -> Iterator[None]:
    """Wrap output to stdout, so that its errors are not reported as errors of the log."""
    try:
        yield
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        with suppress(OSError, ValueError):  # Python must not flush its buffer again at exit
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        why = error.strerror or one_line(error)
        raise AlreadyReported(f"the output is incomplete: it could not be written: {why}") from None


def warn(sentence: str) -> None:
    """Print a warning to stderr, also for scripts; the command continues."""
    with printing():
        pass
    sys.stderr.write(f"lorogo: {' '.join(sentence.split())}\n")
    sys.stderr.flush()
