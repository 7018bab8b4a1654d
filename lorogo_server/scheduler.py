"""What a server does now and then, each in its time: one task, and a failure is only a delay."""

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
_LEDGER_SECONDS = 60.0
_LEVEL_SECONDS = 10.0


class ServerScheduler:
    """The chores of one server."""

    def __init__(
        self,
        context: ServerContext,
        upkeep: CompactionSchedule,
        journal: DiskJournal | None,
        reconciler: Reconciler | None,
        *,
        on_high: Callable[[], None],
    ) -> None:
        """`on_high` is called as long as the WAL is nearly full."""
        self._on_high = on_high
        self._context = context
        self._upkeep = upkeep
        self._journal = journal
        self._reconciler = reconciler
        self._log = log.bind(server=context.server_id)

    async def run(self) -> None:
        """Look after documents, tell what the journal is to keep, check the stream, sweep what nobody needs.

        For ever; ends by cancellation.
        """
        context, clock = self._context, self._context.clock
        next_epoch = clock.now() + _EPOCH_SECONDS
        next_sweep = clock.now() + _SWEEP_SECONDS * context.rng.random()
        next_ledger = clock.now() + _LEDGER_SECONDS
        next_answers = clock.now() + context.settings.answers_every_seconds
        next_level = 0.0
        while True:
            await asyncio.sleep(_TURN_SECONDS)
            now = clock.now()
            self._upkeep.turn(now)
            if now >= next_answers:
                next_answers = now + context.settings.answers_every_seconds
                self.tell_answers()
            if now >= next_ledger:
                next_ledger = now + _LEDGER_SECONDS
                await self.save_ledger()
            try:
                if now >= next_epoch:
                    next_epoch = now + _EPOCH_SECONDS
                    await context.check_epoch()
                if now >= next_level:
                    next_level = now + _LEVEL_SECONDS
                    if self._journal is not None:
                        await self._journal.measure()
                    context.level.see(await context.wal.state())
                    if context.level.high:
                        self._on_high()
                if now >= next_sweep:
                    next_sweep = now + _SWEEP_SECONDS
                    await context.snapshots.sweep(now)
            except LorogoError as error:
                self._log.info("maintenance postponed", problem=str(error))

    def tell_answers(self) -> None:
        """Leave in the journal how senders were answered; what finds no room is told the next time."""
        if self._journal is None:
            return
        tally = self._context.tally
        record = tally.take(self._context.clock.wall_ns())
        if record is not None and not self._journal.note(record):
            tally.give_back(record)

    async def save_ledger(self) -> None:
        """Keep what the journal covers, and what reconciliation knows, for the next start."""
        if self._journal is None:
            return
        if self._reconciler is not None:
            await self._reconciler.remember()
        await self._journal.save_ledger()
