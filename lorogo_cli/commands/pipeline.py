"""`lorogo pipeline ...`: document history as tables, on Spark. The work is in `pipeline_jobs.py`.

Exit codes: 0 all is well; 1 the job did its work and found something wrong (damage, a difference, a
document that is not whole); 2 it could not be done, with one sentence.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.connect.options import (
    NATS_DEFAULT,
    SEED_ENVIRONMENT,
    Json,
    Keys,
    Nats,
    NatsSeed,
    Verbose,
    no_password,
)

FOUND = 1

app = typer.Typer(
    no_args_is_help=True,
    help="Document history as tables, on Spark: ingest journals, ask SQL, report, audit, erase, export.",
)

Lake = Annotated[
    str,
    typer.Option(
        "--lake", metavar="DIR", envvar="LOROGO_LAKE", help="Where the tables are: a folder or a URL."
    ),
]
Journals = Annotated[
    list[str] | None,
    typer.Option(
        "--journal", metavar="DIR", help="A data folder, a journal, or an archive's URL; may be repeated."
    ),
]
Damaged = Annotated[str, typer.Option("--damaged", help="At a damaged segment: skip it and say so, or fail.")]
Documents = Annotated[
    list[str] | None, typer.Option("--document", metavar="ID", help="Only this one; may be repeated.")
]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="As of a time (2026-11-16T10:30) or an age (2d)."),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master; local[*] unless Spark was set up."),
]
Remote = Annotated[
    str | None, typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://host:15002.")
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
]


def _say_seed(file: Path | None) -> None:
    """Spark's workers find the seed where we do: the environment names its file, and nothing shows it."""
    if file is not None:
        os.environ.pop(SEED_ENVIRONMENT, None)
        os.environ[f"{SEED_ENVIRONMENT}_FILE"] = str(file.absolute())


def _leave(whole: bool) -> None:
    if not whole:
        raise typer.Exit(FOUND)


@app.command()
def ingest(
    journal: Journals = None,
    lake: Lake = "lake",
    damaged: Damaged = "skip",
    buckets: Annotated[
        int | None, typer.Option("--buckets", help="Of a new lake: more for more documents (16).")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="With --follow: how often to look.")
    ] = 10.0,
    nats: Annotated[
        str | None,
        typer.Option(
            "--nats",
            metavar="URL",
            callback=no_password,
            help="Take what JetStream holds now, too (or only that).",
        ),
    ] = None,
    nats_seed: NatsSeed = None,
    json: Json = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Read journals into the tables updates, events and answers: what is new, each fact once."""
    _say_seed(nats_seed)
    from lorogo_cli.commands import pipeline_jobs as jobs

    door = jobs.JobOptions(lake, master, remote, conf or [], as_json=json, verbose=verbose)
    _leave(
        jobs.ingest(
            door,
            journal or [],
            nats=nats,
            damaged=damaged,
            buckets=buckets,
            every_seconds=every if follow else None,
        )
    )


@app.command()
def materialise(
    lake: Lake = "lake",
    as_of: AsOf = None,
    document: Documents = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="documents, changes; both unless said.")
    ] = None,
    json: Json = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Fold updates into the tables documents and changes; what has not changed is not folded again."""
    from lorogo_cli.commands import pipeline_jobs as jobs

    door = jobs.JobOptions(lake, master, remote, conf or [], as_json=json, verbose=verbose)
    _leave(jobs.materialise(door, as_of=as_of, documents=document, tables=table))


@app.command()
def report(
    lake: Lake = "",
    journal: Journals = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
    tz: Annotated[
        str, typer.Option("--tz", metavar="ZONE", help="Days and hours of this time zone.")
    ] = "UTC",
    json: Json = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Write one HTML page with charts: activity, people, growth, latency. It opens without a network.

    With --journal, what is new there is ingested first; without --lake, into one that is thrown away.
    """
    from lorogo_cli.commands import pipeline_jobs as jobs

    door = jobs.JobOptions(lake, master, remote, conf or [], as_json=json, verbose=verbose)
    _leave(jobs.report(door, journal or [], out, tz))


@app.command()
def nightly(
    lake: Lake = "lake",
    journal: Journals = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
    tz: Annotated[
        str, typer.Option("--tz", metavar="ZONE", help="Days and hours of this time zone.")
    ] = "UTC",
    json: Json = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """What a night should do, on one Spark: ingest, erase what the journals call erased, fold, report.

    For cron and its like: what is found wrong (exit code 1) does not keep the rest from being done.
    """
    from lorogo_cli.commands import pipeline_jobs as jobs

    door = jobs.JobOptions(lake, master, remote, conf or [], as_json=json, verbose=verbose)
    _leave(jobs.nightly(door, journal or [], out, tz))


@app.command()
def audit(
    journal: Journals = None,
    nats: Nats = NATS_DEFAULT,
    nats_seed: NatsSeed = None,
    through_servers: Annotated[
        bool,
        typer.Option("--through-servers", help="Start documents that nobody serves, and ask their owners."),
    ] = False,
    scratch: Annotated[
        Path | None,
        typer.Option("--scratch", metavar="DIR", help="For temporary files, as large as the journals."),
    ] = None,
    json: Json = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Replay the journals, and compare every document with what is served. Exit 1 if anything differs."""
    _say_seed(nats_seed)
    from lorogo_cli.commands import pipeline_jobs as jobs

    door = jobs.JobOptions("", master, remote, conf or [], as_json=json, verbose=verbose)
    _leave(jobs.audit(door, journal or [], nats, through_servers=through_servers, scratch=scratch))


@app.command()
def compact(
    nats: Nats = NATS_DEFAULT,
    nats_seed: NatsSeed = None,
    keys: Keys = None,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Where the job keeps its own journal, for good.")
    ] = Path(".lorogo/server"),
    cold: Annotated[
        str,
        typer.Option("--cold", metavar="AGE", help="Documents without an edit for so long (1d, 12h, 0s)."),
    ] = "1d",
    document: Documents = None,
    batch: Annotated[
        int,
        typer.Option("--batch", min=1, max=50_000, help="Documents held at once, until one purge for all."),
    ] = 500,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compact the documents that nobody has edited for long: snapshot each, purge the WAL once.

    On a closed NATS it needs a server's seed and the keys that verify tokens, as `lorogo serve` does.
    """
    _say_seed(nats_seed)
    from lorogo_cli.commands import pipeline_jobs as jobs

    _leave(
        jobs.compact(
            nats,
            data,
            cold,
            document or [],
            keys=keys,
            batch=batch,
            dry_run=dry_run,
            as_json=json,
            verbose=verbose,
        )
    )


@app.command()
def erase(
    lake: Lake = "lake",
    document: Annotated[
        list[str] | None, typer.Option("--document", metavar="ID", help="This one, too; may be repeated.")
    ] = None,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Also if the lake has nothing of it: keep it out from now on.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Take what the journals call erased, and what is named, out of every table and file; prints the proof.

    It is for good: no ingest brings an erased document back into this lake.
    """
    from lorogo_cli.commands import pipeline_jobs as jobs

    door = jobs.JobOptions(lake, master, remote, conf or [], as_json=json, verbose=verbose)
    _leave(jobs.erase(door, document or [], unknown=unknown, yes=yes))


@app.command()
def export(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A file; of Markdown a folder.")],
    lake: Lake = "lake",
    format: Annotated[  # noqa: A002 - the option's name
        str, typer.Option("--format", help="jsonl, markdown or parquet.")
    ] = "jsonl",
    as_of: AsOf = None,
    document: Documents = None,
    json: Json = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Write documents as JSON lines, Markdown or Parquet; folds first what is not folded yet."""
    from lorogo_cli.commands import pipeline_jobs as jobs

    door = jobs.JobOptions(lake, master, remote, conf or [], as_json=json, verbose=verbose)
    _leave(jobs.export(door, out, format, as_of=as_of, documents=document))


@app.command()
def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="select ... from updates, documents, ...")],
    lake: Lake = "lake",
    rows: Annotated[int, typer.Option("--rows", min=1, max=100_000, help="Show no more than so many.")] = 100,
    json: Json = False,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Ask the tables: updates, events, changes, documents, documents_as_of, answers."""
    from lorogo_cli.commands import pipeline_jobs as jobs

    door = jobs.JobOptions(lake, master, remote, conf or [], as_json=json, verbose=verbose)
    jobs.sql(door, query, rows)


@app.command()
def prepare(verbose: Verbose = False) -> None:
    """Make Spark start in half the time on this machine: once, for most of a minute and 190 MB."""
    from lorogo_cli.commands import pipeline_jobs as jobs

    jobs.prepare(verbose=verbose)
