"""The table of all settings for operators: keys of files, variables and flags, by command.

Descriptions, defaults and allowed values come from the fields of ServerSettings and GatewaySettings.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from lorogo_cli.config.probe_address import ListenAddress
from lorogo_cli.connect.options import (
    NATS_DEFAULT,
    OPEN_ENVIRONMENT,
    SEED_ENVIRONMENT,
)
from lorogo_cli.render.logs import LEVELS
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.setting import Setting, SettingKind, described
from lorogo_server.settings import DAY_SECONDS, ServerSettings

CONFIG_ENVIRONMENT: Final = "LOROGO_CONFIG"
JOURNAL_SECRET_ENVIRONMENT: Final = "LOROGO_JOURNAL_SECRET"
PREFIX: Final = "LOROGO_"
TOP: Final = ""  # keys before the first section, for all commands
SECTIONS: Final = ("serve", "gateway", "auth")

#: fields that operators set in days, and the names of those keys
_DAYS: Final = {
    "history_seconds": "history_days",
    "journal_keep_seconds": "journal_keep_days",
    "deleted_keep_seconds": "deleted_keep_days",
    "hsts_seconds": "hsts_days",
}
#: keys with a flag; all others are for files and variables
_FLAGS: Final = {
    "serve": (
        "durability", "archive", "journal_partitions", "journal_keep_days", "journal_keep_bytes",
        "journal_replicas", "journal_advertise", "update_bytes_max", "document_bytes_max", "documents_max",
        "idle_seconds", "history_days", "compact_wal_bytes", "replicas", "wal_bytes_max",
        "kept_presence_bytes_max",
    ),
    "gateway": (
        "host", "port", "read_only", "metrics_open", "origins", "host_names", "trusted_proxies", "tls_cert",
        "tls_key", "hsts_days",
    ),
}  # fmt: skip
#: flags whose names differ from their keys
_FLAG_NAMES: Final = {
    "origins": "--origin",
    "host_names": "--host-name",
    "trusted_proxies": "--trusted-proxy",
    "keys_file": "--keys",
    "nats_seed_file": "--nats-seed",
}
#: placeholders of values, for flags and for examples without a default
_METAVARS: Final = {
    "nats": "URL",
    "archive": "URL",
    "journal_listen": "HOST[:PORT]",
    "journal_advertise": "HOST",
    "health_listen": "HOST:PORT",
    "host": "HOST",
    "origins": "ORIGIN",
    "host_names": "NAME",
    "trusted_proxies": "CIDR",
}
_KIND_METAVARS: Final = {
    SettingKind.SIZE: "SIZE",
    SettingKind.COUNT: "N",
    SettingKind.SECONDS: "SECONDS",
    SettingKind.DAYS: "DAYS",
    SettingKind.RATE: "N",
    SettingKind.TEXT: "TEXT",
    SettingKind.TEXTS: "TEXT",
    SettingKind.FILE: "FILE",
    SettingKind.FOLDER: "DIR",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSetting:
    """One setting of one command: its key, variable and flag."""

    section: str
    key: str
    setting: Setting
    variable: str
    flag: str = ""  # empty: no flag
    shared: bool = False  # may also be set before the sections, for all commands
    secret: bool = False  # the variable holds the secret; {variable}_FILE and the key name a file
    field: str = ""  # of the dataclass; empty: none
    unit: float = 1.0  # the field's value per unit of the key

    @property
    def metavar(self) -> str:
        """Return the placeholder of a value."""
        if self.setting.one_of:
            return "|".join(map(str, self.setting.one_of))
        return _METAVARS.get(self.key) or _KIND_METAVARS[self.setting.kind]

    @property
    def name(self) -> str:
        """Return the name for messages: the flag, or else the key."""
        return self.flag or self.key

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the variables that set it, highest precedence first."""
        return (self.variable, f"{self.variable}_FILE") if self.secret else (self.variable,)


@cache
def entries(section: str) -> dict[str, CommandSetting]:
    """Return the settings of a command by key; for TOP, the shared ones."""
    if section == TOP:
        found = {key: one for name in SECTIONS for key, one in entries(name).items() if one.shared}
        return {**found, **{key: one for key, one in entries("serve").items() if one.shared}}
    made = {"serve": _serve, "gateway": _gateway, "auth": _auth}[section]()
    return {one.key: one for one in made}


def sections_of(key: str) -> list[str]:
    """Return the commands that have a setting with this key."""
    return [section for section in SECTIONS if key in entries(section)]


def _serve() -> list[CommandSetting]:
    made = _fields("serve", ServerSettings)
    where = next(number for number, one in enumerate(made) if one.key == "journal_advertise")
    words = "Address from which other servers copy the journal; 0.0.0.0: all interfaces."
    made[where:where] = [
        _own("serve", "journal_listen", SettingKind.TEXT, words, default="127.0.0.1", check=split_listen),
        _own(
            "serve",
            "journal_secret_file",
            SettingKind.FILE,
            "Secret of all servers that copy journals.",
            variable=JOURNAL_SECRET_ENVIRONMENT,
            secret=True,
        ),
    ]
    words = "Address of /healthz and /readyz; worker N adds N to the port."
    return [
        *_shared("serve", "info"),
        *_closed("serve"),
        _own("serve", "data", SettingKind.FOLDER, "Folder for the server's files.", default=".lorogo/server"),
        _own(
            "serve", "workers", SettingKind.COUNT, "Number of processes.", default=1, at_least=1, at_most=256
        ),
        _own("serve", "health_listen", SettingKind.TEXT, words, check=ListenAddress.parse),
        *made,
    ]


def _gateway() -> list[CommandSetting]:
    return [*_shared("gateway", "warning"), *_closed("gateway"), *_fields("gateway", GatewaySettings)]


def _auth() -> list[CommandSetting]:
    words = "Folder with issuer.seed, auth.seed, auth-list.seed and system.seed."
    return [*_shared("auth", "info"), _own("auth", "seeds", SettingKind.FOLDER, words)]


def _shared(section: str, log: str) -> list[CommandSetting]:
    """Return the settings that all commands have: NATS, TLS, keys and logs."""

    def own(key: str, kind: SettingKind, words: str, **more: Any) -> CommandSetting:
        variable = f"{PREFIX}{key.removesuffix('_file').upper()}"
        return _own(section, key, kind, words, variable=variable, shared=True, **more)

    words = "Address of NATS; several separated by commas."
    return [
        own("nats", SettingKind.TEXT, words, default=NATS_DEFAULT, check=check_nats),
        own("nats_ca", SettingKind.FILE, "CA certificate for NATS, if its CA is not public: PEM."),
        own("nats_cert", SettingKind.FILE, "Client certificate, if NATS requires one: PEM."),
        own("nats_key", SettingKind.FILE, "Key of the client certificate; readable by its owner only."),
        own("keys_file", SettingKind.FILE, "Keys that verify tokens: a JWK set.", secret=True),
        own("log", SettingKind.TEXT, "Log level.", default=log, one_of=LEVELS, flag="--verbose"),
    ]


def _closed(section: str) -> list[CommandSetting]:
    """Return the settings by which a service is closed: its seed, and whether it runs without keys."""
    seed = "nkey seed of this service for NATS."
    words = "Run without keys: every client may read and change every document."
    return [
        _own(section, "nats_seed_file", SettingKind.FILE, seed, variable=SEED_ENVIRONMENT, secret=True),
        _own(
            section,
            "open",
            SettingKind.SWITCH,
            words,
            default=False,
            variable=OPEN_ENVIRONMENT,
            shared=True,
        ),
    ]


def _own(
    section: str,
    key: str,
    kind: SettingKind,
    words: str,
    *,
    variable: str = "",
    flag: str = "",
    shared: bool = False,
    secret: bool = False,
    default: Any = None,
    **limits: Any,
) -> CommandSetting:
    return CommandSetting(
        section=section,
        key=key,
        setting=Setting(kind=kind, words=words, default=default, **limits),
        variable=variable or f"{PREFIX}{section}_{key}".upper(),
        flag=flag or _flag_of(key),
        shared=shared,
        secret=secret,
    )


def _flag_of(key: str) -> str:
    return _FLAG_NAMES.get(key, f"--{key.replace('_', '-')}")


def _fields(section: str, settings: type[Any]) -> list[CommandSetting]:
    made = []
    for field, about in described(settings).items():
        key = _DAYS.get(field, field)
        unit = DAY_SECONDS if field in _DAYS else 1.0
        made.append(
            CommandSetting(
                section=section,
                key=key,
                setting=about.in_units_of(unit, SettingKind.DAYS) if field in _DAYS else about,
                variable=f"{PREFIX}{section}_{key}".upper(),
                flag=_flag_of(key) if key in _FLAGS[section] else "",
                field=field,
                unit=unit,
            )
        )
    return made


def check_nats(url: str) -> None:
    """Raise ValueError unless these are addresses of NATS."""
    from lorogo_transport.errors import Unreachable
    from lorogo_transport.nats.addresses import parse_servers
    from lorogo_transport.nats.tls import split

    try:
        parse_servers(split(url)[0])
    except Unreachable:  # its message contains the address, which may have a password
        raise ValueError("must be an address of NATS, as nats://host:4222, or several with commas") from None


def split_listen(place: str) -> tuple[str, int]:
    """HOST and PORT, 0 if there is none. Raises ValueError."""
    host, _, port = place.partition(":")
    if not host or (port and not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536)):
        raise ValueError("must be HOST or HOST:PORT")
    return host, int(port or 0)
