"""Looking after open documents: what nobody uses is unloaded, what is long is compacted.

turn, every second ─▶ each of some documents: unload it, compact it, or leave it in peace
before a stop      ─▶ store what only we have, then shorten what the next owner would load for long
"""

import asyncio
from collections.abc import Mapping, Sequence
from weakref import WeakSet

from lorogo_server.compaction import compaction
from lorogo_server.context import ServerContext
from lorogo_server.document.host import Host
from lorogo_server.sandbox.keepalive import KeepaliveProcess
from lorogo_transport.tasks import OnError
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TURN_DOCUMENTS = 500  # looked after in one second,
_TURNS_MAX = 10  # or a tenth of all: with ten thousand, that alone was a tenth of a core
_COMPACTIONS_MAX = 2
_SHORTEN_SECONDS = 3.0  # of a stop, for snapshots that save the next owner time


class CompactionSchedule:
    """The upkeep of all documents of one server."""

    def __init__(
        self,
        context: ServerContext,
        hosts: Mapping[str, Host],
        *,
        keepalive: KeepaliveProcess | None,
        on_error: OnError,
    ) -> None:
        """`on_error` is told why one could not be shortened."""
        self._context = context
        self._hosts = hosts
        self._keepalive = keepalive
        self._on_error = on_error
        self._slots = asyncio.Semaphore(_COMPACTIONS_MAX)
        self._compacting = WeakSet[Host]()  # hosts, not names: one that ends may not begin what it was given
        self._round: list[Host] = []  # documents that are to be looked after before all are again
        self._round_part = _TURN_DOCUMENTS
        self._log = log.bind(server=context.server_id)

    def turn(self, now: float) -> None:
        """Look after those whose turn it is."""
        for host in self._whose_turn():
            if host.is_up:
                self._look_after(host, now)

    def _whose_turn(self) -> list[Host]:
        """All documents if they are few; of many a part, so that each has its turn within ten."""
        if not self._round:
            self._round = list(self._hosts.values())
            self._round_part = max(_TURN_DOCUMENTS, -(-len(self._round) // _TURNS_MAX))
            self._context.unfinished.measured(sum(host.unfinished_bytes for host in self._round))
        turn, self._round = self._round[: self._round_part], self._round[self._round_part :]
        return turn

    def _look_after(self, host: Host, now: float) -> None:
        """Begin what one document needs, if it needs something."""
        settings, intake, due = self._context.settings, host.loaded.intake, host.due
        wal_bytes = 0 if intake.deleted else intake.wal_bytes  # a tombstone is not compacted
        if intake.deleted:
            due.why = ""
        elif host.must_store:
            due.why = "the stream lost messages"
        self._retry_quarantine(host, now)
        if self._keepalive is not None:
            self._keepalive.hold(host.document_id, host.lease.token)
        idle = host.idle_seconds()
        if idle >= settings.idle_seconds and not host.compacting.locked():
            tried = due.tried_at > now - idle  # what cannot be compacted is unloaded as it is
            if host.is_long and not tried and not due.why:
                due.why = "unloading"
            elif not due.why:
                host.stop("idle")
                return
        if now >= due.again_at(settings.compact_every_seconds) and wal_bytes:
            due.want("daily")
        if due.why and host not in self._compacting:
            self._compacting.add(host)
            host.spawn(self._compact(host))

    def _retry_quarantine(self, host: Host, now: float) -> None:
        """Move what could not be moved out of the WAL: until then nobody can say what it should hold."""
        if host.answers.quarantine_due(now) and host not in self._compacting:
            self._compacting.add(host)
            host.spawn(self._quarantine(host))

    async def _quarantine(self, host: Host) -> None:
        try:
            await host.answers.retry_quarantine(host.epoch)
        finally:
            self._compacting.discard(host)

    async def _compact(self, host: Host) -> None:
        try:
            async with self._slots:
                await compaction.compact(host)
        except compaction.CompactionFailed as error:
            host.log.warning("not compacted", problem=str(error))
        finally:
            host.due.tried(self._context.clock.now())
            self._compacting.discard(host)

    # --- before a stop ----------------------------------------------------------------------------

    async def last_snapshots(self, hosts: Sequence[Host]) -> None:
        """Of what the stream lost, for as long as a stop may take; then of what is long, as time goes."""
        owed = [host for host in hosts if host.must_store]
        try:
            async with asyncio.timeout(self._context.settings.stop_seconds):
                ends = await asyncio.gather(*(self._compact(host) for host in owed), return_exceptions=True)
        except TimeoutError:
            self._log.error("what the stream lost could not be stored in time", documents=len(owed))
        else:
            for host, problem in zip(owed, ends, strict=True):
                if isinstance(problem, BaseException):
                    host.log.error("what the stream lost could not be stored", problem=str(problem))
        await self._shorten(hosts)

    async def _shorten(self, hosts: Sequence[Host]) -> None:
        """Compact what the next owner would load for long, as far as the time goes: longest WAL first."""
        long = [host for host in hosts if host.is_up and host.is_long]
        long.sort(key=lambda host: host.loaded.intake.wal_bytes, reverse=True)
        try:
            async with asyncio.timeout(min(_SHORTEN_SECONDS, self._context.settings.stop_seconds)):
                ends = await asyncio.gather(*(self._compact(host) for host in long), return_exceptions=True)
        except TimeoutError:
            self._log.info("not all were compacted that are long to load", documents=len(long))
        else:
            for problem in ends:
                if isinstance(problem, Exception):
                    self._on_error(problem)
