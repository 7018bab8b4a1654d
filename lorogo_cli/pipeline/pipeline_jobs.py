"""The jobs of `lorogo pipeline ...`: a Spark session, progress, and a result as text or JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lorogo_cli.connect.runtime import run as run_async
from lorogo_cli.errors import CommandError
from lorogo_cli.log.errors import warn
from lorogo_cli.pipeline.pipeline_session import export_seed, installed, opened, past
from lorogo_cli.render.confirmation import confirm
from lorogo_cli.render.output import (
    progress_bar,
    say,
    say_json,
    say_result,
    say_row,
    say_table,
    working,
)
from lorogo_cli.render.values import show_count, show_size
from lorogo_client.versions import parse_time

if TYPE_CHECKING:
    from lorogo_cli.pipeline.pipeline import (
        AuditOptions,
        CompactOptions,
        IngestOptions,
        JobOptions,
        LakeOptions,
    )
    from lorogo_pipeline.jobs.erase import ErasureReport
    from lorogo_pipeline.jobs.ingest import IngestReport
    from lorogo_pipeline.jobs.materialise import MaterialiseReport
    from lorogo_pipeline.pipeline import Pipeline

_SHOWN_MAX = 20  # problems in text output; --json has all
_CELL_MAX = 120
_DAMAGED = "damaged, the rest was read"


def ingest(
    options: IngestOptions,
    journals: Sequence[str],
    *,
    damaged: str,
    buckets: int | None,
    every_seconds: float | None,
) -> bool:
    """Ingest; return True if nothing was damaged."""
    nats = options.url if options.nats else None
    if not journals and nats is None:
        raise CommandError("nothing to ingest: name a journal (--journal DIR) or a NATS server (--nats URL)")
    if options.remote is not None and nats is not None and every_seconds is not None:
        raise CommandError("--follow with --nats needs its own Spark session: leave out --remote")
    export_seed(options.nats_seed)
    reading: dict[str, Any] = {"journals": tuple(journals), "buckets": buckets, "damaged": damaged}
    with opened(options, options.lake, **reading, makes_lake=True) as pipeline:
        if every_seconds is not None:
            return _follow(options, pipeline, nats, every_seconds)
        done = pipeline.ingest() if journals else None
        if nats is not None:
            live = pipeline.ingest_stream(nats)
            done = live if done is None else done + live
        assert done is not None
        _show_ingested(options, done)
        return not done.damage


def _follow(options: JobOptions, pipeline: Pipeline, nats: str | None, every_seconds: float) -> bool:
    """Ingest until Ctrl-C; print a table after each round with new records."""
    from lorogo_pipeline.errors import LakeBusy

    whole = True

    def on_ingested(done: IngestReport) -> None:
        nonlocal whole
        whole = whole and not done.damage
        if done.changed:
            _show_ingested(options, done)

    try:
        if nats is not None and not pipeline.settings.journals:
            pipeline.follow_stream(nats, every_seconds=every_seconds, on_batch=on_ingested)
        while True:
            try:
                on_ingested(pipeline.ingest())
                if nats is not None:
                    on_ingested(pipeline.ingest_stream(nats))
            except LakeBusy as error:  # another job writes to the lake
                warn(f"{error}; trying again in {every_seconds:g}s")
            time.sleep(every_seconds)
    except KeyboardInterrupt:
        return whole


def _show_ingested(options: JobOptions, done: IngestReport) -> None:
    if options.json:
        say_json(done.to_json())
        return
    say_row(
        ("SEGMENTS", done.segments),
        ("KNOWN BEFORE", done.known),
        ("READ", show_size(done.bytes)),
        ("RECORDS", done.records),
        ("NEW UPDATES", done.updates),
        ("NEW EVENTS", done.events),
        ("NEW ANSWERS", done.answers),
        ("REPEATED", done.repeated),
    )
    erased = "rows of erased documents left out: `lorogo pipeline erase` removes their remaining rows"
    for count, what in (
        (done.erased, erased),
        (done.unknown, "records left out: their kind is unknown, a newer lorogo wrote them"),
        (done.malformed, "records left out: they are malformed"),
    ):
        if count:
            warn(f"{count} {what}")
    _warn_each(_DAMAGED, done.damage)


def _warn_each(what: str, problems: Sequence[str]) -> None:
    for words in problems[:_SHOWN_MAX]:
        warn(f"{what}: {words}")
    if len(problems) > _SHOWN_MAX:
        warn(f"and {len(problems) - _SHOWN_MAX} more (--json has them all)")


def materialise(
    options: LakeOptions, *, as_of: str | None, documents: list[str] | None, tables: list[str] | None
) -> bool:
    """Fold updates; return True if every document is complete."""
    as_of_ns = past(as_of)
    with opened(options, options.lake) as pipeline:
        from lorogo_pipeline.jobs.materialise import TARGETS

        done = pipeline.materialise(as_of_ns=as_of_ns, documents=documents, tables=tables or TARGETS)
    if options.json:
        say_json(done.to_json())
    else:
        _show_materialised(done)
    return not done.incomplete


def _show_materialised(done: MaterialiseReport) -> None:
    say_row(
        ("AS OF", done.as_of),
        ("FOLDED DOCUMENTS", done.documents),
        ("OF UPDATES", done.updates),
        ("CHANGES", done.changes),
        ("DELETED", done.deleted),
        ("INCOMPLETE", done.incomplete),
        ("BUCKETS", done.buckets),
        ("UNCHANGED", done.unchanged),
        ("TIME", f"{done.seconds:.1f}s"),
    )
    _warn_each("incomplete", done.problems)


def report(options: LakeOptions, journals: Sequence[str], out: Path, tz: str) -> bool:
    """Write the report; return True if nothing was damaged."""
    if not options.lake and not journals:
        raise CommandError("nothing to report on: name a lake (--lake DIR) or journals (--journal DIR)")
    began = time.monotonic()
    named = "" if options.lake else ", ".join(journals)
    with (
        TemporaryDirectory(prefix="lorogo-report-") as folder,
        opened(options, options.lake or f"{folder}/lake", journals=tuple(journals)) as pipeline,
    ):
        started = time.monotonic() - began
        damage = pipeline.ingest().damage if journals else []
        pipeline.materialise()
        page, facts = pipeline.report(now=datetime.now(UTC), tz=tz, problems=damage, name=named)
    _write_whole(out, page)
    size, seconds = len(page.encode()), time.monotonic() - began
    say_result(
        {"out": str(out), "bytes": size, "seconds": seconds, "start_up_seconds": started, **facts},
        f"{out}: {show_size(size)}, made in {seconds:.1f}s ({started:.1f}s of it to start Spark)",
        as_json=options.json,
    )
    _warn_each(_DAMAGED, damage)
    return not damage


def nightly(options: LakeOptions, journals: Sequence[str], out: Path, tz: str) -> bool:
    """Run the nightly jobs; return True without damage, incomplete documents, or rows left by the erase."""
    if not journals:
        raise CommandError("name the journals to read: --journal DIR, once for each server and archive")
    began = time.monotonic()
    with opened(options, options.lake, journals=tuple(journals), makes_lake=True) as pipeline:
        read = pipeline.ingest()
        gone = pipeline.erase()
        folded = pipeline.materialise()
        page, report_facts = pipeline.report(now=datetime.now(UTC), tz=tz, problems=read.damage)
    _write_whole(out, page)
    seconds = time.monotonic() - began
    if options.json:
        facts = {
            "ingested": read.to_json(),
            "erased": gone.to_json(),
            "materialised": folded.to_json(),
            "report": {"out": str(out), **report_facts},
            "seconds": seconds,
        }
        say_json(facts)
    else:
        _show_ingested(options, read)
        _show_erased(options, gone)
        _show_materialised(folded)
        say(f"{out}: {show_size(len(page.encode()))}; all jobs took {seconds:.1f}s")
    return not read.damage and gone.proved and not folded.incomplete


def _write_whole(out: Path, text: str) -> None:
    part = out.with_name(f".{out.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(out)
    except OSError as error:
        raise CommandError(f"cannot write {out}: {error.strerror or error}") from None


def audit(
    options: AuditOptions, journals: Sequence[str], *, through_servers: bool, scratch: Path | None
) -> bool:
    """Compare; return True if nothing differs."""
    if not journals:
        raise CommandError("name the journals to replay: --journal DIR, once for each server and archive")
    export_seed(options.nats_seed)
    with opened(options, "", journals=tuple(journals)) as pipeline:
        found = pipeline.audit(options.url, through_servers=through_servers, scratch=scratch)
    if options.json:
        say_json(found.to_json())
        return found.clean
    for one in found.differences[:_SHOWN_MAX]:
        say(f"{one.severity.name.lower():<10} {one.kind.value:<22} {one.sentence}")
    for skipped in found.skipped[:_SHOWN_MAX]:
        say(f"{'unsure':<10} {'not compared':<22} {skipped.document_id}: {skipped.reason}")
    more = max(0, len(found.differences) - _SHOWN_MAX) + max(0, len(found.skipped) - _SHOWN_MAX)
    if more:
        say(f"({show_count(more, 'line')} more; --json has them all)")
    say(found.sentence)
    return found.clean


def compact(
    options: CompactOptions,
    data: Path,
    cold: str,
    documents: Sequence[str],
    *,
    keys: Path | None,
    batch: int,
    dry_run: bool,
) -> bool:
    """Compact; return True if no document failed."""
    export_seed(options.nats_seed)
    with installed():
        from lorogo_pipeline.jobs.fleet import compact_fleet
        from lorogo_pipeline.jobs.fleet_report import FleetOptions, FleetProgress
    from lorogo_cli.services.service_keys import keys_of

    found_keys = keys_of(keys)
    now = time.time_ns()
    wanted = FleetOptions(
        data=data.absolute(),
        cold_seconds=(now - parse_time(cold, now_ns=now)) / 1e9,
        documents=tuple(documents),
        batch_documents=batch,
        dry_run=dry_run,
    )
    with progress_bar() as show:

        def on_progress(step: FleetProgress) -> None:
            show(step.stage, step.done, step.total)

        found = run_async(compact_fleet, options.url, wanted, on_progress, keys=found_keys)
    if options.json:
        say_json(found.as_dict())
        return not found.failures
    say_row(
        ("DOCUMENTS", found.documents),
        ("COLD", found.cold),
        ("COMPACTED", found.compacted),
        ("WAL BEFORE", found.messages_before),
        ("AFTER", found.messages_after),
        ("SIZE BEFORE", show_size(found.bytes_before)),
        ("AFTER", show_size(found.bytes_after)),
        ("PURGED TOGETHER", found.prefix_messages),
        ("ONE BY ONE", found.single_messages),
    )
    for reason, count in sorted(found.skipped.items()):
        say(f"{count} skipped: {reason}")
    if dry_run:
        say(f"dry run: {show_count(found.cold, 'document')} would be compacted; nothing was changed")
    for document_id, why in found.failures[:_SHOWN_MAX]:
        warn(f"{document_id}: {why}")
    return not found.failures


def erase(options: LakeOptions, documents: Sequence[str], *, unknown: bool, yes: bool) -> bool:
    """Erase; return True if the verification found no remaining row."""
    if documents and not yes:
        names = ", ".join(documents)
        question = f"Erase {names} from {options.lake} permanently?"
        confirm(question, f"erase {names}", f"{names} was not erased")
    with opened(options, options.lake) as pipeline:
        done = pipeline.erase(documents, unknown=unknown)
    if options.json:
        say_json(done.to_json())
    else:
        _show_erased(options, done)
    return done.proved


def _show_erased(options: LakeOptions, done: ErasureReport) -> None:
    if not done.documents:
        say("nothing to erase: no journal marks a document as erased, and --document names none")
        return
    say_table(
        ("TABLE", "ROWS BEFORE", "ROWS AFTER", "FILES REWRITTEN", "FILES REMOVED", "FILES CHECKED"),
        [
            (
                name,
                table.rows_before,
                table.rows_after,
                table.files_rewritten,
                table.files_removed,
                table.files_checked,
            )
            for name, table in done.tables.items()
        ],
    )
    names = ", ".join(done.documents[:_SHOWN_MAX]) + (", ..." if len(done.documents) > _SHOWN_MAX else "")
    if done.proved:
        say(f"verified: no file below {options.lake} holds a row of {names}")
    else:
        warn(f"rows of {names} remain in {options.lake}: run the command again when no other job writes")


def export(
    options: LakeOptions, out: Path, format_: str, *, as_of: str | None, documents: list[str] | None
) -> bool:
    """Export; return True if every document is complete."""
    as_of_ns = past(as_of)
    with opened(options, options.lake) as pipeline:
        done = pipeline.export(out, format=format_, as_of_ns=as_of_ns, documents=documents)
    if options.json:
        say_json(done.to_json())
    else:
        say(f"{out}: {show_count(done.documents, 'document')} as {done.format}, {show_size(done.bytes)}")
        if done.incomplete:
            warn(
                f"{show_count(done.incomplete, 'document')} incomplete: see `problem` in the table documents"
            )
    return not done.incomplete


def sql(options: LakeOptions, query: str, rows_max: int) -> None:
    """Run the query and print its rows."""
    with opened(options, options.lake) as pipeline:
        columns, rows = pipeline.answer(query, rows_max + 1)
    shown = rows[:rows_max]
    if options.json:
        for row in shown:
            say_json({name: _json(value) for name, value in zip(columns, row, strict=True)})
    elif columns:
        say_table([name.upper() for name in columns], [[_cell(value) for value in row] for row in shown])
    if len(rows) > rows_max:
        warn(f"only the first {rows_max} rows are shown: use --rows N for more")


def prepare() -> None:
    """Write an archive of Spark's classes into the user's cache."""
    with installed():
        from lorogo_pipeline.spark import class_archive
    with working("starting Spark and writing its class archive"):
        made = class_archive.make()
    say(f"{made}: Spark starts faster until Java or PySpark is upgraded")


def _json(value: object) -> object:
    """Return the value for JSON: bytes and infinities as in the tables, times in ISO 8601."""
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
