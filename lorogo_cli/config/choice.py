"""Resolve the settings of one command, by precedence: flag, variable, file, default."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from lorogo_cli.config import variables
from lorogo_cli.config.entries import CommandSetting, entries
from lorogo_cli.config.files import ConfigFile
from lorogo_cli.config.mistakes import InvalidConfiguration, Mistake, has_password, shown
from lorogo_cli.config.value_parser import InvalidValue, from_text, from_texts
from lorogo_protocol.setting import SettingKind
from lorogo_transport.secret_files import SECRET_BYTES_MAX, SecretUnusable, read_secret_file

_BEFORE_AT: Final = re.compile(r"^([a-z0-9+]+://)?.*@", re.DOTALL | re.IGNORECASE)


class SettingSource(StrEnum):
    """Sources of a value, highest precedence first."""

    FLAG = "flag"
    VARIABLE = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ResolvedSetting:
    """A setting's value and its source."""

    entry: CommandSetting
    value: Any = field(repr=False)
    source: SettingSource
    place: str  # --port, LOROGO_GATEWAY_PORT, lorogo.toml line 3, default

    @property
    def held(self) -> bool:
        """Return whether the value is the secret itself, not the name of its file."""
        return (
            self.entry.secret and self.source is SettingSource.VARIABLE and not self.place.endswith("_FILE")
        )


@dataclass(frozen=True, slots=True)
class ResolvedSettings:
    """All settings of a command, and remarks about settings of other commands."""

    section: str
    choices: Mapping[str, ResolvedSetting]
    remarks: tuple[Mistake, ...] = ()  # mistakes in settings of other commands
    file: ConfigFile | None = None

    def __getitem__(self, key: str) -> Any:
        return self.choices[key].value

    def given(self, key: str) -> bool:
        """Return whether a flag, a variable or the file sets it, even to its default."""
        return self.choices[key].source is not SettingSource.DEFAULT

    def called(self, key: str) -> str:
        """Return the setting's name as the user wrote it: the flag, the variable, or the key and its line."""
        choice = self.choices[key]
        match choice.source:
            case SettingSource.FILE:
                return f"{key} ({choice.place})"
            case SettingSource.DEFAULT:
                return choice.entry.name
        return choice.place

    def secret(self, key: str, what: str) -> str | None:
        """Return the secret from the variable or from the named file; None if neither is set.

        Raises SecretUnusable.
        """
        choice = self.choices[key]
        if choice.value is None:
            return None
        if not choice.held:
            return read_secret_file(choice.value, what)
        text: str = choice.value
        if len(text.encode(errors="replace")) > SECRET_BYTES_MAX:
            raise SecretUnusable(
                f"{what} in {choice.place} has more than {SECRET_BYTES_MAX} bytes: is it the right one?"
            )
        return text

    def fields(self) -> dict[str, Any]:
        """Return the values that were set, as fields of the command's dataclass."""
        return {
            one.entry.field: one.value * one.entry.unit if one.entry.unit != 1.0 else one.value
            for one in self.choices.values()
            if one.entry.field and one.source is not SettingSource.DEFAULT
        }


def choose(
    section: str,
    *,
    typed: Mapping[str, str | bool | Sequence[str]],
    environment: Mapping[str, str],
    file: ConfigFile | None,
) -> ResolvedSettings:
    """Return the settings of this command; `typed` has the flags by key. Raises InvalidConfiguration.

    Mistakes in sections of other commands and unknown variables become remarks: this command still runs.
    """
    mistakes: list[Mistake] = []
    remarks = variables.unknown(environment)
    for one in () if file is None else file.mistakes:
        (mistakes if one.section in (None, section) else remarks).append(one)
    choices = {}
    for key, entry in entries(section).items():
        found = _choice(entry, typed.get(key), environment, file)
        if isinstance(found, Mistake):
            mistakes.append(found)
        else:
            choices[key] = found
    if mistakes:
        raise InvalidConfiguration(mistakes)
    return ResolvedSettings(section, choices, tuple(remarks), file)


def _choice(
    entry: CommandSetting,
    typed: str | bool | Sequence[str] | None,
    environment: Mapping[str, str],
    file: ConfigFile | None,
) -> ResolvedSetting | Mistake:
    if typed is not None:
        return _typed(entry, typed)
    try:
        found = variables.find(entry, environment)
    except InvalidValue as error:
        return variables.mistake(entry, environment, error)
    if found is not None:
        return ResolvedSetting(entry, found[1], SettingSource.VARIABLE, found[0])
    if file is not None and (written := file.find(entry)) is not None:
        return ResolvedSetting(entry, written.value, SettingSource.FILE, f"{file.name} line {written.line}")
    default = entry.setting.default
    if entry.setting.kind in (SettingKind.FILE, SettingKind.FOLDER) and default is not None:
        default = Path(default)
    return ResolvedSetting(entry, default, SettingSource.DEFAULT, "default")


def _typed(entry: CommandSetting, typed: str | bool | Sequence[str]) -> ResolvedSetting | Mistake:
    if isinstance(typed, bool):
        return ResolvedSetting(entry, typed, SettingSource.FLAG, entry.flag)
    if entry.key in ("nats", "archive") and isinstance(typed, str) and has_password(typed):
        problem = (
            "an address with a password is visible to every user who lists the processes of this machine:"
            f" put it into the environment ({entry.variable}) or a settings file"
            f"{', or use --nats-seed' if entry.key == 'nats' else ''}"
        )
        return Mistake(problem=problem, name=entry.flag, section=entry.section)
    try:
        value = from_text(entry, typed) if isinstance(typed, str) else from_texts(entry, typed)
    except InvalidValue as error:
        value_shown = (
            shown(entry.key, typed) if isinstance(typed, str) and str(error).startswith("must ") else ""
        )
        return Mistake(problem=str(error), name=entry.flag, shown=value_shown, section=entry.section)
    return ResolvedSetting(entry, value, SettingSource.FLAG, entry.flag)


def shown_value(choice: ResolvedSetting) -> str:
    """Return the value as a user would write it; of a secret, only that it is set."""
    entry, value = choice.entry, choice.value
    if choice.held:
        return "(set, not shown)"
    match value:
        case None:
            return "(none)"
        case bool():
            return "true" if value else "false"
        case int() | float():
            meaning = entry.setting.meanings.get(int(value)) if value == int(value) else None
            return entry.setting.shown(value) + (f" ({meaning})" if meaning else "")
        case tuple():
            return ", ".join(value) or "(none)"
    text = str(value)
    return without_password(text) or "(none)"


def without_password(text: str) -> str:
    """Return addresses without the part before the last @; with several addresses this hides some of them."""
    return _BEFORE_AT.sub(r"\1...@", text) if has_password(text) else text
