"""A setting: what it is unless somebody says otherwise, what is allowed, and its words for people.

The settings of servers and gateways are dataclasses whose fields are made here:

    idle_seconds: float = seconds(300.0, "A document that nobody used for so long is unloaded.")

What the command line, files and variables take, their checks and the documented table (docs/SETTINGS.md) come
from these fields, so that each setting is described once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

_ABOUT: Final = "setting"
_YEARS_100: Final = 100 * 365 * 86_400.0
_UNITS: Final = ("", "KiB", "MiB", "GiB", "TiB")


class SettingKind(StrEnum):
    """What a setting's values are."""

    SIZE = "size"  # bytes
    COUNT = "count"
    SECONDS = "seconds"
    DAYS = "days"
    RATE = "rate"  # so many in a second, or a minute
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
#: more than anybody needs, and so little that no arithmetic of ours overflows
_MOST: Final = {
    SettingKind.SIZE: float(1 << 60),
    SettingKind.COUNT: 1e9,
    SettingKind.SECONDS: _YEARS_100,
    SettingKind.DAYS: _YEARS_100 / 86_400,
    SettingKind.RATE: 1e12,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `problem()` says what is wrong with a value, `allowed()` what would be right."""

    kind: SettingKind
    words: str  # what it does, in a sentence or two
    default: Any
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None  # None: what the kind takes
    one_of: tuple[int | str, ...] = ()
    meanings: Mapping[int, str] = field(default_factory=dict)  # values that mean something else: 0, no limit
    check: Callable[[str], object] | None = None  # of a text, or each of several: raises ValueError in words

    def problem(self, value: object) -> str:
        """What is wrong with the value, as in "must be a number above 0"; "" if nothing is."""
        if value is None:
            return "" if self.default is None else f"must be {self.allowed()}"
        if not self._is_kind(value) or (self.one_of and value not in self.one_of):
            return f"must be {self.allowed()}"
        if self.kind in _NOUNS and not self.one_of:
            return self._out_of_range(value)
        several = isinstance(value, tuple)
        for text in value if isinstance(value, tuple) else (value,):
            if self.check is not None and (text or several):  # one that is empty is none
                try:
                    self.check(text)
                except ValueError as error:
                    return str(error)
        return ""

    def allowed(self) -> str:
        """What is right, for a sentence: "must be ..."."""
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
        told = ", ".join(f"{value}: {meaning}" for value, meaning in self.meanings.items())
        return f"{_NOUNS[self.kind]} {self._range()}" + (f" ({told})" if told else "")

    def shown(self, value: float) -> str:
        """A number of this kind, for people: 64MiB, 300, 0.5."""
        return size_text(int(value)) if self.kind is SettingKind.SIZE else number_text(value)

    def in_units_of(self, seconds: float, kind: SettingKind) -> "Setting":
        """The same setting, said in another unit: days."""
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
        return "" if low and value <= most else f"must be {self.allowed()}"  # NaN is neither

    def _range(self) -> str:
        if self.above is not None:
            most = "" if self.at_most is None else f", up to {self.shown(self.at_most)}"
            return f"above {self.shown(self.above)}{most}"
        least = self.shown(self.at_least or 0)
        if self.at_most is not None:
            return f"from {least} to {self.shown(self.at_most)}"
        return "above 0" if self.at_least == 1 else f"of {least} or more"


def size_text(count: int) -> str:
    """Bytes as people write them, exactly: 64MiB, 240KiB, 1000."""
    unit = 0
    while count and count % 1024 == 0 and unit + 1 < len(_UNITS):
        count //= 1024
        unit += 1
    return f"{count}{_UNITS[unit]}"


def number_text(value: float) -> str:
    """A number without a needless point."""
    return str(int(value)) if value == int(value) else repr(value)


# --- fields of dataclasses, and the settings in them ------------------------------------------------------


def described(settings: type[Any]) -> dict[str, Setting]:
    """The settings of a dataclass by the names of their fields; other fields are left out."""
    return {one.name: one.metadata[_ABOUT] for one in fields(settings) if _ABOUT in one.metadata}


def wrong(settings: object) -> Iterator[str]:
    """What is wrong with each setting of the value, in a sentence that names its field."""
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
    """Bytes."""
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
    """So many of something."""
    return _field(
        Setting(kind=SettingKind.COUNT, words=words, default=default, at_least=at_least, at_most=at_most)
    )


def seconds(
    default: float, words: str, *, at_most: float | None = None, meanings: Mapping[int, str] | None = None
) -> Any:
    """How long, or how often."""
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
    """How many in a second, or a minute, as the name says."""
    return _field(Setting(kind=SettingKind.RATE, words=words, default=default, above=0.0))


def switch(words: str) -> Any:
    """True or false; false unless somebody says otherwise."""
    return _field(Setting(kind=SettingKind.SWITCH, words=words, default=False))


def text(default: str, words: str, *, check: Callable[[str], object] | None = None) -> Any:
    """A text."""
    return _field(Setting(kind=SettingKind.TEXT, words=words, default=default, check=check))


def texts(words: str, *, check: Callable[[str], object]) -> Any:
    """Several texts; none unless somebody gives some."""
    return _field(Setting(kind=SettingKind.TEXTS, words=words, default=(), check=check))


def file(words: str) -> Any:
    """The name of a file; none unless somebody gives one."""
    return _field(Setting(kind=SettingKind.FILE, words=words, default=None))


def choice(default: int | str, words: str, *, one_of: tuple[int | str, ...]) -> Any:
    """One of a few numbers or texts."""
    kind = SettingKind.TEXT if isinstance(default, str) else SettingKind.COUNT
    return _field(Setting(kind=kind, words=words, default=default, one_of=one_of))


def _field(about: Setting) -> Any:
    return field(default=about.default, metadata={_ABOUT: about})
