"""Read the settings file (TOML): each value with its line, and mistakes such as unknown keys."""

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lorogo_cli.config import lines
from lorogo_cli.config.entries import SECTIONS, TOP, CommandSetting, entries, sections_of
from lorogo_cli.config.mistakes import Mistake, has_password, nearest, shown
from lorogo_cli.config.value_parser import InvalidValue, from_toml, kind_of
from lorogo_cli.errors import CommandError
from lorogo_transport.secret_files import SecretUnusable, check_private, misplaced_secret, read_whole

_WHAT: Final = "the settings file"
_WITHOUT_FILE: Final = ("dev", "chaos", "bench", "pipeline")


@dataclass(frozen=True, slots=True)
class FileValue:
    """A value in a file, with its line."""

    value: Any = field(repr=False)  # may hold a password
    line: int


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A parsed settings file: its values and its mistakes."""

    name: str  # as the user gave it
    text: str = field(repr=False)  # may hold a password
    values: Mapping[tuple[str, str], FileValue]  # by section and key
    mistakes: tuple[Mistake, ...]

    def find(self, entry: CommandSetting) -> FileValue | None:
        """Return the value of this setting: from the command's section, else from before the sections."""
        own = self.values.get((entry.section, entry.key))
        return own if own is not None or not entry.shared else self.values.get((TOP, entry.key))


def read(path: Path) -> ConfigFile:
    """Read the file; its mistakes are in `mistakes`. Raises CommandError if it cannot be read."""
    try:
        text, status = read_whole(path, _WHAT)
    except SecretUnusable as error:
        raise CommandError(str(error)) from None
    return parse(text, path, status)


def parse(text: str, path: Path, status: os.stat_result | None = None) -> ConfigFile:
    """Parse this text; `status` has the file's permissions, which are checked too."""
    name = str(path)
    try:
        whole = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits raises ValueError too
        return ConfigFile(name, text, {}, tuple(_not_toml(name, text, error)))
    where = lines.lines_of(text)
    reader = _Reader(name, path.absolute().parent, where)
    reader.top(whole)
    if status is not None:
        reader.mistakes.extend(_too_open(path, status, whole))
    return ConfigFile(name, text, reader.values, tuple(sorted(reader.mistakes, key=lambda one: one.line)))


class _Reader:
    """Walks through a parsed file and collects values and mistakes."""

    def __init__(self, name: str, folder: Path, where: Mapping[lines.Path, list[int]]) -> None:
        self._name = name
        self._folder = folder
        self._where = where
        self.values: dict[tuple[str, str], FileValue] = {}
        self.mistakes: list[Mistake] = []

    def top(self, whole: Mapping[str, Any]) -> None:
        """Collect the keys before the sections, and the sections."""
        for key, value in whole.items():
            if key in SECTIONS:
                if isinstance(value, dict):
                    for own, one in value.items():
                        self._key(key, own, one)
                else:
                    problem = f"is a section: write [{key}] once, with its settings below"
                    self._note((key,), key, problem, section=key)
            elif isinstance(value, dict):
                self._unknown_section(key)
            else:
                self._key(TOP, key, value)

    def _key(self, section: str, key: str, value: object) -> None:
        entry = entries(section).get(key)
        place, name = ((section, key), f"[{section}] {key}") if section else ((key,), key)
        whose = section or None
        if entry is None:
            problem, near = _unknown(section, key)
            self._note(place, name, problem, section=whose, near=near)
            return
        try:
            self.values[section, key] = FileValue(from_toml(entry, value, self._folder), self._line(place))
        except InvalidValue as error:
            value_shown = kind_of(value) if isinstance(value, dict | list) else shown(key, value)
            self._note(place, name, str(error), section=whose, value_shown=value_shown)

    def _unknown_section(self, name: str) -> None:
        if name in _WITHOUT_FILE:
            problem = f"is not a section: `lorogo {name}` takes no settings from a file"
            self._note((name,), f"[{name}]", problem)
            return
        problem = f"is not a section; sections are {', '.join(f'[{one}]' for one in SECTIONS)}"
        near = nearest(name, SECTIONS)
        self._note((name,), f"[{name}]", problem, near=f"[{near}]" if near else "")

    def _note(
        self,
        place: lines.Path,
        name: str,
        problem: str,
        *,
        section: str | None = None,
        value_shown: str = "",
        near: str = "",
    ) -> None:
        self.mistakes.append(
            Mistake(
                problem=problem,
                name=name,
                shown=value_shown if problem.startswith("must ") else "",  # other problems contain the value
                nearest=near,
                file=self._name,
                line=self._line(place),
                section=section,
            )
        )

    def _line(self, place: lines.Path) -> int:
        """Return the line of a key; for a key written in parts (a.b = 1), the first line."""
        found = self._where.get(place)
        if found is None:
            found = [line for path, at in self._where.items() if path[: len(place)] == place for line in at]
        return min(found, default=0)


def _unknown(section: str, key: str) -> tuple[str, str]:
    """Return the problem with an unknown key, and a key that may be meant."""
    if f"{key}_file" in entries(section or "serve"):
        return "is a secret: write it into a file of its own", f"{key}_file"
    if elsewhere := [name for name in sections_of(key) if name != section]:
        return f"belongs into {' or '.join(f'[{name}]' for name in elsewhere)}", ""
    by_field = (one.key for one in entries(section).values() if one.field == key)  # history_seconds: in days
    return "is not a setting", next(by_field, "") or nearest(key, entries(section))


def _not_toml(name: str, text: str, error: Exception) -> Iterator[Mistake]:
    """Yield the syntax mistakes: duplicate keys by name, or else the TOML parser's message."""
    twice = [(place, at) for place, at in lines.lines_of(text).items() if len(at) > 1]
    if twice and not isinstance(error, RecursionError):
        for place, at in twice:
            *before, last = place
            is_section = place[0] in SECTIONS and not before
            called = f"[{last}]" if is_section else f"[{'.'.join(before)}] {last}" if before else last
            numbers = " and ".join(map(str, at))
            yield Mistake(
                problem=f"is set more than once: lines {numbers}", name=called, file=name, line=at[-1]
            )
        return
    if isinstance(error, RecursionError):
        yield Mistake(problem="this TOML is nested too deep", file=name)
        return
    words, _, place_words = str(error).partition(" (at ")
    line = int(place_words.partition("line ")[2].partition(",")[0] or 0) if "line " in place_words else 0
    end = " at its end" if "end of document" in place_words else ""
    yield Mistake(problem=f"this is not TOML{end}: {words}", file=name, line=line)


def _too_open(path: Path, status: os.stat_result, whole: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield a mistake if all users may write the file, or other users may read a file with a password."""
    if any(has_password(one) or misplaced_secret(one) for one in _texts(whole)):
        try:
            check_private(path, status, "the password")
        except SecretUnusable as error:
            yield Mistake(problem=str(error), file=str(path))
            return
    if stat.S_IMODE(status.st_mode) & stat.S_IWOTH:
        yield Mistake(problem=f"all users may change this file: run chmod o-w {path}", file=str(path))


def _texts(value: object) -> Iterator[str]:
    """Yield all strings in it, at any depth."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case dict() as table:
                waiting.extend(table.values())
            case list() as several:
                waiting.extend(several)
