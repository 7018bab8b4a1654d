"""Lease of one document: fencing token, status revision, and validity.

Renewals do not wait for replies: the republished status confirms a renewal, and the lease counts from the
time at which that renewal was *sent*. Destructive operations first make a confirmed write (`confirm()`).
"""

import asyncio
import weakref
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from lorogo_protocol import lease as rules
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.lease import NO_FAILURES, Failures, OwnWrite, Reacquire, Reclaim, StatusEntry, StepDown
from lorogo_protocol.messages import headers as h
from lorogo_protocol.status import Down, Failed, Starting, Status, Up, encode
from lorogo_server.settings import ServerSettings
from lorogo_transport.clock import Clock
from lorogo_transport.errors import OutcomeUnknown, WrongLastSequence
from lorogo_transport.ports import Message
from lorogo_transport.stores.republish import sequence_of
from lorogo_transport.stores.statuses import Statuses
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TRIES = 8  # a confirmed write races only with this lease's renewals under way


class LeaseLost(LorogoError):
    """Another server owns or starts the document."""

    code = "not-owner"


class LeaseObserver(Protocol):
    """Gets a call when the lease is lost."""

    def step_down(self, why: str) -> None: ...


class LeaseStage(Enum):
    """STARTING ─▶ UP ─▶ RELEASED or LOST; a lease may also end while it is STARTING."""

    STARTING = auto()
    UP = auto()
    RELEASED = auto()  # ended by this server
    LOST = auto()  # another server has the document


class StatusView(Enum):
    """Knowledge of the stored status."""

    ACQUIRED = auto()  # the acquiring write; statuses since then may have been missed
    FOLLOWED = auto()  # an own write was confirmed or republished, so no status was missed
    INTERRUPTED = auto()  # the connection was lost: unconfirmed until the status is read from the leader
    REACQUIRING = auto()  # the bucket lost the status; a write with a new token is under way


_VALID_VIEWS = (StatusView.ACQUIRED, StatusView.FOLLOWED)


@dataclass(slots=True)
class _Sent:
    """A renewal under way."""

    revision: int  # expected revision
    at: float
    value: bytes  # written status


class Lease:
    """Lease of one server for one document, from the acquiring write to the end."""

    def __init__(
        self,
        document_id: str,
        *,
        server_id: str,
        operation_id: str,
        retry_count: int,
        token: int,
        acquired_at: float,
        failures: Failures = NO_FAILURES,
        wait_seconds: float = 0.0,
        statuses: Statuses,
        clock: Clock,
        settings: ServerSettings,
        journal_of: str = "",
        own_journal: bool = False,
    ) -> None:
        """Make a lease from the acquiring write.

        Args:
            failures: Failures of the document before this load; none once it is UP.
            wait_seconds: Pause before the load.
            journal_of: Server whose journal may hold more than NATS, from the status; "": none.
            own_journal: This server has a journal, and compares the other one before it writes UP.
        """
        self.document_id = document_id
        self.server_id = server_id
        self.token = token
        self.revision = token
        self.stage = LeaseStage.STARTING
        self.served = False  # UP was written, also if the lease has ended since
        self.view = StatusView.ACQUIRED
        self.head = 0
        self.operation_id = operation_id
        self.retry_count = retry_count
        self.failures = failures
        self.wait_seconds = wait_seconds
        self.journal_of = journal_of
        self._own_journal = own_journal
        self._confirmed_sent = acquired_at
        self._sent: _Sent | None = None
        self._confirming = asyncio.Lock()
        self._statuses = statuses
        self._clock = clock
        self._settings = settings
        self._observer: weakref.ref[LeaseObserver] | None = None  # weak: a closed host is freed at once

    def observe(self, observer: LeaseObserver) -> None:
        """Call this observer when the lease is lost."""
        self._observer = weakref.ref(observer)

    @property
    def ended(self) -> bool:
        """True once the lease is released or lost."""
        return self.stage is LeaseStage.RELEASED or self.stage is LeaseStage.LOST

    @property
    def lost(self) -> bool:
        """True if the lease ended because another server has the document."""
        return self.stage is LeaseStage.LOST

    def go_up(self) -> None:
        """Write UP from now on: the document is loaded."""
        if not self.ended:
            self.stage, self.served, self.failures = LeaseStage.UP, True, NO_FAILURES

    def connection_lost(self) -> None:
        """Treat the lease as unconfirmed."""
        if self.view is not StatusView.REACQUIRING:  # which ends INTERRUPTED
            self.view = StatusView.INTERRUPTED

    def valid(self) -> bool:
        """Return True if the owner may act on the document now."""
        return (
            self.view in _VALID_VIEWS
            and not self.ended
            and rules.lease_valid(
                now=self._clock.now(),
                confirmed_sent=self._confirmed_sent,
                lease_seconds=self._settings.lease_seconds,
            )
        )

    def on_status(self, entry: StatusEntry) -> Reclaim | None:
        """Handle a republished status; the caller must execute a returned Reclaim."""
        if self.ended or entry.revision <= self.revision:
            return None
        if self.view is StatusView.REACQUIRING and entry.server == self.server_id:
            return None
        match self._judge(entry, missed=self.view is not StatusView.FOLLOWED):
            case OwnWrite(revision):
                self._adopt(revision)
                return None
            case StepDown(why):
                self.lose(why)
                return None
            case Reclaim() as reclaim:
                return reclaim
            case Reacquire():
                return None  # unreachable: the entry exists

    def on_own_renewal(self, message: Message) -> bool:
        """Handle a republished renewal of this lease without parsing it; return False for other messages.

        Nearly all messages are own renewals. The effect is the same as that of `on_status()`.
        """
        sent = self._sent
        if sent is None or message.data != sent.value or self.ended:
            return False
        if self.view is StatusView.REACQUIRING:
            return False
        headers = message.headers
        if headers.get(h.SERVER) != self.server_id or headers.get(h.LEASE) != str(self.token):
            return False
        revision = sequence_of(message)
        if revision <= self.revision:
            return False
        self._adopt(revision)
        return True

    @property
    def doubtful(self) -> bool:
        """True if the last renewal was not republished, or the stored status is not known.

        A bucket that went back repeats revisions: a renewal under the old token could replace the new status.
        """
        return self.view not in _VALID_VIEWS or self._sent is not None

    async def renew(self) -> None:
        """Send a renewal without waiting for it."""
        if self.ended:
            return
        value = encode(self._status())
        self._sent = _Sent(self.revision, self._clock.now(), value)
        await self._statuses.write_unconfirmed(
            self.document_id,
            value,
            expected_revision=self.revision,
            server=self.server_id,
            lease=self.token,
            head=self.head,
            trace=self.failures.trace_id,
            failures=self.failures.count,
            journal_of=self._journal_now(),
        )

    async def confirm(self) -> None:
        """Write the status and wait until it is stored, which confirms the lease.

        Raises LeaseLost if another server has the document, or TransportError if the outcome is unknown.
        """
        async with self._confirming:
            if self.view is StatusView.INTERRUPTED and not self.ended:
                # NATS may have lost the end of the bucket and reused this revision for another write.
                await self._reread()
            for _ in range(_TRIES):
                if self.ended:
                    raise LeaseLost("the document was released")
                sent_at = self._clock.now()
                try:
                    revision = await self._write(
                        self._status(), failures=self.failures, journal_of=self._journal_now()
                    )
                except WrongLastSequence:
                    await self._reread()
                    continue
                self.revision = max(self.revision, revision)
                self._sent = None
                self._confirmed_sent = max(self._confirmed_sent, sent_at)
                self.view = StatusView.FOLLOWED
                return
            raise OutcomeUnknown(f"cannot confirm the lease of {self.document_id}")

    async def reclaim(self, reclaim: Reclaim) -> None:
        """Write UP over a DOWN, an ERROR or a removed key."""
        log.warning("status overwritten, writing it again", document=self.document_id)
        self.revision = max(self.revision, reclaim.expected_revision)
        await self.confirm()

    async def give_up(self, *, write_down: bool, owed: bool = False) -> None:
        """End the lease; with `write_down`, write DOWN so that other servers can acquire the document."""
        if self.ended:
            return
        self.stage = LeaseStage.RELEASED
        if write_down:
            await self.write_down(owed=owed)

    async def write_down(self, *, owed: bool = False) -> None:
        """Write DOWN with the head if this lease still owns the status; ends the lease.

        `owed`: this server's journal may hold more than NATS, so the status keeps its name.
        """
        if not self.ended:
            self.stage = LeaseStage.RELEASED
        for _ in range(_TRIES):
            if self.view not in _VALID_VIEWS and not await self._still_ours():
                return  # another server has written the status
            journal_of = "" if self._compared and not owed else self._journal_now()
            try:
                await self._write(Down(self._clock.wall_ns()), journal_of=journal_of)
                return
            except WrongLastSequence:
                self.view = StatusView.INTERRUPTED

    async def leave_failure(self, failures: Failures) -> None:
        """Write a failed load with its trace id if this lease still owns the status."""
        if self.lost or (self.view not in _VALID_VIEWS and not await self._still_ours()):
            return
        starting = Starting(self.operation_id, self.retry_count, self._clock.wall_ns())
        await self._write(starting, failures=failures, journal_of=self.journal_of)

    async def _write(self, status: Status, *, failures: Failures = NO_FAILURES, journal_of: str) -> int:
        """Write a status of this lease over the known revision; return the new one."""
        return await self._statuses.write(
            self.document_id,
            status,
            expected_revision=self.revision,
            server=self.server_id,
            lease=self.token,
            head=self.head,
            trace=failures.trace_id,
            failures=failures.count,
            journal_of=journal_of,
        )

    async def _still_ours(self) -> bool:
        """Read the status from the leader; if this lease owns it, adopt its revision and return True."""
        entry = await self._statuses.read(self.document_id)
        if entry is None or isinstance(entry.status, Down | Failed):
            return False
        if not isinstance(self._judge(entry), OwnWrite):
            return False
        self.revision, self.view = entry.revision, StatusView.FOLLOWED
        return True

    def lose(self, why: str) -> None:
        """End the lease at once, since another server has the document."""
        if not self.ended:
            self.stage = LeaseStage.LOST
            log.warning("lease lost", document=self.document_id, token=self.token, why=why)
            if self._observer is not None and (observer := self._observer()) is not None:
                observer.step_down(why)

    async def _reread(self) -> None:
        """Read the status from the leader and adopt it if it is ours. Raises LeaseLost otherwise."""
        before = self.revision
        entry = await self._statuses.read(self.document_id)
        if entry is not None and before == self.revision and self._went_back(entry):
            self.revision = 0  # the stored entry is the newest; the known revision is void
        match self._judge(entry, missed=True):  # entries before the newest may have been missed
            case OwnWrite(revision):
                self.revision = max(self.revision, revision)
            case Reacquire():
                await self._acquire_again()
            case Reclaim():
                raise AssertionError("no Reclaim after missed entries")
            case StepDown(why):
                self.lose(why)
                raise LeaseLost(why)

    def _went_back(self, entry: StatusEntry) -> bool:
        """Return True if the bucket lost our revision, or reused it for a DOWN or ERROR."""
        last_status = self.view is StatusView.INTERRUPTED and isinstance(entry.status, Down | Failed)
        return entry.revision < self.revision + last_status

    async def _acquire_again(self) -> None:
        """Acquire the document again with a new token, since the bucket lost its status."""
        log.error("status lost by the bucket, acquiring again", document=self.document_id, old=self.token)
        self.view = StatusView.REACQUIRING  # the republished status may arrive before the reply
        try:
            self.token = self.revision = await self._statuses.write(
                self.document_id,
                self._status(),
                expected_revision=0,
                server=self.server_id,
                journal_of=self._journal_now(),
            )
        finally:
            self.view = StatusView.INTERRUPTED  # until the confirming write that follows

    def _judge(self, entry: StatusEntry | None, *, missed: bool = False) -> rules.OwnerStep:
        return rules.owner_step(
            entry,
            server_id=self.server_id,
            token=self.token,
            revision=self.revision,
            operation_id=self.operation_id,
            missed=missed,
        )

    def _adopt(self, revision: int) -> None:
        self.revision = revision
        if self.view is StatusView.ACQUIRED:
            self.view = StatusView.FOLLOWED  # it replaced this lease's own entry: no other was missed
        sent = self._sent
        if sent is not None and revision > sent.revision:
            self._confirmed_sent = max(self._confirmed_sent, sent.at)
            self._sent = None

    @property
    def _compared(self) -> bool:
        """True if the journal that the status named is compared, and this server's takes its place."""
        return self.served and self._own_journal

    def _journal_now(self) -> str:
        return self.server_id if self._compared else self.journal_of

    def _status(self) -> Status:
        if self.stage is LeaseStage.UP:
            return Up(self.server_id, self._clock.wall_ns())
        return Starting(self.operation_id, self.retry_count, self._clock.wall_ns())
