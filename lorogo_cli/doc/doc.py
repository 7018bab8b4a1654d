"""`lorogo doc ...`: commands for one document. The work is in `reads.py`, `writes.py` and `edit.py`."""

import sys
from typing import Annotated

import typer

from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.connect.options import NATS_DEFAULT, At, DocumentId, Json, Nats, NatsSeed, TokenFile, Verbose
from lorogo_cli.connect.runtime import run
from lorogo_cli.errors import CommandError
from lorogo_cli.render.logs import configure

app = typer.Typer(no_args_is_help=True, help="Read and change documents.")

Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH...", help="title, tasks.0.done, /tasks/0/done, or JSONPath: '$.tasks[*].what'."
    ),
]
# `-10m` is an age, not an option
_AGES = {"ignore_unknown_options": True}


@app.command()
def get(
    document: DocumentId,
    paths: Paths = None,
    at: At = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print text without quotes.")] = False,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Print a document or parts of it as JSON, at present or at an earlier version."""
    configure(verbose=verbose)
    from lorogo_cli.doc import reads

    run(
        reads.get,
        ConnectionOptions.of(nats, token_file, nats_seed),
        document,
        paths or [],
        at,
        raw=raw,
        as_json=json,
    )


@app.command("set")
def set_(
    document: DocumentId,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="title, tasks.0.done, or /tasks/0/done; tasks.- appends to a list."
        ),
    ],
    value: Annotated[
        str, typer.Argument(metavar="JSON", help="The value: '\"text\"', 3, '{\"done\": true}'.")
    ],
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Set a value in a document; a missing document and missing maps on the path are created.

    The top level of a document holds texts, maps and lists: a string becomes a collaborative text, and a
    number must go inside a map.
    """
    configure(verbose=verbose)
    from lorogo_cli.doc import writes

    run(
        writes.set_value,
        ConnectionOptions.of(nats, token_file, nats_seed),
        document,
        path,
        value,
        as_json=json,
    )


@app.command()
def edit(
    document: DocumentId,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Edit a document as JSON in your $EDITOR; only your changes are sent."""
    configure(verbose=verbose)
    from lorogo_cli.doc import edit as editing

    run(editing.edit, ConnectionOptions.of(nats, token_file, nats_seed), document, as_json=json)


@app.command()
def watch(
    document: DocumentId,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Print edits as they arrive, until Ctrl-C."""
    configure(verbose=verbose)
    from lorogo_cli.doc import reads

    run(reads.watch, ConnectionOptions.of(nats, token_file, nats_seed), document, as_json=json)


@app.command()
def history(
    document: DocumentId,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, help="Number of versions, newest first.")
    ] = 100,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """List the versions that `--at` and `revert` accept."""
    configure(verbose=verbose)
    from lorogo_cli.doc import reads

    run(reads.history, ConnectionOptions.of(nats, token_file, nats_seed), document, limit, as_json=json)


@app.command(context_settings=_AGES)
def revert(
    document: DocumentId,
    when: Annotated[
        str,
        typer.Argument(
            metavar="WHEN", help="A version (v...), a time (local without a zone such as Z), or an age (10m)."
        ),
    ],
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Restore an earlier version of a document, as a new change."""
    configure(verbose=verbose)
    from lorogo_cli.doc import writes

    run(writes.revert, ConnectionOptions.of(nats, token_file, nats_seed), document, when, as_json=json)


@app.command()
def fork(
    document: DocumentId,
    to: Annotated[str, typer.Argument(metavar="NEW", help="Id of the new document; it must not exist.")],
    at: At = None,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Copy a document to a new one, from its present or an earlier version."""
    configure(verbose=verbose)
    from lorogo_cli.doc import writes

    run(writes.fork, ConnectionOptions.of(nats, token_file, nats_seed), document, to, at, as_json=json)


@app.command()
def export(
    document: DocumentId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Output file; - for stdout.")],
    at: At = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Write a document to a file as a Loro snapshot with its history."""
    configure(verbose=verbose)
    from lorogo_cli.doc import reads

    run(reads.export, ConnectionOptions.of(nats, token_file, nats_seed), document, file, at, force=force)


@app.command("import")
def import_(
    document: DocumentId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A Loro snapshot; - for stdin.")],
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Import a Loro snapshot into a new or empty document."""
    configure(verbose=verbose)
    from lorogo_cli.doc import writes

    run(writes.import_, ConnectionOptions.of(nats, token_file, nats_seed), document, file, as_json=json)


@app.command()
def delete(
    document: DocumentId,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without confirmation.")] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Erase it permanently, also from journals and archives.")
    ] = False,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Delete a document. It stays deleted, for offline clients too, until it is restored."""
    configure(verbose=verbose)
    question = f"Erase {document} permanently?" if purge else f"Delete {document}?"
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise CommandError(f"stdin is not a terminal; pass --yes to delete {document}")
        if not typer.confirm(question, err=True):
            raise CommandError(f"{document} was not deleted")
    from lorogo_cli.doc import writes

    run(writes.delete, ConnectionOptions.of(nats, token_file, nats_seed), document, purge=purge, as_json=json)


@app.command()
def restore(
    document: DocumentId,
    json: Json = False,
    nats: Nats = NATS_DEFAULT,
    token_file: TokenFile = None,
    nats_seed: NatsSeed = None,
    verbose: Verbose = False,
) -> None:
    """Restore a deleted document."""
    configure(verbose=verbose)
    from lorogo_cli.doc import writes

    run(writes.restore, ConnectionOptions.of(nats, token_file, nats_seed), document, as_json=json)
