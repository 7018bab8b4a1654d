"""Options shared by many commands."""

from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.errors import CommandError

NATS_DEFAULT = "nats://127.0.0.1:4222"
NATS_ENVIRONMENT = "LOROGO_NATS"
TOKEN_ENVIRONMENT = "LOROGO_TOKEN"
SEED_ENVIRONMENT = "LOROGO_NATS_SEED"
KEYS_ENVIRONMENT = "LOROGO_KEYS"
OPEN_ENVIRONMENT = "LOROGO_OPEN"


def no_password(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
    """Refuse a typed address with a password: every user of the machine can list arguments."""
    typed = context.get_parameter_source(parameter.name or "")
    if value is not None and "@" in value and typed is not None and typed.name == "COMMANDLINE":
        raise CommandError(
            "an address with a password is visible to every user who lists the processes of this machine:"
            f" put it into the environment ({NATS_ENVIRONMENT}), or use --nats-seed or --token-file"
        )
    return value


Nats = Annotated[
    str,
    typer.Option(
        "--nats",
        metavar="URL",
        envvar=NATS_ENVIRONMENT,
        callback=no_password,
        help="Address of NATS; several separated by commas.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help=f"File with your token, for a closed NATS (or {TOKEN_ENVIRONMENT}, {TOKEN_ENVIRONMENT}_FILE).",
    ),
]
NatsSeed = Annotated[
    Path | None,
    typer.Option(
        "--nats-seed",
        metavar="FILE",
        help=f"nkey seed of a service or operator (or {SEED_ENVIRONMENT}, {SEED_ENVIRONMENT}_FILE).",
    ),
]
Keys = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help=f"Keys that verify tokens, a JWK set (or {KEYS_ENVIRONMENT}, {KEYS_ENVIRONMENT}_FILE).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON, for scripts.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show all logs and tracebacks (or LOROGO_LOG=debug).")
]
DocumentId = Annotated[str, typer.Argument(metavar="ID", help="The document's id.")]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="WHEN",
        help="A version (v...), a time (2026-11-16T10:30; local without a zone such as Z), or an age (10m).",
    ),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        metavar="ORIGIN",
        help="Also allow pages of this origin, for example http://localhost:5173; may be repeated.",
    ),
]
