"""Relays the bytes of one document to many members without a replica; one subscription per subject.

    loro.accepted ──▶ follows? pass on to all but the sender      member.send ──▶ send queue ──▶ loro.wal
                      else sync, and pass the answer on           inbox ────────▶ ACK, NACK ───▶ its future
    loro.status ────▶ its owner and head

Members must join again (`rejoin`) when NATS is disconnected, when no server serves the document for
`relay_grace_seconds`, when it is in ERROR, or when a gap cannot be filled. An owner that is silent for
`relay_silence_seconds` is pinged. It is missing without a responder; without an answer (busy or paused) it is
missing once its status is stale. A takeover within the grace is invisible to members: updates in flight go to
the new owner.
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
_JOIN_PAUSE_SECONDS_MAX = 0.5  # between two tries of a join
_SENDERS_MAX = 16_384  # log ids whose accepted copies are not passed on to their senders

Follower = tuple[Subscriber, Callable[[bytes], None]]


class Relay:
    """One document, shared by its members in this process."""

    def __init__(self, context: ClientContext, document_id: str) -> None:
        self.document_id = document_id
        self.members: dict[Subscriber, None] = {}
        self.over: LorogoError | None = None  # for good
        self.hindrance: LorogoError | None = None  # the reason for a slow join
        self._context = context
        self._bus = context.bus
        callbacks = RelayCallbacks(
            self._pass_on,
            self._wake_queues,
            self._resend,
            self.lose,
            self.deleted,
            self._a_token,
            self._refused,
        )
        self._monitor = OwnerMonitor(context, document_id, callbacks)
        self._state = self._monitor.state
        self._arrivals = AcceptedAssembler()
        self._followers: tuple[Follower, ...] | None = ()  # None: not listed
        self._senders: OrderedDict[str, tuple[Subscriber, int]] = OrderedDict()  # with its join
        self._starting = asyncio.Lock()
        self._subscriptions: list[Subscription] = []
        self._tasks = Tasks(self._broke)
        self._stop_watching: Callable[[], None] = lambda: None

    async def enter(self, listener: Listener, token: str = "") -> Subscriber:
        """Return a new member that has not joined; with its own token, or the gateway's."""
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
        """Remove a member; the holder of the relay closes it after the last."""
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
        self._tasks.spawn(self._monitor.run(), name=f"relay {self.document_id}")

    async def close(self) -> None:
        """Stop everything, and close remaining members."""
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
    def cycle(self) -> int:
        """A number that changes whenever all members must join again."""
        return self._monitor.cycle

    def audience_changed(self) -> None:
        """List followers again: a member joined or left."""
        self._followers = None

    def _audience(self) -> tuple[Follower, ...]:
        """Return the followers, and the function that takes an accepted update for each."""
        followers = self._followers
        if followers is None:  # listed once between two updates, however many join
            followers = self._followers = tuple(
                (member, member.accept) for member in self.members if member.state is not SubscriberState.OUT
            )
        return followers

    def sends(self, member: Subscriber, log_id: str) -> None:
        """Do not pass the accepted copy of this update on to its sender."""
        self._senders[log_id] = (member, member.joins)
        if len(self._senders) > _SENDERS_MAX:
            self._senders.popitem(last=False)  # a sender that gets its own update ignores it

    async def admit(
        self, vector: bytes, ends: float, turn: JoinPermit | None = None, token: str = ""
    ) -> Synced:
        """Return the owner's answer to a member at this vector; waits for the answer and for a permit.

        Raises NotServed, DocumentFailed, DocumentDeleted, NotAllowed; the caller has the deadline.
        """
        attempt, settings = 0, self._context.settings
        self.hindrance = None
        while self.over is None:
            try:
                return await self._monitor.admit(vector, ends, turn, token)
            except PermissionDenied as error:
                raise NotAllowed(str(error), document_id=self.document_id) from None
            except Refused as refused:
                if refused.reason is Reason.PERMISSION_DENIED:
                    raise NotAllowed(str(refused), document_id=self.document_id) from None
                if refused.reason is Reason.DELETED:
                    self.deleted(str(refused) == ERASED)
                    continue
                if refused.reason not in _PASSING_REASONS:
                    raise
                self.hindrance = refused
            except (TransportError, MalformedMessage) as error:
                self.hindrance = error
            self.find()
            least, most = settings.retry_seconds_min, min(settings.retry_seconds_max, _JOIN_PAUSE_SECONDS_MAX)
            await asyncio.sleep(backoff(attempt, least=least, most=most, jitter=self._context.rng.random()))
            attempt += 1
        raise self.over

    def lose(self, why: str) -> None:
        """Have every member join again."""
        log.info("members must join again", document=self.document_id, why=why, members=len(self.members))
        self._monitor.stop()
        for member in list(self.members):
            member.lose(why)

    def finish(self, error: LorogoError) -> None:
        """End every member with an error."""
        if self.over is None:
            self.over = error
            self._monitor.stop()
            for member in list(self.members):
                member.end(error)

    def _pass_on(self, update: RelayedUpdate) -> None:
        sender, joins = self._senders.pop(update.log_id, (None, 0))
        if sender is not None and sender.joins != joins:
            sender = None  # it joined again, perhaps with an empty document
        payload = update.payload
        for member, accept in self._audience():
            if member is not sender:
                try:
                    accept(payload)
                except Exception:
                    log.exception("a listener of a relay failed", document=self.document_id)

    def _a_token(self) -> str:
        """Return the token of a follower: a sync for all needs the right to read."""
        return next((member.token for member, _ in self._audience() if member.token), "")

    def _refused(self, token: str) -> None:
        """Have members with that token join again, and be refused; the others continue."""
        for member in list(self.members):
            if token and member.token == token:
                member.lose("the owner does not take its token")

    def _wake_queues(self) -> None:
        for member, _ in self._audience():
            member.wake()

    def _resend(self) -> None:
        for member, _ in self._audience():
            member.resend()

    # --- for send queues

    @property
    def token(self) -> int:
        """The newest lease token seen."""
        return self._state.token

    @property
    def doubted_at(self) -> float:
        """Time of the last ping of the owner."""
        return self._monitor.doubted_at

    def may_send(self) -> bool:
        """Return True if an owner is known."""
        return self._state.live and not self._state.need_owner

    def note_lease(self, lease: int) -> None:
        """Note the lease token of an ACK."""
        self._monitor.note_sign(self._context.clock.now())
        self._state.note_lease(lease)
        if self._state.need_sync:
            self._monitor.wake()

    def doubt(self) -> None:
        """Ping the owner: an answer is late."""
        self._monitor.doubt()

    def find(self) -> None:
        """Find the owner: the last one lost the document, or is gone."""
        self._monitor.find()

    def deleted(self, erased: bool) -> None:
        """End every member: the document was deleted."""
        self.finish(DocumentDeleted(self.document_id, erased=erased))

    # --- messages of NATS

    def _on_connection(self, connected: bool) -> None:
        self._monitor.find()
        if not connected:
            self.lose("there is no connection to NATS")

    def _on_accepted(self, message: Message) -> None:
        headers, now = message.headers, self._context.clock.now()
        try:
            if headers.get(h.REASON) == Reason.DELETED.value:
                if self._state.note_lease(replies.number(headers, h.LEASE)):
                    self.deleted(headers.get(h.MESSAGE) == ERASED)
                return
            update = self._arrivals.add(headers, message.data, own=False, now=now)
        except MalformedMessage as error:
            log.warning("malformed accepted update", document=self.document_id, problem=str(error))
            return
        if update is None:
            return
        self._monitor.note_sign(now)
        passed = self._state.arrived(update)
        if passed is not None:
            self._pass_on(passed)
        elif self._state.need_sync:
            self._monitor.wake()

    def _on_status(self, message: Message) -> None:
        entry = status_of(message)
        if entry is None or entry.revision <= self._monitor.revision:
            return
        self._monitor.revision = entry.revision
        self._context.starter.on_status(self.document_id, entry)
        self._monitor.note_status(entry, self._context.clock.now())
        if isinstance(entry.status, Failed) and self._state.live:
            self.lose(str(DocumentFailed(self.document_id, entry.status.trace_id)))

    def _on_awareness(self, message: Message) -> None:
        data, sender = message.data, message.headers.get(h.MEMBER)
        if len(data) > self._context.settings.presence_bytes_max:
            return
        for member, _ in self._audience():
            if member.id != sender:
                try:
                    member.hear(data)
                except Exception:
                    log.exception("a listener of a relay failed", document=self.document_id)

    def _broke(self, error: Exception) -> None:
        log.error("the relay broke", document=self.document_id, exc_info=error)
        self.finish(
            error if isinstance(error, LorogoError) else ClientError(f"{type(error).__name__}: {error}")
        )
