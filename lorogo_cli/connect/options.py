"""Options shared by many commands: single ones, and groups of them as dataclasses."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.connect.connection_options import ConnectionOptions
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
NatsCa = Annotated[
    Path | None,
    typer.Option(
        "--nats-ca",
        metavar="FILE",
        envvar="LOROGO_NATS_CA",
        help="CA certificate for NATS, if it is not signed by a public CA: PEM.",
    ),
]
NatsCert = Annotated[
    Path | None,
    typer.Option(
        "--nats-cert",
        metavar="FILE",
        envvar="LOROGO_NATS_CERT",
        help="Client certificate, if NATS requires one: PEM.",
    ),
]
NatsKey = Annotated[
    Path | None,
    typer.Option(
        "--nats-key",
        metavar="FILE",
        envvar="LOROGO_NATS_KEY",
        help="Key of the client certificate; readable by its owner only.",
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
Scratch = Annotated[
    Path | None,
    typer.Option("--scratch", metavar="DIR", help="Folder for temporary files, as large as the journals."),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        metavar="ORIGIN",
        help="Also allow pages of this origin, for example http://localhost:5173; may be repeated.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class VerboseOptions:
    """The option of every command that logs."""

    verbose: Verbose = False


@dataclass(frozen=True, kw_only=True)
class ConnectOptions(VerboseOptions):
    """Options of commands that connect to NATS as an operator or a service."""

    nats: Nats = NATS_DEFAULT
    nats_seed: NatsSeed = None
    nats_ca: NatsCa = None
    nats_cert: NatsCert = None
    nats_key: NatsKey = None

    @property
    def url(self) -> str:
        """Return the address, which names the TLS files."""
        return named_in(self.nats, self.nats_ca, self.nats_cert, self.nats_key)

    @property
    def connection(self) -> ConnectionOptions:
        """Return the address and the seed, from its file or the environment. Raises SecretUnusable."""
        from lorogo_transport.secret_files import read_secret

        seed = read_secret(path=self.nats_seed, environment=SEED_ENVIRONMENT, what="the nkey seed")
        return ConnectionOptions(self.url, seed=seed)


@dataclass(frozen=True, kw_only=True)
class ClientOptions(ConnectOptions):
    """Options of commands that connect as an operator or with a token."""

    token_file: TokenFile = None

    @property
    def connection(self) -> ConnectionOptions:
        """Return the address, the token and the seed. Raises SecretUnusable."""
        from lorogo_transport.secret_files import read_secret

        token = read_secret(path=self.token_file, environment=TOKEN_ENVIRONMENT, what="the token")
        return replace(super().connection, token=token)


def named_in(nats: str, *paths: Path | None) -> str:
    """Return the address with these files: CA, client certificate and its key."""
    if not any(paths):
        return nats
    from lorogo_transport.nats.tls import TlsFiles, name_files

    files = TlsFiles(*(None if path is None else str(path.absolute()) for path in paths))
    return name_files(nats, files)
