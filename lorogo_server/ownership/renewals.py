"""Renews all leases of this server in one task, spread evenly, without waiting for replies.

While NATS is unreachable no lease can be confirmed: the log gets one line with the number of leases, not one
line per document.
"""

import asyncio
import heapq
import random
from collections.abc import Callable

from lorogo_protocol.errors import LorogoError
from lorogo_server.ownership.lease import Lease, LeaseLost
from lorogo_transport.clock import Clock
from lorogo_transport.tasks import Work
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_CONFIRMS_MAX = 64  # confirmations at once
_SPREAD = 0.1
_MANY = 64  # leases: from here on some are renewed early, so that several share one socket write and read
_EARLY_SECONDS = 0.1
_REPORT_SECONDS = 60.0  # between two log lines about unconfirmed leases


class Renewals:
    """Renews the leases that were added, until they end."""

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        renew_seconds: float,
        spawn: Callable[[Work], None],
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._renew_seconds = renew_seconds
        self._spawn = spawn
        self._due: list[tuple[float, int, Lease]] = []
        self._count = 0
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(_CONFIRMS_MAX)
        self._confirming: set[Lease] = set()  # one confirmation at a time, since NATS may be slow
        self._unconfirmed: dict[str, str] = {}  # document id -> problem of the last attempt
        self._report_at: float | None = None  # time of the next log line; None: no unconfirmed leases

    def add(self, lease: Lease) -> None:
        """Renew this lease until it ends."""
        self._push(lease)
        self._wake.set()

    def hurry(self) -> None:
        """Renew every lease now: after a reconnect, that confirms them with the stream leader."""
        now = self._clock.now()
        self._due = [(now, number, lease) for _, number, lease in self._due]
        heapq.heapify(self._due)
        self._wake.set()

    async def run(self) -> None:
        """Renew leases until cancelled."""
        while True:
            now = self._clock.now() + (_EARLY_SECONDS if len(self._due) >= _MANY else 0.0)
            while self._due and self._due[0][0] <= now:
                _, _, lease = heapq.heappop(self._due)
                if not lease.ended:
                    await self._renew(lease)
                    self._push(lease)
                else:
                    self._unconfirmed.pop(lease.document_id, None)
            self._report()
            self._wake.clear()
            delay = self._due[0][0] - self._clock.now() if self._due else 60.0
            try:
                async with asyncio.timeout(max(0.0, delay)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _renew(self, lease: Lease) -> None:
        if lease.doubtful:
            if lease not in self._confirming:
                self._confirming.add(lease)
                self._spawn(self._settle(lease))  # a task: it must not delay other renewals
            return
        try:
            await lease.renew()
        except LorogoError as error:
            log.debug("renewal not sent", document=lease.document_id, problem=str(error))

    async def _settle(self, lease: Lease) -> None:
        try:
            async with self._slots:
                await lease.confirm()
        except LeaseLost:
            self._unconfirmed.pop(lease.document_id, None)  # the lease has logged it
        except LorogoError as error:
            self._unconfirmed[lease.document_id] = str(error)
            if self._report_at is None:  # by then all other leases are tried as well
                self._report_at = self._clock.now() + self._renew_seconds
        else:
            self._unconfirmed.pop(lease.document_id, None)
        finally:
            self._confirming.discard(lease)

    def _report(self) -> None:
        """Log the number of unconfirmed leases: at the first, then once a minute."""
        now = self._clock.now()
        if self._report_at is None or now < self._report_at:
            return
        if self._unconfirmed:
            problem = next(reversed(self._unconfirmed.values()))
            log.info("leases unconfirmed", documents=len(self._unconfirmed), problem=problem)
            self._report_at = now + _REPORT_SECONDS
        else:
            self._report_at = None

    def _push(self, lease: Lease) -> None:
        self._count += 1
        spread = 1 - _SPREAD * self._rng.random()
        heapq.heappush(self._due, (self._clock.now() + self._renew_seconds * spread, self._count, lease))
