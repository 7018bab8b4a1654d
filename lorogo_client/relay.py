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
from contextlib import suppress

from lorogo_client.accepted import Arrivals
from lorogo_client.context import Context
from lorogo_client.errors import ClientError, DocumentDeleted, DocumentFailed, NotServed
from lorogo_client.relay_course import Course, Passed
from lorogo_client.relay_member import Listener, Member, State
from lorogo_client.syncing import Synced, ask_since
from lorogo_client.verdicts import backoff
from lorogo_client.waiting import within
from lorogo_protocol import headers as h
from lorogo_protocol import replies, subjects
from lorogo_protocol.calls import Refused
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.reasons import ERASED, Reason
from lorogo_protocol.status import Failed
from lorogo_transport.errors import RequestTimeout, TransportError
from lorogo_transport.logs import get_logger
from lorogo_transport.ports import Message, Subscription
from lorogo_transport.statuses import heard
from lorogo_transport.tasks import Tasks

log = get_logger(__name__)

_PASSING_REASONS = (Reason.NOT_OWNER, Reason.BUSY, Reason.FAILED)
_SENDERS_MAX = 16_384  # log ids whose accepted copies are not told to their senders


class Relay:
    """One document, shared by its members in this process."""

    def __init__(self, context: Context, document_id: str) -> None:
        self.document_id = document_id
        self.members: dict[Member, None] = {}
        self.course = Course()
        self.life = 0  # changes whenever all members must join again
        self.over: LorogoError | None = None  # for good
        self.hindrance: LorogoError | None = None  # why a join takes so long
        self.doubted_at = 0.0  # when the owner was last pinged
        self._context = context
        self._settings = context.settings
        self._bus = context.bus
        self._arrivals = Arrivals()
        self._audience: tuple[tuple[Member, Callable[[bytes], None]], ...] = ()
        self._senders: OrderedDict[str, Member] = OrderedDict()
        self._revision = 0  # the newest status heard
        self._suspicion: tuple[float, int] | None = None  # (when to look, a head that we have not seen)
        self._doubted = False
        self._heard_at = 0.0
        self._trouble_since: float | None = None
        self._wake = asyncio.Event()
        self._opening = asyncio.Lock()  # the first join says where we are
        self._finding = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._subscriptions: list[Subscription] = []
        self._tasks = Tasks(self._broke)
        self._stop_watching: Callable[[], None] = lambda: None

    async def enter(self, listener: Listener) -> Member:
        """A member, who has not joined."""
        member = Member(self._context, self, listener)
        self.members[member] = None
        try:
            async with self._starting:
                await self._start()
        except BaseException:
            del self.members[member]
            raise
        return member

    async def leave(self, member: Member) -> None:
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
        self._tasks.spawn(self._keep(), name=f"relay {self.document_id}")

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

    def audience_changed(self) -> None:
        """Somebody joins, or does not follow any more."""
        self._audience = tuple(
            (member, member.accept) for member in self.members if member.state is not State.OUT
        )

    def sends(self, member: Member, log_id: str) -> None:
        """The accepted copy of this update is not told to its sender."""
        self._senders[log_id] = member
        if len(self._senders) > _SENDERS_MAX:
            self._senders.popitem(last=False)  # it is told its own update: that changes nothing

    def _pass_on(self, update: Passed) -> None:
        sender = self._senders.pop(update.log_id, None)
        payload = update.payload
        for member, accept in self._audience:
            if member is not sender:
                try:
                    accept(payload)
                except Exception:
                    log.exception("a listener of a relay failed", document=self.document_id)

    def lose(self, why: str) -> None:
        """Everybody must join again."""
        log.info("relay lost its owner", document=self.document_id, why=why, members=len(self.members))
        self.life += 1
        self.course.stop()
        self._trouble_since = self._suspicion = None
        for member in list(self.members):
            member.lose(why)

    def finish(self, error: LorogoError) -> None:
        """It is over for everybody."""
        if self.over is None:
            self.over = error
            self.life += 1
            self.course.stop()
            for member in list(self.members):
                member.end(error)
            self._wake.set()

    # --- joining

    async def admit(self, vector: bytes, ends: float) -> Synced:
        """The owner's answer to a member at this vector; waits until there is one.

        Raises NotServed, DocumentFailed, DocumentDeleted; the caller brings the deadline.
        """
        attempt, settings = 0, self._settings
        self.hindrance = None
        while True:
            if self.over is not None:
                raise self.over
            try:
                answer = await self._admit(vector, ends)
            except Refused as no:
                if no.reason is Reason.DELETED:
                    error = DocumentDeleted(self.document_id, erased=str(no) == ERASED)
                    self.finish(error)
                    raise error from None
                if no.reason not in _PASSING_REASONS:
                    raise
                self.hindrance = no
            except (TransportError, MalformedMessage) as error:
                self.hindrance = error
            else:
                self._heard_at = self._context.clock.now()
                return answer
            self.find()
            least, most = settings.retry_seconds_min, settings.retry_seconds_max
            await asyncio.sleep(backoff(attempt, least=least, most=most, jitter=self._context.rng.random()))
            attempt += 1

    async def _admit(self, vector: bytes, ends: float) -> Synced:
        if not self.course.live:
            async with self._opening:
                if not self.course.live:
                    return await self._open(vector, ends)
        await self._found(ends)
        return await self._asked(vector)

    async def _open(self, vector: bytes, ends: float) -> Synced:
        """The first sync: its answer says where the relay stands."""
        life = self.life
        await self._bus.barrier(self._settings.reply_seconds)  # nothing is missed after the sync
        await self._found(ends)
        self.course.syncing()
        try:
            answer = await self._asked(vector)
            if life != self.life:
                raise RequestTimeout("the owner was lost during the join")
        except BaseException:
            if life == self.life:
                self.course.sync_failed()
            raise
        for update in self.course.begin(answer):
            self._pass_on(update)
        self._wake.set()
        return answer

    async def _asked(self, vector: bytes, generation: int | None = None) -> Synced:
        answer = await ask_since(self._context, self.document_id, vector, generation=generation)
        if answer.lease < self.course.token:
            raise RequestTimeout("a server that lost the document answered the sync")
        return answer

    async def _found(self, ends: float) -> None:
        """Return when somebody serves it. Raises NotServed, DocumentFailed, Disconnected."""
        async with self._finding:
            if self.course.need_owner:
                left = max(0.0, ends - self._context.clock.now()) * 0.95  # why not tells more than a timeout
                entry = await self._context.starter.served(self.document_id, timeout=left)
                self.course.found_owner(entry)
                self._heard_at = self._context.clock.now()
                self._wake_lanes()

    # --- what lanes ask, and tell

    @property
    def token(self) -> int:
        return self.course.token

    def may_send(self) -> bool:
        return self.course.live and not self.course.need_owner

    def heard_lease(self, lease: int) -> None:
        """Somebody answered an update."""
        self._heard_at = self._context.clock.now()
        self.course.heard_lease(lease)
        if self.course.need_sync:
            self._wake.set()

    def doubt(self) -> None:
        """An answer is late: ping."""
        self._doubted = True
        self._wake.set()

    def find(self) -> None:
        """Whoever owned it does not, or is not there."""
        self.course.need_owner = True
        self._wake.set()

    def deleted(self, erased: bool) -> None:
        """It is over for everybody."""
        self.finish(DocumentDeleted(self.document_id, erased=erased))

    # --- what NATS calls

    def _on_connection(self, connected: bool) -> None:
        self.course.need_owner = True
        if not connected:
            self.lose("there is no connection to NATS")
        self._wake.set()

    def _on_accepted(self, message: Message) -> None:
        headers = message.headers
        now = self._heard_at = self._context.clock.now()
        try:
            if headers.get(h.REASON) == Reason.DELETED.value:
                if self.course.heard_lease(replies.number(headers, h.LEASE)):
                    self.deleted(headers.get(h.MESSAGE) == ERASED)
                return
            update = self._arrivals.add(headers, message.data, own=False, now=now)
        except MalformedMessage as error:
            log.warning("not an accepted update", document=self.document_id, problem=str(error))
            return
        if update is not None:
            passed = self.course.arrived(update)
            if passed is not None:
                self._pass_on(passed)
            elif self.course.need_sync:
                self._wake.set()

    def _on_status(self, message: Message) -> None:
        entry = heard(message)
        if entry is None or entry.revision <= self._revision:
            return
        self._revision = entry.revision
        self._context.starter.heard(self.document_id, entry)
        self.course.heard_status(entry)
        now = self._context.clock.now()
        if not self.course.need_owner:
            self._heard_at = now
            self._wake_lanes()
        if isinstance(entry.status, Failed) and self.course.live:
            self.lose(str(DocumentFailed(self.document_id, entry.status.trace_id)))
        elif self.course.live and self.course.chain.behind(entry.head):
            # the renewal may have overtaken the update that it tells of
            self._suspicion = (now + self._settings.head_grace_seconds, entry.head)
        self._wake.set()

    def _on_awareness(self, message: Message) -> None:
        data, teller = message.data, message.headers.get(h.MEMBER)
        if len(data) > self._settings.presence_bytes_max:
            return
        for member, _ in self._audience:
            if member.id != teller:
                try:
                    member.hear(data)
                except Exception:
                    log.exception("a listener of a relay failed", document=self.document_id)

    def _wake_lanes(self) -> None:
        for member, _ in self._audience:
            member.wake()

    # --- the keeper: follows the owner while members follow us

    async def _keep(self) -> None:
        failures = 0
        while self.over is None:
            self._wake.clear()
            if self.course.live:
                try:
                    await self._work()
                    failures = 0
                except DocumentFailed as error:
                    self.lose(str(error))
                except Refused as no:
                    if no.reason is Reason.DELETED:
                        self.deleted(str(no) == ERASED)
                        continue
                    failures = await self._stumbled(no, failures)
                except (TransportError, MalformedMessage, NotServed) as error:
                    failures = await self._stumbled(error, failures)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_next()):
                    await self._wake.wait()

    async def _stumbled(self, error: LorogoError, failures: int) -> int:
        """It may pass: look for the owner again after a pause, unless that took too long already."""
        now = self._context.clock.now()
        if self._trouble_since is None:
            self._trouble_since = now
        if now - self._trouble_since >= self._settings.relay_grace_seconds:
            self.lose(str(error))
            return 0
        self.course.need_owner = True
        least, most = self._settings.retry_seconds_min, self._settings.retry_seconds_max
        await asyncio.sleep(backoff(failures, least=least, most=most, jitter=self._context.rng.random()))
        self._wake.set()
        return failures + 1

    async def _work(self) -> None:
        """All that there is to do now."""
        course, now = self.course, self._context.clock.now()
        if self._suspicion is not None and self._suspicion[0] <= now:
            course.need_sync |= course.chain.behind(self._suspicion[1])
            self._suspicion = None
        if not course.need_owner:
            await self._doubt(now)
        if course.need_owner or course.need_sync:
            await self._catch_up()

    async def _doubt(self, now: float) -> None:
        """Ask an owner that is silent, or late with an answer, whether it is there."""
        silent = now - self._heard_at >= self._settings.relay_silence_seconds
        if not (silent or self._doubted) or now - self.doubted_at < self._settings.doubt_seconds:
            return
        self._doubted, self.doubted_at = False, now
        starter = self._context.starter
        answer = await starter.ping(self.document_id)
        if answer:
            self._heard_at = self._context.clock.now()
        elif answer is False or starter.stale(self.document_id):
            self.course.need_owner = True

    async def _catch_up(self) -> None:
        """Find the owner within the grace, and fill what was missed."""
        course, clock, life = self.course, self._context.clock, self.life
        if self._trouble_since is None:
            self._trouble_since = clock.now()
        ends = self._trouble_since + self._settings.relay_grace_seconds
        if course.need_owner and not await within(max(0.0, ends - clock.now()), self._found(ends)):
            raise NotServed(self.document_id, "its owner does not answer")
        while course.need_sync and course.live and life == self.life:
            await self._fill(life)
        if life == self.life:
            self._trouble_since = None

    async def _fill(self, life: int) -> None:
        course, before = self.course, self.course.synced_lease
        course.syncing()
        try:
            answer = await self._asked(course.vector, course.generation)
        except BaseException:
            if life == self.life:
                course.sync_failed()
            raise
        if life != self.life:
            return
        passed = course.fill(answer)
        if passed is None:
            self.lose("what was missed cannot be filled in")
            return
        for update in passed:
            self._pass_on(update)
        if answer.lease != before:
            for member, _ in self._audience:
                member.resend()

    def _until_next(self) -> float | None:
        """Seconds until something is due by itself; None: only an event can bring work."""
        if not self.course.live:
            return None
        settings = self._settings
        due = max(self._heard_at + settings.relay_silence_seconds, self.doubted_at + settings.doubt_seconds)
        if self._doubted:
            due = min(due, self.doubted_at + settings.doubt_seconds)
        if self._suspicion is not None:
            due = min(due, self._suspicion[0])
        return max(0.0, due - self._context.clock.now())

    def _broke(self, error: Exception) -> None:
        log.error("the relay broke", document=self.document_id, exc_info=error)
        self.finish(
            error if isinstance(error, LorogoError) else ClientError(f"{type(error).__name__}: {error}")
        )
