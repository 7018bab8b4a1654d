"""Compaction schedule of open documents: unloads idle documents, compacts documents with a long WAL.

turn, every second ─▶ for a part of the documents: unload, compact, or do nothing
before a stop      ─▶ store documents whose only copy is in memory, then compact those that load slowly
"""

import asyncio
from collections.abc import Mapping, Sequence
from weakref import WeakSet

from lorogo_server.compaction import compaction
from lorogo_server.context import ServerContext
from lorogo_server.document.host import Host
from lorogo_server.sandbox.keepalive import KeepaliveProcess
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TURN_DOCUMENTS = 500  # documents checked in one second,
_TURNS_MAX = 10  # or a tenth of them, if more: checking 10,000 each second took a tenth of a core
_COMPACTIONS_MAX = 2
_RELIEF_SECONDS = 10.0  # between two compactions of a document because the WAL is nearly full
_MERGE_SECONDS_MAX = 10.0  # CPU of slow imports that a load would repeat
_SHORTEN_SECONDS = 3.0  # of a stop, for snapshots that shorten the next load


class CompactionSchedule:
    """Schedules compactions and unloads of all documents of one server."""

    def __init__(
        self,
        context: ServerContext,
        hosts: Mapping[str, Host],
        *,
        keepalive: KeepaliveProcess | None,
    ) -> None:
        self._context = context
        self._hosts = hosts
        self._keepalive = keepalive
        self._slots = asyncio.Semaphore(_COMPACTIONS_MAX)
        self._compacting = WeakSet[Host]()  # hosts, not ids: a closed host may never run its task
        self._round: list[Host] = []  # documents left to check in this round
        self._round_part = _TURN_DOCUMENTS
        self._log = log.bind(server=context.server_id)

    def turn(self, now: float) -> None:
        """Check the next part of the documents."""
        for host in self._next_documents():
            if host.state.is_up:
                self._schedule(host, now)

    def relieve(self, excess_bytes: int, now: float) -> None:
        """Compact the documents with the longest WAL until `excess_bytes` can be purged.

        The WAL can be full although no document has as much as `compact_wal_bytes` in it.
        """
        open_ = [host for host in self._hosts.values() if host.state.is_up and not host.loaded.intake.deleted]
        for host in sorted(open_, key=lambda host: host.loaded.intake.wal_bytes, reverse=True):
            wal_bytes = host.loaded.intake.wal_bytes
            if excess_bytes <= 0 or not wal_bytes:
                return
            if host.due.why or host in self._compacting:
                excess_bytes -= wal_bytes  # a compaction is under way
            elif now - host.due.tried_at >= _RELIEF_SECONDS:  # else the rest cannot be purged yet
                excess_bytes -= wal_bytes
                host.due.want("the WAL is nearly full")

    def _next_documents(self) -> list[Host]:
        """Return all documents if they are few, else a part, so that a round takes ten turns at most."""
        if not self._round:
            self._round = list(self._hosts.values())
            self._round_part = max(_TURN_DOCUMENTS, -(-len(self._round) // _TURNS_MAX))
            self._context.unfinished.measured(sum(host.unfinished_bytes for host in self._round))
        turn, self._round = self._round[: self._round_part], self._round[self._round_part :]
        return turn

    def _schedule(self, host: Host, now: float) -> None:
        """Start the work that a document needs, if any."""
        settings, intake, due = self._context.settings, host.loaded.intake, host.due
        wal_bytes = 0 if intake.deleted else intake.wal_bytes  # a tombstone is not compacted
        if intake.deleted:
            due.why = ""
        elif host.state.memory_is_only_copy:
            due.why = "the stream lost messages"
        self._retry_quarantine(host, now)
        if self._keepalive is not None:
            self._keepalive.hold(host.document_id, host.lease.token)
        idle = host.idle_seconds()
        if idle >= settings.idle_seconds and not host.compacting.locked():
            tried = due.tried_at > now - idle  # after a failed compaction the document is unloaded as it is
            if host.is_long and not tried and not due.why:
                due.why = "unloading"
            elif not due.why:
                host.stop("idle")
                return
        if now >= due.again_at(settings.compact_every_seconds) and wal_bytes:
            due.want("daily")
        elif wal_bytes and intake.merge_seconds >= _MERGE_SECONDS_MAX:
            due.want("a load would take long")
        if due.why and host not in self._compacting:
            self._compacting.add(host)
            host.spawn(self._compact(host))

    def _retry_quarantine(self, host: Host, now: float) -> None:
        """Retry failed moves to quarantine: refused messages in the WAL limit purge and coverage."""
        if host.refused.is_due(now) and host not in self._compacting:
            self._compacting.add(host)
            host.spawn(self._quarantine(host))

    async def _quarantine(self, host: Host) -> None:
        try:
            await host.refused.move_all(host.epoch)
        finally:
            self._compacting.discard(host)

    async def _compact(self, host: Host) -> None:
        try:
            async with self._slots:
                await compaction.compact(host)
        except compaction.CompactionFailed as error:
            host.log.warning("compaction failed", problem=str(error))
        finally:
            host.due.tried(self._context.clock.now())
            self._compacting.discard(host)

    # --- before a stop ----------------------------------------------------------------------------

    async def last_snapshots(self, hosts: Sequence[Host]) -> None:
        """Store documents whose WAL the stream lost; then compact long documents as time allows."""
        owed = [host for host in hosts if host.state.memory_is_only_copy]
        if not await self._compact_all(owed, self._context.settings.stop_seconds):
            self._log.error("no time to store documents whose only copy is in memory", documents=len(owed))
        long = [host for host in hosts if host.state.is_up and host.is_long]
        long.sort(key=lambda host: host.loaded.intake.wal_bytes, reverse=True)
        if not await self._compact_all(long, min(_SHORTEN_SECONDS, self._context.settings.stop_seconds)):
            self._log.info("no time to compact all long documents", documents=len(long))

    async def _compact_all(self, hosts: Sequence[Host], seconds: float) -> bool:
        """Compact documents in this order, and log errors; return False if the time is too short."""
        try:
            async with asyncio.timeout(seconds):
                ends = await asyncio.gather(*(self._compact(host) for host in hosts), return_exceptions=True)
        except TimeoutError:
            return False
        for host, problem in zip(hosts, ends, strict=True):
            if isinstance(problem, BaseException):
                host.log.error("cannot compact a document before the stop", problem=str(problem))
        return True
