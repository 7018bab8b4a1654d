"""Mistakes in settings: place, value and allowed values, without secrets."""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lorogo_cli.errors import CommandError, brief
from lorogo_transport.secret_files import misplaced_secret, redacted

_SECRET_NAME: Final = re.compile(r"secret|seed|token|passw|credential|private|(^|_)keys?(_|$)", re.IGNORECASE)
_NEAR: Final = 0.6  # least similarity of a suggested name


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One mistake; `str()` is its message."""

    problem: str  # follows the name in the message
    name: str = ""  # [gateway] port, LOROGO_GATEWAY_PORT, --port
    shown: str = ""  # the value, without secrets
    nearest: str = ""  # a suggested name
    file: str = ""
    line: int = 0
    section: str | None = None  # the command that has the setting; None: all

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        value = f", not {self.shown}" if self.shown else ""
        near = f"; did you mean {self.nearest}?" if self.nearest else ""
        joint = " " if self.name and self.problem.startswith(("must ", "is ", "has ", "belongs ")) else ": "
        return f"{place}{self.name}{joint if self.name else ''}{self.problem}{value}{near}"

    def facts(self) -> dict[str, Any]:
        """Return the mistake for scripts."""
        return {
            "file": self.file or None,
            "line": self.line or None,
            "name": self.name or None,
            "value": self.shown or None,
            "problem": self.problem,
            "nearest": self.nearest or None,
        }


class InvalidConfiguration(CommandError):
    """Settings cannot be used; the message has the first mistake, `mistakes` has all."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        file = next((one.file for one in mistakes if one.file), "")
        more = f" (and {len(mistakes) - 1} more: `lorogo config check{' ' + file if file else ''}`"
        super().__init__(f"{mistakes[0]}{more + ' lists them)' if len(mistakes) > 1 else ''}")
        self.mistakes = tuple(mistakes)


def shown(name: str, value: object) -> str:
    """Return the value, shortened; a value that may be a secret is not shown."""
    text = value if isinstance(value, str) else _text(value)
    if isinstance(value, bool):
        return text.lower()
    if _SECRET_NAME.search(name) or has_password(text) or misplaced_secret(text):
        return "the given value"
    return redacted(brief(value)) if isinstance(value, str) else _short(text)


def has_password(text: str) -> bool:
    """Return whether the text may contain an address with a user name, a password or a token.

    Every text with an @ counts: addresses may lack a scheme, and passwords may contain unescaped slashes.
    """
    return "@" in text


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the most similar name; empty if none is similar enough."""
    names = list(known)
    plain = name.lower().replace("-", "_")
    for one in names:
        if one.lower() == plain:
            return one
    begun = [one for one in names if one.lower().startswith(f"{plain}_") or one.lower() == f"{plain}s"]
    return begun[0] if begun else next(iter(difflib.get_close_matches(name, names, n=1, cutoff=_NEAR)), "")


def _text(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # 0xfff...: Python does not convert integers of more than 4,300 digits
        return "a number of thousands of digits"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."
