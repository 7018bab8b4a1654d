"""`lorogo pipeline ...`: document history as tables, on Spark. The work is in `pipeline_jobs.py`.

Exit codes: 0 success; 1 the job finished and found a problem (damage, a difference, an incomplete document);
2 the job could not run, with one sentence.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.connect.options import ConnectOptions, Json, Keys, Scratch, VerboseOptions, no_password
from lorogo_cli.connect.shared_options import taking

app = typer.Typer(
    no_args_is_help=True,
    help="Document history as tables, on Spark: ingest, query with SQL, report, audit, erase, export.",
)

Lake = Annotated[
    str, typer.Option("--lake", metavar="DIR", envvar="LOROGO_LAKE", help="The tables: a folder or a URL.")
]
Journals = Annotated[
    list[str] | None,
    typer.Option(
        "--journal", metavar="DIR", help="A data folder, a journal, or an archive's URL; may be repeated."
    ),
]
Damaged = Annotated[
    str, typer.Option("--damaged", help="At a damaged segment: skip (with a warning), or fail.")
]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="The report's file.")]
Zone = Annotated[str, typer.Option("--tz", metavar="ZONE", help="Time zone of days and hours in the report.")]
Documents = Annotated[
    list[str] | None, typer.Option("--document", metavar="ID", help="Only this document; may be repeated.")
]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="TIME",
        help="State at a time (2026-11-16T10:30; local without a zone such as Z) or age (2d).",
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master; local[*] unless Spark is configured."),
]
Remote = Annotated[
    str | None, typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://host:15002.")
]
LiveNats = Annotated[
    str,
    typer.Option(
        "--nats",
        metavar="URL",
        callback=no_password,
        show_default=False,
        help="Ingest the records that JetStream holds, in addition to journals or alone.",
    ),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
]


@dataclass(frozen=True, kw_only=True)
class JobOptions(VerboseOptions):
    """Options of every job on Spark."""

    json: Json = False
    master: Master = None
    remote: Remote = None
    conf: Conf = None


@dataclass(frozen=True, kw_only=True)
class LakeOptions(JobOptions):
    """Options of jobs on a lake."""

    lake: Lake = "lake"


@dataclass(frozen=True, kw_only=True)
class ReportOptions(LakeOptions):
    """Options of the report, which needs no lake."""

    lake: Lake = ""


@dataclass(frozen=True, kw_only=True)
class IngestOptions(ConnectOptions, LakeOptions):
    """Options of the ingest, which reads NATS only if its address is given."""

    nats: LiveNats = ""


@dataclass(frozen=True, kw_only=True)
class AuditOptions(ConnectOptions, JobOptions):
    """Options of the audit, which compares with the documents that NATS has."""


@dataclass(frozen=True, kw_only=True)
class CompactOptions(ConnectOptions):
    """Options of the compaction, which runs without Spark."""

    json: Json = False


@app.command(cls=taking(IngestOptions))
def ingest(
    context: typer.Context,
    journal: Journals = None,
    damaged: Damaged = "skip",
    buckets: Annotated[
        int | None, typer.Option("--buckets", help="Buckets of a new lake: more for more documents (16).")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep ingesting new records until Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="With --follow: time between reads.")
    ] = 10.0,
) -> bool:
    """Read journals into the tables updates, events and answers: only new records, each once."""
    from lorogo_cli.pipeline import pipeline_jobs as jobs

    pause = every if follow else None
    return jobs.ingest(context.obj, journal or [], damaged=damaged, buckets=buckets, every_seconds=pause)


@app.command(cls=taking(LakeOptions))
def materialise(
    context: typer.Context,
    as_of: AsOf = None,
    document: Documents = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", help="documents or changes; default: both.")
    ] = None,
) -> bool:
    """Fold updates into the tables documents and changes; unchanged documents are not folded again."""
    from lorogo_cli.pipeline import pipeline_jobs as jobs

    return jobs.materialise(context.obj, as_of=as_of, documents=document, tables=table)


@app.command(cls=taking(ReportOptions))
def report(
    context: typer.Context,
    journal: Journals = None,
    out: Out = Path("report.html"),
    tz: Zone = "UTC",
) -> bool:
    """Write one HTML page with charts of activity, people, growth and latency. The page needs no network.

    With --journal, new records are ingested first; without --lake, into a temporary lake.
    """
    from lorogo_cli.pipeline import pipeline_jobs as jobs

    return jobs.report(context.obj, journal or [], out, tz)


@app.command(cls=taking(LakeOptions))
def nightly(
    context: typer.Context,
    journal: Journals = None,
    out: Out = Path("report.html"),
    tz: Zone = "UTC",
) -> bool:
    """Run the nightly jobs in one Spark session: ingest, erase what journals mark as erased, fold, report.

    Made for cron: a problem in one job (exit code 1) does not stop the other jobs.
    """
    from lorogo_cli.pipeline import pipeline_jobs as jobs

    return jobs.nightly(context.obj, journal or [], out, tz)


@app.command(cls=taking(AuditOptions))
def audit(
    context: typer.Context,
    journal: Journals = None,
    through_servers: Annotated[
        bool,
        typer.Option(
            "--through-servers", help="Start documents that no server owns, and query their owners."
        ),
    ] = False,
    scratch: Scratch = None,
) -> bool:
    """Replay the journals, and compare every document with the served one. Exit code 1: a difference."""
    from lorogo_cli.pipeline import pipeline_jobs as jobs

    return jobs.audit(context.obj, journal or [], through_servers=through_servers, scratch=scratch)


@app.command(cls=taking(CompactOptions))
def compact(
    context: typer.Context,
    keys: Keys = None,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Permanent folder for the job's own journal.")
    ] = Path(".lorogo/server"),
    cold: Annotated[
        str,
        typer.Option("--cold", metavar="AGE", help="Documents without an edit for this long (1d, 12h, 0s)."),
    ] = "1d",
    document: Documents = None,
    batch: Annotated[
        int,
        typer.Option("--batch", min=1, max=50_000, help="Documents owned at once, until one purge for all."),
    ] = 500,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing.")] = False,
) -> bool:
    """Compact documents without recent edits: write a snapshot of each, then purge the WAL once.

    On a closed NATS the job needs a server's seed and the keys that verify tokens, like `lorogo serve`.
    """
    from lorogo_cli.pipeline import pipeline_jobs as jobs

    return jobs.compact(context.obj, data, cold, document or [], keys=keys, batch=batch, dry_run=dry_run)


@app.command(cls=taking(LakeOptions))
def erase(
    context: typer.Context,
    document: Annotated[
        list[str] | None,
        typer.Option("--document", metavar="ID", help="Also erase this document; may be repeated."),
    ] = None,
    unknown: Annotated[
        bool,
        typer.Option(
            "--unknown", help="Accept documents that the lake does not have: no ingest adds them later."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Erase without confirmation.")] = False,
) -> bool:
    """Remove erased and named documents from every table and file, and print a verification.

    Permanent: no ingest adds an erased document to this lake again.
    """
    from lorogo_cli.pipeline import pipeline_jobs as jobs

    return jobs.erase(context.obj, document or [], unknown=unknown, yes=yes)


@app.command(cls=taking(LakeOptions))
def export(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A file; for Markdown a folder.")],
    format: Annotated[  # noqa: A002 - the option's name
        str, typer.Option("--format", help="jsonl, markdown or parquet.")
    ] = "jsonl",
    as_of: AsOf = None,
    document: Documents = None,
) -> bool:
    """Write documents as JSON lines, Markdown or Parquet; new updates are folded first."""
    from lorogo_cli.pipeline import pipeline_jobs as jobs

    return jobs.export(context.obj, out, format, as_of=as_of, documents=document)


@app.command(cls=taking(LakeOptions))
def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="select ... from updates, documents, ...")],
    rows: Annotated[
        int, typer.Option("--rows", min=1, max=100_000, help="Show at most this many rows.")
    ] = 100,
) -> None:
    """Query the tables updates, events, changes, documents, documents_as_of and answers."""
    from lorogo_cli.pipeline import pipeline_jobs as jobs

    jobs.sql(context.obj, query, rows)


@app.command(cls=taking(VerboseOptions))
def prepare() -> None:
    """Halve the start time of Spark on this machine. Run it once: it takes up to a minute and 190 MB."""
    from lorogo_cli.pipeline import pipeline_jobs as jobs

    jobs.prepare()
