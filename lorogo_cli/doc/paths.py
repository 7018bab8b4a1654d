"""Where in a document: `title`, `tasks.0.done`, `/tasks/0/done`, or a JSONPath that begins with `$`."""

import json
import re
from collections.abc import Sequence

from lorogo_cli.errors import CommandError, brief

_INDEX = re.compile(r"0|[1-9][0-9]*", re.ASCII)


def parse_path(text: str) -> list[str]:
    """The tokens of a dotted path, or of a JSON pointer (RFC 6901). Raises Problem."""
    if text.startswith("/"):
        return [_unescaped(token, text) for token in text[1:].split("/")]
    if text.startswith("$"):
        raise CommandError(f"{brief(text)} may name many places: write one, like tasks.0.title")
    tokens = text.split(".")
    if not all(tokens):
        raise CommandError(
            f"{brief(text)} is not a path: write tasks.0.title, or /tasks/0/title for names with dots"
        )
    return tokens


def _unescaped(token: str, text: str) -> str:
    if "~" in token.replace("~0", "").replace("~1", ""):
        raise CommandError(
            f"{brief(text)} is not a JSON pointer: a '~' is written ~0, and a '/' in a name ~1"
        )
    return token.replace("~1", "/").replace("~0", "~")


def pointer(tokens: Sequence[str]) -> str:
    """The tokens as a JSON pointer."""
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


def is_one_place(text: str) -> bool:
    """Whether the path names at most one value."""
    return not text.startswith("$")


def json_path(text: str) -> str:
    """The path as a JSONPath (RFC 9535); one that is a JSONPath already stays as it is."""
    if not is_one_place(text):
        return text
    return "$" + "".join(f"[{_selector(token)}]" for token in parse_path(text))


def _selector(token: str) -> str:
    name = json.dumps(token)
    # only the document knows whether 0 is a place in a list or a name in a map: ask for both
    return f"{token},{name}" if is_index(token) else name


def is_index(token: str) -> bool:
    """Whether the token can be a place in a list."""
    return _INDEX.fullmatch(token) is not None and len(token) <= 15
