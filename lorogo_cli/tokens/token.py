"""`lorogo token ...`: mint, show and revoke tokens, and keep their keys."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.connect.options import NATS_DEFAULT, Json, Nats, NatsSeed, Verbose
from lorogo_cli.connect.runtime import run
from lorogo_cli.render.logs import configure

app = typer.Typer(no_args_is_help=True, help="Tokens: who may do what, for how long (docs/SECURITY.md).")
keys_app = typer.Typer(
    no_args_is_help=True,
    help="The keys that mint tokens, and the set of those that verify them.\n\n"
    "A key is replaced without anybody noticing: `keys new` makes the next one and adds its public part to"
    " the set, which serve, gateway and auth read again within seconds. Once all of them have it, mint with"
    " the new key. When the last token of the old one has ended, `keys remove` it.\n\n"
    "If a key was stolen, remove it at once: every token that it signed is refused from then on.",
)
app.add_typer(keys_app, name="keys")


class KeyAlgorithm(StrEnum):
    """Kinds of keys."""

    EDDSA = "EdDSA"
    HS256 = "HS256"


@app.command()
def mint(
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The key that mints (private).")],
    subject: Annotated[str, typer.Option("--subject", metavar="NAME", help="Whose token it is.")],
    grant: Annotated[
        list[str],
        typer.Option(
            "--grant",
            metavar="ID=ACCESS",
            help="read, write or admin on a document or a pattern: 'minutes-*=write'; may be repeated.",
        ),
    ],
    expires: Annotated[str, typer.Option("--expires", metavar="TIME", help="After 90s, 8h, 30d.")],
    token_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="To revoke it by; random unless it is given.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write it there, for you alone to read, not to stdout."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Mint a token, and print it and nothing else."""
    configure(verbose=verbose)
    from lorogo_cli.tokens import mint as minting

    minting.mint(key, subject=subject, grants=grant, expires=expires, token_id=token_id, out=out)


@app.command()
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
            "--keys", metavar="FILE", help="Verify it with this key set (or LOROGO_KEYS, LOROGO_KEYS_FILE)."
        ),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show what a token says, and with --keys whether it is good. Exit code 1: it is not."""
    configure(verbose=verbose)
    from lorogo_cli.tokens import mint as minting

    if not minting.show(token_file, keys, as_json=json):
        raise typer.Exit(1)


@keys_app.command("new")
def keys_new(
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="For the key that mints: a new file, private.")
    ],
    public: Annotated[
        Path | None,
        typer.Option(
            "--public", metavar="FILE", help="The key set that gets its public part; made if it is not there."
        ),
    ] = None,
    kind: Annotated[
        KeyAlgorithm,
        typer.Option("--kind", help="EdDSA: who verifies cannot mint. HS256: one secret for both."),
    ] = KeyAlgorithm.EDDSA,
    key_id: Annotated[
        str | None, typer.Option("--id", metavar="KID", help="Its name; random unless it is given.")
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Make a new key, and add its public part to a key set."""
    configure(verbose=verbose)
    from lorogo_cli.tokens import key_files

    key_files.new(out, public, kind=kind.value, key_id=key_id, as_json=json)


@keys_app.command("show")
def keys_show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A key set, or one key.")],
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show which keys are in a file; never the keys themselves."""
    configure(verbose=verbose)
    from lorogo_cli.tokens import key_files

    key_files.show(file, as_json=json)


@keys_app.command("remove")
def keys_remove(
    key_id: Annotated[str, typer.Argument(metavar="KID", help="The key's name.")],
    public: Annotated[Path, typer.Option("--public", metavar="FILE", help="The key set.")],
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Remove a key from a set: every token that it signed is refused from then on."""
    configure(verbose=verbose)
    from lorogo_cli.tokens import key_files

    key_files.remove(key_id, public, as_json=json)


@app.command()
def revoke(
    token_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The token's id (jti), as `lorogo token show` shows it."),
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="NAME", help="All tokens that this subject has now.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="The token that is in this file.")
    ] = None,
    lasting: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="Forget it after 30d, say: longer than any such token lasts."
        ),
    ] = None,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Refuse a token, or all that somebody has, everywhere and at once, before its time."""
    configure("info", verbose=verbose)
    from lorogo_cli.tokens import revoke as revoking

    run(revoking.revoke, nats, nats_seed, token_id, subject, token_file, lasting, as_json=json)


@app.command()
def complete(
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Accept tokens again after NATS lost the list of revoked ones and no server has a copy: revoke first."""
    configure("info", verbose=verbose)
    from lorogo_cli.tokens import revoke as revoking

    run(revoking.complete, nats, nats_seed, as_json=json)
