"""Compact cold documents in batches; the job is a server that accepts no clients (docs/decisions/0014).

    survey   list documents with messages in the WAL, and the age of the newest message
    compact  a batch of cold ones: acquire the lease, load, journal, store a snapshot, read it back
    purge    one prefix purge up to the first message that must stay; single purges for the rest
    release  set every document of the batch DOWN again

A document that a client opens meanwhile is served until its batch is done.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from lorogo_pipeline.jobs.fleet_plan import (
    ColdDocuments,
    DocumentActivity,
    PurgeEstimate,
    PurgePrefix,
    choose,
    keep_from,
    plan,
)
from lorogo_pipeline.jobs.fleet_report import FleetOptions, FleetProgress, FleetReport, FleetStopped
from lorogo_pipeline.sources import nats_connection
from lorogo_protocol import ids
from lorogo_protocol.errors import InvalidDocumentId, LorogoError
from lorogo_protocol.messages import subjects
from lorogo_server import Server, identity
from lorogo_server.compaction import compaction
from lorogo_server.compaction.purges import PurgeCandidate, PurgeRefused, purge_one, purge_prefix
from lorogo_server.document.host import Host
from lorogo_server.journal.disk_journal import JournalStopped
from lorogo_server.ownership.acquisition import NotAcquired
from lorogo_server.ownership.lease import LeaseLost
from lorogo_server.sandbox.keepalive import KeepaliveProcess
from lorogo_server.server import new_nanoid
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import OutcomeUnknown
from lorogo_transport.nats.connection import connect
from lorogo_transport.ports import Transport
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_READS_AT_ONCE = 64
_LISTING_SECONDS = 60.0
_PLANS_MAX = 3  # a lost lease makes the plan invalid
_FOR_EVER_SECONDS = 365 * 86400.0
_NEVER_BYTES = 1 << 60  # the maximum of the setting
_STALE_MARGIN_SECONDS = 0.25
_AWAY_SECONDS = 30.0  # without NATS, before the job gives up
_AWAY_POLL_SECONDS = 0.1

OnProgress = Callable[[FleetProgress], None]


async def compact_fleet(
    nats: str | Transport,
    options: FleetOptions,
    on_progress: OnProgress | None = None,
    *,
    keys: KeySource | None = None,
) -> FleetReport:
    """Compact every cold document. Safe beside servers and other jobs.

    The job owns documents for a while, as servers do. On a NATS with accounts it needs a server's seed in
    the environment, and `keys` to verify the tokens of clients that call it meanwhile.

    Raises FleetStopped, HomeInUse, HomeUnusable, JournalStopped, TransportError, SecretUnusable.
    """
    with identity.held(options.home, new_nanoid) as server_id:
        async with AsyncExitStack() as stack:
            transport = await stack.enter_async_context(_transport(nats, closed=keys is not None))
            settings = replace(
                options.settings,
                server_id=server_id,
                idle_seconds=_FOR_EVER_SECONDS,  # a batch is released as a whole
                compact_wal_bytes=_NEVER_BYTES,  # the job decides when
                compact_every_seconds=_FOR_EVER_SECONDS,
                documents_max=max(options.settings.documents_max, options.batch_documents),
            )
            keepalive = KeepaliveProcess(nats, seed=nats_connection.seed()) if isinstance(nats, str) else None
            authority = None if keys is None else Authority(keys, transport, SystemClock())
            server = Server(
                transport,
                settings,
                data=options.home,
                keepalive=keepalive,
                takes_inits=False,
                authority=authority,
            )
            await stack.enter_async_context(server)
            if authority is not None:
                await stack.enter_async_context(authority)
            return await _Fleet(server, options, on_progress or _ignore).run()


def _ignore(_: FleetProgress) -> None:
    pass


@asynccontextmanager
async def _transport(nats: str | Transport, *, closed: bool) -> AsyncIterator[Transport]:
    if not isinstance(nats, str):
        yield nats
        return
    async with await connect(
        nats,
        name="lorogo compact",
        seed=nats_connection.seed(),
        inbox_prefix=subjects.SERVER_INBOX,
        taken_prefix=subjects.TAKEN if closed else "",
        answer_users_only=closed,
    ) as transport:
        yield transport


class _Fleet:
    """One run."""

    def __init__(self, server: Server, options: FleetOptions, on_progress: OnProgress) -> None:
        self._server = server
        self._context = server.context
        self._options = options
        self._on_progress = on_progress
        self._report = FleetReport()
        self._retried: dict[str, float] = {}  # owned documents: seconds until a stale lease shows
        self._compacted = 0

    async def run(self) -> FleetReport:
        report, wal = self._report, self._context.wal
        state = await wal.state()
        report.bytes_before, report.messages_before = state.bytes, state.messages
        chosen = await self._survey_documents()
        report.cold = len(chosen.cold)
        for reason in chosen.skipped.values():
            report.skip(reason)
        if not self._options.dry_run:
            await self._batches(chosen.cold)
            await self._retry()
        state = await wal.state()
        report.bytes_after, report.messages_after = state.bytes, state.messages
        return report

    # --- look -------------------------------------------------------------------------------------

    async def _survey_documents(self) -> ColdDocuments:
        """Select cold documents: count messages by subject, then read the newest message of candidates."""
        options, report = self._options, self._report
        found = await self._context.wal.subjects(subjects.wal("*"), timeout=_LISTING_SECONDS)
        counts = {subjects.document_of(subject): messages for subject, messages in found.items()}
        if options.documents:
            counts = {name: counts[name] for name in options.documents if name in counts}
        report.documents = len(counts)
        many = [
            name for name, messages in counts.items() if messages > options.messages_min and _proper(name)
        ]
        seen: list[DocumentActivity] = []

        async def inspect(document_id: str) -> None:
            newest = await self._context.wal.last(subjects.wal(document_id))
            if newest is not None:
                status = await self._context.statuses.read(document_id)
                messages = counts[document_id]
                seen.append(DocumentActivity(document_id, messages, newest.sequence, newest.time_ns, status))
            self._on_progress(FleetProgress("looking", len(seen), len(many)))

        await _each(many, inspect, at_once=_READS_AT_ONCE)
        now_ns = self._context.clock.wall_ns()
        return choose(seen, now_ns=now_ns, cold_ns=int(options.cold_seconds * 1e9))

    # --- a batch ----------------------------------------------------------------------------------

    async def _batches(self, documents: Sequence[str]) -> None:
        size = self._options.batch_documents
        for start in range(0, len(documents), size):
            await self._batch(documents[start : start + size])

    async def _batch(self, documents: Sequence[str]) -> None:
        held: dict[str, PurgeCandidate] = {}

        async def compact(document_id: str) -> None:
            one = await self._compact(document_id)
            if one is not None:
                held[document_id] = one
            self._compacted += 1
            self._on_progress(FleetProgress("compacting", self._compacted, self._report.cold))

        try:
            await _each(documents, compact, at_once=self._options.concurrency)
            await self._purge(held)
        except OutcomeUnknown as error:
            # Both outcomes are safe; the next run sees which one it is.
            log.warning("purge not confirmed", problem=str(error))
        finally:
            await self._release([one.host for one in held.values()])

    async def _compact(self, document_id: str) -> PurgeCandidate | None:
        """Acquire the document and store a snapshot; None if not acquired, with the reason in the report."""
        report = self._report
        await self._until_ready()
        host: Host | None = None
        try:
            host = await self._server.take(document_id)
            if host.loaded.intake.deleted:
                report.skip("deleted")
            else:
                covering = await compaction.cover(host)
                report.compacted += 1
                report.snapshot_bytes += covering.snapshot_bytes
                return PurgeCandidate(host, covering)
        except NotAcquired as error:
            if error.failed:
                report.fail(document_id, str(error))
            elif error.again_seconds and document_id not in self._retried:
                self._retried[document_id] = error.again_seconds
            else:
                report.skip(str(error).partition(";")[0])
        except JournalStopped as error:
            raise FleetStopped(self._why_stopped(str(error))) from error
        except LorogoError as error:
            report.fail(document_id, str(error))
        if host is not None:
            await self._release([host])
        return None

    async def _until_ready(self) -> None:
        """Wait for a lost connection. Raises FleetStopped."""
        try:
            async with asyncio.timeout(_AWAY_SECONDS):
                while not self._server.ready:
                    journal = self._server.journal
                    if journal is not None and (journal.stopped or journal.full):
                        break
                    await asyncio.sleep(_AWAY_POLL_SECONDS)
        except TimeoutError:
            pass
        if not self._server.ready:
            raise FleetStopped(self._why_stopped())

    def _why_stopped(self, problem: str = "") -> str:
        journal = self._server.journal
        problem = problem or ((journal.stopped or journal.full) if journal is not None else "")
        if problem:
            why = f"its journal stopped ({problem}): free or repair the disk of {self._options.home}"
        else:
            why = "NATS does not answer"
        return (
            f"fleet compaction stopped: {why}, then run it again;"
            f" {self._report.compacted} documents are compacted"
        )

    async def _release(self, hosts: Iterable[Host]) -> None:
        """Set all of them DOWN; their clients find another server."""
        hosts = list(hosts)
        for host in hosts:
            if host.state.memory_is_only_copy and host.state.is_up:
                await _store_again(host)
            host.stop("compacted")
        try:
            async with asyncio.timeout(self._server.settings.stop_seconds):
                for host in hosts:
                    await host.closed.wait()
        except TimeoutError:
            log.warning("documents not closed in time", documents=len(hosts))

    async def _retry(self) -> None:
        """Try owned documents again after the staleness time: a lease that was not renewed is stale."""
        if not self._retried:
            return
        self._on_progress(FleetProgress("waiting", 0, len(self._retried)))
        await asyncio.sleep(max(self._retried.values()) + _STALE_MARGIN_SECONDS)
        self._compacted -= len(self._retried)
        await self._batches(list(self._retried))

    # --- purge ------------------------------------------------------------------------------------

    async def _purge(self, held: dict[str, PurgeCandidate]) -> None:
        """Purge the WAL behind the stored snapshots, with as few purges as possible."""
        options, report = self._options, self._report
        usable = dict(held)
        for tries_left in reversed(range(_PLANS_MAX)):
            prefix, removable = await self._removable(usable)
            if not tries_left:  # leases change too often for a prefix purge: purge one by one
                prefix = PurgePrefix({})
            purges = plan(prefix, removable, messages_min=options.messages_min, bytes_min=options.bytes_min)
            if not purges.prefix or await self._purge_prefix(usable, prefix):
                report.left_documents += len(purges.left)
                report.left_messages += sum(rest.messages for rest in purges.left.values())
                await self._purge_each(held, purges.one_by_one)
                return

    async def _purge_prefix(self, usable: dict[str, PurgeCandidate], prefix: PurgePrefix) -> bool:
        """Purge the prefix; False if a lease was lost: that document is removed from `usable`."""
        report = self._report
        self._on_progress(FleetProgress("purging", 0, 1))
        try:
            purged = await purge_prefix(self._context, usable, before=prefix.before, removed=prefix.messages)
        except PurgeRefused as error:
            log.info("purge planned again", problem=str(error))
            for name in error.documents:
                usable.pop(name, None)
            return False
        report.prefix_messages += purged
        report.prefix_purges += 1
        return True

    async def _removable(
        self, held: dict[str, PurgeCandidate]
    ) -> tuple[PurgePrefix, dict[str, PurgeEstimate]]:
        """Return the removable prefix, and the effect of a single purge of each document."""
        wal = self._context.wal
        keep: dict[str, int] = {}
        removable: dict[str, PurgeEstimate] = {}

        async def measure(name: str) -> None:
            unneeded = held[name].unneeded_before()
            newest = await wal.last(subjects.wal(name)) if unneeded else None
            if newest is not None:
                host = held[name].host
                keep[name] = keep_from(unneeded, newest.sequence)
                messages = max(0, host.loaded.follower.taken - host.refused.moved - 1)
                removable[name] = PurgeEstimate(messages, held[name].covering.wal_bytes)

        await _each(list(held), measure, at_once=_READS_AT_ONCE)
        prefix = PurgePrefix(keep)
        if keep:
            first = (await wal.state()).first_sequence
            messages = wal.read(subjects.wal("*"), first=first)
            async for stored in messages:
                if not prefix.take(stored.sequence, subjects.document_of(stored.subject), len(stored.data)):
                    break
            if isinstance(messages, AsyncGenerator):
                await messages.aclose()
        return prefix, removable

    async def _purge_each(self, held: dict[str, PurgeCandidate], names: Sequence[str]) -> None:
        report = self._report
        for done, name in enumerate(names):
            self._on_progress(FleetProgress("purging", done, len(names)))
            try:
                report.single_messages += await purge_one(held[name])
                report.single_purges += 1
            except LeaseLost:  # its new owner compacts it
                report.left_documents += 1
            except LorogoError as error:  # its snapshot is stored, the next run purges it
                report.fail(name, f"compacted, but not purged: {error}")


async def _store_again(host: Host) -> None:
    try:
        await compaction.compact(host)
    except LorogoError as error:
        host.log.warning("updates lost by the stream were not stored", problem=str(error))


async def _each(names: Sequence[str], work: Callable[[str], Awaitable[None]], *, at_once: int) -> None:
    """Run `work` for every name, `at_once` at a time; the first error cancels the rest."""
    todo = iter(names)

    async def worker() -> None:
        for name in todo:
            await work(name)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(names))):
                group.create_task(worker())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


def _proper(document_id: str) -> bool:
    try:
        ids.check_document_id(document_id)
    except InvalidDocumentId:
        return False
    return True
