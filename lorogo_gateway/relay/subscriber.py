"""One member of a relay: it joins, gets updates and presence of others, and sends."""

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

_HELD_MAX = 1024  # updates during a join
_HELD_BYTES_MAX = 8 * 1024 * 1024


class Listener(Protocol):
    """Callbacks of a member of a relay; called on the loop, must not block or raise."""

    def accepted(self, payload: bytes) -> None:
        """Take an accepted update of another member, or the content of a gap."""

    def aware(self, data: bytes) -> None:
        """Take presence of others: bytes of an EphemeralStore."""

    def rejoin(self, why: str) -> None:
        """Join again: updates may be missing, and unacknowledged ones are given up."""

    def gone(self, error: LorogoError) -> None:
        """End: the document is gone."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The owner's version, and the operations that the member lacks."""

    vector: bytes
    payload: bytes  # b"" if it lacks nothing
    snapshot: bool
    presence: bytes
    generation: int


class SubscriberState(Enum):
    """Phase of a member."""

    OUT = auto()  # not joined yet, or it must join again
    JOINING = auto()  # updates are held
    IN = auto()


class Subscriber:
    """One member of a document's relay."""

    def __init__(self, context: ClientContext, relay: "Relay", listener: Listener, token: str = "") -> None:
        self.id = context.new_id()
        self.token = token  # its own, if it has one: requests to the owner carry it
        self.state = SubscriberState.OUT
        self.cycle = 0  # of the relay, when the join began
        self.joins = 0  # begun until now
        self._context = context
        self._relay = relay
        self._listener = listener
        self._queue = SendQueue(context, relay.document_id, relay, on_stuck=self.lose)
        self._open = False  # updates may be sent
        self._closed = False
        self._joining = asyncio.Lock()
        self._held: list[Callable[[], None]] = []
        self._held_bytes = 0
        self._overflowed = False
        self._held_after_join = False  # join() has returned, held updates follow

    # --- for its user

    async def join(
        self, vector: bytes, timeout: float | None = None, turn: JoinPermit | None = None
    ) -> Joined:
        """Return what the member lacks; later updates go to its listener.

        Await it directly: updates accepted meanwhile follow in the next cycles of the loop after it returns.
        `vector` is Loro's encoding of a version vector, b"" for nothing known. The document is started if
        no server serves it. Raises InvalidVersion; HistoryTrimmed if the member has something and the kept
        history does not reach back to it (begin with a new LoroDoc); NotServed, DocumentFailed,
        DocumentDeleted, NotAllowed, Timeout, SessionClosed. The caller gives
        back a `turn`.
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
        """Send an update after earlier ones; the future is the owner's receipt, without frontiers.

        Its errors: UpdateRefused, TooLargeUpdate, StorageFull, DocumentDeleted; GivenUp: the outcome is
        unknown, and the member must join again.
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
        return self._queue.send(payload, log_id)

    @property
    def unacked(self) -> int:
        """Number of unacknowledged updates."""
        return self._queue.unacked

    @property
    def unacked_bytes(self) -> int:
        return self._queue.unacked_bytes

    async def drained(self, updates_max: int, bytes_max: int) -> None:
        """Return when fewer updates and bytes than these are unacknowledged, or none."""
        await self._queue.drained(updates_max, bytes_max)

    async def tell(self, data: bytes) -> None:
        """Show others this presence. Raises PresenceTooLarge, InvalidUpdate, Disconnected."""
        limit = self._context.settings.presence_bytes_max
        if len(data) > limit:
            raise PresenceTooLarge(f"presence has {len(data)} bytes, at most {limit} are allowed")
        ephemeral.check_presence(data)
        subject = subjects.awareness(self._relay.document_id)
        await self._context.bus.publish(subject, data, headers={h.MEMBER: self.id})

    # --- for the relay

    @property
    def accept(self) -> Callable[[bytes], None]:
        """The function that takes an accepted update now."""
        return self._listener.accepted if self.state is SubscriberState.IN else self._hold_accepted

    def hear(self, data: bytes) -> None:
        """Take presence of others."""
        if self.state is SubscriberState.IN:
            self._listener.aware(data)
        else:
            self._hold(self._listener.aware, data)

    def lose(self, why: str) -> None:
        """Have the member join again: it may lack updates, or an unacknowledged one cannot be settled."""
        self._open = False
        self._queue.give_up(GivenUp(f"nothing is known about it: {why}"))
        if self.state is not SubscriberState.IN and not self._held_after_join:
            return
        self._out()
        self._call(lambda: self._listener.rejoin(why))

    def end(self, error: LorogoError) -> None:
        """End the member: the document is gone."""
        self._open = False
        self._queue.give_up(error)
        if self.state is not SubscriberState.JOINING or self._held_after_join:
            self._out()
            self._call(lambda: self._listener.gone(error))

    def wake(self) -> None:
        self._queue.wake()

    def resend(self) -> None:
        self._queue.resend()

    async def close(self) -> None:
        self._closed = True
        self._out()
        await self._queue.close()

    # --- inside

    async def _admitted(self, vector: bytes, allowed: float, turn: JoinPermit | None) -> Synced:
        relay = self._relay
        ends = self._context.clock.now() + allowed
        answer: Synced | None = None
        try:
            while answer is None or self.cycle != relay.cycle:
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
        loop.call_soon(loop.call_soon, self._deliver_held, self.cycle)  # after the caller of the join
        return answer

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosed("the member has left")

    def _begin(self) -> None:
        self.state, self.cycle = SubscriberState.JOINING, self._relay.cycle
        self.joins += 1
        self._held, self._held_bytes, self._overflowed = [], 0, False
        self._held_after_join = False
        self._relay.audience_changed()

    def _deliver_held(self, cycle: int) -> None:
        if not self._held_after_join or cycle != self.cycle:
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
    """Return the vector as Loro encodes it. Raises InvalidVersion."""
    if not vector:
        return crdt.nothing_known()
    try:
        return Reach(vector).encode()
    except CrdtError as error:
        raise InvalidVersion(f"the version does not decode: {error}") from None


def _checked(answer: Synced, vector: bytes, document_id: str) -> Synced:
    """Return the answer if the member can import it. Raises HistoryTrimmed.

    An owner sends a snapshot to a member with content only if it cannot send updates, and that snapshot is
    shallow. Loro imports it into a document that is not empty as pending, without an error.
    """
    if answer.mode == "snapshot" and vector != crdt.nothing_known():
        raise HistoryTrimmed(
            f"the history that {document_id} keeps does not reach back to this version;"
            " begin with an empty document"
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
