"""Acquisition of a document: handles `loro.init.{id}`.

With an operation id in the body, a client has written STARTING, and one server acquires the document. With
`LORO_EXPECTED`, or with an empty body (of clients without rights on the bucket), the client has not: then the
server writes STARTING itself, with its own id, so that one write starts and acquires the document.
"""

from lorogo_protocol import lease as rules
from lorogo_protocol import limits
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import is_token
from lorogo_protocol.lease import (
    NO_FAILURES,
    Acquire,
    Condemn,
    Decline,
    GiveUp,
    Ping,
    RequestStart,
    Serve,
    StatusEntry,
    Wait,
)
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import sentence
from lorogo_protocol.staleness import StalenessTracker
from lorogo_protocol.status import Failed, Starting, Up
from lorogo_server.context import ServerContext
from lorogo_server.ownership.lease import Lease
from lorogo_transport.errors import NoResponders, OutcomeUnknown, RequestTimeout, WrongLastSequence
from lorogo_transport.ports import Message
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_PING_SECONDS = 1.0


class NotAcquired(LorogoError):
    """This server did not acquire the document; the message has the reason.

    `again_seconds`: retry after that time, since the document may have no owner. `failed`: the load failed.
    `trace_id`: of the last failed load of a document in ERROR.
    """

    code = "conflict"

    def __init__(
        self,
        why: str,
        *,
        again_seconds: float = 0.0,
        failed: bool = False,
        trace_id: str = "",
        reason: Reason = Reason.CONFLICT,
    ) -> None:
        super().__init__(why)
        self.again_seconds = again_seconds
        self.failed = failed
        self.trace_id = trace_id
        self.reason = reason

    def headers(self) -> dict[str, str]:
        """Headers of the reply to an init."""
        headers = {h.REASON: self.reason.value, h.MESSAGE: sentence(str(self))}
        return {**headers, h.TRACE: self.trace_id} if self.trace_id else headers


class Acquisition:
    """Handles inits for one server."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self.staleness = StalenessTracker()
        self._recovering: set[str] = set()  # documents that are being restored from journals

    async def take(self, document_id: str, message: Message) -> Lease:
        """Acquire the document of an init. Raises NotAcquired, TransportError."""
        try:
            operation_id = message.data.decode("ascii")
        except UnicodeDecodeError:
            raise NotAcquired("the operation id is not ASCII") from None
        if operation_id and not is_token(operation_id):
            raise NotAcquired("the operation id is not a token")
        expected = message.headers.get(h.EXPECTED)
        try:
            if operation_id and expected is None:
                entry = await self._context.statuses.read(document_id)
            else:
                operation_id = operation_id or self._context.new_id()
                existing = h.EXISTING in message.headers
                entry = await self._moved(document_id, operation_id, none=expected == "0", existing=existing)
            return await self._acquire(document_id, entry, operation_id)
        except WrongLastSequence:
            raise NotAcquired("another client or server changed the status first") from None
        except OutcomeUnknown as error:
            raise NotAcquired(str(error)) from error

    async def _acquire(
        self,
        document_id: str,
        entry: StatusEntry | None,
        operation_id: str,
    ) -> Lease:
        context = self._context
        first = entry is not None and rules.begins_series(entry)
        known = NO_FAILURES if first else context.load_notes.failures(document_id)
        journal_of = "" if entry is None or not is_token(entry.journal_of) else entry.journal_of
        match rules.answer_init(entry, operation_id, known=known, retries_max=context.settings.retries_max):
            case Decline(why):
                raise NotAcquired(why)
            case Condemn(failures, expected):
                trace_id = failures.trace_id or context.new_id()
                failed = Failed(trace_id, context.clock.wall_ns())
                await context.statuses.write(
                    document_id,
                    failed,
                    expected_revision=expected,
                    server=context.server_id,
                    failures=failures.count,
                    journal_of=journal_of,
                )
                log.error(
                    "too many failed loads, document set to ERROR",
                    document=document_id,
                    trace=trace_id,
                    failures=failures.count,
                )
                raise NotAcquired(
                    f"too many loads of the document failed; trace {trace_id}", trace_id=trace_id
                )
            case Acquire(status, expected, failures, restarted):
                sent_at = context.clock.now()
                mine = Starting(operation_id, status.retry_count, context.clock.wall_ns())
                token = await context.statuses.write(
                    document_id,
                    mine,
                    expected_revision=expected,
                    server=context.server_id,
                    trace=failures.trace_id,
                    failures=failures.count,
                    journal_of=journal_of,
                )
                if first:
                    context.load_notes.forget(document_id)
                before = rules.taken_from(entry)
                if is_token(before) and before != context.server_id:
                    context.counters.took_over(document_id, before, context.clock.wall_ns())
                return Lease(
                    document_id,
                    server_id=context.server_id,
                    operation_id=operation_id,
                    retry_count=status.retry_count,
                    token=token,
                    acquired_at=sent_at,
                    failures=failures,
                    wait_seconds=self._backoff(document_id) if restarted else 0.0,
                    statuses=context.statuses,
                    clock=context.clock,
                    settings=context.settings,
                    journal_of=journal_of,
                    own_journal=context.has_journal,
                )

    def _backoff(self, document_id: str) -> float:
        """Return the pause before the load after the retry count exceeded its limit."""
        restarts = self._context.load_notes.restarted(document_id)
        longest = min(limits.RESTART_SECONDS_MAX, limits.RESTART_SECONDS * 2.0 ** min(restarts, 30))
        return longest * (0.5 + self._context.rng.random() / 2)

    async def _moved(self, document_id: str, operation_id: str, *, none: bool, existing: bool) -> StatusEntry:
        """Return the STARTING that a client would write now, with the expected revision. Raises NotAcquired.

        `none`: the client saw no status. Then the status is not read: the write expects none and verifies it.
        `existing`: do not create a document that does not exist.
        """
        context = self._context
        entry = None if none else await context.statuses.read(document_id)
        if entry is None and existing and not await self._may_exist(document_id):
            raise NotAcquired("the document does not exist", reason=Reason.NOT_FOUND)
        seen = 0.0
        if entry is not None:
            seen = self.staleness.saw(document_id, entry.revision, context.clock.now())
        up = entry is not None and isinstance(entry.status, Up)
        match self._wish(entry, seen, await self._ping(document_id) if up else None):
            case RequestStart(retry_count, expected):
                status = Starting(operation_id, retry_count, context.clock.wall_ns())
                if entry is None:
                    return StatusEntry(status, expected)
                return StatusEntry(
                    status,
                    expected,
                    trace=entry.trace,
                    failures=entry.failures,
                    taken_from=rules.taken_from(entry),
                    journal_of=entry.journal_of,
                )
            case Serve():
                raise NotAcquired("the document is up")
            case Ping():
                stale = max(0.0, context.settings.stale_seconds - seen)
                raise NotAcquired(
                    "the owner does not reply; another server takes over when the lease is stale",
                    again_seconds=stale,
                )
            case Wait(seconds):
                raise NotAcquired(
                    f"the document is starting; retry in {seconds:.1f} s", again_seconds=seconds
                )
            case GiveUp(trace_id):
                raise NotAcquired(
                    f"the document is in ERROR, trace {trace_id}; reset it first", trace_id=trace_id
                )

    async def _may_exist(self, document_id: str) -> bool:
        """Return True if a document without a status exists, or an absent journal may have it.

        The present journals first restore data of the document that NATS may have lost. Raises NotAcquired.
        """
        if await self._is_stored(document_id):
            return True
        if document_id in self._recovering:
            raise NotAcquired("the document is being restored from journals; retry")
        self._recovering.add(document_id)
        try:
            absent = await self._context.recover(document_id, "")
        finally:
            self._recovering.discard(document_id)
        return bool(absent) or await self._is_stored(document_id)

    async def _is_stored(self, document_id: str) -> bool:
        """Return True if NATS has any data of the document besides a status."""
        context = self._context
        return (
            await context.wal.last(subjects.wal(document_id)) is not None
            or await context.snapshots.head(document_id) is not None
            or await context.keeps_presence(document_id)
        )

    def _wish(self, entry: StatusEntry | None, seen: float, ping: bool | None) -> rules.ClientStep:
        stale = self._context.settings.stale_seconds
        return rules.wish(entry, seen_seconds=seen, ping=ping, stale_seconds=stale)

    async def _ping(self, document_id: str) -> bool | None:
        try:
            await self._context.transport.bus.request(subjects.ping(document_id), timeout=_PING_SECONDS)
        except NoResponders:
            return False
        except RequestTimeout:
            return None
        return True
