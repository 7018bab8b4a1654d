"""What `lorogo pipeline ...` does: a session for the job, its progress, its result for people or as JSON."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lorogo_cli.connect.runtime import run as run_async
from lorogo_cli.doc.versions import parse_time
from lorogo_cli.errors import CommandError, brief
from lorogo_cli.log.errors import warn
from lorogo_cli.render.logs import configure
from lorogo_cli.render.output import progress_bar, say, say_json, say_table, working
from lorogo_cli.render.values import show_count, show_size

if TYPE_CHECKING:
    from lorogo_pipeline.jobs.erase import ErasureReport
    from lorogo_pipeline.jobs.ingest import IngestReport
    from lorogo_pipeline.jobs.materialise import MaterialiseReport
    from lorogo_pipeline.pipeline import Pipeline

_EXTRA = "pip install 'lorogo[pipeline]'"
_LOUD = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j", "py4j.clientserver")
_TOLD_MAX = 20  # of problems; --json has them all
_CELL_MAX = 120


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What every job is told."""

    lake: str
    master: str | None
    remote: str | None
    conf: Sequence[str]
    as_json: bool
    verbose: bool


@contextmanager
def _opened(door: JobOptions, **settings: Any) -> Iterator[Pipeline]:
    """The pipeline on a session that ends with the block; what is plainly wrong is said before it starts."""
    configure(verbose=door.verbose)
    with _installed():
        from lorogo_pipeline.pipeline import Settings, build
        from lorogo_pipeline.spark.session import open_session
    chosen = Settings(lake=door.lake, **settings)
    chosen.check()
    if not door.verbose:
        for name in _LOUD:  # PySpark prints errors that it raises as well
            logging.getLogger(name).setLevel(logging.CRITICAL)
    with _ended_in_order():
        with working("starting Spark"):
            session = open_session(
                master=door.master or "local[*]",
                remote=door.remote,
                conf=_conf(door.conf),
                quiet=not door.verbose,
            )
            spark = session.__enter__()
        try:
            with progress_bar() as progress:
                yield build(spark, chosen, progress=progress)
        finally:
            session.__exit__(*sys.exc_info())


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM ends the block like Ctrl-C: temporary folders, which hold documents, must not stay."""

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # once is enough; cleaning up is under way
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _installed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name.startswith("lorogo"):
            raise
        raise CommandError(f"the pipeline needs {name}: {_EXTRA}") from None


def _conf(settings: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{brief(text)} is no setting: write --conf spark.executor.memory=4g")
        found[key.strip()] = value
    return found


def _as_of(text: str | None) -> int | None:
    if text is None:
        return None
    now = time.time_ns()
    try:
        moment = parse_time(text, now_ns=now)
    except CommandError:
        raise CommandError(
            f"{brief(text)} is no time: write 2026-11-16T10:30, or 2d for as it was two days ago"
        ) from None
    if moment > now:
        raise CommandError(f"{brief(text)} has not come yet: nobody knows the documents as of then")
    return moment


# --- jobs ------------------------------------------------------------------------------------------


def ingest(
    door: JobOptions,
    journals: Sequence[str],
    *,
    nats: str | None,
    damaged: str,
    buckets: int | None,
    every_seconds: float | None,
) -> bool:
    """True if nothing was damaged."""
    if not journals and nats is None:
        raise CommandError(
            "name a journal (--journal DIR), or a NATS to take the live stream from (--nats URL)"
        )
    if door.remote is not None and nats is not None and every_seconds is not None:
        raise CommandError("--follow with --nats needs a session of its own: leave out --remote")
    with _opened(
        door, journals=tuple(journals), buckets=buckets, damaged=damaged, makes_lake=True
    ) as pipeline:
        if every_seconds is not None:
            return _follow(door, pipeline, nats, every_seconds)
        done = pipeline.ingest() if journals else None
        if nats is not None:
            live = pipeline.ingest_stream(nats)
            done = live if done is None else done + live
        assert done is not None
        _show_ingested(door, done)
        return not done.damage


def _follow(door: JobOptions, pipeline: Pipeline, nats: str | None, every_seconds: float) -> bool:
    """Until Ctrl-C; a line for each time that something new came."""
    from lorogo_pipeline.errors import LakeBusy

    whole = True

    def told(done: IngestReport) -> None:
        nonlocal whole
        whole = whole and not done.damage
        if done.changed:
            _show_ingested(door, done)

    try:
        if nats is not None and not pipeline.settings.journals:
            pipeline.follow_stream(nats, every_seconds=every_seconds, on_batch=told)
        while True:
            try:
                told(pipeline.ingest())
                if nats is not None:
                    told(pipeline.ingest_stream(nats))
            except LakeBusy as error:  # somebody materialises: they take turns
                warn(f"{error}; looking again in {every_seconds:g}s")
            time.sleep(every_seconds)
    except KeyboardInterrupt:
        return whole


def _show_ingested(door: JobOptions, done: IngestReport) -> None:
    if door.as_json:
        say_json(done.to_json(), pretty=False)
        return
    say_table(
        [
            "SEGMENTS",
            "KNOWN BEFORE",
            "READ",
            "RECORDS",
            "NEW UPDATES",
            "NEW EVENTS",
            "NEW ANSWERS",
            "REPEATED",
        ],
        [
            [
                str(done.segments),
                str(done.known),
                show_size(done.bytes),
                str(done.records),
                str(done.updates),
                str(done.events),
                str(done.answers),
                str(done.repeated),
            ]
        ],
    )
    for count, what in (
        (
            done.erased,
            "rows of erased documents left out: `lorogo pipeline erase` removes what is left of them",
        ),
        (done.unknown, "records of kinds that a newer lorogo writes"),
        (done.malformed, "records that are none"),
    ):
        if count:
            warn(f"{count} {what}")
    _tell("damaged, the rest was read", done.damage)


def _tell(what: str, problems: Sequence[str]) -> None:
    for words in problems[:_TOLD_MAX]:
        warn(f"{what}: {words}")
    if len(problems) > _TOLD_MAX:
        warn(f"and {len(problems) - _TOLD_MAX} more (--json has them all)")


def materialise(
    door: JobOptions, *, as_of: str | None, documents: list[str] | None, tables: list[str] | None
) -> bool:
    """True if every document is whole."""
    as_of_ns = _as_of(as_of)
    with _opened(door) as pipeline:
        from lorogo_pipeline.jobs.materialise import TARGETS

        done = pipeline.materialise(as_of_ns=as_of_ns, documents=documents, tables=tables or TARGETS)
    if door.as_json:
        say_json(done.to_json(), pretty=False)
    else:
        _show_materialised(done)
    return not done.incomplete


def _show_materialised(done: MaterialiseReport) -> None:
    say_table(
        [
            "AS OF",
            "FOLDED DOCUMENTS",
            "OF UPDATES",
            "CHANGES",
            "DELETED",
            "INCOMPLETE",
            "BUCKETS",
            "UNCHANGED",
            "TIME",
        ],
        [
            [
                done.as_of,
                str(done.documents),
                str(done.updates),
                str(done.changes),
                str(done.deleted),
                str(done.incomplete),
                str(done.buckets),
                str(done.unchanged),
                f"{done.seconds:.1f}s",
            ]
        ],
    )
    _tell("not whole", done.problems)


def report(door: JobOptions, journals: Sequence[str], out: Path, tz: str) -> bool:
    """True if nothing was damaged."""
    if not door.lake and not journals:
        raise CommandError("name a lake (--lake DIR), or journals to make one of (--journal DIR)")
    began = time.monotonic()
    named = "" if door.lake else ", ".join(journals)
    with TemporaryDirectory(prefix="lorogo-report-") as folder:
        place = JobOptions(
            door.lake or f"{folder}/lake", door.master, door.remote, door.conf, door.as_json, door.verbose
        )
        with _opened(place, journals=tuple(journals)) as pipeline:
            started = time.monotonic() - began
            damage = pipeline.ingest().damage if journals else []
            pipeline.materialise()
            page, facts = pipeline.report(now=datetime.now(UTC), tz=tz, problems=damage, name=named)
    _write_whole(out, page)
    size = len(page.encode())
    seconds = time.monotonic() - began
    if door.as_json:
        say_json(
            {"out": str(out), "bytes": size, "seconds": seconds, "start_up_seconds": started, **facts},
            pretty=False,
        )
    else:
        say(f"{out}: {show_size(size)}, made in {seconds:.1f}s ({started:.1f}s of it to start Spark)")
    _tell("damaged, the rest was read", damage)
    return not damage


def nightly(door: JobOptions, journals: Sequence[str], out: Path, tz: str) -> bool:
    """True if nothing was damaged, every document is whole, and what was to be erased is gone."""
    if not journals:
        raise CommandError("name the journals to read: --journal DIR, once for each server and archive")
    began = time.monotonic()
    with _opened(door, journals=tuple(journals), makes_lake=True) as pipeline:
        read = pipeline.ingest()
        gone = pipeline.erase()
        folded = pipeline.materialise()
        page, facts = pipeline.report(now=datetime.now(UTC), tz=tz, problems=read.damage)
    _write_whole(out, page)
    seconds = time.monotonic() - began
    if door.as_json:
        told = {
            "ingested": read.to_json(),
            "erased": gone.to_json(),
            "materialised": folded.to_json(),
            "report": {"out": str(out), **facts},
            "seconds": seconds,
        }
        say_json(told, pretty=False)
    else:
        _show_ingested(door, read)
        _show_erased(door, gone)
        _show_materialised(folded)
        say(f"{out}: {show_size(len(page.encode()))}; all of it took {seconds:.1f}s")
    return not read.damage and gone.proved and not folded.incomplete


def _write_whole(out: Path, text: str) -> None:
    part = out.with_name(f".{out.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(out)
    except OSError as error:
        raise CommandError(f"{out} cannot be written: {error.strerror or error}") from None


def audit(
    door: JobOptions, journals: Sequence[str], nats: str, *, through_servers: bool, scratch: Path | None
) -> bool:
    """True if nothing differs."""
    if not journals:
        raise CommandError("name the journals to replay: --journal DIR, once for each server and archive")
    with _opened(door, journals=tuple(journals)) as pipeline:
        found = pipeline.audit(nats, through_servers=through_servers, scratch=scratch)
    if door.as_json:
        say_json(found.to_json(), pretty=False)
        return found.clean
    for one in found.differences[:_TOLD_MAX]:
        say(f"{one.severity.name.lower():<10} {one.kind.value:<22} {one.sentence}")
    for skipped in found.skipped[:_TOLD_MAX]:
        say(f"{'unsure':<10} {'not compared':<22} {skipped.document_id}: {skipped.reason}")
    more = max(0, len(found.differences) - _TOLD_MAX) + max(0, len(found.skipped) - _TOLD_MAX)
    if more:
        say(f"({show_count(more, 'line')} more; --json has them all)")
    say(found.sentence)
    return found.clean


def compact(
    nats: str,
    data: Path,
    cold: str,
    documents: Sequence[str],
    *,
    keys: Path | None,
    batch: int,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
) -> bool:
    """True if every document that was tried is compacted."""
    configure(verbose=verbose)
    with _installed():
        from lorogo_pipeline.jobs.fleet import compact_fleet
        from lorogo_pipeline.jobs.fleet_report import FleetOptions, FleetProgress
    from lorogo_cli.services.service_keys import keys_of

    found_keys = keys_of(keys)
    now = time.time_ns()
    options = FleetOptions(
        data=data.absolute(),
        cold_seconds=(now - parse_time(cold, now_ns=now)) / 1e9,
        documents=tuple(documents),
        batch_documents=batch,
        dry_run=dry_run,
    )
    with progress_bar() as show:

        def told(step: FleetProgress) -> None:
            show(step.stage, step.done, step.total)

        found = run_async(compact_fleet, nats, options, told, keys=found_keys)
    if as_json:
        say_json(found.as_dict(), pretty=False)
        return not found.failures
    say_table(
        [
            "DOCUMENTS",
            "COLD",
            "COMPACTED",
            "WAL BEFORE",
            "AFTER",
            "SIZE BEFORE",
            "AFTER",
            "PURGED TOGETHER",
            "ONE BY ONE",
        ],
        [
            [
                str(found.documents),
                str(found.cold),
                str(found.compacted),
                str(found.messages_before),
                str(found.messages_after),
                show_size(found.bytes_before),
                show_size(found.bytes_after),
                str(found.prefix_messages),
                str(found.single_messages),
            ]
        ],
    )
    for reason, count in sorted(found.skipped.items()):
        say(f"{count} left alone: {reason}")
    if dry_run:
        say(f"{show_count(found.cold, 'document')} would be compacted; nothing was taken, stored or purged")
    for document_id, why in found.failures[:_TOLD_MAX]:
        warn(f"{document_id}: {why}")
    return not found.failures


def erase(door: JobOptions, documents: Sequence[str], *, unknown: bool, yes: bool) -> bool:
    """True if the proof holds."""
    if documents and not yes:
        names = ", ".join(documents)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise CommandError(f"nobody can be asked whether to erase {names}: say --yes")
        import typer

        if not typer.confirm(f"Erase {names} from {door.lake}, for good?", err=True):
            raise CommandError(f"{names} was not erased")
    with _opened(door) as pipeline:
        done = pipeline.erase(documents, unknown=unknown)
    if door.as_json:
        say_json(done.to_json(), pretty=False)
    else:
        _show_erased(door, done)
    return done.proved


def _show_erased(door: JobOptions, done: ErasureReport) -> None:
    if not done.documents:
        say("nothing to erase: no journal said that a document was erased, and none was named")
        return
    say_table(
        ["TABLE", "ROWS BEFORE", "ROWS AFTER", "FILES REWRITTEN", "FILES REMOVED", "FILES CHECKED"],
        [
            [
                name,
                str(table.rows_before),
                str(table.rows_after),
                str(table.files_rewritten),
                str(table.files_removed),
                str(table.files_checked),
            ]
            for name, table in done.tables.items()
        ],
    )
    names = ", ".join(done.documents[:_TOLD_MAX]) + (", ..." if len(done.documents) > _TOLD_MAX else "")
    if done.proved:
        say(f"proved: no file below {door.lake} holds a row of {names} any more")
    else:
        warn(f"something of {names} is still there: run it again when no other job writes")


def export(
    door: JobOptions, out: Path, format_: str, *, as_of: str | None, documents: list[str] | None
) -> bool:
    """True if every document is whole."""
    as_of_ns = _as_of(as_of)
    with _opened(door) as pipeline:
        done = pipeline.export(out, format=format_, as_of_ns=as_of_ns, documents=documents)
    if door.as_json:
        say_json(done.to_json(), pretty=False)
    else:
        say(f"{out}: {show_count(done.documents, 'document')} as {done.format}, {show_size(done.bytes)}")
        if done.incomplete:
            warn(f"{show_count(done.incomplete, 'document')} not whole: see `problem` in the table documents")
    return not done.incomplete


def sql(door: JobOptions, query: str, rows_max: int) -> None:
    """Print what the question answers."""
    with _opened(door) as pipeline:
        columns, rows = pipeline.answer(query, rows_max + 1)
    shown = rows[:rows_max]
    if door.as_json:
        for row in shown:
            say_json({name: _json(value) for name, value in zip(columns, row, strict=True)}, pretty=False)
    elif columns:
        say_table([name.upper() for name in columns], [[_cell(value) for value in row] for row in shown])
    if len(rows) > rows_max:
        warn(f"only the first {rows_max} rows are shown: --rows N for more")


def prepare(*, verbose: bool) -> None:
    """An archive of Spark's classes in the user's cache."""
    configure(verbose=verbose)
    with _installed():
        from lorogo_pipeline.spark import class_archive
    with working("starting Spark and keeping what it loads"):
        made = class_archive.make()
    say(f"{made}: Spark starts sooner from now on, until Java or PySpark is upgraded")


def _json(value: object) -> object:
    """What JSON can say: bytes and infinities as in the tables, times in ISO 8601."""
    from lorogo_pipeline.decode.content import plain

    match value:
        case dict():
            return {str(name): _json(one) for name, one in value.items()}
        case list() | tuple():
            return [_json(one) for one in value]
        case float() | bytes() | bytearray():
            return plain(bytes(value) if isinstance(value, bytearray) else value)
        case datetime():
            return value.isoformat()
        case _:
            return value


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else "" if value is None else str(value)
    line = text.replace("\n", " ").replace("\r", " ").replace("\t", " ")
    return line if len(line) <= _CELL_MAX else line[: _CELL_MAX - 3] + "..."
