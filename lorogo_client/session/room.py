"""One document in this process: its subscriptions and its traffic. Sessions are views of it.

    loro.accepted ──▶ apply in order; a gap needs a sync    app commits ──▶ outbox ──▶ loro.wal
    loro.status ────▶ owner, and its newest update          inbox ─────▶ ACK, NACK ──▶ outbox

Handlers only record what is needed and wake the main task: this one task finds the owner, syncs and sends,
one step at a time. So there are never two concurrent syncs, and updates are sent in order.
"""

import asyncio
from collections.abc import Callable

from loro import DiffEvent

from lorogo_client.context import ClientContext
from lorogo_client.delivery.accepted import AcceptedAssembler
from lorogo_client.delivery.retry_policy import backoff
from lorogo_client.errors import (
    ClientError,
    DocumentDeleted,
    DocumentFailed,
    NotAllowed,
    NotServed,
    ServerFull,
)
from lorogo_client.session.mirror import Mirror, MirrorCallbacks
from lorogo_client.session.notifications import Change, Rebased, State
from lorogo_client.session.notifier import Notifier
from lorogo_client.session.presence import RoomPresence
from lorogo_client.session.room_copy import RoomCopy
from lorogo_client.session.sender import Sender
from lorogo_client.session.syncing import ask
from lorogo_client.session.weak_callbacks import weakly
from lorogo_protocol.access.grants import Access
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import replies, subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import ERASED, Reason
from lorogo_protocol.status import Failed
from lorogo_transport.errors import NotAuthorized, PermissionDenied, RequestTimeout, TransportError
from lorogo_transport.light import Timer
from lorogo_transport.ports import Message, Subscription
from lorogo_transport.stores.statuses import status_of
from lorogo_transport.tasks import Tasks, within
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_PASSING = (TransportError, MalformedMessage, NotServed)
_PASSING_REASONS = (Reason.NOT_OWNER, Reason.BUSY, Reason.FAILED)


class Room:
    """A document that sessions of this process share."""

    def __init__(self, context: ClientContext, document_id: str, *, read_only: bool) -> None:
        settings = context.settings
        self.document_id = document_id
        self.sessions = 0
        self.notifier = Notifier(settings.changes_max)
        callbacks = MirrorCallbacks(weakly(self._on_local), weakly(self._on_remote), weakly(self._on_rebased))
        self.mirror = Mirror(document_id, settings, context.new_id, callbacks, read_only=read_only)
        self.presence = RoomPresence(
            context.bus,
            document_id,
            timeout_seconds=settings.presence_seconds,
            bytes_max=settings.presence_bytes_max,
        )
        self.delay_reason: LorogoError | None = None  # why a sync is delayed
        self.closed = False
        self.room_copy = RoomCopy(context, document_id, self.mirror, on_change=weakly(self.notify))
        self._started = asyncio.Event()
        self._context = context
        self._settings = settings
        self._bus = context.bus
        self._arrivals = AcceptedAssembler()
        self._revision = 0  # of the newest status seen
        self._halted: DocumentFailed | None = None  # until the status changes
        self._denied: NotAllowed | None = None  # by the owner or NATS, until a request succeeds
        self._connecting = True
        self._head_check: tuple[float, int] | None = None  # (when to check, a head not seen)
        self._owner_seen_at = 0.0  # when the newest status arrived, or the owner answered
        self._pinged_at = 0.0
        self._wake = asyncio.Event()
        self._timer = Timer(context.clock, self._wake.set)
        self._timer_unset = False  # the main task waits without a timer
        self._urgent = asyncio.Event()  # ends a pause after a failure
        self._sender = Sender(context, document_id, self.mirror, weakly(self._on_answer))
        self._subscriptions: list[Subscription] = []
        self._tasks = Tasks(self._on_task_error)
        self._stop_watching: Callable[[], None] = lambda: None

    @property
    def problem(self) -> LorogoError | None:
        """The error that prevents saving, temporarily or for good; None if nothing is wrong."""
        passing = self.unauthorized or self._missing_access or self._denied or self._halted
        return self.mirror.failure or passing or self.mirror.stalled

    @property
    def full(self) -> ServerFull | None:
        """ServerFull if no server serves the document because the server's disk is full; else None."""
        return self.delay_reason if isinstance(self.delay_reason, ServerFull) else None

    @property
    def blocking_problem(self) -> LorogoError | None:
        """The problem, if waiting does not help.

        A refusal by NATS may pass: after a restart NATS refuses every token until the auth service is
        connected again. Only an expired token that cannot be renewed is permanent.
        """
        unauthorized, token_provider = self.unauthorized, self._context.token_provider
        if unauthorized is None or self.mirror.failure is not None:
            return self.problem
        return unauthorized if token_provider.expired and not token_provider.renewable else None

    @property
    def unauthorized(self) -> NotAuthorized | None:
        """The error with which NATS refuses this client; None if connected or for another reason."""
        problem = None if self._bus.connected else self._bus.problem
        return self._context.token_provider.explained(problem) if isinstance(problem, NotAuthorized) else None

    @property
    def _missing_access(self) -> NotAllowed | None:
        """The error if the current token no longer grants the needed access: a fresh token may grant less."""
        needed = Access.READ if self.mirror.read_only else Access.WRITE
        return self._context.token_provider.denied(self.document_id, needed)

    @property
    def connected(self) -> bool:
        return self._bus.connected

    async def start(self, *, create: bool = False) -> None:
        """Load the stored copy (or `create` an empty document), subscribe, and start to catch up."""
        try:
            await self.room_copy.open(create=create)
            await self._begin()
        finally:
            self._started.set()

    async def started(self, timeout: float) -> None:
        """Return when the first session has opened the room. Raises NotServed."""
        if not await within(timeout, _wait(self._started)):
            raise NotServed(self.document_id, f"the store did not answer in {timeout:g} s")

    async def _begin(self) -> None:
        self._stop_watching = self._bus.watch_connection(self._on_connection)
        for subject, handler in (
            (subjects.accepted(self.document_id), self._on_accepted),
            (subjects.status(self.document_id), self._on_status),
            (subjects.awareness(self.document_id), self.presence.on_message),
        ):
            self._subscriptions.append(await self._bus.subscribe(subject, handler))
        name = self.document_id
        self._tasks.spawn(self._run(), name=f"room {name}")
        self._tasks.spawn(self.room_copy.run(), name=f"archive {name}")
        self._tasks.spawn(self.presence.run(), name=f"presence {name}", on_error=self._on_presence_error)

    async def close(self) -> None:
        """Stop everything; edits that are neither ACKed nor in a local store are lost."""
        if self.closed:
            return
        self.closed = True
        self._stop_watching()
        self._stop_watching = lambda: None
        try:
            await self._tasks.close()
            await self.presence.leave()
        finally:
            while self._subscriptions:  # they hold references to the room
                await self._subscriptions.pop().close()
            self._sender.close()
            self._timer.stop()
            await self.room_copy.close()
            self.mirror.replica.retire()
            self.notify()
            self.notifier.close(None)

    def wake(self) -> None:
        """Wake the main task."""
        self._wake.set()

    def retry_full_stream(self) -> None:
        """Retry sending to a stream that was full."""
        self.mirror.stalled = None
        self._wake.set()

    def notify(self) -> None:
        """Notify readers of the current state."""
        if self.mirror.failure is not None:
            self.notifier.failed(self.mirror.failure)
        self.notifier.notify(self.state)

    @property
    def state(self) -> State:
        """The current state for the app."""
        if not self._bus.connected or self.closed:
            return State.OFFLINE if self.closed or self.unauthorized is None else State.UNAUTHORIZED
        if self.mirror.failure is not None:
            return State.SAVING  # permanently
        if self._connecting or self._halted or self._denied or not self.mirror.ready:
            return State.CONNECTING
        return State.SAVED if self.mirror.outbox.empty else State.SAVING

    # --- callbacks of Loro and NATS

    def _on_local(self) -> None:
        self.notify()
        self._wake.set()

    def _on_remote(self, event: DiffEvent, sequence: int) -> None:
        self.notifier.changed(Change(event, sequence))

    def _on_rebased(self) -> None:
        self.notifier.changed(Rebased())

    def _on_connection(self, connected: bool) -> None:
        need = self.mirror.need
        need.owner = True
        if connected:
            need.sync = need.resend = True
            self.mirror.stalled = self._denied = None
        self._connecting = True
        self.notify()
        self._wake.set()
        self._urgent.set()

    def _on_accepted(self, message: Message) -> None:
        try:
            if message.headers.get(h.REASON) == Reason.DELETED.value:
                erased = message.headers.get(h.MESSAGE) == ERASED
                self._on_deleted(replies.number(message.headers, h.LEASE), erased=erased)
                return
            own = self.mirror.outbox.owns(message.headers.get(h.LOG_ID, ""))
            now = self._context.clock.now()
            update = self._arrivals.add(message.headers, message.data, own=own, now=now)
        except MalformedMessage as error:
            log.warning("malformed accepted update", document=self.document_id, problem=str(error))
            return
        if update is not None:
            self.mirror.arrived(update)
            if self.mirror.need.sync:
                self._wake.set()

    def _on_deleted(self, lease: int, *, erased: bool) -> None:
        if self.mirror.on_lease(lease):
            self.mirror.fail(DocumentDeleted(self.document_id, erased=erased))
            self.notify()
            self._wake.set()

    def _on_status(self, message: Message) -> None:
        entry = status_of(message)
        if entry is None:
            return
        self._context.starter.on_status(self.document_id, entry)
        if entry.revision <= self._revision:
            return
        self._revision = entry.revision
        self._owner_seen_at = now = self._context.clock.now()
        if self._idle and self.mirror.is_renewal(entry):
            return  # nothing to do; `_owner_seen_at` is already updated
        self.mirror.on_status(entry)
        if not isinstance(entry.status, Failed):
            self._halted = None
        if self.mirror.chain.behind(entry.head):
            # the renewal may have overtaken the update that its head names
            self._head_check = (now + self._settings.head_grace_seconds, entry.head)
        self._wake.set()
        if not self.mirror.need.owner:
            self._urgent.set()

    @property
    def _idle(self) -> bool:
        """True if no owner status could solve a problem, and none existed when the main task last waited.

        A problem may have passed without an event: a fresh token grants what the last one did not.
        """
        well = self.problem is None and self.delay_reason is None and self._head_check is None
        return well and not self._timer_unset

    def _on_answer(self) -> None:
        self.notify()
        need = self.mirror.need
        if need.sync or need.owner or not self.mirror.outbox.all_sent:
            self._wake.set()

    # --- the main task

    async def _run(self) -> None:
        failures = 0
        while self.mirror.failure is None:
            self._wake.clear()
            self._urgent.clear()
            pause: float | None = None
            try:
                if self._bus.connected and self._halted is None and self._may_read():
                    await self._work()
                    failures = 0
            except DocumentFailed as error:
                self._halted = error
            except PermissionDenied as error:
                pause, failures = self._on_permission_denied(str(error), failures), failures + 1
            except _PASSING as error:
                pause, failures = self._retry_later(error, failures), failures + 1
            except Refused as no:
                if no.reason is Reason.PERMISSION_DENIED:
                    pause, failures = self._on_permission_denied(str(no), failures), failures + 1
                elif no.reason is Reason.DELETED:
                    self.mirror.fail(DocumentDeleted(self.document_id, erased=str(no) == ERASED))
                elif no.reason in _PASSING_REASONS:
                    pause, failures = self._retry_later(no, failures), failures + 1
                else:
                    self.mirror.fail(no)
            self.notify()
            await self._rest(pause)
        self.notify()

    def _retry_later(self, error: LorogoError, failures: int) -> float:
        """Record a temporary failure; find the owner again after the returned pause."""
        self.delay_reason = error
        self.mirror.need.owner = self.mirror.need.sync = True
        settings = self._settings
        least, most = settings.retry_seconds_min, settings.retry_seconds_max
        return backoff(failures, least=least, most=most, jitter=self._context.rng.random())

    def _on_permission_denied(self, why: str, failures: int) -> float:
        """Record that access is denied; retry with long pauses, because an operator may grant it."""
        self._denied = NotAllowed(why, document_id=self.document_id)
        self._retry_later(self._denied, failures)
        return self._settings.retry_seconds_max

    async def _work(self) -> None:
        """Do all work that is due."""
        mirror = self.mirror
        now = self._context.clock.now()
        if self._head_check is not None and self._head_check[0] <= now:
            mirror.need.sync |= mirror.chain.behind(self._head_check[1])
            self._head_check = None
        await self._check_owner(now)
        if mirror.need.sync or (mirror.need.owner and not mirror.outbox.empty):
            await self._catch_up()
        await self._sender.send_ready(self._may_send)

    async def _check_owner(self, now: float) -> None:
        """Ping the owner if replies are late or renewals are missing: this detects a dead owner early."""
        outbox, need = self.mirror.outbox, self.mirror.need
        ask_at = self._ping_at()
        owner_silent = ask_at is not None and ask_at <= now
        if overdue := outbox.overdue(now):
            need.owner = True
            for flight in overdue:
                outbox.unsent(flight.log_id, now, self._context.rng.random(), unanswered=True)
        elif owner_silent or (outbox.ping_due(now) and now - self._pinged_at >= self._settings.doubt_seconds):
            self._pinged_at = now
            starter = self._context.starter
            answer = await starter.ping(self.document_id)
            if answer:
                self._owner_seen_at = now = self._context.clock.now()
                outbox.second_try(now, self._context.rng.random())
            elif answer is False or starter.stale(self.document_id):
                need.owner = True
                need.sync |= owner_silent

    def _ping_at(self) -> float | None:
        """Return the time to ping a silent owner; None if it is DOWN or a sync is due.

        A dead owner may have accepted an update that did not reach this client, and the renewal that
        would name it never arrives.
        """
        if self.mirror.ended or self.mirror.need.sync:
            return None
        settings = self._settings
        return max(self._owner_seen_at + settings.stale_seconds, self._pinged_at + settings.doubt_seconds)

    async def _catch_up(self) -> None:
        """Find the owner, and sync with it if needed."""
        mirror, context = self.mirror, self._context
        self._connecting = True
        self.notify()
        if not mirror.ready and not mirror.need.owner:
            await self._bus.barrier(self._settings.reply_seconds)  # so that nothing is missed after the sync
        if mirror.need.owner:  # a reply to a request after the subscriptions is a barrier, too
            entry = await context.starter.served(
                self.document_id, timeout=self._settings.open_seconds, listening=True
            )
            mirror.found_owner(entry)
            if entry is not None:  # the revisions of a recreated bucket start lower
                self._revision = min(self._revision, entry.revision)
        while mirror.need.sync and mirror.failure is None:
            mirror.syncing()
            try:
                answer = await ask(
                    context,
                    self.document_id,
                    None if mirror.need.fresh else mirror.replica,
                    generation=mirror.generation,
                    edited=mirror.outbox.commits > 0,
                )
            except LorogoError:
                mirror.sync_failed()
                raise
            if answer.lease < mirror.token:
                mirror.sync_failed()
                raise RequestTimeout("a server that lost the document answered the sync")
            mirror.absorb(answer, now=context.clock.now(), jitter=context.rng.random())
            await self.room_copy.put_aside()
            if answer.presence:
                self.presence.apply(answer.presence)
        self._owner_seen_at = context.clock.now()
        self._connecting = False
        self.delay_reason = self._denied = None
        self._sender.forget_replaced()
        self.notify()

    def _may_read(self) -> bool:
        return self._context.token_provider.denied(self.document_id, Access.READ) is None

    def _may_send(self) -> bool:
        need = self.mirror.need
        fine = self.problem is None and self._bus.connected
        return fine and not self.mirror.read_only and not need.sync and not need.owner

    async def _rest(self, pause: float | None) -> None:
        """Wait until there is work; after a failure for the pause, or until the situation improves."""
        if pause is not None:
            await within(pause, self._urgent.wait())
            return
        now = self._context.clock.now()
        if (due := self._next_due(now)) is not None:
            self._timer.ring_at(due)
        self._timer_unset = due is None
        await self._wake.wait()

    def _next_due(self, now: float) -> float | None:
        """Return when timed work is due; None: only an event can bring work."""
        if self.problem is not None or not self._bus.connected:
            return None
        early = self._sender.early()
        due = self.mirror.outbox.next_deadline(
            after=self._pinged_at, sending_from=now + early if early else 0.0
        )
        if self._head_check is not None:
            due = self._head_check[0] if due is None else min(due, self._head_check[0])
        ask_at = self._ping_at()
        return ask_at if due is None else due if ask_at is None else min(due, ask_at)

    def _on_task_error(self, error: Exception) -> None:
        log.error("document task failed", document=self.document_id, exc_info=error)
        ours = error if isinstance(error, LorogoError) else ClientError(f"{type(error).__name__}: {error}")
        self.mirror.fail(ours)
        self.notify()

    def _on_presence_error(self, error: Exception) -> None:
        log.error("presence task failed", document=self.document_id, problem=str(error))


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
