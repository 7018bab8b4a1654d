"""`lorogo doc ...`: commands for one document. The work is in `reads.py`, `writes.py` and `edit.py`."""

from typing import Annotated

import typer

from lorogo_cli.connect.options import At, ClientOptions, DocumentId, Json
from lorogo_cli.connect.runtime import run
from lorogo_cli.connect.shared_options import connection, taking
from lorogo_cli.render.confirmation import confirm

app = typer.Typer(no_args_is_help=True, help="Read and change documents.")

Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH...", help="title, tasks.0.done, /tasks/0/done, or JSONPath: '$.tasks[*].what'."
    ),
]
# `-10m` is an age, not an option
_AGES = {"ignore_unknown_options": True}


@app.command(cls=taking(ClientOptions))
def get(
    context: typer.Context,
    document: DocumentId,
    paths: Paths = None,
    at: At = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print text without quotes.")] = False,
    json: Json = False,
) -> None:
    """Print a document or parts of it as JSON, at present or at an earlier version."""
    from lorogo_cli.doc import reads

    run(reads.get, connection(context), document, paths or [], at, raw=raw, as_json=json)


@app.command("set", cls=taking(ClientOptions))
def set_(
    context: typer.Context,
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
) -> None:
    """Set a value in a document; a missing document and missing maps on the path are created.

    The top level of a document holds texts, maps and lists: a string becomes a collaborative text, and a
    number must go inside a map.
    """
    from lorogo_cli.doc import writes

    run(writes.set_value, connection(context), document, path, value, as_json=json)


@app.command(cls=taking(ClientOptions))
def edit(context: typer.Context, document: DocumentId, json: Json = False) -> None:
    """Edit a document as JSON in your $EDITOR; only your changes are sent."""
    from lorogo_cli.doc import edit as editing

    run(editing.edit, connection(context), document, as_json=json)


@app.command(cls=taking(ClientOptions))
def watch(context: typer.Context, document: DocumentId, json: Json = False) -> None:
    """Print edits as they arrive, until Ctrl-C."""
    from lorogo_cli.doc import reads

    run(reads.watch, connection(context), document, as_json=json)


@app.command(cls=taking(ClientOptions))
def history(
    context: typer.Context,
    document: DocumentId,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, help="Number of versions, newest first.")
    ] = 100,
    json: Json = False,
) -> None:
    """List the versions that `--at` and `revert` accept."""
    from lorogo_cli.doc import reads

    run(reads.history, connection(context), document, limit, as_json=json)


@app.command(context_settings=_AGES, cls=taking(ClientOptions))
def revert(
    context: typer.Context,
    document: DocumentId,
    when: Annotated[
        str,
        typer.Argument(
            metavar="WHEN", help="A version (v...), a time (local without a zone such as Z), or an age (10m)."
        ),
    ],
    json: Json = False,
) -> None:
    """Restore an earlier version of a document, as a new change."""
    from lorogo_cli.doc import writes

    run(writes.revert, connection(context), document, when, as_json=json)


@app.command(cls=taking(ClientOptions))
def fork(
    context: typer.Context,
    document: DocumentId,
    to: Annotated[str, typer.Argument(metavar="NEW", help="Id of the new document; it must not exist.")],
    at: At = None,
    json: Json = False,
) -> None:
    """Copy a document to a new one, from its present or an earlier version."""
    from lorogo_cli.doc import writes

    run(writes.fork, connection(context), document, to, at, as_json=json)


@app.command(cls=taking(ClientOptions))
def export(
    context: typer.Context,
    document: DocumentId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Output file; - for stdout.")],
    at: At = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a document to a file as a Loro snapshot with its history."""
    from lorogo_cli.doc import reads

    run(reads.export, connection(context), document, file, at, force=force)


@app.command("import", cls=taking(ClientOptions))
def import_(
    context: typer.Context,
    document: DocumentId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A Loro snapshot; - for stdin.")],
    json: Json = False,
) -> None:
    """Import a Loro snapshot into a new or empty document."""
    from lorogo_cli.doc import writes

    run(writes.import_, connection(context), document, file, as_json=json)


@app.command(cls=taking(ClientOptions))
def delete(
    context: typer.Context,
    document: DocumentId,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without confirmation.")] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Erase it permanently, also from journals and archives.")
    ] = False,
    json: Json = False,
) -> None:
    """Delete a document. It stays deleted, for offline clients too, until it is restored."""
    if not yes:
        question = f"Erase {document} permanently?" if purge else f"Delete {document}?"
        confirm(question, f"delete {document}", f"{document} was not deleted")
    from lorogo_cli.doc import writes

    run(writes.delete, connection(context), document, purge=purge, as_json=json)


@app.command(cls=taking(ClientOptions))
def restore(context: typer.Context, document: DocumentId, json: Json = False) -> None:
    """Restore a deleted document."""
    from lorogo_cli.doc import writes

    run(writes.restore, connection(context), document, as_json=json)
