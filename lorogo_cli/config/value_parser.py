"""Parse values of settings from a file, a variable or a flag. Pure."""

import re
from collections.abc import Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Final

from lorogo_cli.config.entries import CommandSetting
from lorogo_cli.errors import CommandError
from lorogo_cli.render.values import parse_size
from lorogo_protocol.setting import SettingKind
from lorogo_transport.secret_files import misplaced_secret

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?")
_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off"})


class InvalidValue(ValueError):
    """A value that a setting does not allow; the text follows the setting's name in a message."""


def from_toml(entry: CommandSetting, value: object, folder: Path) -> Any:
    """Parse a value from a file; `folder` is the base of relative paths. Raises InvalidValue."""
    kind = entry.setting.kind
    match value:
        case str() if kind is SettingKind.SIZE:
            return _fit(entry, _size(entry, value))
        case str() if kind in (SettingKind.COUNT, SettingKind.SECONDS, SettingKind.DAYS, SettingKind.RATE):
            raise InvalidValue(f"must be {entry.setting.allowed()}, without quotes")
        case str() if kind is SettingKind.SWITCH:
            raise InvalidValue("must be true or false, without quotes")
        case str() if kind is SettingKind.TEXTS:
            raise InvalidValue('must be a list, as in ["a", "b"]')
        case str() if kind in (SettingKind.FILE, SettingKind.FOLDER):
            return _fit(entry, folder / _named(entry, value))
        case float() if kind is SettingKind.SIZE:
            raise InvalidValue('must be a whole number of bytes, or a string like "64MiB"')
        case list() if kind is SettingKind.TEXTS:
            return _fit(entry, tuple(value))
        case int() | float() if kind in (
            SettingKind.SECONDS,
            SettingKind.DAYS,
            SettingKind.RATE,
        ) and not isinstance(value, bool):
            return _fit(entry, _float(entry, value))
    return _fit(entry, value)


def from_text(entry: CommandSetting, text: str) -> Any:
    """Parse the value of a variable or a flag. Raises InvalidValue."""
    words = text.strip()
    match entry.setting.kind:
        case SettingKind.SIZE:
            return _fit(entry, _size(entry, words))
        case SettingKind.COUNT:
            return _fit(entry, int(words) if _WHOLE.fullmatch(words) else words)
        case SettingKind.SECONDS | SettingKind.DAYS | SettingKind.RATE:
            return _fit(entry, float(words) if _NUMBER.fullmatch(words) else words)
        case SettingKind.SWITCH:
            if words.lower() not in _YES | _NO:
                raise InvalidValue("must be true or false")
            return words.lower() in _YES
        case SettingKind.TEXTS:
            return from_texts(entry, words.split(","))
        case SettingKind.FILE | SettingKind.FOLDER:
            return _fit(entry, Path(_named(entry, text)))
        case SettingKind.TEXT if entry.setting.one_of:
            return _fit(entry, words.lower())
    return _fit(entry, words)


def from_texts(entry: CommandSetting, texts: Sequence[str]) -> Any:
    """Parse the values of a flag that may be repeated. Raises InvalidValue."""
    return _fit(entry, tuple(one.strip() for one in texts))


def kind_of(value: object) -> str:
    """Return the kind of a value in a file, in words."""
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "a section"
        case datetime() | date() | time():
            return "a date or time"
    return "something else"


def _fit(entry: CommandSetting, value: Any) -> Any:
    if problem := entry.setting.problem(value):
        raise InvalidValue(problem)
    return value


def _size(entry: CommandSetting, text: str) -> int:
    if text.strip() in map(str, entry.setting.meanings):
        return int(text)
    try:
        return parse_size(text)
    except CommandError:
        raise InvalidValue(
            f"must be {entry.setting.allowed()}, in bytes or as 512KiB, 64MiB, 10GiB"
        ) from None


def _float(entry: CommandSetting, value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise InvalidValue(f"must be {entry.setting.allowed()}; the given number is far too large") from None


def _named(entry: CommandSetting, text: str) -> str:
    if wrong := misplaced_secret(text):
        raise InvalidValue(f"is not the name of a file: {wrong}")
    if not text.strip() or "\0" in text:
        raise InvalidValue(f"must be {entry.setting.allowed()}")
    return text
