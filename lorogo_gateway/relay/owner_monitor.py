"""Monitors the owner of one relay's document: finds it, syncs with it, notices that it is gone.

One task works while members follow: it fills gaps, pings a silent owner, and reports when no server serves
the document for `relay_grace_seconds` or a gap cannot be filled.
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

_SERVED_SHARE = 0.9  # of the remaining time: the reason of NotServed is better than a timeout


@dataclass(frozen=True, slots=True)
class RelayCallbacks:
    """Callbacks of the monitor into its relay."""

    pass_on: Callable[[RelayedUpdate], None]
    found: Callable[[], None]  # the owner answers: send queues continue
    replaced: Callable[[], None]  # by another owner: resend unacknowledged updates
    lost: Callable[[str], None]  # every member must join again
    deleted: Callable[[bool], None]
    a_token: Callable[[], str]  # of a member that follows; "": none has one
    refused: Callable[[str], None]  # the owner refused that token


class OwnerMonitor:
    """Monitors the owner for one relay, and keeps its state."""

    def __init__(self, context: ClientContext, document_id: str, callbacks: RelayCallbacks) -> None:
        self.state = RelayState()
        self.cycle = 0  # changes whenever all members must join again
        self.doubted_at = 0.0  # when the owner was last pinged
        self.revision = 0  # the newest status seen
        self._context = context
        self._settings = context.settings
        self._document_id = document_id
        self._callbacks = callbacks
        self._alive_at = 0.0
        self._doubted = False
        self._suspicion: tuple[float, int] | None = None  # (time of the check, a head not seen)
        self._trouble_since: float | None = None
        self._wake = asyncio.Event()
        self._finding = asyncio.Lock()
        self._opening = asyncio.Lock()  # the first join sets the position

    # --- events

    def wake(self) -> None:
        """Check for work."""
        self._wake.set()

    def note_sign(self, now: float) -> None:
        """Note a message of the owner."""
        self._alive_at = now

    def note_status(self, entry: StatusEntry, now: float) -> None:
        """Note a newer status."""
        missing = self.state.need_owner
        self.state.note_status(entry)
        if not self.state.need_owner:
            self._alive_at = now
            if missing:
                self._callbacks.found()
        if self.state.live and self.state.chain.behind(entry.head):
            # the renewal may have overtaken the update with that head
            self._suspicion = (now + self._settings.head_grace_seconds, entry.head)
        self._wake.set()

    def doubt(self) -> None:
        """Ping the owner: an answer is late."""
        self._doubted = True
        self._wake.set()

    def find(self) -> None:
        """Find the owner: the last one lost the document, or is gone."""
        self.state.need_owner = True
        self._wake.set()

    def stop(self) -> None:
        """Stop: no member follows until the next join."""
        self.cycle += 1
        self.state.stop()
        self._trouble_since = self._suspicion = None
        self._doubted = False

    # --- requests

    async def admit(
        self, vector: bytes, ends: float, turn: JoinPermit | None = None, token: str = ""
    ) -> Synced:
        """Return the owner's answer to a member at this vector, requested once; a permit is held with it.

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
        if not self.state.live:
            async with self._opening:
                if not self.state.live:
                    return await self._open(vector, ends, turn, token)
        await self._found(ends)
        if turn is not None:
            await turn.take()
        return await self._asked(vector, token=token)

    async def _open(self, vector: bytes, ends: float, turn: JoinPermit | None, token: str) -> Synced:
        """Make the first sync: its answer sets the relay's position."""
        cycle = self.cycle
        await self._context.bus.barrier(self._settings.reply_seconds)  # nothing is missed after the sync
        await self._found(ends)
        if turn is not None:
            await turn.take()
        answer = await self._synced(self._asked(vector, token=token))
        if cycle != self.cycle:
            raise RequestTimeout("the owner was lost during the join")
        for update in self.state.begin(answer):
            self._callbacks.pass_on(update)
        self._wake.set()
        return answer

    async def _synced(self, asking: Awaitable[Synced]) -> Synced:
        """Return the answer; updates that arrive meanwhile are held, and dropped if there is none."""
        cycle, answer = self.cycle, None
        self.state.syncing()
        try:
            answer = await asking
            return answer
        finally:
            if answer is None and cycle == self.cycle:
                self.state.sync_failed()

    async def _asked(self, vector: bytes, generation: int | None = None, *, token: str) -> Synced:
        answer = await ask_since(self._context, self._document_id, vector, generation=generation, token=token)
        if answer.lease < self.state.token:
            raise RequestTimeout("a server that lost the document answered the sync")
        self._alive_at = self._context.clock.now()
        return answer

    async def _found(self, ends: float) -> None:
        """Return when a server serves it. Raises NotServed, DocumentFailed, Disconnected."""
        async with self._finding:
            if self.state.need_owner:
                left = max(0.0, ends - self._context.clock.now()) * _SERVED_SHARE
                known = self.revision
                entry = await self._context.starter.served(self._document_id, timeout=left)
                if entry is not None and entry.revision < known:
                    self.revision = entry.revision  # another bucket, with lower revisions
                self.state.found_owner(entry)
                self._alive_at = self._context.clock.now()
                self._callbacks.found()

    # --- the task

    async def run(self) -> None:
        """Work until cancelled; the relay owns the task."""
        failures = 0
        while True:
            self._wake.clear()
            if self.state.live:
                try:
                    await self._work()
                    failures = 0
                except DocumentFailed as error:
                    self._callbacks.lost(str(error))
                except Refused as refused:
                    if refused.reason is Reason.DELETED:
                        self._callbacks.deleted(str(refused) == ERASED)
                    else:
                        failures = await self._retry(refused, failures)
                except (TransportError, MalformedMessage, NotServed) as error:
                    failures = await self._retry(error, failures)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_next()):
                    await self._wake.wait()

    async def _retry(self, error: LorogoError, failures: int) -> int:
        """Find the owner again after a pause; report the loss after the grace."""
        now = self._context.clock.now()
        if self._trouble_since is None:
            self._trouble_since = now
        if now - self._trouble_since >= self._settings.relay_grace_seconds:
            self._callbacks.lost(str(error))
            return 0
        self.state.need_owner = True
        least, most = self._settings.retry_seconds_min, self._settings.retry_seconds_max
        await asyncio.sleep(backoff(failures, least=least, most=most, jitter=self._context.rng.random()))
        self._wake.set()
        return failures + 1

    async def _work(self) -> None:
        """Do everything that is due."""
        state, now = self.state, self._context.clock.now()
        if self._suspicion is not None and self._suspicion[0] <= now:
            state.need_sync |= state.chain.behind(self._suspicion[1])
            self._suspicion = None
        if not state.need_owner:
            await self._doubt(now)
        if state.need_owner or state.need_sync:
            await self._catch_up()

    async def _doubt(self, now: float) -> None:
        """Ping an owner that is silent, or late with an answer."""
        silent = now - self._alive_at >= self._settings.relay_silence_seconds
        if (silent or self._doubted) and now - self.doubted_at >= self._settings.doubt_seconds:
            self._doubted = False
            await self._ping()

    async def _ping(self) -> None:
        starter = self._context.starter
        self.doubted_at = self._context.clock.now()
        answer = await starter.ping(self._document_id)
        if answer:
            self._alive_at = self._context.clock.now()
        elif answer is False or starter.stale(self._document_id):
            self.state.need_owner = True

    async def _catch_up(self) -> None:
        """Find the owner within the grace, and fill gaps."""
        state, clock, cycle = self.state, self._context.clock, self.cycle
        if self._trouble_since is None:
            self._trouble_since = clock.now()
        ends = self._trouble_since + self._settings.relay_grace_seconds
        if state.need_owner and not await within(max(0.0, ends - clock.now()), self._found(ends)):
            raise NotServed(self._document_id, "its owner does not answer")
        while state.need_sync and state.live and cycle == self.cycle:
            await self._fill(cycle)
        if cycle == self.cycle:
            self._trouble_since = None

    async def _fill(self, cycle: int) -> None:
        state, before = self.state, self.state.synced_lease
        answer = await self._synced(self._asked_and_watched(state.vector, state.generation))
        if cycle != self.cycle:
            return
        passed = state.fill(answer)
        if passed is None:
            self._callbacks.lost("missed updates cannot be filled in")
            return
        for update in passed:
            self._callbacks.pass_on(update)
        if answer.lease != before:
            self._callbacks.replaced()

    async def _asked_and_watched(self, vector: bytes, generation: int) -> Synced:
        """Return the answer; raise NoResponders as soon as the owner is gone, not when it is overdue."""
        token = self._callbacks.a_token()
        asking = asyncio.ensure_future(self._asked(vector, generation, token=token))
        try:
            while True:
                done, _ = await asyncio.wait({asking}, timeout=self._settings.doubt_seconds)
                if done:
                    return asking.result()
                await self._ping()
                if self.state.need_owner and not asking.done():
                    raise NoResponders(f"the owner of {self._document_id} is gone")
        except Refused as refused:
            if refused.reason is Reason.PERMISSION_DENIED:
                self._callbacks.refused(token)  # the next try has another member's token
            raise
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    def _until_next(self) -> float | None:
        """Return the seconds until work is due; None: only an event brings work."""
        if not self.state.live:
            return None
        settings = self._settings
        pingable = self.doubted_at + settings.doubt_seconds
        due = pingable if self._doubted else max(self._alive_at + settings.relay_silence_seconds, pingable)
        if self._suspicion is not None:
            due = min(due, self._suspicion[0])
        return max(0.0, due - self._context.clock.now())
