"""Periodic work of one server, in one task. A failure delays the work to its next time."""

import asyncio
from collections.abc import Callable

from lorogo_protocol.errors import LorogoError
from lorogo_server.compaction.compaction_schedule import CompactionSchedule
from lorogo_server.context import ServerContext
from lorogo_server.journal.disk_journal import DiskJournal
from lorogo_server.recovery.reconcile import Reconciler
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TURN_SECONDS = 1.0
_EPOCH_SECONDS = 60.0
_SWEEP_SECONDS = 3600.0
_COVERAGE_SECONDS = 60.0
_WAL_USAGE_SECONDS = 10.0
_HIGH_USAGE_SECONDS = 1.0  # while the WAL is nearly full


class ServerScheduler:
    """Runs the periodic work of one server."""

    def __init__(
        self,
        context: ServerContext,
        compaction_schedule: CompactionSchedule,
        journal: DiskJournal | None,
        reconciler: Reconciler | None,
        *,
        on_high: Callable[[], None],
    ) -> None:
        """`on_high` is called at each check while the WAL is nearly full."""
        self._on_high = on_high
        self._context = context
        self._compaction_schedule = compaction_schedule
        self._journal = journal
        self._reconciler = reconciler
        self._log = log.bind(server=context.server_id)

    async def run(self) -> None:
        """Schedule compactions, write ACK metrics and journal coverage, check the epoch and the WAL's usage.

        Runs until cancelled.
        """
        context, clock = self._context, self._context.clock
        next_epoch = clock.now() + _EPOCH_SECONDS
        next_sweep = clock.now() + _SWEEP_SECONDS * context.rng.random()
        next_coverage = clock.now() + _COVERAGE_SECONDS
        next_answers = clock.now() + context.settings.answers_every_seconds
        next_wal_usage = 0.0
        while True:
            await asyncio.sleep(_TURN_SECONDS)
            now = clock.now()
            self._compaction_schedule.turn(now)
            if now >= next_answers:
                next_answers = now + context.settings.answers_every_seconds
                self.record_answers()
            if now >= next_coverage:
                next_coverage = now + _COVERAGE_SECONDS
                await self.save_coverage()
            try:
                if now >= next_epoch:
                    next_epoch = now + _EPOCH_SECONDS
                    await context.check_epoch()
                if now >= next_wal_usage:
                    next_wal_usage = now + _WAL_USAGE_SECONDS
                    if self._journal is not None:
                        await self._journal.measure()
                    context.wal_usage.update(await context.wal.state())
                    if context.wal_usage.high:
                        next_wal_usage = now + _HIGH_USAGE_SECONDS
                        self._compaction_schedule.relieve(context.wal_usage.excess_bytes, now)
                        self._on_high()
                if now >= next_sweep:
                    next_sweep = now + _SWEEP_SECONDS
                    await context.snapshots.sweep(now)
            except LorogoError as error:
                self._log.info("periodic work postponed", problem=str(error))

    def record_answers(self) -> None:
        """Write the ACK metrics to the journal; keep them for the next time if the journal has no space."""
        if self._journal is None:
            return
        ack_metrics = self._context.ack_metrics
        record = ack_metrics.take(self._context.clock.wall_ns())
        if record is not None and not self._journal.note(record):
            ack_metrics.give_back(record)

    async def save_coverage(self) -> None:
        """Save the journal coverage and the state of reconciliation for the next start."""
        if self._journal is None:
            return
        if self._reconciler is not None:
            await self._reconciler.remember()
        await self._journal.save_coverage()
