"""What keeps a relay at its owner's side: finding it, asking it, noticing that it is gone.

One task, and only while members follow: it fills gaps, pings an owner that is silent, and says when
nobody serves the document (`relay_grace_seconds`) or a gap cannot be filled.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from lorogo_client.context import ClientContext
from lorogo_client.delivery.retry_policy import backoff
from lorogo_client.errors import DocumentFailed, NotServed
from lorogo_client.session.syncing import Synced, ask_since
from lorogo_gateway.relay.join_permit import JoinPermit
from lorogo_gateway.relay.relay_state import RelayedUpdate, RelayState
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import ERASED, Reason
from lorogo_transport.errors import NoResponders, RequestTimeout, TransportError
from lorogo_transport.tasks import within

_SERVED_SHARE = 0.9  # of the time that is left: why nobody serves it tells more than that the time is over


@dataclass(frozen=True, slots=True)
class RelayCallbacks:
    """What the keeper has a relay do."""

    pass_on: Callable[[RelayedUpdate], None]
    found: Callable[[], None]  # the owner is there: lanes may go on
    replaced: Callable[[], None]  # by another one: send again what has no answer
    lost: Callable[[str], None]  # everybody must join again
    deleted: Callable[[bool], None]
    a_token: Callable[[], str]  # of somebody who follows, "" if nobody has one
    refused: Callable[[str], None]  # the owner does not take that token (any more)


class OwnerMonitor:
    """Keeps one relay's course."""

    def __init__(self, context: ClientContext, document_id: str, duties: RelayCallbacks) -> None:
        self.course = RelayState()
        self.life = 0  # changes whenever all members must join again
        self.doubted_at = 0.0  # when the owner was last pinged
        self.revision = 0  # the newest status heard
        self._context = context
        self._settings = context.settings
        self._document_id = document_id
        self._duties = duties
        self._heard_at = 0.0
        self._doubted = False
        self._suspicion: tuple[float, int] | None = None  # (when to look, a head not seen)
        self._trouble_since: float | None = None
        self._wake = asyncio.Event()
        self._finding = asyncio.Lock()
        self._opening = asyncio.Lock()  # the first join says where we are

    # --- what others note

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def heard(self, now: float) -> None:
        """The owner gave a sign of life."""
        self._heard_at = now

    def heard_status(self, entry: StatusEntry, now: float) -> None:
        """Note a newer status."""
        missing = self.course.need_owner
        self.course.heard_status(entry)
        if not self.course.need_owner:
            self._heard_at = now
            if missing:
                self._duties.found()
        if self.course.live and self.course.chain.behind(entry.head):
            # the renewal may have overtaken the update that it tells of
            self._suspicion = (now + self._settings.head_grace_seconds, entry.head)
        self._wake.set()

    def doubt(self) -> None:
        """An answer is late: ping."""
        self._doubted = True
        self._wake.set()

    def find(self) -> None:
        """Whoever owned it does not, or is not there."""
        self.course.need_owner = True
        self._wake.set()

    def stop(self) -> None:
        """Nobody follows any more."""
        self.life += 1
        self.course.stop()
        self._trouble_since = self._suspicion = None
        self._doubted = False

    # --- asking

    async def admit(
        self, vector: bytes, ends: float, turn: JoinPermit | None = None, token: str = ""
    ) -> Synced:
        """The owner's answer to somebody at this vector, asked once; a turn is held with the answer.

        Raises NotServed, DocumentFailed, TransportError, Refused, MalformedMessage.
        """
        answer: Synced | None = None
        try:
            answer = await self._admitted(vector, ends, turn, token)
            return answer
        finally:
            if answer is None and turn is not None:
                turn.give_back()

    async def _admitted(self, vector: bytes, ends: float, turn: JoinPermit | None, token: str) -> Synced:
        if not self.course.live:
            async with self._opening:
                if not self.course.live:
                    return await self._open(vector, ends, turn, token)
        await self._found(ends)
        if turn is not None:
            await turn.take()
        return await self._asked(vector, token=token)

    async def _open(self, vector: bytes, ends: float, turn: JoinPermit | None, token: str) -> Synced:
        """The first sync: its answer says where the relay stands."""
        life = self.life
        await self._context.bus.barrier(self._settings.reply_seconds)  # nothing is missed after the sync
        await self._found(ends)
        if turn is not None:
            await turn.take()
        answer = await self._synced(self._asked(vector, token=token))
        if life != self.life:
            raise RequestTimeout("the owner was lost during the join")
        for update in self.course.begin(answer):
            self._duties.pass_on(update)
        self._wake.set()
        return answer

    async def _synced(self, asking: Awaitable[Synced]) -> Synced:
        """The answer; what arrives meanwhile is held, and let go if there is none."""
        life, answer = self.life, None
        self.course.syncing()
        try:
            answer = await asking
            return answer
        finally:
            if answer is None and life == self.life:
                self.course.sync_failed()

    async def _asked(self, vector: bytes, generation: int | None = None, *, token: str) -> Synced:
        answer = await ask_since(self._context, self._document_id, vector, generation=generation, token=token)
        if answer.lease < self.course.token:
            raise RequestTimeout("a server that lost the document answered the sync")
        self._heard_at = self._context.clock.now()
        return answer

    async def _found(self, ends: float) -> None:
        """Return when somebody serves it. Raises NotServed, DocumentFailed, Disconnected."""
        async with self._finding:
            if self.course.need_owner:
                left = max(0.0, ends - self._context.clock.now()) * _SERVED_SHARE
                known = self.revision
                entry = await self._context.starter.served(self._document_id, timeout=left)
                if entry is not None and entry.revision < known:
                    self.revision = entry.revision  # the bucket is another, and begins lower: hear it again
                self.course.found_owner(entry)
                self._heard_at = self._context.clock.now()
                self._duties.found()

    # --- keeping

    async def run(self) -> None:
        """For ever; the relay owns it."""
        failures = 0
        while True:
            self._wake.clear()
            if self.course.live:
                try:
                    await self._work()
                    failures = 0
                except DocumentFailed as error:
                    self._duties.lost(str(error))
                except Refused as no:
                    if no.reason is Reason.DELETED:
                        self._duties.deleted(str(no) == ERASED)
                    else:
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
            self._duties.lost(str(error))
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
        if (silent or self._doubted) and now - self.doubted_at >= self._settings.doubt_seconds:
            self._doubted = False
            await self._ping()

    async def _ping(self) -> None:
        starter = self._context.starter
        self.doubted_at = self._context.clock.now()
        answer = await starter.ping(self._document_id)
        if answer:
            self._heard_at = self._context.clock.now()
        elif answer is False or starter.stale(self._document_id):
            self.course.need_owner = True

    async def _catch_up(self) -> None:
        """Find the owner within the grace, and fill what was missed."""
        course, clock, life = self.course, self._context.clock, self.life
        if self._trouble_since is None:
            self._trouble_since = clock.now()
        ends = self._trouble_since + self._settings.relay_grace_seconds
        if course.need_owner and not await within(max(0.0, ends - clock.now()), self._found(ends)):
            raise NotServed(self._document_id, "its owner does not answer")
        while course.need_sync and course.live and life == self.life:
            await self._fill(life)
        if life == self.life:
            self._trouble_since = None

    async def _fill(self, life: int) -> None:
        course, before = self.course, self.course.synced_lease
        answer = await self._synced(self._asked_and_watched(course.vector, course.generation))
        if life != self.life:
            return
        passed = course.fill(answer)
        if passed is None:
            self._duties.lost("what was missed cannot be filled in")
            return
        for update in passed:
            self._duties.pass_on(update)
        if answer.lease != before:
            self._duties.replaced()

    async def _asked_and_watched(self, vector: bytes, generation: int) -> Synced:
        """The answer, or NoResponders as soon as whoever was asked is gone: long before it is overdue."""
        token = self._duties.a_token()
        asking = asyncio.ensure_future(self._asked(vector, generation, token=token))
        try:
            while True:
                done, _ = await asyncio.wait({asking}, timeout=self._settings.doubt_seconds)
                if done:
                    return asking.result()
                await self._ping()
                if self.course.need_owner and not asking.done():
                    raise NoResponders(f"the owner of {self._document_id} is gone")
        except Refused as no:
            if no.reason is Reason.PERMISSION_DENIED:
                self._duties.refused(token)  # the next try is in somebody else's name
            raise
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    def _until_next(self) -> float | None:
        """Seconds until something is due by itself; None: only an event can bring work."""
        if not self.course.live:
            return None
        settings = self._settings
        pingable = self.doubted_at + settings.doubt_seconds
        due = pingable if self._doubted else max(self._heard_at + settings.relay_silence_seconds, pingable)
        if self._suspicion is not None:
            due = min(due, self._suspicion[0])
        return max(0.0, due - self._context.clock.now())
