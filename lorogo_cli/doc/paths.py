"""Paths in a document: `title`, `tasks.0.done`, `/tasks/0/done`, or a JSONPath that begins with `$`."""

import json
import re
from collections.abc import Sequence

from lorogo_cli.errors import CommandError, brief

_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)


def parse_path(text: str) -> list[str]:
    """Return the tokens of a dotted path or a JSON pointer (RFC 6901). Raises CommandError."""
    if text.startswith("/"):
        return [_unescaped(token, text) for token in text[1:].split("/")]
    if text.startswith("$"):
        raise CommandError(f"{brief(text)} may match several values: write a single path, like tasks.0.title")
    tokens = text.split(".")
    if not all(tokens):
        raise CommandError(
            f"{brief(text)} is not a path: write tasks.0.title, or /tasks/0/title for names with dots"
        )
    return tokens


def _unescaped(token: str, text: str) -> str:
    if "~" in token.replace("~0", "").replace("~1", ""):
        raise CommandError(f"{brief(text)} is not a JSON pointer: write '~' as ~0, and '/' in a name as ~1")
    return token.replace("~1", "/").replace("~0", "~")


def pointer(tokens: Sequence[str]) -> str:
    """Return the tokens as a JSON pointer."""
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


def is_one_place(text: str) -> bool:
    """Return whether the path matches at most one value."""
    return not text.startswith("$")


def json_path(text: str) -> str:
    """Return the path as a JSONPath (RFC 9535); a JSONPath is returned unchanged."""
    if not is_one_place(text):
        return text
    return "$" + "".join(f"[{_selector(token)}]" for token in parse_path(text))


def _selector(token: str) -> str:
    name = json.dumps(token)
    # 0 may be an index in a list or a key in a map: select both
    return f"{token},{name}" if is_index(token) else name


def is_index(token: str) -> bool:
    """Return whether the token can be an index in a list."""
    return _INDEX.fullmatch(token) is not None and len(token) <= 15
