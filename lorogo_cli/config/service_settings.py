"""Build ServerSettings and GatewaySettings from the resolved settings of a command."""

import re
from typing import Any

from lorogo_cli.config.choice import ResolvedSettings
from lorogo_cli.config.entries import split_listen
from lorogo_cli.errors import CommandError
from lorogo_gateway.settings import GatewaySettings
from lorogo_server.settings import InvalidSettings, ServerSettings

#: keys that need a journal, and keys that need copies of it
_OF_JOURNAL = ("archive", "journal_partitions", "journal_keep_days", "journal_keep_bytes")
_OF_COPIES = ("journal_replicas", "journal_listen", "journal_advertise")


def server_settings(chosen: ResolvedSettings, *, journal_secret: str | None = None) -> ServerSettings:
    """Return the server's settings; unset ones keep their defaults. Raises CommandError."""
    durability = chosen["durability"]
    if durability == "stream":
        why = f"contradicts {chosen.called('durability')} stream, which keeps no journal"
        _refuse(chosen, (*_OF_JOURNAL, *_OF_COPIES), why)
    elif durability != "replicated":
        _refuse(chosen, _OF_COPIES, "needs --durability replicated: other servers copy the journal only then")
    fields: dict[str, Any] = chosen.fields()
    if chosen.given("journal_listen"):
        host, port = split_listen(chosen["journal_listen"])
        fields |= {"journal_host": host, "journal_port": port}
    if "update_bytes_max" in fields:
        # room for as many unfinished updates as by default
        fields.setdefault("unfinished_bytes_max", 4 * fields["update_bytes_max"])
    if journal_secret is not None:
        fields["journal_secret"] = journal_secret
    try:
        return ServerSettings(**fields)
    except InvalidSettings as error:
        raise CommandError(_as_said(str(error), chosen)) from None


def gateway_settings(chosen: ResolvedSettings) -> GatewaySettings:
    """Return the gateway's settings; unset ones keep their defaults. Raises CommandError."""
    try:
        return GatewaySettings(**chosen.fields())
    except ValueError as error:
        raise CommandError(_as_said(str(error), chosen)) from None


def _refuse(chosen: ResolvedSettings, keys: tuple[str, ...], why: str) -> None:
    for key in keys:
        if chosen.given(key):
            raise CommandError(f"{chosen.called(key)} {why}")


def _as_said(sentence: str, chosen: ResolvedSettings) -> str:
    """Replace names of fields by the names that the user wrote: flags, variables or keys."""
    names = {one.entry.field: chosen.called(key) for key, one in chosen.choices.items() if one.entry.field}
    return re.sub(r"\b[a-z]+(?:_[a-z]+)*\b", lambda found: names.get(found[0], found[0]), sentence)
