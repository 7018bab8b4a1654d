"""What goes wrong with a log's directory, as one sentence for the person at the keyboard."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lorogo_cli.errors import Problem, one_line

#: which extra brings a library that may be missing
_EXTRAS = {"pyarrow": "pipeline", "zstandard": "pipeline"}
_EXTRA = "server"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def translated(directory: Path) -> Iterator[None]:
    """Errors of the log and of the disk become a Problem."""
    try:
        from lorogo_log.errors import LockedError, LogError
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    try:
        yield
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    except BrokenPipeError:
        raise  # whoever read our output has gone: not the log's fault
    except LockedError:
        raise Problem(f"another process is at work on {directory}: stop it first, or wait for it") from None
    except LogError as error:
        raise Problem(one_line(error)) from None
    except OSError as error:
        raise Problem(disk_sentence(error, directory)) from None


def _missing(error: ModuleNotFoundError) -> Problem:
    name = (error.name or "").partition(".")[0]
    if name.startswith("lorogo"):
        raise error
    return Problem(f"this needs {name}: pip install 'lorogo[{_EXTRAS.get(name, _EXTRA)}]'")


def disk_sentence(error: OSError, directory: Path) -> str:
    """What the disk said, and about which file."""
    named = error.filename2 or error.filename
    where = str(named) if isinstance(named, str) else str(directory)
    if error.errno in _NO_SPACE:
        return f"no space left for {where} ({error.strerror}): make room and try again, nothing was lost"
    match error:
        case PermissionError():
            return f"{where} cannot be opened: permission denied"
        case FileNotFoundError():
            return f"{where} is gone: somebody removed it meanwhile"
        case _:
            return f"{where} cannot be read or written: {error.strerror or one_line(error)}"


def warn(sentence: str) -> None:
    """Something that the user must know though the work goes on; on stderr, for scripts too."""
    sys.stdout.flush()
    sys.stderr.write(f"lorogo: {' '.join(sentence.split())}\n")
    sys.stderr.flush()
