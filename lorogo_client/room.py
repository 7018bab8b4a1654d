"""One document in this process: its replica, its subscriptions, its traffic. Sessions are views of it.

    loro.accepted ──▶ apply in order; a gap asks for a sync     app commits ──▶ outbox ──▶ loro.wal
    loro.status ────▶ who owns it, and how far it is            inbox ─────▶ ACK, NACK ──▶ outbox

Handlers only note what is needed and wake the keeper: one task that finds the owner, syncs and sends,
one thing at a time. So there are never two syncs at once, and updates leave in order.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import structlog
from loro import DiffEvent, LoroDoc

from lorogo_client import feeds
from lorogo_client.accepted import Arrivals, Arrived, Chain
from lorogo_client.context import Context
from lorogo_client.errors import (
    ClientError,
    DocumentDeleted,
    DocumentFailed,
    NotServed,
    OfflineBufferFull,
    SessionClosed,
    StorageFull,
    Timeout,
    TooLargeUpdate,
    UpdateRefused,
)
from lorogo_client.feeds import Change, Feed, Item, Rebased, State
from lorogo_client.outbox import Flight, Next, Outbox, backoff
from lorogo_client.presence import RoomPresence
from lorogo_client.receipt import Receipt
from lorogo_client.replica import Listeners, LocalReplica
from lorogo_client.sending import send
from lorogo_client.syncing import Synced, ask, fresh_replica, needs_fresh
from lorogo_client.tasks import Tasks
from lorogo_protocol import replies, subjects
from lorogo_protocol.calls import Refused
from lorogo_protocol.crdt import Unready
from lorogo_protocol.errors import CrdtError, LorogoError, MalformedMessage
from lorogo_protocol.reasons import Reason
from lorogo_protocol.status import Failed, Up
from lorogo_transport.errors import Disconnected, NoResponders, OutcomeUnknown, RequestTimeout
from lorogo_transport.ports import Message, Subscription
from lorogo_transport.statuses import heard

log = structlog.get_logger(__name__)

T = TypeVar("T")

_PASSING = (Disconnected, NoResponders, OutcomeUnknown, RequestTimeout, NotServed)
_PASSING_REASONS = (Reason.NOT_OWNER, Reason.BUSY, Reason.FAILED)


class Room:
    """A document that sessions of this process share."""

    def __init__(self, context: Context, document_id: str, *, read_only: bool) -> None:
        self.document_id = document_id
        self.read_only = read_only
        self.sessions = 0
        self.generation: int | None = None
        self.presence = RoomPresence(
            context.bus,
            document_id,
            timeout_seconds=context.settings.presence_seconds,
            bytes_max=context.settings.presence_bytes_max,
        )
        self._context = context
        self._settings = context.settings
        self._bus = context.bus
        self._outbox = Outbox(context.settings)
        self._replica = LocalReplica(Listeners(self._on_local, self._on_remote))
        self._rebased: list[bytes] | None = None  # collects the update that a rebase makes
        self._arrivals = Arrivals()
        self._chain = Chain()
        self._token = 0  # the newest lease token seen
        self._revision = 0  # the newest status seen
        self._synced_lease = 0
        self._receipt: replies.Ack | None = None
        # what the keeper has to do
        self._need_sync = True
        self._served = False  # we believe that the owner is there
        self._want_fresh = False  # our replica cannot go on: take the state as a new one
        self._owner_lacks = False  # send all that its vector lacks
        self._resend = False
        self._suspicion: tuple[float, int] | None = None  # (when to look, a head that we have not seen)
        self._doubted = 0.0
        # how things stand
        self._connecting = True
        self._failure: LorogoError | None = None  # for good
        self._halted: DocumentFailed | None = None  # until the status changes
        self._stalled: StorageFull | None = None  # until somebody asks again
        self._hindrance: LorogoError | None = None  # why it takes so long
        self._ready = False
        self._closed = False
        self._wake = asyncio.Event()
        self._waiters: set[asyncio.Future[None]] = set()
        self._state = State.CONNECTING
        self._state_feeds: list[Feed[State]] = []
        self._change_feeds: list[Feed[Item]] = []
        self._subscriptions: list[Subscription] = []
        self._expected: set[str] = set()
        self._tasks = Tasks()
        self._stop_watching: Callable[[], None] = lambda: None

    # --- what sessions use

    @property
    def doc(self) -> LoroDoc:
        return self._replica.doc

    @property
    def state(self) -> State:
        return self._state

    @property
    def problem(self) -> LorogoError | None:
        """Why our edits cannot be saved right now, or ever; None if nothing is wrong."""
        return self._failure or self._halted or self._stalled

    @property
    def usable(self) -> bool:
        """Whether a new session may join."""
        return self._failure is None and not self._closed

    @property
    def unsaved(self) -> int:
        return self._outbox.unsaved

    async def start(self) -> None:
        """Subscribe, and begin to catch up."""
        self._stop_watching = self._bus.watch_connection(self._on_connection)
        for subject, handler in (
            (subjects.accepted(self.document_id), self._on_accepted),
            (subjects.status(self.document_id), self._on_status),
            (subjects.awareness(self.document_id), self.presence.on_message),
        ):
            self._subscriptions.append(await self._bus.subscribe(subject, handler))
        self._tasks.spawn(self._keep(), name=f"room {self.document_id}", on_error=self._broke)
        self._tasks.spawn(
            self.presence.run(), name=f"presence {self.document_id}", on_error=self._presence_broke
        )

    async def ready(self, timeout: float) -> None:
        """Return when it is synced once. Raises what stands in the way."""
        try:
            async with asyncio.timeout(timeout):
                while not self._ready:
                    if (problem := self.problem) is not None:
                        raise problem
                    await self._progress()
        except TimeoutError:
            why = self._hindrance
            if isinstance(why, NotServed):
                raise why from None
            raise NotServed(self.document_id, str(why or f"no answer in {timeout:g} s")) from None
        if self._failure is not None:
            raise self._failure

    def commit(self, message: str | None) -> None:
        """Commit what is open in the document; it is sent in the background."""
        self._check_open()
        if self._failure is not None:
            raise self._failure
        if self._outbox.full:
            raise OfflineBufferFull(
                f"{self._outbox.unsaved_bytes} bytes wait to be sent; the edit stays open, commit it later"
            )
        self._replica.commit(message)
        self._check_sizes()

    async def flush(self, timeout: float | None) -> Receipt | None:
        """Return when every local edit is ACKed: the newest receipt, None if nothing was ever sent."""
        self._check_open()
        if not self.read_only:
            self._replica.commit()
            self._check_sizes()
        self._stalled = None  # ask the stream once more
        self._wake.set()
        commit = self._outbox.commits
        try:
            async with asyncio.timeout(timeout):
                while not self._outbox.saved_through(commit):
                    self._check_open()
                    if (problem := self.problem) is not None:
                        raise problem
                    await self._progress()
        except TimeoutError:
            raise Timeout(
                f"{self._outbox.unsaved} update(s) of {self.document_id} are not ACKed after {timeout:g} s"
                + (f": {self._hindrance}" if self._hindrance else "")
            ) from None
        if self._failure is not None:
            raise self._failure
        if self._receipt is None:
            return None
        ack = self._receipt
        return Receipt(ack.sequence, ack.lease, ack.durability, self._replica.version().frontiers)

    def frontiers(self) -> bytes:
        return self._replica.version().frontiers

    def open_edits(self) -> int:
        return self._replica.open_edits

    def drop_local(self) -> None:
        """Forget what was edited here: take the owner's state as a new document."""
        self._want_fresh = self._need_sync = True
        self._wake.set()

    def states(self) -> Feed[State]:
        feed = feeds.latest(self._state)
        self._state_feeds.append(feed)
        return feed

    def changes(self) -> Feed[Item]:
        feed = feeds.changes(self._settings.changes_max)
        self._change_feeds.append(feed)
        if self._failure is not None:
            feed.close(self._failure)
        return feed

    def forget(self, states: list[Feed[State]], changes: list[Feed[Item]]) -> None:
        """A session leaves."""
        for state_feed in states:
            state_feed.close()
        for change_feed in changes:
            change_feed.close()
        self._state_feeds = [feed for feed in self._state_feeds if feed not in states]
        self._change_feeds = [feed for feed in self._change_feeds if feed not in changes]

    async def close(self) -> None:
        """Stop everything; what is not ACKed is lost with it."""
        if self._closed:
            return
        self._closed = True
        self._stop_watching()
        try:
            await self._tasks.close()
            with suppress(Disconnected, RequestTimeout):
                await self.presence.leave()
        finally:
            for subscription in self._subscriptions:
                await subscription.close()
            for log_id in self._expected:
                self._context.replies.forget(log_id)
            self._replica.retire()
            self.forget(list(self._state_feeds), list(self._change_feeds))
            self._tell()

    # --- what Loro and NATS call

    def _on_local(self, update: bytes) -> None:
        if self._rebased is not None:
            self._rebased.append(update)
        elif self.read_only:
            self.drop_local()
        else:
            self._outbox.add(update)
            self._tell()
            self._wake.set()

    def _on_remote(self, event: DiffEvent) -> None:
        for feed in self._change_feeds:
            feed.push(Change(event, self._chain.head))

    def _on_connection(self, connected: bool) -> None:
        self._served = False
        if connected:
            self._need_sync = self._resend = True
            self._stalled = None
        self._connecting = True
        self._tell()
        self._wake.set()

    def _on_accepted(self, message: Message) -> None:
        try:
            arrived = self._arrivals.add(message.headers, message.data, now=self._context.clock.now())
        except MalformedMessage as error:
            log.warning("not an accepted update", document=self.document_id, problem=str(error))
            return
        if arrived is None or arrived.lease < self._token:
            return  # more is to come, or a server that lost the document speaks
        if arrived.lease > self._token:
            self._token = arrived.lease
            self._sync_soon()
        if self._chain.holding:
            self._chain.keep(arrived)
        elif self._ready:
            self._take(arrived)

    def _on_status(self, message: Message) -> None:
        entry = heard(message)
        if entry is None or entry.revision <= self._revision:
            return
        self._revision = entry.revision
        self._context.starter.heard(self.document_id, entry)
        if entry.token > self._token:
            self._token = entry.token
            self._served = False
        if not isinstance(entry.status, Failed):
            self._halted = None
        match entry.status:
            case Up():
                if self._token != self._synced_lease:
                    self._sync_soon()
                elif self._chain.behind(entry.head):
                    now = self._context.clock.now()
                    self._suspicion = (now + self._settings.head_grace_seconds, entry.head)
                self._served = entry.token == self._token
            case _:
                # Nobody serves it. With nothing to say we wait until somebody starts it and we hear of
                # that: else idle documents could never be unloaded while somebody reads.
                self._served = False
        self._wake.set()

    def _on_reply(self, reply: replies.Reply) -> None:
        context = self._context
        if isinstance(reply, replies.Ack) and reply.lease > self._token:
            self._token = reply.lease
            self._sync_soon()
        verdict, flight = self._outbox.answer(
            reply, token=self._token, now=context.clock.now(), jitter=context.rng.random()
        )
        if flight is None:
            return
        match verdict:
            case Next.SETTLED:
                assert isinstance(reply, replies.Ack)
                self._receipt = reply
                self._expected.discard(flight.log_id)
                context.replies.forget(flight.log_id)
            case Next.FIND_OWNER:
                self._served = False
            case Next.SYNC:
                self._owner_lacks = self._need_sync = True
            case Next.REBASE:
                self._want_fresh = self._need_sync = True
            case Next.DELETED:
                self._fail(DocumentDeleted(self.document_id))
            case Next.FULL:
                assert isinstance(reply, replies.Nack)
                self._stalled = StorageFull(reply.message)
            case Next.REFUSED:
                assert isinstance(reply, replies.Nack)
                kind = TooLargeUpdate if reply.reason is Reason.TOO_LARGE else UpdateRefused
                self._fail(kind(flight.log_id, reply.reason, reply.message))
            case Next.AGAIN | Next.IGNORED:
                pass
        self._tell()
        self._wake.set()

    # --- the keeper

    async def _keep(self) -> None:
        failures = 0
        while self._failure is None:
            self._wake.clear()
            pause: float | None = None
            try:
                if self._bus.connected and self._halted is None:
                    await self._work()
                    failures = 0
            except DocumentFailed as error:
                self._halted = error
            except _PASSING as error:
                pause = self._stumbled(error, failures)
                failures += 1
            except Refused as no:
                if no.reason is Reason.DELETED:
                    self._fail(DocumentDeleted(self.document_id))
                elif no.reason in _PASSING_REASONS:
                    pause = self._stumbled(no, failures)
                    failures += 1
                else:
                    self._fail(no)
            self._tell()
            await self._sleep(pause)

    def _stumbled(self, error: LorogoError, failures: int) -> float:
        """Something failed that may pass: look for the owner again, after a pause."""
        self._hindrance = error
        self._served = False
        self._need_sync = True
        settings = self._settings
        jitter = self._context.rng.random()
        return backoff(failures, least=settings.retry_seconds_min, most=settings.retry_seconds_max, jitter=jitter)

    async def _work(self) -> None:
        """All that there is to do now."""
        now = self._context.clock.now()
        if self._suspicion is not None and self._suspicion[0] <= now:
            self._need_sync |= self._chain.behind(self._suspicion[1])
            self._suspicion = None
        await self._doubt(now)
        if self._need_sync or (not self._served and not self._outbox.empty):
            await self._catch_up()
        await self._send()

    async def _doubt(self, now: float) -> None:
        """Answers are late: is the owner there? A dead one shows by a ping, long before it is stale."""
        if overdue := self._outbox.overdue(now):
            self._served = False
            for flight in overdue:
                self._outbox.unsent(flight.log_id, now, self._context.rng.random())
        elif self._outbox.doubtful(now) and now - self._doubted >= self._settings.doubt_seconds:
            self._doubted = now
            if await self._context.starter.ping(self.document_id) is False:
                self._served = False

    async def _catch_up(self) -> None:
        """Find the owner, and sync with it if that is needed."""
        self._connecting = True
        self._tell()
        if not self._served:
            entry = await self._context.starter.served(self.document_id, timeout=self._settings.open_seconds)
            if entry is not None:
                self._token = entry.token  # read from the leader: the truth, even if it is lower
            self._served = True
            self._need_sync |= self._token != self._synced_lease
        while self._need_sync:
            self._need_sync = False
            self._chain.hold()
            try:
                answer = await ask(
                    self._context,
                    self.document_id,
                    None if self._want_fresh else self._replica,
                    generation=self.generation,
                    edited=not self._outbox.empty,
                )
                self._absorb(answer)
            finally:
                self._chain.given_up()
        self._connecting = False
        self._hindrance = None

    def _absorb(self, answer: Synced) -> None:
        """Bring the replica to the owner's state. Without a wait, so nothing comes between."""
        self._token = max(self._token, answer.lease)
        same = self.generation in (None, answer.generation)
        if not self._want_fresh and needs_fresh(answer, self._replica, same_generation=same):
            if answer.mode != "snapshot":
                self._want_fresh = self._need_sync = True  # ask again, for a snapshot
                return
            self._want_fresh = True
        head_before, self._chain.head = self._chain.head, answer.sequence  # what changes() tells
        try:
            if self._want_fresh:
                self._rebase(answer, same_generation=same)
            elif answer.payload and isinstance(self._replica.apply(answer.payload), Unready):
                self._want_fresh = self._need_sync = True
        except CrdtError as error:
            if self._want_fresh:
                message = f"the edits could not be put on the current state: {error}"
                self._fail(UpdateRefused("", Reason.HISTORY_TRIMMED, message))
                return
            log.warning("a sync could not be applied", document=self.document_id, problem=str(error))
            self._want_fresh = self._need_sync = True
        if self._need_sync:
            self._chain.head = head_before
            return
        self.generation = answer.generation
        held, dropped = self._chain.synced(answer.sequence)
        for arrived in held:
            self._take(arrived)
        self._need_sync |= dropped
        if answer.presence:
            self.presence.apply(answer.presence)
        if not self.read_only:
            self._prepare(answer)
        self._synced_lease = answer.lease
        self._ready = True
        self._tell()

    def _prepare(self, answer: Synced) -> None:
        """Make ready what goes out: all that the owner lacks, and nothing twice."""
        unsaved = () if self._owner_lacks else tuple(self._outbox.payloads())
        lacking = self._replica.lacking(answer.vector, unsaved)
        self._owner_lacks = False
        if lacking is not None:
            self._outbox.replace(lacking, self._context.new_id())
        elif self._resend or answer.lease != self._synced_lease:
            self._outbox.resend(self._context.clock.now())
        self._resend = False
        self._outbox.merge(self._replica.merged)

    def _rebase(self, answer: Synced, *, same_generation: bool) -> None:
        """Take the owner's state as a new document, our unsaved edits on top."""
        if not self.read_only:
            self._replica.commit()  # what is open is an edit too
        fresh = fresh_replica(answer)
        unsaved = list(self._outbox.payloads())
        self._rebased = []
        try:
            replica, edited = self._replica.rebased(fresh, unsaved, same_generation=same_generation)
            made = self._rebased
        finally:
            self._rebased = None
        self._replica = replica
        self._want_fresh = False
        if edited and made:
            payload = made[0] if len(made) == 1 else replica.merged(made)
            self._outbox.replace(payload, self._context.new_id())
        elif edited:
            self._outbox.clear()  # they change nothing on the current state
        for feed in self._change_feeds:
            feed.push(Rebased())
        log.info("rebased", document=self.document_id, edited=edited, generation=answer.generation)

    async def _send(self) -> None:
        context = self._context
        while self._can_send():
            flight = self._outbox.next_to_send(context.clock.now(), context.new_id)
            if flight is None:
                return
            await self._send_one(flight)

    def _can_send(self) -> bool:
        nothing_wrong = self.problem is None and not self.read_only
        return nothing_wrong and self._served and not self._need_sync and self._bus.connected

    async def _send_one(self, flight: Flight) -> None:
        context = self._context
        self._expected.add(flight.log_id)
        inbox = context.replies.expect(flight.log_id, self._on_reply)
        self._outbox.sending(flight.log_id, context.clock.now())
        try:
            await send(context.transport, self.document_id, flight, inbox, self._settings)
        except StorageFull as error:
            self._outbox.unsent(flight.log_id, context.clock.now(), context.rng.random())
            self._stalled = error
        except _PASSING:
            self._outbox.unsent(flight.log_id, context.clock.now(), context.rng.random())
            raise
        else:
            self._outbox.sent(flight.log_id, context.clock.now())

    # --- inside

    def _take(self, arrived: Arrived) -> None:
        """Apply an accepted update if nothing is missing before it."""
        own = self._outbox.owns(arrived.log_id)
        try:
            if not self._chain.follows(arrived):
                old = arrived.payload is not None and (own or self._replica.covers(arrived.payload))
                if not old or own:
                    self._sync_soon()
                return
            if not own:
                if arrived.payload is None:
                    self._sync_soon()
                    return
                before, self._chain.head = self._chain.head, arrived.sequence  # what changes() tells
                if isinstance(self._replica.apply(arrived.payload), Unready):
                    self._chain.head = before
                    self._sync_soon()
                    return
            self._chain.took(arrived)
        except CrdtError as error:
            log.warning("an accepted update could not be applied", document=self.document_id, problem=str(error))
            self._want_fresh = True
            self._sync_soon()

    def _sync_soon(self) -> None:
        self._need_sync = True
        self._wake.set()

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed(f"the session of {self.document_id} is closed")

    def _check_sizes(self) -> None:
        """An update that no owner would take is refused here, before a byte is sent."""
        for payload in self._outbox.new_payloads():
            if len(payload) > self._settings.update_bytes_max:
                message = f"it has {len(payload)} bytes, at most {self._settings.update_bytes_max} are allowed"
                self._fail(TooLargeUpdate("", Reason.TOO_LARGE, message))
                assert self._failure is not None
                raise self._failure

    def _fail(self, error: LorogoError) -> None:
        """For good: nothing more is sent, and the state never says saved again."""
        if self._failure is None:
            self._failure = error
            for feed in self._change_feeds:
                feed.close(error)
            self._tell()
            self._wake.set()

    def _broke(self, error: Exception) -> None:
        self._fail(error if isinstance(error, LorogoError) else ClientError(f"{type(error).__name__}: {error}"))

    def _presence_broke(self, error: Exception) -> None:
        log.error("presence stopped", document=self.document_id, problem=str(error))

    def _now_state(self) -> State:
        if not self._bus.connected or self._closed:
            return State.OFFLINE
        if self._failure is not None:
            return State.SAVING
        if self._connecting or self._halted is not None or not self._ready:
            return State.CONNECTING
        return State.SAVED if self._outbox.empty else State.SAVING

    def _tell(self) -> None:
        """Wake those who wait for progress, and tell the state if it changed."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
        state = self._now_state()
        if state is not self._state:
            self._state = state
            for feed in self._state_feeds:
                feed.push(state)

    async def _progress(self) -> None:
        """Wait until something was told; the caller brings the deadline."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    async def _sleep(self, pause: float | None) -> None:
        """Until there is something to do; after a failure at least for the pause, or a new connection."""
        now = self._context.clock.now()
        if pause is None and self._failure is None and self.problem is None and self._bus.connected:
            times = [self._outbox.next_deadline(), self._suspicion[0] if self._suspicion else None]
            soonest = min((time for time in times if time is not None), default=None)
            pause = None if soonest is None else max(0.0, soonest - now)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._wake.wait()


_Call = Callable[[], Awaitable[T]]
