"""Find the line of each key in a TOML file, which `tomllib` does not report. Pure."""

import re
import tomllib
from collections.abc import Iterator
from typing import Final

Path = tuple[str, ...]

#: parts that may contain brackets or newlines: strings of all four kinds, also unterminated, and comments
_HIDING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z)|"(?:[^"\\\n]|\\.)*"?|\'[^\'\n]*\'?|#[^\n]*',
    re.DOTALL,
)
_HEADER: Final = re.compile(r"\[\[?(.*?)\]\]?\s*(?:#.*)?$")
_PARTS_MAX: Final = 16  # our keys have fewer; `tomllib` is very slow with thousands
_KEY: Final = re.compile(r"""((?:[^"'=#]|"(?:[^"\\]|\\.)*"|'[^']*')+)=""")


def lines_of(text: str) -> dict[Path, list[int]]:
    """Return the lines, from 1, of each key and section; a duplicate has more than one.

    The text need not be valid TOML: lines that cannot be parsed are left out.
    """
    found: dict[Path, list[int]] = {}
    section: Path = ()
    for number, statement in _statements(text):
        header = _HEADER.match(statement)
        if header is not None:
            section = _parts(header[1])
            found.setdefault(section, []).append(number)
        elif (key := _KEY.match(statement)) is not None and (parts := _parts(key[1])):
            found.setdefault(section + parts, []).append(number)
    return found


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each statement with the number of its first line; a list over several lines is one statement."""
    # a copy of the same length in which strings are x and comments are spaces
    bare = _HIDING.sub(_covered, text)
    start = at = depth = lines = 0
    first = 1
    for piece in bare.split("\n"):
        end = at + len(piece)
        # a string over several lines is one piece of the copy, but several lines of the text
        lines += text.count("\n", at, end) + 1
        if depth or "=" in piece:
            depth += piece.count("[") + piece.count("{") - piece.count("]") - piece.count("}")
        at = end + 1
        if depth > 0:
            continue  # a list continues on the next line
        if statement := text[start:end].strip():
            yield first, statement
        start, first, depth = at, lines + 1, 0


def _covered(hiding: re.Match[str]) -> str:
    return (" " if hiding[0].startswith("#") else "x") * len(hiding[0])


def _parts(key: str) -> Path:
    """Return the parts of a dotted key without quotes; () if it is not a key."""
    if key.count(".") > _PARTS_MAX:
        return ()
    try:
        table = tomllib.loads(f"{key.strip()} = 0")
    except (tomllib.TOMLDecodeError, RecursionError):
        return ()
    parts: list[str] = []
    inner: object = table
    while isinstance(inner, dict) and len(inner) == 1:
        ((name, inner),) = inner.items()
        parts.append(name)
    return tuple(parts)
