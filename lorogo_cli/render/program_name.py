"""The command line that runs this program: `lorogo` if the shell finds it, else its path."""

import shlex
from collections.abc import Callable
from pathlib import Path


def typed(argv0: str, python: str, cwd: Path, which: Callable[[str], str | None]) -> str:
    """Return the command for `lorogo`, derived from how this process was started."""
    script = Path(argv0)
    if script.name == "__main__.py":
        return f"{_near(Path(python), cwd)} -m lorogo_cli"
    found = which("lorogo")
    if found is not None and _same(Path(found), script):
        return "lorogo"
    return _near(script, cwd)


def python_beside(python: str, cwd: Path) -> str:
    """Return the command for this Python."""
    return _near(Path(python), cwd)


def _near(path: Path, cwd: Path) -> str:
    """Return the path, relative if it is below `cwd`, else absolute; quoted for a shell."""
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
