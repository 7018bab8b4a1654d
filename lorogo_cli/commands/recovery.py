"""`lorogo restore`: its options."""

from dataclasses import dataclass
from typing import Annotated

import typer

from lorogo_cli.connect.options import ConnectOptions, Json, Scratch
from lorogo_cli.connect.runtime import run


@dataclass(frozen=True, kw_only=True)
class RestoreOptions(ConnectOptions):
    """Options of the restore."""

    journal: Annotated[
        list[str],
        typer.Option(
            "--journal", metavar="DIR", help="A data folder, a journal, or an archive's URL; may be repeated."
        ),
    ]
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="State at a time (2026-11-16T10:30; local without a zone such as Z) or age (5m).",
        ),
    ] = None
    document: Annotated[str, typer.Option("--document", metavar="ID", help="Only this document.")] = ""
    to: Annotated[
        str, typer.Option("--to", metavar="ID", help="With --document: restore it under this new id.")
    ] = ""
    merge: Annotated[
        bool, typer.Option("--merge", help="NATS already has documents: add the missing ones.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and rebuild everything, write nothing.")
    ] = False
    scratch: Scratch = None
    json: Json = False


def restore(context: typer.Context) -> bool:
    """Rebuild documents from journals and archives on a NATS that lost them, and verify the result.

    Existing documents are not overwritten. To undo the deletion of a document, use `lorogo doc restore`.
    Exit code 1: something is missing, the rest was restored.
    """
    from lorogo_cli.commands import restore as work

    return run(work.restore, context.obj)
