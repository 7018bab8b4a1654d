"""One document in this process: its subscriptions and its traffic. Sessions are views of it.

    loro.accepted ──▶ apply in order; a gap asks for a sync     app commits ──▶ outbox ──▶ loro.wal
    loro.status ────▶ who owns it, and how far it is            inbox ─────▶ ACK, NACK ──▶ outbox

Handlers only note what is needed and wake the keeper: one task that finds the owner, syncs and sends,
one thing at a time. So there are never two syncs at once, and updates leave in order.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from loro import DiffEvent

from lorogo_client.awaitables import within
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
from lorogo_protocol import headers as h
from lorogo_protocol import replies, subjects
from lorogo_protocol.calls import Refused
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.grants import Access
from lorogo_protocol.reasons import ERASED, Reason
from lorogo_protocol.status import Failed
from lorogo_transport.errors import NotAuthorized, PermissionDenied, RequestTimeout, TransportError
from lorogo_transport.light import Timer
from lorogo_transport.ports import Message, Subscription
from lorogo_transport.stores.statuses import heard
from lorogo_transport.tasks import Tasks
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
        self.standing = Notifier(settings.changes_max)
        hearers = MirrorCallbacks(weakly(self._on_local), weakly(self._on_remote), weakly(self._on_rebased))
        self.mirror = Mirror(document_id, settings, context.new_id, hearers, read_only=read_only)
        self.presence = RoomPresence(
            context.bus,
            document_id,
            timeout_seconds=settings.presence_seconds,
            bytes_max=settings.presence_bytes_max,
        )
        self.hindrance: LorogoError | None = None  # why it takes so long
        self.closed = False
        self.archive = RoomCopy(context, document_id, self.mirror, on_change=weakly(self.tell))
        self._started = asyncio.Event()
        self._context = context
        self._settings = settings
        self._bus = context.bus
        self._arrivals = AcceptedAssembler()
        self._revision = 0  # the newest status heard
        self._halted: DocumentFailed | None = None  # until the status changes
        self._denied: NotAllowed | None = None  # said by the owner or NATS, until one of them says otherwise
        self._connecting = True
        self._suspicion: tuple[float, int, int] | None = None  # (when to look, a head and tail not seen)
        self._heard_at = 0.0  # when the newest status came, or the owner answered
        self._doubted = 0.0
        self._wake = asyncio.Event()
        self._timer = Timer(context.clock, self._wake.set)
        self._only_woken = False  # the keeper rests, and no timer is set
        self._urgent = asyncio.Event()  # ends a pause after a failure
        self._sender = Sender(context, document_id, self.mirror, weakly(self._on_answer))
        self._subscriptions: list[Subscription] = []
        self._tasks = Tasks(self._broke)
        self._stop_watching: Callable[[], None] = lambda: None

    @property
    def problem(self) -> LorogoError | None:
        """Why our edits cannot be saved right now, or ever; None if nothing is wrong."""
        passing = self.unauthorized or self._lacking or self._denied or self._halted
        return self.mirror.failure or passing or self.mirror.stalled

    @property
    def full(self) -> ServerFull | None:
        """That the disk of the server is full, if no server serves the document because of it."""
        return self.hindrance if isinstance(self.hindrance, ServerFull) else None

    @property
    def obstacle(self) -> LorogoError | None:
        """The problem, if waiting does not help.

        That NATS does not let us in may pass: after a restart it does not know who may, until the service
        that tells it is connected again. Only a token that has ended, and cannot be had anew, stays so.
        """
        unauthorized, holder = self.unauthorized, self._context.holder
        if unauthorized is None or self.mirror.failure is not None:
            return self.problem
        return unauthorized if holder.expired and not holder.renewable else None

    @property
    def unauthorized(self) -> NotAuthorized | None:
        """Why NATS does not let us in, if that is why there is no connection."""
        problem = None if self._bus.connected else self._bus.problem
        return self._context.holder.explained(problem) if isinstance(problem, NotAuthorized) else None

    @property
    def _lacking(self) -> NotAllowed | None:
        """What our token grants no more: a fresh one may grant less."""
        needed = Access.READ if self.mirror.read_only else Access.WRITE
        return self._context.holder.denied(self.document_id, needed)

    @property
    def connected(self) -> bool:
        return self._bus.connected

    async def start(self, *, create: bool = False) -> None:
        """Take what the store has (or begin with nothing, to `create`), subscribe, begin to catch up."""
        try:
            await self.archive.open(create=create)
            await self._begin()
        finally:
            self._started.set()

    async def started(self, timeout: float) -> None:
        """Return when whoever came first has opened it. Raises NotServed."""
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
        self._tasks.spawn(self._keep(), name=f"room {name}")
        self._tasks.spawn(self.archive.run(), name=f"archive {name}")
        self._tasks.spawn(self.presence.run(), name=f"presence {name}", on_error=self._presence_broke)

    async def close(self) -> None:
        """Stop everything; what is neither ACKed nor in a local store is lost with it."""
        if self.closed:
            return
        self.closed = True
        self._stop_watching()
        self._stop_watching = lambda: None
        try:
            await self._tasks.close()
            await self.presence.leave()
        finally:
            while self._subscriptions:  # they hold us
                await self._subscriptions.pop().close()
            self._sender.close()
            self._timer.stop()
            await self.archive.close()
            self.mirror.replica.retire()
            self.tell()
            self.standing.close(None)

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()

    def unstall(self) -> None:
        """Ask a full stream once more."""
        self.mirror.stalled = None
        self._wake.set()

    def tell(self) -> None:
        """Let everybody know how things stand."""
        if self.mirror.failure is not None:
            self.standing.failed(self.mirror.failure)
        self.standing.tell(self.state)

    @property
    def state(self) -> State:
        """How things stand this moment."""
        if not self._bus.connected or self.closed:
            return State.OFFLINE if self.closed or self.unauthorized is None else State.UNAUTHORIZED
        if self.mirror.failure is not None:
            return State.SAVING  # and it will never be SAVED
        if self._connecting or self._halted or self._denied or not self.mirror.ready:
            return State.CONNECTING
        return State.SAVED if self.mirror.outbox.empty else State.SAVING

    # --- what Loro and NATS call

    def _on_local(self) -> None:
        self.tell()
        self._wake.set()

    def _on_remote(self, event: DiffEvent, sequence: int) -> None:
        self.standing.changed(Change(event, sequence))

    def _on_rebased(self) -> None:
        self.standing.changed(Rebased())

    def _on_connection(self, connected: bool) -> None:
        need = self.mirror.need
        need.owner = True
        if connected:
            need.sync = need.resend = True
            self.mirror.stalled = self._denied = None
        self._connecting = True
        self.tell()
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
            log.warning("not an accepted update", document=self.document_id, problem=str(error))
            return
        if update is not None:
            self.mirror.arrived(update)
            if self.mirror.need.sync:
                self._wake.set()

    def _on_deleted(self, lease: int, *, erased: bool) -> None:
        if self.mirror.heard_lease(lease):
            self.mirror.fail(DocumentDeleted(self.document_id, erased=erased))
            self.tell()
            self._wake.set()

    def _on_status(self, message: Message) -> None:
        entry = heard(message)
        if entry is None:
            return
        self._context.starter.heard(self.document_id, entry)
        if entry.revision <= self._revision:
            return
        self._revision = entry.revision
        self._heard_at = now = self._context.clock.now()
        if self._at_ease and self.mirror.is_renewal(entry):
            return  # the keeper has nothing to do; when it asks itself, it finds that something was heard
        self.mirror.heard_status(entry)
        if not isinstance(entry.status, Failed):
            self._halted = None
        if self.mirror.chain.behind(entry.head, entry.tail):
            # the renewal may have overtaken the update that it tells of
            self._suspicion = (now + self._settings.head_grace_seconds, entry.head, entry.tail)
        self._wake.set()
        if not self.mirror.need.owner:
            self._urgent.set()

    @property
    def _at_ease(self) -> bool:
        """Whether nothing is wrong that news of the owner could mend, nor was when the keeper went to rest.

        What was wrong may have passed without a word since: a fresh token grants what the last one did not.
        """
        well = self.problem is None and self.hindrance is None and self._suspicion is None
        return well and not self._only_woken

    def _on_answer(self) -> None:
        self.tell()
        need = self.mirror.need
        if need.sync or need.owner or not self.mirror.outbox.resting:
            self._wake.set()

    # --- the keeper

    async def _keep(self) -> None:
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
                pause, failures = self._refused(str(error), failures), failures + 1
            except _PASSING as error:
                pause, failures = self._stumbled(error, failures), failures + 1
            except Refused as no:
                if no.reason is Reason.PERMISSION_DENIED:
                    pause, failures = self._refused(str(no), failures), failures + 1
                elif no.reason is Reason.DELETED:
                    self.mirror.fail(DocumentDeleted(self.document_id, erased=str(no) == ERASED))
                elif no.reason in _PASSING_REASONS:
                    pause, failures = self._stumbled(no, failures), failures + 1
                else:
                    self.mirror.fail(no)
            self.tell()
            await self._rest(pause)
        self.tell()

    def _stumbled(self, error: LorogoError, failures: int) -> float:
        """Something failed that may pass: look for the owner again, after a pause."""
        self.hindrance = error
        self.mirror.need.owner = self.mirror.need.sync = True
        settings = self._settings
        least, most = settings.retry_seconds_min, settings.retry_seconds_max
        return backoff(failures, least=least, most=most, jitter=self._context.rng.random())

    def _refused(self, why: str, failures: int) -> float:
        """We may not: say so, and ask again now and then, as somebody may change that."""
        self._denied = NotAllowed(why, document_id=self.document_id)
        self._stumbled(self._denied, failures)
        return self._settings.retry_seconds_max

    async def _work(self) -> None:
        """All that there is to do now."""
        mirror = self.mirror
        now = self._context.clock.now()
        if self._suspicion is not None and self._suspicion[0] <= now:
            mirror.need.sync |= mirror.chain.behind(*self._suspicion[1:])
            self._suspicion = None
        await self._doubt(now)
        if mirror.need.sync or (mirror.need.owner and not mirror.outbox.empty):
            await self._catch_up()
        await self._sender.send_ready(self._may_send)

    async def _doubt(self, now: float) -> None:
        """Answers are late, or no renewal comes: is the owner there? A ping shows a dead one early."""
        outbox, need = self.mirror.outbox, self.mirror.need
        ask_at = self._ask_at()
        silent = ask_at is not None and ask_at <= now
        if overdue := outbox.overdue(now):
            need.owner = True
            for flight in overdue:
                outbox.unsent(flight.log_id, now, self._context.rng.random(), unheard=True)
        elif silent or (outbox.doubtful(now) and now - self._doubted >= self._settings.doubt_seconds):
            self._doubted = now
            starter = self._context.starter
            answer = await starter.ping(self.document_id)
            if answer:
                self._heard_at = self._context.clock.now()
            elif answer is False or starter.stale(self.document_id):
                need.owner = True
                need.sync |= silent

    def _ask_at(self) -> float | None:
        """When to ask whether the owner is there, if nothing comes; None: it said DOWN, or a sync is due.

        One that is gone without a word may have accepted an update that did not reach us, and the renewal
        that would tell of it never comes.
        """
        if self.mirror.ended or self.mirror.need.sync:
            return None
        settings = self._settings
        return max(self._heard_at + settings.stale_seconds, self._doubted + settings.doubt_seconds)

    async def _catch_up(self) -> None:
        """Find the owner, and sync with it if that is needed."""
        mirror, context = self.mirror, self._context
        self._connecting = True
        self.tell()
        if not mirror.ready and not mirror.need.owner:
            await self._bus.barrier(self._settings.reply_seconds)  # nothing is missed after the sync
        if mirror.need.owner:  # an answer to what was asked behind our subscriptions is a barrier, too
            entry = await context.starter.served(
                self.document_id, timeout=self._settings.open_seconds, listening=True
            )
            mirror.found_owner(entry)
            if entry is not None:  # a bucket that was lost and made anew may count from below what we heard
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
            await self.archive.put_aside()
            if answer.presence:
                self.presence.apply(answer.presence)
        self._heard_at = context.clock.now()
        self._connecting = False
        self.hindrance = self._denied = None
        self._sender.forget_replaced()
        self.tell()

    def _may_read(self) -> bool:
        return self._context.holder.denied(self.document_id, Access.READ) is None

    def _may_send(self) -> bool:
        need = self.mirror.need
        fine = self.problem is None and self._bus.connected
        return fine and not self.mirror.read_only and not need.sync and not need.owner

    async def _rest(self, pause: float | None) -> None:
        """Until there is something to do; after a failure for the pause, or until things look better."""
        if pause is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._urgent.wait()
            return
        now = self._context.clock.now()
        if (due := self._next_due(now)) is not None:
            self._timer.ring_at(due)
        self._only_woken = due is None
        await self._wake.wait()

    def _next_due(self, now: float) -> float | None:
        """When something is due by itself; None: only an event can bring work."""
        if self.problem is not None or not self._bus.connected:
            return None
        early = self._sender.early()
        due = self.mirror.outbox.next_deadline(
            after=self._doubted, sending_from=now + early if early else 0.0
        )
        if self._suspicion is not None:
            due = self._suspicion[0] if due is None else min(due, self._suspicion[0])
        ask_at = self._ask_at()
        return ask_at if due is None else due if ask_at is None else min(due, ask_at)

    def _broke(self, error: Exception) -> None:
        log.error("the session broke", document=self.document_id, exc_info=error)
        ours = error if isinstance(error, LorogoError) else ClientError(f"{type(error).__name__}: {error}")
        self.mirror.fail(ours)
        self.tell()

    def _presence_broke(self, error: Exception) -> None:
        log.error("presence stopped", document=self.document_id, problem=str(error))


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
