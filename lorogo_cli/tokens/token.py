"""`lorogo token ...`: mint, show and revoke tokens, and manage their keys."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.connect.options import ConnectOptions, Json, VerboseOptions
from lorogo_cli.connect.runtime import run
from lorogo_cli.connect.shared_options import connection, taking

app = typer.Typer(no_args_is_help=True, help="Mint, show and revoke tokens (docs/SECURITY.md).")
keys_app = typer.Typer(
    no_args_is_help=True,
    help="Keys that mint tokens, and the set of keys that verify them.\n\n"
    "To replace a key without interruption: `keys new` makes a new key and adds its public part to the set,"
    " which serve, gateway and auth read again within seconds. Then mint with the new key. When the last"
    " token of the old key has expired, remove the old key with `keys remove`.\n\n"
    "If a key was stolen, remove it at once: every token that it signed is then refused.",
)
app.add_typer(keys_app, name="keys")


class KeyAlgorithm(StrEnum):
    """Algorithms of keys."""

    EDDSA = "EdDSA"
    HS256 = "HS256"


@app.command(cls=taking(VerboseOptions))
def mint(
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The private key that mints.")],
    subject: Annotated[str, typer.Option("--subject", metavar="NAME", help="The user of the token.")],
    grant: Annotated[
        list[str],
        typer.Option(
            "--grant",
            metavar="ID=ACCESS",
            help="read, write or admin on a document or a pattern: 'minutes-*=write'; may be repeated.",
        ),
    ],
    expires: Annotated[str, typer.Option("--expires", metavar="TIME", help="Lifetime: 90s, 8h, 30d.")],
    token_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Id for revocation; random by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write to this private file instead of stdout."),
    ] = None,
) -> None:
    """Mint a token and print it, without other output."""
    from lorogo_cli.tokens import mint as minting

    minting.mint(key, subject=subject, grants=grant, expires=expires, token_id=token_id, out=out)


@app.command(cls=taking(VerboseOptions))
def show(
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="The token, - for stdin (or LOROGO_TOKEN, LOROGO_TOKEN_FILE; else stdin).",
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys", metavar="FILE", help="Verify with this key set (or LOROGO_KEYS, LOROGO_KEYS_FILE)."
        ),
    ] = None,
    json: Json = False,
) -> bool:
    """Show the content of a token and, with --keys, verify it. Exit code 1: the token is invalid."""
    from lorogo_cli.tokens import mint as minting

    return minting.show(token_file, keys, as_json=json)


@keys_app.command("new", cls=taking(VerboseOptions))
def keys_new(
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="New private file for the key that mints.")
    ],
    public: Annotated[
        Path | None,
        typer.Option(
            "--public", metavar="FILE", help="Key set to which the public part is added; created if missing."
        ),
    ] = None,
    kind: Annotated[
        KeyAlgorithm,
        typer.Option("--kind", help="EdDSA: separate keys to mint and verify. HS256: one secret for both."),
    ] = KeyAlgorithm.EDDSA,
    key_id: Annotated[
        str | None, typer.Option("--id", metavar="KID", help="Name of the key; random by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a key, and add its public part to a key set."""
    from lorogo_cli.tokens import key_files

    key_files.new(out, public, kind=kind.value, key_id=key_id, as_json=json)


@keys_app.command("show", cls=taking(VerboseOptions))
def keys_show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A key set, or one key.")], json: Json = False
) -> None:
    """List the keys in a file, without the key material."""
    from lorogo_cli.tokens import key_files

    key_files.show(file, as_json=json)


@keys_app.command("remove", cls=taking(VerboseOptions))
def keys_remove(
    key_id: Annotated[str, typer.Argument(metavar="KID", help="The key's name.")],
    public: Annotated[Path, typer.Option("--public", metavar="FILE", help="The key set.")],
    json: Json = False,
) -> None:
    """Remove a key from a set: every token that it signed is then refused."""
    from lorogo_cli.tokens import key_files

    key_files.remove(key_id, public, as_json=json)


@app.command(cls=taking(ConnectOptions, log="info"))
def revoke(
    context: typer.Context,
    token_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The token's id (jti), as `lorogo token show` shows it."),
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="NAME", help="All existing tokens of this subject.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="The token in this file.")
    ] = None,
    lasting: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TIME",
            help="Drop the entry after this time, for example 30d; longer than the tokens' lifetime.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Refuse a token, or all tokens of a subject, everywhere and at once."""
    from lorogo_cli.tokens import revoke as revoking

    run(revoking.revoke, connection(context), token_id, subject, token_file, lasting, as_json=json)


@app.command(cls=taking(ConnectOptions, log="info"))
def complete(context: typer.Context, json: Json = False) -> None:
    """Accept tokens again after NATS and all servers lost the list of revoked tokens. Revoke again first."""
    from lorogo_cli.tokens import revoke as revoking

    run(revoking.complete, connection(context), as_json=json)
