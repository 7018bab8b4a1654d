"""The build context of a folder: every file that .dockerignore does not exclude."""

import os
import re
from collections.abc import Iterator
from pathlib import Path


class IgnorePatterns:
    """The patterns of a .dockerignore; the last that matches a path or one of its folders decides."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines()]
        self._back = [line[1:].strip("/") for line in lines if line.startswith("!")]
        self._rules = [
            (_pattern(line.removeprefix("!").strip("/")), line.startswith("!"))
            for line in lines
            if line and not line.startswith("#")
        ]

    def __call__(self, path: str) -> bool:
        """Return True if this path, relative to the folder, is excluded."""
        parts = path.split("/")
        above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        left_out = False
        for pattern, back in self._rules:
            if any(pattern.fullmatch(one) for one in above):
                left_out = not back
        return left_out

    def wholly(self, folder: str) -> bool:
        """Return True if no file in this folder can be included."""
        return self(folder) and not any(one.startswith((f"{folder}/", "*")) for one in self._back)


def context(folder: Path) -> Iterator[str]:
    """Return the files of the build context, as sorted paths relative to the folder."""
    ignored = IgnorePatterns((folder / ".dockerignore").read_text(encoding="utf-8"))
    for parent, folders, files in os.walk(folder):
        above = "" if Path(parent) == folder else f"{Path(parent).relative_to(folder).as_posix()}/"
        folders[:] = sorted(name for name in folders if not ignored.wholly(above + name))
        yield from (above + name for name in sorted(files) if not ignored(above + name))


def _pattern(text: str) -> re.Pattern[str]:
    """Translate a pattern of Go's filepath.Match, with `**` for any number of folders."""
    out = ""
    while text:
        if text.startswith("**/"):
            out, text = out + "(?:.*/)?", text[3:]
        elif text.startswith("**"):
            out, text = out + ".*", text[2:]
        elif text[0] == "*":
            out, text = out + "[^/]*", text[1:]
        elif text[0] == "?":
            out, text = out + "[^/]", text[1:]
        else:
            out, text = out + re.escape(text[0]), text[1:]
    return re.compile(out)
