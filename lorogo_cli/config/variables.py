"""Settings from the environment, and unknown variables with our prefix. Pure."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from lorogo_cli.config.entries import CONFIG_ENVIRONMENT, PREFIX, SECTIONS, CommandSetting, entries
from lorogo_cli.config.mistakes import Mistake, nearest, shown
from lorogo_cli.config.value_parser import InvalidValue, from_text

#: the text of the settings file, for workers of `lorogo serve`: the file may have changed meanwhile
HANDED: Final = "LOROGO_CONFIG_HANDED"

_SEED_WORDS: Final = "seeds of `lorogo auth`, if `seeds` is unset; also `_FILE`"
#: variables that are not settings of a service, and their use
OTHERS: Final = {
    CONFIG_ENVIRONMENT: "`--config`",
    "LOROGO_TOKEN": "token for commands; also `_FILE`",
    "LOROGO_ISSUER_SEED": _SEED_WORDS,
    "LOROGO_AUTH_SEED": _SEED_WORDS,
    "LOROGO_AUTH_LIST_SEED": _SEED_WORDS,
    "LOROGO_SYSTEM_SEED": _SEED_WORDS,
    "LOROGO_DEV_ROUTE_PASSWORD": "password between the nats-servers of docker-compose.yml",
    "LOROGO_LAKE": "`--lake` of `lorogo pipeline`",
    "LOROGO_LOG_SECRET": "secret of replicas for `lorogo log repair --from`",
    "LOROGO_OTEL": "1: export spans (docs/OBSERVABILITY.md)",
    "LOROGO_NATS_SERVER": "nats-server of `lorogo dev`, `chaos` and `bench`",
    "LOROGO_TRACES": "editing traces for `lorogo chaos` and `bench`",
}
_WITH_FILE: Final = re.compile("LOROGO_(TOKEN|[A-Z_]+_SEED)")
#: variables that Kubernetes sets in every container for a Service whose name begins with "lorogo"
_SERVICE: Final = re.compile(
    r"LOROGO_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)"
)
_PORT_VALUE: Final = re.compile(r"(tcp|udp|sctp)://")


def find(entry: CommandSetting, environment: Mapping[str, str]) -> tuple[str, Any] | None:
    """Return the variable that sets this setting, and its value; empty variables do not count.

    The value of a secret is not parsed. Raises InvalidValue.
    """
    for variable in entry.variables:
        text = environment.get(variable, "")
        if not text.strip() or _of_kubernetes(variable, text):
            continue
        if entry.secret and variable == entry.variable:
            return variable, text.strip()
        return variable, from_text(entry, text)
    return None


def mistake(entry: CommandSetting, environment: Mapping[str, str], error: InvalidValue) -> Mistake:
    """Return the mistake in the variable of a setting."""
    variable = next(one for one in reversed(entry.variables) if environment.get(one, "").strip())
    problem = str(error)
    value_shown = shown(variable, environment[variable]) if problem.startswith("must ") else ""
    return Mistake(problem=problem, name=variable, shown=value_shown, section=entry.section)


def unknown(environment: Mapping[str, str]) -> list[Mistake]:
    """Return unknown variables with our prefix, with suggested names."""
    ours = sorted(one.removeprefix(PREFIX) for one in known())
    found = []
    for name, value in sorted(environment.items()):
        if name.startswith(PREFIX) and name not in known() and not _of_kubernetes(name, value):
            near = nearest(name.removeprefix(PREFIX), ours)
            problem = "is not a variable of lorogo"
            found.append(Mistake(problem=problem, name=name, nearest=near and f"{PREFIX}{near}"))
    return found


@cache
def known() -> frozenset[str]:
    """Return all variables that commands read."""
    ours = {name for section in SECTIONS for one in entries(section).values() for name in one.variables}
    files = {f"{name}_FILE" for name in OTHERS if _WITH_FILE.fullmatch(name)}
    return frozenset(ours | OTHERS.keys() | files | {HANDED})


def _of_kubernetes(name: str, value: str) -> bool:
    if name.endswith("_PORT") and _PORT_VALUE.match(value):  # LOROGO_GATEWAY_PORT=tcp://10.0.0.11:8080
        return True
    return name not in known() and _SERVICE.fullmatch(name) is not None
