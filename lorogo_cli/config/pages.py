"""Documentation of settings: the tables of docs/SETTINGS.md, and an example file with every key."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from lorogo_cli.config.entries import PREFIX, SECTIONS, TOP, CommandSetting, entries
from lorogo_cli.config.variables import OTHERS
from lorogo_protocol.setting import Setting

_EXAMPLES: Final = {"health_listen": "127.0.0.1:8081"}  # settings without a default and a usable placeholder
_LINE: Final = 110

#: headings, by section and the first key below each
_HEADINGS: Final = {
    ("serve", "nats_seed_file"): "The service",
    ("serve", "durability"): "Durability and the journal",
    ("serve", "update_bytes_max"): "Updates and documents",
    ("serve", "documents_max"): "Loading and unloading",
    ("serve", "history_days"): "History and snapshots",
    ("serve", "replicas"): "JetStream",
    ("gateway", "nats_seed_file"): "The service",
    ("gateway", "frame_bytes_max"): "WebSocket, per connection unless noted",
    ("gateway", "head_bytes_max"): "HTTP",
    ("gateway", "address_connections_max"): "Per address (IPv6: /64), over all its connections",
    ("gateway", "token_connections_max"): "Per token, over all its connections; without a token by address",
    ("gateway", "tls_cert"): "TLS",
    ("gateway", "sample_seconds"): "Metrics and shutdown",
}
_ABOUT: Final = {
    TOP: "For all commands.",
    "serve": "Document servers.",
    "gateway": "The HTTP and WebSocket gateway.",
    "auth": "The auth service: admits clients with tokens to NATS.",
}
_HEAD: Final = """\
# All settings of lorogo with their defaults, commented out. `lorogo config example` prints this file.
#
#   lorogo serve --config FILE      or LOROGO_CONFIG=FILE; also for gateway and auth
#   lorogo config check FILE        checks it and prints each mistake with its place
#   lorogo config show              shows the values in use and their sources
#
# Precedence: flag, variable, this file, default. Relative paths start in this file's folder. Secrets are kept
# in separate files. More in docs/SETTINGS.md.
"""


def tables(*, short: bool = False) -> str:
    """Return the tables in Markdown; `short`: without settings that have neither a flag nor a secret."""
    return "\n".join(_tables(short)) + "\n"


def example() -> str:
    """Return a file with every setting, commented out."""
    return _HEAD + "".join(_example())


def _tables(short: bool) -> Iterator[str]:
    for section in (TOP, *SECTIONS):
        yield f"## {f'[{section}]' if section else 'Before the sections'}"
        yield ""
        yield _ABOUT[section]
        for heading, several in _groups(section):
            rows = [_row(one) for one in several if one.flag or one.secret or not short]
            if rows:
                yield ""
                yield from (f"### {heading}", "") if heading else ()
                yield "| key | default | description |"
                yield "|---|---|---|"
                yield from rows
        yield ""
    yield "## Other variables"
    yield ""
    yield "With `_FILE`: a file with the value."
    yield ""
    yield "| variable | description |"
    yield "|---|---|"
    alike: dict[str, list[str]] = {}
    for name, words in sorted(OTHERS.items()):
        alike.setdefault(words, []).append(f"`{name}`")
    yield from (f"| {', '.join(names)} | {words} |" for words, names in alike.items())


def _row(entry: CommandSetting) -> str:
    """Return a row; it names values and variables only where the page's rules do not give them."""
    setting = entry.setting
    words = setting.words
    if values := _values(setting):
        words += f" {values}."
    derived = "_".join(filter(None, (PREFIX.strip("_"), "" if entry.shared else entry.section, entry.key)))
    if entry.variables != (derived.upper(),):
        words += f" Variables: `{'`, `'.join(entry.variables)}`."
    derived_flag = "--" + entry.key.replace("_", "-")
    names = f"`{entry.key}`" + (f" `{entry.flag}`" if entry.flag not in ("", derived_flag) else "")
    return "| " + " | ".join(one.replace("|", "\\|") for one in (names, _default(entry), words)) + " |"


def _default(entry: CommandSetting) -> str:
    if entry.key == "log":
        kinds = {name: entries(name)["log"].setting.default for name in SECTIONS}
        return ", ".join(f"{name} `{level}`" for name, level in kinds.items())
    default = entry.setting.default
    if default in (None, (), ""):
        return "-"
    return "`" + _toml(entry).strip('"') + "`"


def _example() -> Iterator[str]:
    for section in (TOP, *SECTIONS):
        yield f"\n# --- {_ABOUT[section].rstrip('.')} {'-' * 20}\n"
        if section:
            yield f"[{section}]\n"
        for heading, several in _groups(section):
            if heading:
                yield f"\n# --- {heading}\n"
            for entry in several:
                yield "\n"
                yield from _described(entry)
                yield f"#{entry.key} = {_toml(entry)}\n"


def _described(entry: CommandSetting) -> Iterator[str]:
    setting = entry.setting
    words = setting.words
    if _values(setting):
        words += f" Allowed: {setting.allowed()}."
    for line in textwrap.wrap(words, _LINE - 2, break_long_words=False, break_on_hyphens=False):
        yield f"# {line}\n"


def _values(setting: Setting) -> str:
    """Return the allowed values without their type, which the default shows; "" for the usual range."""
    if setting.one_of:
        return f"Values: {setting.allowed()}"
    found = [f"{value}: {meaning}" for value, meaning in setting.meanings.items()]
    least = setting.shown(setting.at_least or 0)
    if setting.at_most is not None:
        low = "up" if setting.at_least is None else least
        found.append(f"{low} to {setting.shown(setting.at_most)}")
    elif setting.at_least is not None and setting.at_least > 1:
        found.append(f"{least} or more")
    return ", ".join(found)


def _toml(entry: CommandSetting) -> str:
    default = entry.setting.default
    match default:
        case bool():
            return "true" if default else "false"
        case int() | float():
            text = entry.setting.shown(default)
            return text if text.lstrip("-").replace(".", "").isdigit() else json.dumps(text)
        case tuple():
            return "[]"
        case None:
            return json.dumps(_EXAMPLES.get(entry.key, entry.metavar))
    return json.dumps(str(default))


def _groups(section: str) -> Iterator[tuple[str, Sequence[CommandSetting]]]:
    """Yield the settings in table order under their headings; a section leaves out the shared ones."""
    heading, several = "", list[CommandSetting]()
    for key, entry in entries(section).items():
        if section and entry.shared:
            continue
        if (section, key) in _HEADINGS:
            if several:
                yield heading, several
            heading, several = _HEADINGS[section, key], []
        several.append(entry)
    yield heading, several
