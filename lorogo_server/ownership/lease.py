"""One document's lease: the token, the revision, and how long the owner may trust them.

The lease is renewed without waiting for replies: the republished status tells that a renewal came
through, and the lease lasts from when that renewal was *sent*. What may destroy something first makes
a confirmed write (`confirm()`).
"""

import asyncio
import weakref
from dataclasses import dataclass
from typing import Protocol

from lorogo_protocol import headers as h
from lorogo_protocol import lease as rules
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.lease import NO_FAILURES, Failures, OwnWrite, Reacquire, Reclaim, StatusEntry, StepDown
from lorogo_protocol.status import Down, Failed, Starting, Status, Up, encode
from lorogo_server.settings import ServerSettings
from lorogo_transport.clock import Clock
from lorogo_transport.errors import OutcomeUnknown, WrongLastSequence
from lorogo_transport.ports import Message
from lorogo_transport.stores.republish import sequence_of
from lorogo_transport.stores.statuses import Statuses
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TRIES = 8  # a confirmed write races only with our own renewals under way


class LeaseLost(LorogoError):
    """Somebody else owns or starts the document."""

    code = "not-owner"


class LeaseObserver(Protocol):
    """Who must know when the lease is gone."""

    def step_down(self, why: str) -> None: ...


@dataclass(slots=True)
class _Sent:
    """A renewal on its way."""

    revision: int  # that it expects
    at: float
    value: bytes  # what it writes


class Lease:
    """Held by one server for one document, from the write that acquired it to the end."""

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
        holder: LeaseObserver,
        new: bool = False,
        taken_from: str = "",
    ) -> None:
        """`new`: the document had no status when it was acquired, so most likely it has nothing stored.

        `failures`: of the document before this load. `wait_seconds`: before the load begins.
        `taken_from`: the server that held it and did not release it; "": none.
        """
        self.document_id = document_id
        self.server_id = server_id
        self.token = token
        self.revision = token
        self.up = False
        self.new = new
        self.ended = False
        self.lost = False  # it ended because another has the document
        self.interrupted = False  # the connection was lost since it was acquired
        self.suspended = False  # after a reconnect, until the key was read from the leader
        self.settling = False  # somebody confirms it just now, because it was doubtful
        self.head = self.tail = 0
        self.operation_id = operation_id
        self.retry_count = retry_count
        self.failures = failures
        self.wait_seconds = wait_seconds
        self.taken_from = taken_from
        self._confirmed_sent = acquired_at
        self._sent: _Sent | None = None
        self._followed = False  # entries after the one that acquired may have gone by before we listened
        self._confirming = asyncio.Lock()
        self._acquiring_again = False
        self._statuses = statuses
        self._clock = clock
        self._settings = settings
        self._holder = weakref.ref(holder)  # who holds us: a closed host goes at once, whoever has its lease

    def valid(self) -> bool:
        """Whether the owner may act on the document now."""
        return (
            not self.ended
            and not self.suspended
            and rules.lease_valid(
                now=self._clock.now(),
                confirmed_sent=self._confirmed_sent,
                lease_seconds=self._settings.lease_seconds,
            )
        )

    def heard(self, entry: StatusEntry) -> Reclaim | None:
        """Take note of a republished status; a Reclaim is for the caller to carry out."""
        if self.ended or entry.revision <= self.revision:
            return None
        if self._acquiring_again and entry.server == self.server_id:
            return None
        match self._judge(entry, missed=self.suspended or not self._followed):
            case OwnWrite(revision):
                self._adopt(revision)
                return None
            case StepDown(why):
                self.lose(why)
                return None
            case Reclaim() as reclaim:
                return reclaim
            case Reacquire():
                return None  # there is an entry: it cannot be gone

    def echoed(self, message: Message) -> bool:
        """Take note of our own renewal that comes back, as nearly all that is heard here does.

        That is what `heard()` would make of it, without reading it. False: it is something else.
        """
        sent = self._sent
        if sent is None or message.data != sent.value or self.ended or self._acquiring_again:
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
        """Whether the last renewal never came back, or the connection was lost since."""
        return self.suspended or self._sent is not None

    async def renew(self) -> None:
        """Send a renewal without waiting for it."""
        if self.ended:
            return
        value, failures = encode(self._status()), self._failures_now()
        self._sent = _Sent(self.revision, self._clock.now(), value)
        await self._statuses.write_unconfirmed(
            self.document_id,
            value,
            expected_revision=self.revision,
            server=self.server_id,
            lease=self.token,
            head=self.head,
            tail=self.tail,
            trace=failures.trace_id,
            failures=failures.count,
        )

    async def confirm(self) -> None:
        """Write the status and wait until it is stored: from then on the lease is surely ours.

        Raises LeaseLost if somebody else has the document, or TransportError if nobody can tell now.
        """
        async with self._confirming:
            await self._confirm()

    async def _confirm(self) -> None:
        if self.suspended and not self.ended:
            # NATS may have lost the end of the bucket, and given out our revision to another since.
            await self._look_again()
        for _ in range(_TRIES):
            if self.ended:
                raise LeaseLost("the document was given up")
            sent_at, failures = self._clock.now(), self._failures_now()
            try:
                revision = await self._statuses.write(
                    self.document_id,
                    self._status(),
                    expected_revision=self.revision,
                    server=self.server_id,
                    lease=self.token,
                    head=self.head,
                    tail=self.tail,
                    trace=failures.trace_id,
                    failures=failures.count,
                )
            except WrongLastSequence:
                await self._look_again()
                continue
            self.revision = max(self.revision, revision)
            self._sent = None
            self._confirmed_sent = max(self._confirmed_sent, sent_at)
            self._followed = True
            self.suspended = False
            return
        raise OutcomeUnknown(f"the lease of {self.document_id} could not be confirmed")

    async def reclaim(self, reclaim: Reclaim) -> None:
        """Write UP over a DOWN, an ERROR or a removed key."""
        log.warning("status overwritten by somebody, writing it again", document=self.document_id)
        self.revision = max(self.revision, reclaim.expected_revision)
        await self.confirm()

    async def give_up(self, *, write_down: bool) -> None:
        """End the lease; with `write_down`, say DOWN so that the next edit is served elsewhere at once."""
        if self.ended:
            return
        self.ended = True
        if write_down:
            await self.write_down()

    async def write_down(self) -> None:
        """Say DOWN, and how far we came, if the key is still ours; the lease has ended or is about to."""
        self.ended = True
        for _ in range(_TRIES):
            if self.suspended and not await self._still_ours():
                return  # somebody else has written: it is theirs to say
            try:
                await self._statuses.write(
                    self.document_id,
                    Down(self._clock.wall_ns()),
                    expected_revision=self.revision,
                    server=self.server_id,
                    lease=self.token,
                    head=self.head,
                    tail=self.tail,
                )
                return
            except WrongLastSequence:
                self.suspended = True

    async def leave_failure(self, failures: Failures) -> None:
        """The load failed: write that and where to look, if the key is still ours."""
        if self.lost or (self.suspended and not await self._still_ours()):
            return
        await self._statuses.write(
            self.document_id,
            Starting(self.operation_id, self.retry_count, self._clock.wall_ns()),
            expected_revision=self.revision,
            server=self.server_id,
            lease=self.token,
            trace=failures.trace_id,
            failures=failures.count,
        )

    async def _still_ours(self) -> bool:
        """Whether the leader says so; then it is known at which revision."""
        entry = await self._statuses.read(self.document_id)
        if entry is None or isinstance(entry.status, Down | Failed):
            return False
        if not isinstance(self._judge(entry), OwnWrite):
            return False
        self.revision, self.suspended = entry.revision, False
        return True

    def lose(self, why: str) -> None:
        """Somebody else has it: stop at once."""
        if not self.ended:
            self.ended = self.lost = True
            log.warning("lease lost", document=self.document_id, token=self.token, why=why)
            if (holder := self._holder()) is not None:
                holder.step_down(why)

    async def _look_again(self) -> None:
        """Read the key from the leader and adopt what is ours; LeaseLost if it is not."""
        before = self.revision
        entry = await self._statuses.read(self.document_id)
        if entry is not None and before == self.revision and self._went_back(entry):
            self.revision = 0  # what is there is the newest, whatever we knew
        match self._judge(entry, missed=True):  # it is the newest: others before it may be unheard
            case OwnWrite(revision):
                self.revision = max(self.revision, revision)
            case Reacquire():
                await self._acquire_again()
            case Reclaim():
                raise AssertionError("after a gap nothing is reclaimed")
            case StepDown(why):
                self.lose(why)
                raise LeaseLost(why)

    def _went_back(self, entry: StatusEntry) -> bool:
        """Whether the bucket lost its end: our revision is gone, or was given out again for a last word."""
        last_word = self.suspended and isinstance(entry.status, Down | Failed)
        return entry.revision < self.revision + last_word

    async def _acquire_again(self) -> None:
        """The bucket lost our key: take the document as if for the first time, with a new token."""
        log.error("status lost by the bucket, acquired again", document=self.document_id, old=self.token)
        self._acquiring_again = True  # its republished copy may come before its confirmation
        try:
            self.token = self.revision = await self._statuses.write(
                self.document_id, self._status(), expected_revision=0, server=self.server_id
            )
        finally:
            self._acquiring_again = False

    def _judge(self, entry: StatusEntry | None, *, missed: bool = False) -> rules.OwnerStep:
        return rules.owner_sees(
            entry,
            server_id=self.server_id,
            token=self.token,
            revision=self.revision,
            operation_id=self.operation_id,
            missed=missed,
        )

    def _adopt(self, revision: int) -> None:
        self.revision = revision
        self._followed = True  # it replaced our own entry, so nobody's was between
        sent = self._sent
        if sent is not None and revision > sent.revision:
            self._confirmed_sent = max(self._confirmed_sent, sent.at)
            self._sent = None

    def _failures_now(self) -> Failures:
        return NO_FAILURES if self.up else self.failures

    def _status(self) -> Status:
        if self.up:
            return Up(self.server_id, self._clock.wall_ns())
        return Starting(self.operation_id, self.retry_count, self._clock.wall_ns())
