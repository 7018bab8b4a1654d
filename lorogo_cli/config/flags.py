"""Build flags from the table of settings, and pass resolved settings to commands."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from lorogo_cli.config import files
from lorogo_cli.config.choice import ResolvedSettings, choose
from lorogo_cli.config.entries import CONFIG_ENVIRONMENT, CommandSetting, entries
from lorogo_cli.config.files import ConfigFile
from lorogo_cli.config.variables import HANDED
from lorogo_cli.connect.options import VerboseOptions
from lorogo_cli.connect.shared_options import SharedOptions, declared
from lorogo_protocol.setting import SettingKind

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar=CONFIG_ENVIRONMENT,
        help="A settings file (docs/SETTINGS.md); flags and the environment win over it.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class _ConfigOptions(VerboseOptions):
    config: Config = None


def _kinds(text: str = "", texts: list[str] | None = None, switch: bool = False) -> None:
    """Declare an option of each kind, for the types of the table's flags."""


_TEXT, _TEXTS, _SWITCH = declared(_kinds)


class SettingsOptions(SharedOptions):
    """A part of a command's class: flags of the settings of `section`, `--config` and `--verbose`."""

    section: str

    def take(self, context: typer.Context, values: Mapping[str, Any]) -> "partial[ResolvedSettings]":
        """Return what resolves the settings: a command before another (`lorogo auth setup`) needs none."""
        return partial(_resolve, self.section, context, values, context.params.get("worker") is not None)


@cache
def service(section: str, kind: type[Any] = TyperCommand) -> type[Any]:
    """Return the class of a command, or of a group, with the settings of this service."""
    flags = [_flag(one) for key, one in entries(section).items() if one.flag and key != "log"]
    shared = [*flags, *declared(_ConfigOptions)]
    return type(
        f"{section.capitalize()}Options", (SettingsOptions, kind), {"section": section, "shared": shared}
    )


def settings_of(context: typer.Context) -> ResolvedSettings:
    """Return the settings of the command, a service. Raises InvalidConfiguration."""
    settings: ResolvedSettings = context.obj()
    return settings


def _resolve(
    section: str, context: typer.Context, values: Mapping[str, Any], is_worker: bool
) -> ResolvedSettings:
    typed = {
        key: value for key, value in values.items() if key in entries(section) and _is_typed(context, key)
    }
    if values["verbose"]:
        typed["log"] = "debug"
    file = find_file(values["config"], os.environ.get(HANDED) if is_worker else None)
    return choose(section, typed=typed, environment=os.environ, file=file)


def find_file(config: Path | None, handed: str | None = None) -> ConfigFile | None:
    """Return the named file, if any; a worker gets its text from the parent. Raises CommandError."""
    if config is None or not str(config).strip():
        return None
    return files.read(config) if handed is None else files.parse(handed, config)


def handing(file: ConfigFile | None) -> Mapping[str, str]:
    """Return variables with the file's text for workers: they must not read a file that changed meanwhile."""
    return {} if file is None else {HANDED: file.text}


def _is_typed(context: typer.Context, key: str) -> bool:
    """Return whether the flag is on the command line; variables are read in `variables.py`."""
    source = context.get_parameter_source(key)
    return source is not None and source.name == "COMMANDLINE"


def _flag(entry: CommandSetting) -> TyperOption:
    switch = entry.setting.kind is SettingKind.SWITCH
    several = entry.setting.kind is SettingKind.TEXTS
    words = f"{entry.setting.words}{' May be repeated.' if several else ''}{_beside(entry)}"
    if entry.secret:  # typer would take the variable's value for the name of a file
        words += f" Or {' or '.join(entry.variables)}."
    elif switch:
        words += f" Or {entry.variable}=1."
    default = _default(entry)
    return TyperOption(
        param_decls=[entry.key, entry.flag],
        type_descriptor=(_SWITCH if switch else _TEXTS if several else _TEXT).type_descriptor,
        default=default,
        is_flag=switch,
        multiple=several,
        metavar=None if switch else entry.metavar,
        envvar=None if switch or entry.secret else entry.variable,
        help=words,
        show_envvar=True,
        show_default=not entry.secret and default not in ("", None, False),
    )


def _beside(entry: CommandSetting) -> str:
    """Return the meanings or the allowed range of values, which metavar and default do not show."""
    setting = entry.setting
    meanings = "".join(f" {value}: {meaning}." for value, meaning in setting.meanings.items())
    return meanings if setting.at_most is None or setting.one_of else f" {_capital(setting.allowed())}."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _default(entry: CommandSetting) -> Any:
    """Return the default for the help text; it is never used as a value."""
    default = entry.setting.default
    match default:
        case bool() | None:
            return default
        case tuple():
            return None
        case int() | float():
            return entry.setting.shown(default)
    return str(default)
