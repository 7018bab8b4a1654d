"""`lorogo restore`: rebuild documents on a NATS from journals and archives."""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import nanoid

from lorogo_cli.connect.client import unauthorized, unreachable
from lorogo_cli.doc.versions import parse_past
from lorogo_cli.errors import CommandError
from lorogo_cli.log.errors import disk_sentence, warn
from lorogo_cli.render.output import progress_bar, say, say_json, say_table
from lorogo_cli.render.values import show_count, show_size
from lorogo_client.versions import show_time
from lorogo_protocol import ids
from lorogo_protocol.messages import subjects
from lorogo_server import ServerSettings
from lorogo_server.recovery import revocation_copy
from lorogo_server.recovery.restore_run import NothingAsOld, RestoreOutcome, RestoreReport, RestoreRequest
from lorogo_server.recovery.restore_run import restore as run
from lorogo_server.recovery.restore_sources import RestoreSource, find
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import NotAuthorized, Unreachable
from lorogo_transport.nats.connection import connect
from lorogo_transport.ports import Transport

if TYPE_CHECKING:
    from lorogo_cli.commands.recovery import RestoreOptions

_ROWS_MAX = 40  # above this number, the table leaves out documents that were restored without a finding


async def restore(
    options: "RestoreOptions",
) -> bool:
    """Restore, and show the verification; return False if something is missing."""
    if options.to and not options.document:
        raise CommandError("--to needs --document: name the one document to restore")
    for document_id in filter(None, (options.document, options.to)):
        ids.check_document_id(document_id)
    at_ns = None if options.at is None else parse_past(options.at, now_ns=time.time_ns())
    wanted = RestoreRequest(at_ns, options.document, options.to, options.merge)
    way = options.connection
    sources = [source for place in options.journal for source in find(place)]
    async with AsyncExitStack() as stack:
        transport = None
        if not options.dry_run:
            try:
                transport = await stack.enter_async_context(
                    await connect(
                        way.url, seed=way.seed, inbox_prefix=subjects.OPERATOR_INBOX, name="lorogo restore"
                    )
                )
            except NotAuthorized as error:
                raise unauthorized(error, way) from None
            except Unreachable as error:
                raise unreachable(error) from None
        with _folder(options.scratch) as folder, progress_bar() as progress, _dated():
            report = await run(
                transport,
                sources,
                wanted,
                settings=ServerSettings(durability="stream"),
                clock=SystemClock(),
                new_id=_new_id,
                scratch=folder,
                progress=progress,
            )
        if transport is not None and not options.document:
            await _restore_revocations(transport, options.journal, as_json=options.json)
    _show(report, sources, wanted, as_json=options.json)
    return report.complete


async def _restore_revocations(transport: Transport, journals: Sequence[str], *, as_json: bool) -> None:
    """Restore the list of revoked tokens from the servers' copies; archives have no copy of it."""
    copies = []
    for place in journals:
        if "://" not in place:
            copies += await asyncio.to_thread(revocation_copy.find, Path(place))
    if copies:
        count = await revocation_copy.restore(transport, SystemClock(), copies)
        if not as_json:
            say(f"{show_count(count, 'revocation')} restored: the list of revoked tokens is complete")


@contextmanager
def _dated() -> Iterator[None]:
    """Turn NothingAsOld into a Problem with a readable time."""
    try:
        yield
    except NothingAsOld as error:
        first = show_time(error.first_ns)
        raise CommandError(
            f"{error.document_id} has no records that old: its first is of {first}; choose a later --at"
        ) from None


def _new_id() -> str:
    return str(nanoid.generate())


@contextmanager
def _folder(scratch: Path | None) -> Iterator[Path]:
    """Yield a temporary folder on a disk with room for the journals' bytes."""
    try:
        with tempfile.TemporaryDirectory(prefix="lorogo-restore-", dir=scratch) as folder:
            yield Path(folder)
    except OSError as error:
        raise CommandError(disk_sentence(error, scratch or Path(tempfile.gettempdir()))) from None


# --- the verification -----------------------------------------------------------------------------


def _show(
    report: RestoreReport, sources: Sequence[RestoreSource], wanted: RestoreRequest, *, as_json: bool
) -> None:
    if as_json:
        say_json(_as_json(report, sources, wanted))
        return
    notable = [one for one in report.outcomes if not one.good or one.state != "restored"]
    shown = report.outcomes if len(report.outcomes) <= _ROWS_MAX else notable[:_ROWS_MAX]
    if shown:
        columns = ["DOCUMENT", "STATE", "UPDATES", "MISSING", "SIZE", "VERSION", "CONTENT", "READ BACK"]
        say_table(columns, [_row(one) for one in shown])
        say("")
    if len(shown) < len(report.outcomes):
        say(f"({show_count(len(report.outcomes) - len(shown), 'document')} not shown; --json has them all)")
    for line in _summary(report, wanted):
        say(line)
    for line in _complaints(report):
        warn(line)


def _row(one: RestoreOutcome) -> list[str]:
    missing = sum(one.missing.values())
    name = one.document if one.stored_as in {"", one.document} else f"{one.document} as {one.stored_as}"
    return [
        name,
        one.state,
        str(one.applied),
        str(missing) if missing else "-",
        show_size(one.size),
        one.version,
        one.content,
        "equal" if one.proved else "-",
    ]


def _summary(report: RestoreReport, wanted: RestoreRequest) -> Iterator[str]:
    outcomes = report.outcomes
    states = {one.state for one in outcomes}
    counts = ", ".join(f"{sum(one.state == state for one in outcomes)} {state}" for state in sorted(states))
    applied, repeated = sum(one.applied for one in outcomes), sum(one.repeated for one in outcomes)
    when = "" if wanted.at_ns is None else f" as of {show_time(wanted.at_ns)}"
    yield f"{show_count(len(outcomes), 'document')}{when}: {counts or 'none'}"
    yield (
        f"{show_count(applied, 'update')} applied, of {show_count(report.records, 'record')} in"
        f" {show_count(report.sources, 'log')} ({repeated} duplicates)"
    )
    if wanted.at_ns is not None:
        yield f"{show_count(sum(one.later for one in outcomes), 'record')} newer than that left out"
    if report.dry:
        yield "dry run: nothing was written"
        return
    proved = sum(one.proved for one in outcomes)
    all_of = show_count(len(outcomes), "document")
    yield f"{proved} of {all_of} read back as a server does: version vectors and contents are equal"


def _complaints(report: RestoreReport) -> Iterator[str]:
    for torn in report.torn:
        yield f"{torn}: the last record is incomplete; it was never ACKed"
    for repaired in report.repaired:
        yield f"damaged, repaired from another copy: {repaired}"
    for damage in report.damage:
        yield f"damaged, the undamaged part was used: {damage}"
    for one in report.outcomes:
        for why, count in one.missing.items():
            yield f"{one.document}: {show_count(count, 'record')} could not be used: {why}"
        if one.problem:
            yield f"{one.document}: {one.problem}"


def _as_json(
    report: RestoreReport, sources: Sequence[RestoreSource], wanted: RestoreRequest
) -> dict[str, object]:
    def plain(one: RestoreOutcome) -> dict[str, object]:
        return {name: value for name, value in asdict(one).items() if name != "vector"}

    return {
        "complete": report.complete,
        "dry_run": report.dry,
        "at_ns": wanted.at_ns,
        "epoch": report.epoch,
        "records": report.records,
        "updates": sum(one.applied for one in report.outcomes),
        "logs": [{"name": source.name, "bytes": source.size} for source in sources],
        "damage": report.damage,
        "repaired": report.repaired,
        "torn": report.torn,
        "documents": [plain(one) for one in report.outcomes],
    }
