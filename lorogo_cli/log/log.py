"""`lorogo log ...`: commands for a log's directory. The work is in `ls.py` and the modules beside it.

Exit codes of all commands: 0 success; 1 the log is damaged, the undamaged part was served; 2 error, with one
sentence (with --json also as {"error": ...} on stdout). Only `repair --apply` changes files; every other
command can run while another process writes.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from lorogo_cli.connect.options import Json

app = typer.Typer(
    no_args_is_help=True, help="Inspect the directory of a commit log: list, verify, print, repair, export."
)

Dir = Annotated[Path, typer.Argument(metavar="DIR", help="The log's directory.", show_default=False)]
FromSeq = Annotated[
    int | None, typer.Option("--from-seq", metavar="N", min=0, help="Start at this sequence.")
]
FromTime = Annotated[
    str | None,
    typer.Option(
        "--from-time",
        metavar="WHEN",
        help="Start at a time (2026-11-16T10:30; local without a zone such as Z), an age (10m) or ns.",
    ),
]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only records with this key.")]
KeyBase64 = Annotated[
    str | None, typer.Option("--key-base64", metavar="KEY", help="The key in base64, if it is not text.")
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="At most this many records.")]


class LogCommand(TyperCommand):
    """A command on a log's directory: errors become one sentence, and damage exit code 1."""

    def invoke(self, context: Any) -> Any:
        """Run the command, which returns False if the log is damaged."""
        from lorogo_cli.log.errors import translated

        with translated(context.params["directory"], as_json=context.params["json"]):
            return super().invoke(context)


@app.command(cls=LogCommand)
def ls(directory: Dir, json: Json = False) -> bool:
    """List the segments: sequences, times, records, size, state.

    For sealed segments only the footer is read. `verify` reads and checks everything.
    """
    from lorogo_cli.log import ls as log_ls

    return log_ls.ls(directory, as_json=json)


@app.command(cls=LogCommand)
def verify(
    directory: Dir,
    no_gaps: Annotated[
        bool,
        typer.Option("--no-gaps", help="Treat a missing segment as damage: for a log without retention."),
    ] = False,
    json: Json = False,
) -> bool:
    """Read and check every segment; report damage, its place, and the records that are still served.

    Exit code 0: no damage. 1: damage was found. 2: a segment could not be read.
    """
    from lorogo_cli.log import verify as log_verify

    return log_verify.verify(directory, no_gaps=no_gaps, as_json=json)


@app.command(cls=LogCommand)
def dump(
    directory: Dir,
    from_seq: FromSeq = None,
    from_time: FromTime = None,
    key: Key = None,
    key_base64: KeyBase64 = None,
    limit: Limit = None,
    json: Annotated[bool, typer.Option("--json", help="Do not shorten values in a terminal.")] = False,
) -> bool:
    """Print records as JSON lines: sequence, time, key, value.

    Bytes are {"$bytes": base64}; a terminal shows long ones shortened. Damage is reported on stderr, the
    undamaged records are printed, and the exit code is 1.
    """
    from lorogo_cli.log import read

    wanted = read.wanted(from_seq, from_time, key, key_base64, limit)
    return read.dump(directory, wanted, as_json=json)


@app.command(cls=LogCommand)
def tail(
    directory: Dir,
    count: Annotated[int, typer.Option("-n", "--lines", min=0, help="Number of records.")] = 10,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new records.")] = False,
    key: Key = None,
    key_base64: KeyBase64 = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines, as `dump` prints them.")] = False,
) -> bool:
    """Print the last records; with -f also new ones, until Ctrl-C."""
    from lorogo_cli.log import read

    wanted = read.wanted(None, None, key, key_base64, None)
    return read.tail(directory, count, wanted, follow=follow, as_json=json)


@app.command(cls=LogCommand)
def repair(
    directory: Dir,
    apply: Annotated[
        bool, typer.Option("--apply", help="Apply the plan; without this nothing is changed.")
    ] = False,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Rewrite damaged segments from their undamaged records.")
    ] = False,
    replica: Annotated[
        str | None, typer.Option("--from", metavar="HOST:PORT", help="Fetch damaged segments from a replica.")
    ] = None,
    fill_gaps: Annotated[
        bool, typer.Option("--fill-gaps", help="With --from: also fetch segments that are missing here.")
    ] = False,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            "--secret-file",
            metavar="FILE",
            help="The replicas' secret; default: LOROGO_LOG_SECRET.",
        ),
    ] = None,
    json: Json = False,
) -> bool:
    """Show how the log can be repaired; with --apply, repair it.

    An incomplete tail is cut (unless --from fetches more of it) and open segments are sealed, as the next
    writer would do. Damaged segments stay unless --from or --salvage is given. Cut and replaced data is kept
    in a .broken file. No other process may write to the log meanwhile. Exit code 1: damage remains.
    """
    from lorogo_cli.log import repair as log_repair

    secret = log_repair.secret_of(secret_file) if replica is not None else None
    options = log_repair.RepairOptions(apply, salvage, replica, fill_gaps, secret)
    return log_repair.repair(directory, options, as_json=json)


@app.command(cls=LogCommand)
def export(
    directory: Dir,
    to: Annotated[Path, typer.Option("--to", metavar="FILE.parquet", help="Output file; - for stdout.")],
    from_seq: FromSeq = None,
    from_time: FromTime = None,
    key: Key = None,
    key_base64: KeyBase64 = None,
    limit: Limit = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    json: Json = False,
) -> bool:
    """Write records to a Parquet file: sequence, time, key, value (msgpack).

    The file is written atomically; output to stdout is complete if the exit code is 0. Needs pyarrow.
    """
    from lorogo_cli.log import export as log_export
    from lorogo_cli.log import read

    wanted = read.wanted(from_seq, from_time, key, key_base64, limit)
    return log_export.export(directory, to, wanted, force=force, as_json=json)


@app.command(cls=LogCommand)
def ship(
    directory: Dir,
    url: Annotated[str, typer.Argument(metavar="URL", help="The archive: file:///..., s3://...")],
    server: Annotated[
        str, typer.Option("--server", metavar="ID", help="Server id of the journal, if DIR does not have it.")
    ] = "",
    json: Json = False,
) -> bool:
    """Copy sealed segments to an archive and read them back; segments already in the archive are skipped.

    DIR is a server's data folder, a journal, or one partition. You can interrupt it and run it again. Exit
    code 1: an open or damaged segment was not copied.
    """
    from lorogo_cli.log import ship as log_ship

    return log_ship.ship(directory, url, server=server, as_json=json)
