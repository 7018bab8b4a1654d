"""A document's bytes for many members, without a replica: one subscription each, whoever listens.

    loro.accepted ──▶ follows? pass on to all but the sender      member.send ──▶ its lane ──▶ loro.wal
                      else sync, and pass that on                 inbox ────────▶ ACK, NACK ──▶ its future
    loro.status ────▶ who owns it, and how far it is

Members are told to join again (`rejoin`) when NATS is disconnected, when nobody serves the document
within `relay_grace_seconds` after its owner was found missing, when it is in ERROR, or when a gap
cannot be filled. An owner that is silent for `relay_silence_seconds` is pinged: where nobody listens
it is missing; where no answer comes (a busy or a paused one) it is so when its status is stale, too.
A takeover that is quicker than the grace disturbs nobody: updates in flight go to the new owner.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from lorogo_client.context import ClientContext
from lorogo_client.delivery.accepted import AcceptedAssembler
from lorogo_client.delivery.retry_policy import backoff
from lorogo_client.errors import ClientError, DocumentDeleted, DocumentFailed, NotAllowed
from lorogo_client.session.syncing import Synced
from lorogo_gateway.relay.join_permit import JoinPermit
from lorogo_gateway.relay.owner_monitor import OwnerMonitor, RelayCallbacks
from lorogo_gateway.relay.relay_state import RelayedUpdate
from lorogo_gateway.relay.subscriber import Listener, Subscriber, SubscriberState
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import replies, subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import ERASED, Reason
from lorogo_protocol.status import Failed
from lorogo_transport.errors import PermissionDenied, TransportError
from lorogo_transport.ports import Message, Subscription
from lorogo_transport.stores.statuses import status_of
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_PASSING_REASONS = (Reason.NOT_OWNER, Reason.BUSY, Reason.FAILED)
_JOIN_PAUSE_SECONDS_MAX = 0.5  # between two tries of a join, so that it is soon there when the owner is
_SENDERS_MAX = 16_384  # log ids whose accepted copies are not told to their senders

Follower = tuple[Subscriber, Callable[[bytes], None]]


class Relay:
    """One document, shared by its members in this process."""

    def __init__(self, context: ClientContext, document_id: str) -> None:
        self.document_id = document_id
        self.members: dict[Subscriber, None] = {}
        self.over: LorogoError | None = None  # for good
        self.hindrance: LorogoError | None = None  # why a join takes so long
        self._context = context
        self._bus = context.bus
        duties = RelayCallbacks(
            self._pass_on,
            self._wake_lanes,
            self._resend,
            self.lose,
            self.deleted,
            self._a_token,
            self._refused,
        )
        self._keeper = OwnerMonitor(context, document_id, duties)
        self._course = self._keeper.course
        self._arrivals = AcceptedAssembler()
        self._followers: tuple[Follower, ...] | None = ()  # None: to be told anew
        self._senders: OrderedDict[str, tuple[Subscriber, int]] = OrderedDict()  # and during which join of it
        self._starting = asyncio.Lock()
        self._subscriptions: list[Subscription] = []
        self._tasks = Tasks(self._broke)
        self._stop_watching: Callable[[], None] = lambda: None

    async def enter(self, listener: Listener, token: str = "") -> Subscriber:
        """A member, who has not joined; with a token of its own, or ours."""
        member = Subscriber(self._context, self, listener, token)
        self.members[member] = None
        started = False
        try:
            async with self._starting:
                await self._start()
            started = True
        finally:
            if not started:
                del self.members[member]
        return member

    async def leave(self, member: Subscriber) -> None:
        """Forget a member; whoever holds the relay closes it with the last."""
        self.members.pop(member, None)
        await member.close()

    async def _start(self) -> None:
        if self._subscriptions:
            return
        self._stop_watching = self._bus.watch_connection(self._on_connection)
        for subject, handler in (
            (subjects.accepted(self.document_id), self._on_accepted),
            (subjects.status(self.document_id), self._on_status),
            (subjects.awareness(self.document_id), self._on_awareness),
        ):
            self._subscriptions.append(await self._bus.subscribe(subject, handler))
        self._tasks.spawn(self._keeper.run(), name=f"relay {self.document_id}")

    async def close(self) -> None:
        """Stop everything; members that are left are given up."""
        self._stop_watching()
        for member in list(self.members):
            await self.leave(member)
        try:
            await self._tasks.close()
        finally:
            for subscription in self._subscriptions:
                await subscription.close()

    # --- members

    @property
    def life(self) -> int:
        """Changes whenever all members must join again."""
        return self._keeper.life

    def audience_changed(self) -> None:
        """Somebody joins, or does not follow any more."""
        self._followers = None

    def _audience(self) -> tuple[Follower, ...]:
        """Who follows, and who takes an accepted update for each."""
        followers = self._followers
        if followers is None:  # told once between two updates, however many join
            followers = self._followers = tuple(
                (member, member.accept) for member in self.members if member.state is not SubscriberState.OUT
            )
        return followers

    def sends(self, member: Subscriber, log_id: str) -> None:
        """The accepted copy of this update is not told to its sender."""
        self._senders[log_id] = (member, member.joins)
        if len(self._senders) > _SENDERS_MAX:
            self._senders.popitem(last=False)  # it is told its own update: that changes nothing

    async def admit(
        self, vector: bytes, ends: float, turn: JoinPermit | None = None, token: str = ""
    ) -> Synced:
        """The owner's answer to a member at this vector; waits until there is one, and for its turn.

        Raises NotServed, DocumentFailed, DocumentDeleted, NotAllowed; the caller brings the deadline.
        """
        attempt, settings = 0, self._context.settings
        self.hindrance = None
        while self.over is None:
            try:
                return await self._keeper.admit(vector, ends, turn, token)
            except PermissionDenied as error:
                raise NotAllowed(str(error), document_id=self.document_id) from None
            except Refused as no:
                if no.reason is Reason.PERMISSION_DENIED:
                    raise NotAllowed(str(no), document_id=self.document_id) from None
                if no.reason is Reason.DELETED:
                    self.deleted(str(no) == ERASED)
                    continue
                if no.reason not in _PASSING_REASONS:
                    raise
                self.hindrance = no
            except (TransportError, MalformedMessage) as error:
                self.hindrance = error
            self.find()
            least, most = settings.retry_seconds_min, min(settings.retry_seconds_max, _JOIN_PAUSE_SECONDS_MAX)
            await asyncio.sleep(backoff(attempt, least=least, most=most, jitter=self._context.rng.random()))
            attempt += 1
        raise self.over

    def lose(self, why: str) -> None:
        """Everybody must join again."""
        log.info("members must join again", document=self.document_id, why=why, members=len(self.members))
        self._keeper.stop()
        for member in list(self.members):
            member.lose(why)

    def finish(self, error: LorogoError) -> None:
        """It is over for everybody."""
        if self.over is None:
            self.over = error
            self._keeper.stop()
            for member in list(self.members):
                member.end(error)

    def _pass_on(self, update: RelayedUpdate) -> None:
        sender, joins = self._senders.pop(update.log_id, (None, 0))
        if sender is not None and sender.joins != joins:
            sender = None  # it has joined again, and may have begun anew
        payload = update.payload
        for member, accept in self._audience():
            if member is not sender:
                try:
                    accept(payload)
                except Exception:
                    log.exception("a listener of a relay failed", document=self.document_id)

    def _a_token(self) -> str:
        """Of somebody who follows: what is missed is asked for in the name of one who may have it."""
        return next((member.token for member, _ in self._audience() if member.token), "")

    def _refused(self, token: str) -> None:
        """Whoever has that token joins again, and hears then that it is not good; others go on."""
        for member in list(self.members):
            if token and member.token == token:
                member.lose("the owner does not take its token")

    def _wake_lanes(self) -> None:
        for member, _ in self._audience():
            member.wake()

    def _resend(self) -> None:
        for member, _ in self._audience():
            member.resend()

    # --- what lanes ask, and tell

    @property
    def token(self) -> int:
        """The newest lease token seen."""
        return self._course.token

    @property
    def doubted_at(self) -> float:
        """When the owner was last pinged."""
        return self._keeper.doubted_at

    def may_send(self) -> bool:
        """Whether there is an owner to hear it."""
        return self._course.live and not self._course.need_owner

    def heard_lease(self, lease: int) -> None:
        """Somebody answered an update."""
        self._keeper.heard(self._context.clock.now())
        self._course.heard_lease(lease)
        if self._course.need_sync:
            self._keeper.wake()

    def doubt(self) -> None:
        """An answer is late."""
        self._keeper.doubt()

    def find(self) -> None:
        """Whoever owned it does not, or is not there."""
        self._keeper.find()

    def deleted(self, erased: bool) -> None:
        """The document was deleted."""
        self.finish(DocumentDeleted(self.document_id, erased=erased))

    # --- what NATS calls

    def _on_connection(self, connected: bool) -> None:
        self._keeper.find()
        if not connected:
            self.lose("there is no connection to NATS")

    def _on_accepted(self, message: Message) -> None:
        headers, now = message.headers, self._context.clock.now()
        try:
            if headers.get(h.REASON) == Reason.DELETED.value:
                if self._course.heard_lease(replies.number(headers, h.LEASE)):
                    self.deleted(headers.get(h.MESSAGE) == ERASED)
                return
            update = self._arrivals.add(headers, message.data, own=False, now=now)
        except MalformedMessage as error:
            log.warning("not an accepted update", document=self.document_id, problem=str(error))
            return
        if update is None:
            return
        self._keeper.heard(now)
        passed = self._course.arrived(update)
        if passed is not None:
            self._pass_on(passed)
        elif self._course.need_sync:
            self._keeper.wake()

    def _on_status(self, message: Message) -> None:
        entry = status_of(message)
        if entry is None or entry.revision <= self._keeper.revision:
            return
        self._keeper.revision = entry.revision
        self._context.starter.on_status(self.document_id, entry)
        self._keeper.heard_status(entry, self._context.clock.now())
        if isinstance(entry.status, Failed) and self._course.live:
            self.lose(str(DocumentFailed(self.document_id, entry.status.trace_id)))

    def _on_awareness(self, message: Message) -> None:
        data, teller = message.data, message.headers.get(h.MEMBER)
        if len(data) > self._context.settings.presence_bytes_max:
            return
        for member, _ in self._audience():
            if member.id != teller:
                try:
                    member.hear(data)
                except Exception:
                    log.exception("a listener of a relay failed", document=self.document_id)

    def _broke(self, error: Exception) -> None:
        log.error("the relay broke", document=self.document_id, exc_info=error)
        self.finish(
            error if isinstance(error, LorogoError) else ClientError(f"{type(error).__name__}: {error}")
        )
