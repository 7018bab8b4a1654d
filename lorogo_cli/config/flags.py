"""Build flags from the table of settings, and pass resolved settings to commands."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from lorogo_cli.config import files
from lorogo_cli.config.choice import choose
from lorogo_cli.config.entries import CONFIG_ENVIRONMENT, CommandSetting, entries
from lorogo_cli.config.files import ConfigFile
from lorogo_cli.config.variables import HANDED
from lorogo_cli.connect.options import Verbose
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

_CONTEXT: Final = "context"
_SETTINGS: Final = "settings"


def takes(section: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the flags of a command's settings, `--config` and `--verbose`; pass `settings`, a Chosen."""

    def decorate(work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def command(*, context: typer.Context, config: Path | None, **options: Any) -> Any:
            given = {key: options.pop(key) for key in flagged}
            verbose = options.pop("verbose")
            if context.invoked_subcommand is not None:  # `lorogo auth setup` needs no settings
                return None
            typed = {key: value for key, value in given.items() if _is_typed(context, key)}
            if verbose:
                typed["log"] = "debug"
            handed = os.environ.get(HANDED) if options.get("worker") is not None else None
            chosen = choose(section, typed=typed, environment=os.environ, file=find_file(config, handed))
            return work(**options, settings=chosen)

        flagged = {key: one for key, one in entries(section).items() if one.flag and key != "log"}
        own = {
            name: one
            for name, one in inspect.signature(work, eval_str=True).parameters.items()
            if name != _SETTINGS
        }
        kinds: dict[str, Any] = {key: _option(one) for key, one in flagged.items()}
        kinds |= {"config": Config, "verbose": Verbose, _CONTEXT: typer.Context}
        defaults: dict[str, Any] = {key: _default(one) for key, one in flagged.items()}
        defaults |= {"config": None, "verbose": False, _CONTEXT: inspect.Parameter.empty}
        made = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind)
            for name, kind in kinds.items()
        ]
        made += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own.values()]
        command.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]  # what typer reads
        command.__annotations__ = {**kinds, **{name: one.annotation for name, one in own.items()}}
        return command

    return decorate


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


def _option(entry: CommandSetting) -> Any:
    words = entry.setting.words
    kind: Any = str
    if entry.setting.kind is SettingKind.TEXTS:
        words, kind = f"{words} May be repeated.", list[str] | None
    elif entry.setting.kind is SettingKind.SWITCH:
        kind = bool
    elif entry.setting.default is None:
        kind = str | None
    words += _beside(entry)
    if entry.secret:  # typer would take the variable's value for the name of a file
        return Annotated[
            kind,
            typer.Option(
                entry.flag,
                metavar=entry.metavar,
                help=f"{words} Or {' or '.join(entry.variables)}.",
                show_default=False,
            ),
        ]
    metavar = None if entry.setting.kind is SettingKind.SWITCH else entry.metavar
    return Annotated[
        kind,
        typer.Option(
            entry.flag,
            metavar=metavar,
            envvar=None if entry.setting.kind is SettingKind.SWITCH else entry.variable,
            help=words if metavar is not None else f"{words} Or {entry.variable}=1.",
            show_default=_default(entry) not in ("", None, False),
        ),
    ]


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
