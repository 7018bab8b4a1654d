"""`lorogo log ...`: what an operator asks of a log's directory. The work is in `ls.py` and its neighbours.

Exit codes, the same for all: 0 all is well; 1 something in the log is damaged, the rest was served; 2 it
could not be done, with one sentence (with --json also as {"error": ...} on stdout). Only `repair --apply`
changes anything; every other command may run while another process writes.
"""

from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.connect.options import Json

DAMAGED = 1

app = typer.Typer(
    no_args_is_help=True, help="Look into a commit log's directory: list, check, print, mend, export."
)

Dir = Annotated[Path, typer.Argument(metavar="DIR", help="The log's directory.", show_default=False)]
FromSeq = Annotated[int | None, typer.Option("--from-seq", metavar="N", min=0, help="From this sequence on.")]
FromTime = Annotated[
    str | None,
    typer.Option(
        "--from-time", metavar="WHEN", help="From a time (2026-11-16T10:30), an age (10m) or ns on."
    ),
]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only records with this key.")]
KeyBase64 = Annotated[
    str | None, typer.Option("--key-base64", metavar="KEY", help="The key, if it is not text.")
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=0, help="No more than so many.")]


def _leave(whole: bool) -> None:
    if not whole:
        raise typer.Exit(DAMAGED)


@app.command()
def ls(directory: Dir, json: Json = False) -> None:
    """List the segments: sequences, times, records, size, state.

    Sealed segments are believed by their footers; only one that is not sealed is read. `verify` reads all.
    """
    from lorogo_cli.log.errors import translated

    with translated(directory, as_json=json):
        from lorogo_cli.log import ls as log_ls

        whole = log_ls.ls(directory, as_json=json)
    _leave(whole)


@app.command()
def verify(
    directory: Dir,
    no_gaps: Annotated[
        bool,
        typer.Option("--no-gaps", help="A missing segment is damage too: for a log that is never cleaned."),
    ] = False,
    json: Json = False,
) -> None:
    """Read everything and check it; says what is wrong, where, and what is still served.

    Exit code 0: all is good. 1: damage was found. 2: something could not be read at all.
    """
    from lorogo_cli.log.errors import translated

    with translated(directory, as_json=json):
        from lorogo_cli.log import verify as log_verify

        whole = log_verify.verify(directory, no_gaps=no_gaps, as_json=json)
    _leave(whole)


@app.command()
def dump(
    directory: Dir,
    from_seq: FromSeq = None,
    from_time: FromTime = None,
    key: Key = None,
    key_base64: KeyBase64 = None,
    limit: Limit = None,
    json: Annotated[bool, typer.Option("--json", help="Whole values also in a terminal.")] = False,
) -> None:
    """Print records as JSON lines: sequence, time, key, value.

    Bytes are {"$bytes": base64}; in a terminal long ones are cut short. Damage is told on stderr and the
    rest is printed; the exit code is then 1.
    """
    from lorogo_cli.log.errors import translated

    with translated(directory, as_json=json):
        from lorogo_cli.log import read

        wanted = read.wanted(from_seq, from_time, key, key_base64, limit)
        whole = read.dump(directory, wanted, as_json=json)
    _leave(whole)


@app.command()
def tail(
    directory: Dir,
    count: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many of the last records.")] = 10,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as records come.")] = False,
    key: Key = None,
    key_base64: KeyBase64 = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines, as `dump` prints them.")] = False,
) -> None:
    """Print the last records; with -f also those that come, until Ctrl-C."""
    from lorogo_cli.log.errors import translated

    with translated(directory, as_json=json):
        from lorogo_cli.log import read

        wanted = read.wanted(None, None, key, key_base64, None)
        whole = read.tail(directory, count, wanted, follow=follow, as_json=json)
    _leave(whole)


@app.command()
def repair(
    directory: Dir,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without this nothing is changed.")] = False,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Rewrite damaged segments from what is good in them.")
    ] = False,
    replica: Annotated[
        str | None, typer.Option("--from", metavar="HOST:PORT", help="Fetch damaged segments from a replica.")
    ] = None,
    fill_gaps: Annotated[
        bool, typer.Option("--fill-gaps", help="With --from: fetch segments that are missing here, too.")
    ] = False,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            "--secret-file",
            metavar="FILE",
            help="The replicas' secret; else it is taken from LOROGO_LOG_SECRET.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Say what would mend the log; with --apply, mend it.

    A half-written tail is cut (unless --from finds more of it) and open segments are sealed, as the next
    writer would do. Damaged segments are left as they are, unless --from or --salvage is given. Whatever is
    cut or replaced is kept in a .broken file. No other process may write to the log meanwhile. Exit code 1:
    damage is left.
    """
    from lorogo_cli.log.errors import translated

    with translated(directory, as_json=json):
        from lorogo_cli.log import repair as log_repair

        secret = log_repair.secret_of(secret_file) if replica is not None else None
        wish = log_repair.RepairOptions(apply, salvage, replica, fill_gaps, secret)
        whole = log_repair.repair(directory, wish, as_json=json)
    _leave(whole)


@app.command()
def export(
    directory: Dir,
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE.parquet", help="Where to; - is stdout, to pipe it.")
    ],
    from_seq: FromSeq = None,
    from_time: FromTime = None,
    key: Key = None,
    key_base64: KeyBase64 = None,
    limit: Limit = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    json: Json = False,
) -> None:
    """Write records to a Parquet file: sequence, time, key, value (msgpack).

    The file appears whole or not at all; what goes to stdout is whole if the exit code is 0. Needs pyarrow.
    """
    from lorogo_cli.log.errors import translated

    with translated(directory, as_json=json):
        from lorogo_cli.log import export as log_export
        from lorogo_cli.log import read

        wanted = read.wanted(from_seq, from_time, key, key_base64, limit)
        whole = log_export.export(directory, to, wanted, force=force, as_json=json)
    _leave(whole)


@app.command()
def ship(
    directory: Dir,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to: file:///..., s3://...")],
    server: Annotated[
        str, typer.Option("--server", metavar="ID", help="Whose journal it is, where that is not known.")
    ] = "",
    json: Json = False,
) -> None:
    """Copy sealed segments to an archive, read them back, and leave out what is there already.

    DIR is a server's data folder, a journal, or one partition. May be broken off and run again. Exit code
    1: a segment that is open or damaged was not copied.
    """
    from lorogo_cli.log.errors import translated

    with translated(directory):
        from lorogo_cli.log import ship as log_ship

        whole = log_ship.ship(directory, url, server=server, as_json=json)
    _leave(whole)
