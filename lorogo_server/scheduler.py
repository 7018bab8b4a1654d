"""Periodic work of one server, in one task. A failure delays the work to its next time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lorogo_protocol.errors import LorogoError
from lorogo_server.compaction.compaction_schedule import CompactionSchedule
from lorogo_server.context import ServerContext
from lorogo_server.journal_services import JournalServices
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TURN_SECONDS = 1.0
_EPOCH_SECONDS = 60.0
_SWEEP_SECONDS = 3600.0
_COVERAGE_SECONDS = 60.0
_WAL_USAGE_SECONDS = 10.0


@dataclass(slots=True)
class _Work:
    """Work that runs at intervals."""

    run: Callable[[], Awaitable[object]]
    every_seconds: float
    next_at: float


class ServerScheduler:
    """Runs the periodic work of one server."""

    def __init__(
        self,
        context: ServerContext,
        compaction_schedule: CompactionSchedule,
        journal: JournalServices | None,
        *,
        on_high: Callable[[], None],
    ) -> None:
        """`on_high` is called at each check while the WAL is nearly full."""
        self._on_high = on_high
        self._context = context
        self._compaction_schedule = compaction_schedule
        self._journal = journal
        self._wal_usage = _Work(self._measure, _WAL_USAGE_SECONDS, 0.0)
        self._log = log.bind(server=context.server_id)

    async def run(self) -> None:
        """Schedule compactions, and run the periodic work, until cancelled."""
        context, clock = self._context, self._context.clock
        now, sweep_at = clock.now(), clock.now() + _SWEEP_SECONDS * context.rng.random()
        works = [
            _Work(context.epochs.check, _EPOCH_SECONDS, now + _EPOCH_SECONDS),
            self._wal_usage,
            _Work(lambda: context.snapshots.sweep(clock.now()), _SWEEP_SECONDS, sweep_at),
        ]
        if self._journal is not None:
            answers_seconds = context.settings.answers_every_seconds
            works.append(_Work(self._journal.record_answers, answers_seconds, now + answers_seconds))
            works.append(_Work(self._journal.save_coverage, _COVERAGE_SECONDS, now + _COVERAGE_SECONDS))
        while True:
            await asyncio.sleep(_TURN_SECONDS)
            self._compaction_schedule.turn(clock.now())
            for work in works:
                if (now := clock.now()) >= work.next_at:
                    work.next_at = now + work.every_seconds
                    try:
                        await work.run()
                    except LorogoError as error:
                        self._log.info("periodic work postponed", problem=str(error))

    async def _measure(self) -> None:
        """Measure the disk and the WAL; while the WAL is nearly full, do so every turn and relieve it."""
        context = self._context
        if self._journal is not None:
            await self._journal.journal.measure()
        context.wal_usage.update(await context.wal.state())
        if context.wal_usage.high:
            now = self._wal_usage.next_at = context.clock.now()
            self._compaction_schedule.relieve(context.wal_usage.excess_bytes, now)
            self._on_high()
