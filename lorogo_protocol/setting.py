"""Settings: default, allowed values and description of each, as metadata of dataclass fields.

The settings of servers and gateways are dataclasses with fields made by these functions:

    idle_seconds: float = seconds(300.0, "Unload an unused document after this time.")

The flags, files and variables, their checks and the documented table (docs/SETTINGS.md) are derived from
these fields, so that each setting is described once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

_ABOUT: Final = "setting"
_YEARS_100: Final = 100 * 365 * 86_400.0
_UNITS: Final = ("", "KiB", "MiB", "GiB", "TiB")


class SettingKind(StrEnum):
    """Type of a setting's values."""

    SIZE = "size"  # bytes
    COUNT = "count"
    SECONDS = "seconds"
    DAYS = "days"
    RATE = "rate"  # number per second or per minute
    SWITCH = "switch"
    TEXT = "text"
    TEXTS = "texts"
    FILE = "file"
    FOLDER = "folder"


_NOUNS: Final = {
    SettingKind.SIZE: "a size",
    SettingKind.COUNT: "a whole number",
    SettingKind.SECONDS: "a number",
    SettingKind.DAYS: "a number",
    SettingKind.RATE: "a number",
}
#: upper bounds that prevent overflows
_MOST: Final = {
    SettingKind.SIZE: float(1 << 60),
    SettingKind.COUNT: 1e9,
    SettingKind.SECONDS: _YEARS_100,
    SettingKind.DAYS: _YEARS_100 / 86_400,
    SettingKind.RATE: 1e12,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `problem()` checks a value, `allowed()` describes the valid values."""

    kind: SettingKind
    words: str  # description, a sentence or two
    default: Any
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None  # None: the kind's bound
    one_of: tuple[int | str, ...] = ()
    meanings: Mapping[int, str] = field(default_factory=dict)  # special values: 0, no limit
    check: Callable[[str], object] | None = None  # of each text; raises ValueError with a message

    def problem(self, value: object) -> str:
        """Return the problem with a value, as in "must be a number above 0"; "" if it is valid."""
        if value is None:
            return "" if self.default is None else f"must be {self.allowed()}"
        if not self._is_kind(value) or (self.one_of and value not in self.one_of):
            return f"must be {self.allowed()}"
        if self.kind in _NOUNS and not self.one_of:
            return self._out_of_range(value)
        several = isinstance(value, tuple)
        for text in value if isinstance(value, tuple) else (value,):
            if self.check is not None and (text or several):  # a single empty text is unset
                try:
                    self.check(text)
                except ValueError as error:
                    return str(error)
        return ""

    def allowed(self) -> str:
        """Describe the valid values, to follow "must be"."""
        if self.one_of:
            *most, last = map(str, self.one_of)
            return f"{', '.join(most)} or {last}"
        match self.kind:
            case SettingKind.SWITCH:
                return "true or false"
            case SettingKind.TEXT:
                return "a text"
            case SettingKind.TEXTS:
                return "a list of texts"
            case SettingKind.FILE | SettingKind.FOLDER:
                return f"the name of a {self.kind}"
        special = ", ".join(f"{value}: {meaning}" for value, meaning in self.meanings.items())
        return f"{_NOUNS[self.kind]} {self._range()}" + (f" ({special})" if special else "")

    def shown(self, value: float) -> str:
        """Format a number of this kind: 64MiB, 300, 0.5."""
        return size_text(int(value)) if self.kind is SettingKind.SIZE else number_text(value)

    def in_units_of(self, seconds: float, kind: SettingKind) -> "Setting":
        """Return the same setting in another unit, such as days."""
        return replace(
            self,
            kind=kind,
            default=self.default / seconds,
            above=None if self.above is None else self.above / seconds,
            at_most=None if self.at_most is None else self.at_most / seconds,
        )

    def _is_kind(self, value: object) -> bool:
        match self.kind:
            case SettingKind.SWITCH:
                return isinstance(value, bool)
            case SettingKind.TEXT:
                return isinstance(value, str)
            case SettingKind.TEXTS:
                return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
            case SettingKind.FILE | SettingKind.FOLDER:
                return isinstance(value, str) or hasattr(value, "__fspath__")
            case SettingKind.COUNT:
                return isinstance(value, int) and not isinstance(value, bool)
        return isinstance(value, int | float) and not isinstance(value, bool)

    def _out_of_range(self, value: Any) -> str:
        most = _MOST[self.kind] if self.at_most is None else self.at_most
        if value in self.meanings:
            return ""
        if value > most and self.at_most is None:
            return f"must be {self.allowed()}, and at most {self.shown(most)}"
        low = (self.at_least is None or value >= self.at_least) and (self.above is None or value > self.above)
        return "" if low and value <= most else f"must be {self.allowed()}"  # NaN fails both

    def _range(self) -> str:
        if self.above is not None:
            most = "" if self.at_most is None else f", up to {self.shown(self.at_most)}"
            return f"above {self.shown(self.above)}{most}"
        least = self.shown(self.at_least or 0)
        if self.at_most is not None:
            return f"from {least} to {self.shown(self.at_most)}"
        return "above 0" if self.at_least == 1 else f"of {least} or more"


def size_text(count: int) -> str:
    """Format bytes exactly, with the largest unit: 64MiB, 240KiB, 1000."""
    unit = 0
    while count and count % 1024 == 0 and unit + 1 < len(_UNITS):
        count //= 1024
        unit += 1
    return f"{count}{_UNITS[unit]}"


def number_text(value: float) -> str:
    """Format a number, an integral one without a decimal point."""
    return str(int(value)) if value == int(value) else repr(value)


# --- fields of dataclasses, and the settings in them ------------------------------------------------------


def described(settings: type[Any]) -> dict[str, Setting]:
    """Return the settings of a dataclass by field name; other fields are left out."""
    return {one.name: one.metadata[_ABOUT] for one in fields(settings) if _ABOUT in one.metadata}


def wrong(settings: object) -> Iterator[str]:
    """Yield a message for each invalid setting, with the name of its field."""
    for name, about in described(type(settings)).items():
        if problem := about.problem(getattr(settings, name)):
            yield f"{name} {problem}"


def size(
    default: float,
    words: str,
    *,
    at_least: int = 1,
    at_most: int | None = None,
    meanings: Mapping[int, str] | None = None,
) -> Any:
    """Make a setting in bytes."""
    return _field(
        Setting(
            kind=SettingKind.SIZE,
            words=words,
            default=default,
            at_least=at_least,
            at_most=at_most,
            meanings=meanings or {},
        )
    )


def count(default: int, words: str, *, at_least: int = 1, at_most: int | None = None) -> Any:
    """Make a setting that is a whole number."""
    return _field(
        Setting(kind=SettingKind.COUNT, words=words, default=default, at_least=at_least, at_most=at_most)
    )


def seconds(
    default: float, words: str, *, at_most: float | None = None, meanings: Mapping[int, str] | None = None
) -> Any:
    """Make a setting in seconds."""
    about = Setting(
        kind=SettingKind.SECONDS,
        words=words,
        default=default,
        above=0.0,
        at_most=at_most,
        meanings=meanings or {},
    )
    return _field(about)


def rate(default: float, words: str) -> Any:
    """Make a setting per second or per minute, as its name has it."""
    return _field(Setting(kind=SettingKind.RATE, words=words, default=default, above=0.0))


def switch(words: str) -> Any:
    """Make a boolean setting, false by default."""
    return _field(Setting(kind=SettingKind.SWITCH, words=words, default=False))


def text(default: str, words: str, *, check: Callable[[str], object] | None = None) -> Any:
    """Make a text setting."""
    return _field(Setting(kind=SettingKind.TEXT, words=words, default=default, check=check))


def texts(words: str, *, check: Callable[[str], object]) -> Any:
    """Make a setting of several texts, none by default."""
    return _field(Setting(kind=SettingKind.TEXTS, words=words, default=(), check=check))


def file(words: str) -> Any:
    """Make a setting that is a file name, unset by default."""
    return _field(Setting(kind=SettingKind.FILE, words=words, default=None))


def choice(default: int | str, words: str, *, one_of: tuple[int | str, ...]) -> Any:
    """Make a setting with a few allowed values."""
    kind = SettingKind.TEXT if isinstance(default, str) else SettingKind.COUNT
    return _field(Setting(kind=kind, words=words, default=default, one_of=one_of))


def _field(about: Setting) -> Any:
    return field(default=about.default, metadata={_ABOUT: about})
