"""Files that commands write: checked before a long run, and replaced atomically."""

from pathlib import Path

from lorogo_cli.errors import CommandError
from lorogo_cli.render.values import show_json
from lorogo_transport.atomic_file import write_atomically

STDOUT = "-"


def check_writable(target: str) -> None:
    """Check that `target`, a file, - for stdout, or empty, can be written. Raises CommandError."""
    if target in {"", STDOUT}:
        return
    path = Path(target)
    if not path.absolute().parent.is_dir():
        raise CommandError(f"cannot write {path}: its folder does not exist")
    new = not path.exists()
    try:
        path.open("ab").close()
        if new:
            path.unlink()  # an interrupted run must not leave an empty file
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None


def write(target: str, value: object) -> None:
    """Write the value as JSON to the checked file."""
    write_text(target, show_json(value, pretty=True) + "\n")


def write_text(target: str, text: str) -> None:
    """Write the text to the checked file."""
    Path(target).write_text(text, encoding="utf-8")


def replace(target: Path, content: bytes) -> None:
    """Write the file atomically, readable by its owner only. Raises CommandError."""
    try:
        write_atomically(target, content, mode=0o600, replace=True)
    except OSError as error:
        raise CommandError(f"cannot write {target}: {error.strerror or error}") from None
