"""The file that a long run writes its result to: looked at first, so that nothing is lost at the end."""

from pathlib import Path

from lorogo_cli.errors import CommandError
from lorogo_cli.render.values import show_json

STDOUT = "-"


def check_writable(target: str) -> None:
    """`target` is a file, - for stdout, or nothing. Raises Problem."""
    if target in {"", STDOUT}:
        return
    path = Path(target)
    if not path.absolute().parent.is_dir():
        raise CommandError(f"there is no folder for {path}")
    new = not path.exists()
    try:
        path.open("ab").close()
        if new:
            path.unlink()  # a run that does not come to its end leaves no empty file
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from None


def write(target: str, value: object) -> None:
    """Write the value as JSON to the file that was looked at."""
    write_text(target, show_json(value, pretty=True) + "\n")


def write_text(target: str, text: str) -> None:
    """Write the text to the file that was looked at."""
    Path(target).write_text(text, encoding="utf-8")
