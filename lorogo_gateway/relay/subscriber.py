"""One member of a relay: it joins, hears what others do, and sends."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Protocol

from lorogo_client.context import ClientContext
from lorogo_client.errors import NotServed, SessionClosed, Timeout
from lorogo_client.session.presence import PresenceTooLarge
from lorogo_client.session.syncing import Synced
from lorogo_gateway.relay.errors import GivenUp, InvalidVersion
from lorogo_gateway.relay.join_permit import JoinPermit
from lorogo_gateway.relay.send_queue import SendQueue, Sent, fail
from lorogo_protocol.errors import CrdtError, HistoryTrimmed, LorogoError
from lorogo_protocol.loro import crdt, ephemeral
from lorogo_protocol.loro.crdt import Reach
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_transport.telemetry.logs import get_logger

if TYPE_CHECKING:
    from lorogo_gateway.relay.relay import Relay

log = get_logger(__name__)

_HELD_MAX = 1024  # what comes while a join is under way
_HELD_BYTES_MAX = 8 * 1024 * 1024


class Listener(Protocol):
    """One who follows a document through a relay; called on the loop, must not block or raise."""

    def accepted(self, payload: bytes) -> None:
        """An accepted update that this member did not send, or what filled a gap."""

    def aware(self, data: bytes) -> None:
        """Presence of others: bytes of an EphemeralStore."""

    def rejoin(self, why: str) -> None:
        """What this member has is not complete any more, and what it sent is given up: join() again."""

    def gone(self, error: LorogoError) -> None:
        """It is over for good."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The owner's version, and what the member lacks of it."""

    vector: bytes
    payload: bytes  # b"" if it lacks nothing
    snapshot: bool
    presence: bytes
    generation: int


class SubscriberState(Enum):
    """Whether a member follows."""

    OUT = auto()  # it was never in, or was told to join again
    JOINING = auto()  # what comes is held
    IN = auto()


class Subscriber:
    """One who follows a document; made by `client.relay()`."""

    def __init__(self, context: ClientContext, relay: "Relay", listener: Listener, token: str = "") -> None:
        self.id = context.new_id()
        self.token = token  # its own, if it has one: the owner is asked in its name
        self.state = SubscriberState.OUT
        self.life = 0  # of the relay, when the join began
        self.joins = 0  # begun until now
        self._context = context
        self._relay = relay
        self._listener = listener
        self._lane = SendQueue(context, relay.document_id, relay, on_stuck=self.lose)
        self._open = False  # whether updates may leave
        self._closed = False
        self._joining = asyncio.Lock()
        self._held: list[Callable[[], None]] = []
        self._held_bytes = 0
        self._overflowed = False
        self._held_after_join = False  # join() has returned, and what was held is about to be told

    # --- what its user calls

    async def join(
        self, vector: bytes, timeout: float | None = None, turn: JoinPermit | None = None
    ) -> Joined:
        """What the member lacks; from now on it hears of everything else.

        Await it directly: what was accepted meanwhile is told in the turns of the loop after it has returned.
        `vector` is Loro's encoding of a version vector, b"" for nothing known. The document is started if
        nobody serves it. Raises InvalidVersion; HistoryTrimmed if the member has something and the kept
        history does not reach back to it (begin with a new LoroDoc); NotServed, DocumentFailed,
        DocumentDeleted, NotAllowed, Timeout, SessionClosed. A `turn` is waited for, and the caller's to give
        back.
        """
        known = _canonical(vector)
        allowed = self._context.settings.open_seconds if timeout is None else timeout
        deadline = asyncio.timeout(allowed)
        try:
            async with deadline, self._joining:
                answer = await self._admitted(known, allowed, turn)
        except TimeoutError:
            if not deadline.expired():
                raise
            why = self._relay.hindrance
            if why is not None:
                raise NotServed(self._relay.document_id, str(why)) from None
            raise Timeout(f"{self._relay.document_id} did not answer a join in {allowed:g} s") from None
        return _joined(answer, known)

    def send(self, payload: bytes) -> Sent:
        """Send an update after those before it; the future is the owner's receipt, or why there is none.

        The receipt has no frontiers: nobody here knows them.
        UpdateRefused, TooLargeUpdate, StorageFull, DocumentDeleted; GivenUp: nothing is known about it, and
        the member was told to join again.
        """
        if not self._open:
            future: Sent = asyncio.get_running_loop().create_future()
            fail(
                future,
                self._relay.over or GivenUp("the member has not joined; join, then send what is lacking"),
            )
            return future
        log_id = self._context.new_id()
        self._relay.sends(self, log_id)
        return self._lane.send(payload, log_id)

    @property
    def unacked(self) -> int:
        """How many updates have no answer."""
        return self._lane.unacked

    @property
    def unacked_bytes(self) -> int:
        return self._lane.unacked_bytes

    async def drained(self, updates_max: int, bytes_max: int) -> None:
        """Return when fewer updates and bytes than these have no answer, or none has."""
        await self._lane.drained(updates_max, bytes_max)

    async def tell(self, data: bytes) -> None:
        """Show others this presence. Raises PresenceTooLarge, InvalidUpdate, Disconnected."""
        limit = self._context.settings.presence_bytes_max
        if len(data) > limit:
            raise PresenceTooLarge(f"presence has {len(data)} bytes, at most {limit} are allowed")
        ephemeral.check_presence(data)
        subject = subjects.awareness(self._relay.document_id)
        await self._context.bus.publish(subject, data, headers={h.MEMBER: self.id})

    # --- what the relay calls

    @property
    def accept(self) -> Callable[[bytes], None]:
        """Who takes an accepted update now."""
        return self._listener.accepted if self.state is SubscriberState.IN else self._hold_accepted

    def hear(self, data: bytes) -> None:
        """Presence of others."""
        if self.state is SubscriberState.IN:
            self._listener.aware(data)
        else:
            self._hold(self._listener.aware, data)

    def lose(self, why: str) -> None:
        """What it has is not complete any more, or what it sent cannot be settled."""
        self._open = False
        self._lane.give_up(GivenUp(f"nothing is known about it: {why}"))
        if self.state is not SubscriberState.IN and not self._held_after_join:
            return
        self._out()
        self._call(lambda: self._listener.rejoin(why))

    def end(self, error: LorogoError) -> None:
        """The document is gone."""
        self._open = False
        self._lane.give_up(error)
        if self.state is not SubscriberState.JOINING or self._held_after_join:
            self._out()
            self._call(lambda: self._listener.gone(error))

    def wake(self) -> None:
        self._lane.wake()

    def resend(self) -> None:
        self._lane.resend()

    async def close(self) -> None:
        self._closed = True
        self._out()
        await self._lane.close()

    # --- inside

    async def _admitted(self, vector: bytes, allowed: float, turn: JoinPermit | None) -> Synced:
        relay = self._relay
        ends = self._context.clock.now() + allowed
        answer: Synced | None = None
        try:
            while answer is None or self.life != relay.life:
                answer = None
                self._check_open()
                self._begin()
                found = _checked(await relay.admit(vector, ends, turn, self.token), vector, relay.document_id)
                self._check_open()  # it may have left meanwhile
                answer = found
        finally:
            if answer is None:
                self._out()
        self._open = self._held_after_join = True
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._tell_held, self.life)  # after whoever awaits the join
        return answer

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed("the member has left")

    def _begin(self) -> None:
        self.state, self.life = SubscriberState.JOINING, self._relay.life
        self.joins += 1
        self._held, self._held_bytes, self._overflowed = [], 0, False
        self._held_after_join = False
        self._relay.audience_changed()

    def _tell_held(self, life: int) -> None:
        if not self._held_after_join or life != self.life:
            return
        held, self._held = self._held, []
        self._held_after_join = False
        self.state = SubscriberState.IN
        self._relay.audience_changed()
        if self._overflowed:
            self.lose("too much was accepted during the join")
            return
        for tell in held:
            self._call(tell)

    def _hold_accepted(self, payload: bytes) -> None:
        self._hold(self._listener.accepted, payload)

    def _hold(self, tell: Callable[[bytes], None], data: bytes) -> None:
        self._held_bytes += len(data)
        if self._overflowed or len(self._held) >= _HELD_MAX or self._held_bytes > _HELD_BYTES_MAX:
            self._overflowed = True
            self._held.clear()
        else:
            self._held.append(partial(tell, data))

    def _out(self) -> None:
        self.state = SubscriberState.OUT
        self._open = self._held_after_join = False
        self._held.clear()
        self._relay.audience_changed()

    def _call(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except Exception:
            log.exception("a listener of a relay failed", document=self._relay.document_id)


def _canonical(vector: bytes) -> bytes:
    """The vector as Loro writes it. Raises InvalidVersion."""
    if not vector:
        return crdt.nothing_known()
    try:
        return Reach(vector).encode()
    except CrdtError as error:
        raise InvalidVersion(f"the version does not decode: {error}") from None


def _checked(answer: Synced, vector: bytes, document_id: str) -> Synced:
    """The same, if the member can take it. Raises HistoryTrimmed.

    The owner gives a snapshot to one that has something only if it cannot give what is lacking, and that
    snapshot is shallow. Loro imports such a one into a document that is not empty as pending, without a word.
    """
    if answer.mode == "snapshot" and vector != crdt.nothing_known():
        raise HistoryTrimmed(
            f"the history that {document_id} keeps does not reach back to this version; begin anew"
        )
    return answer


def _joined(answer: Synced, vector: bytes) -> Joined:
    complete = Reach(vector).includes(answer.vector)
    return Joined(
        vector=answer.vector,
        payload=b"" if complete else answer.payload,
        snapshot=answer.mode == "snapshot" and not complete,
        presence=answer.presence,
        generation=answer.generation,
    )
