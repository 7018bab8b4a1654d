"""The command as it can be typed here: `lorogo` if the shell finds it, else the way to it."""

import shlex
from collections.abc import Callable
from pathlib import Path


def typed(argv0: str, python: str, cwd: Path, which: Callable[[str], str | None]) -> str:
    """What to type for `lorogo`, given how this process was started."""
    script = Path(argv0)
    if script.name == "__main__.py":
        return f"{_near(Path(python), cwd)} -m lorogo_cli"
    found = which("lorogo")
    if found is not None and _same(Path(found), script):
        return "lorogo"
    return _near(script, cwd)


def python_beside(python: str, cwd: Path) -> str:
    """What to type for this Python."""
    return _near(Path(python), cwd)


def _near(path: Path, cwd: Path) -> str:
    """The path from here if it is below here, else whole; quoted for a shell."""
    whole = path if path.is_absolute() else cwd / path
    try:
        below = str(whole.relative_to(cwd))
        return shlex.quote(below if "/" in below else f"./{below}")
    except ValueError:
        return shlex.quote(str(whole))


def _same(one: Path, other: Path) -> bool:
    try:
        return one.resolve() == other.resolve()
    except OSError:
        return False
