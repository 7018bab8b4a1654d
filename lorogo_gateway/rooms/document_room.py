"""A `%LOR` room on one connection: a member of the relay, its Acks, and its recovery by rejoining.

    JOINING ──▶ IN ──▶ WAITING ──▶ JOINING ...
                       a RoomError is sent or scheduled; the client joins again

Outside of IN updates are dropped without an Ack: after JoinOk the client sends what the owner lacks.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from enum import Enum, auto
from functools import partial

from lorogo_client import (
    DocumentDeleted,
    LorogoError,
    Receipt,
    StorageFull,
    TooLargeUpdate,
    UpdateRefused,
)
from lorogo_gateway import frames
from lorogo_gateway.auth.call_token import document_of
from lorogo_gateway.frames import Crdt, RoomErrorCode, Status
from lorogo_gateway.relay.errors import GivenUp, InvalidVersion
from lorogo_gateway.relay.join_permit import JoinPermit
from lorogo_gateway.relay.subscriber import Joined
from lorogo_gateway.rooms import join_errors
from lorogo_gateway.rooms.connection_port import ConnectionPort
from lorogo_gateway.rooms.membership import Membership
from lorogo_gateway.rooms.outgoing_pace import OutgoingQueue, deliver
from lorogo_gateway.rooms.rejoin import RejoinTimer, gone_code, room_error
from lorogo_gateway.rooms.rights import RoomRights, permission
from lorogo_protocol.loro import crdt
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TIMEOUTS_MAX = 3  # fragment timeouts that a client may report
_VECTOR_BYTES_MAX = frames.FRAME_BYTES_MAX - 512  # leaves room for the other fields of a join response


class RoomState(Enum):
    """The state of a room."""

    JOINING = auto()
    IN = auto()
    WAITING = auto()


class _Batch:
    """A batch of updates that is answered by one Ack."""

    __slots__ = ("left", "ref", "silent", "status")

    def __init__(self, ref: bytes, left: int) -> None:
        self.ref = ref
        self.left = left
        self.status = Status.OK
        self.silent = False  # no Ack: the client learns the result at its next join


class DocumentRoom:
    """One document on one connection."""

    crdt = Crdt.LORO
    weight = 1  # factor for its bytes in the rates

    def __init__(self, port: ConnectionPort, name: str, rights: RoomRights) -> None:
        self.name = name
        self.rights = rights
        self.state = RoomState.JOINING
        self.prefix = frames.room_prefix(Crdt.LORO, name)
        self._port = port
        self._place = Membership(port.gateway, name, self, lambda: self.rights)
        self._busy = False  # a join is in progress
        self._next: bytes | None = None  # the version of a join that waits for it
        self._rejoining = RejoinTimer(port, Crdt.LORO, name)
        self._timeouts = 0
        self._queue: OutgoingQueue | None = None  # created for the first large update
        self._lacked = 0  # bytes of the backfill that did not fit the budget

    # --- join and leave

    def join(self, version: bytes) -> None:
        """Answer a JoinRequest; ignored while another one is being answered.

        While the backfill of an earlier join is being sent, the request waits for its end.
        """
        if self._busy:
            if self.state is not RoomState.JOINING:
                self.state, self._next = RoomState.JOINING, version
            return
        self._busy = True
        self._rejoining.cancel()
        self._drop_waiting()
        self.state = RoomState.JOINING
        self._port.tasks.spawn(self._join(version), name=f"join {self.name}")

    async def _join(self, version: bytes) -> None:
        turn = JoinPermit(self._port.gateway.joining)
        try:
            await self._answer(version, turn)
        finally:
            turn.give_back()
            self._busy = False
        if (following := self._next) is not None:
            self._next = None
            self.join(following)

    async def _answer(self, version: bytes, turn: JoinPermit) -> None:
        port, settings = self._port, self._port.gateway.settings
        try:
            async with asyncio.timeout(settings.join_seconds):
                async with port.gateway.backfill.holding(self._lacked):
                    pass  # wait for the budget that the previous backfill lacked
                member = await self._place.enter()
                joined = await member.join(version, settings.join_seconds, turn)
        except (LorogoError, TimeoutError) as error:
            turn.give_back()
            if not self._place.left:
                await self._refuse(error)
            return
        if len(joined.vector) > _VECTOR_BYTES_MAX:
            self._refuse_wide(joined.vector)
        elif not self._place.left:
            port.gateway.counters.joins += 1
            await self._welcome(joined, turn)

    async def _refuse(self, error: LorogoError | TimeoutError) -> None:
        port = self._port
        vector = b""
        if isinstance(error, InvalidVersion):
            vector = await self._owners_version()
        if len(vector) > _VECTOR_BYTES_MAX:
            self._refuse_wide(vector)
            return
        no = (
            None
            if isinstance(error, TimeoutError)
            else join_errors.answer(Crdt.LORO, self.name, error, vector)
        )
        if no is None:
            log.info("join failed", document=self.name, problem=str(error))
            port.close(1013, f"{self.name} is not served now; try again", "not_served")
            return
        port.send(frames.encode(no))
        port.forget(Crdt.LORO, self.name)

    def _refuse_wide(self, vector: bytes) -> None:
        """Refuse the join: the version vector does not fit a frame."""
        why = f"its version has {len(vector)} bytes, a frame at most {_VECTOR_BYTES_MAX}"
        words = f"too many peers have edited {self.name}: {why}; PUT its JSON into a new document"
        self._port.send(frames.encode(join_errors.refused(Crdt.LORO, self.name, "too_many_peers", words)))
        self._port.forget(Crdt.LORO, self.name)

    async def _owners_version(self) -> bytes:
        try:
            document = document_of(self._port.gateway.client, self.name, self.rights.principal)
            facts = await document.version(timeout=5.0)
        except LorogoError:
            return crdt.nothing_known()
        vector = facts.get("vector")
        return vector if isinstance(vector, bytes) else crdt.nothing_known()

    async def _welcome(self, joined: Joined, turn: JoinPermit) -> None:
        port, settings = self._port, self._port.gateway.settings
        vector = (
            joined.vector or crdt.nothing_known()
        )  # for an empty one the client would send a whole snapshot
        port.send(frames.encode(frames.JoinOk(Crdt.LORO, self.name, permission(self.rights.writes), vector)))
        self.state = RoomState.IN
        if len(joined.payload) > settings.fragment_bytes:
            await self._backfill(joined.payload, turn)
        elif joined.payload:
            self._pass(joined.payload)

    async def _backfill(self, payload: bytes, turn: JoinPermit) -> None:
        """Send the backfill at the client's pace, interleaved with newly accepted updates."""
        gateway = self._port.gateway
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(gateway.settings.full_seconds):
                    await stack.enter_async_context(gateway.backfill.holding(len(payload)))
            except TimeoutError:
                self._lacked = len(payload)
                self._suggest("the gateway is sending too many backfills")
                return
            self._lacked = 0
            turn.give_back()
            await deliver(self._port, self.name, payload, lambda: not self._place.left)

    def stop(self) -> None:
        """Stop sending and receiving; `leave` follows."""
        self._rejoining.cancel()
        self.state = RoomState.WAITING
        self._place.left = True
        if self._queue is not None:
            self._queue.stop()

    async def leave(self) -> None:
        """Wait briefly for outstanding ACKs, then leave the relay."""
        self.stop()
        try:
            if (member := self._place.member) is not None:
                async with asyncio.timeout(self._port.gateway.settings.close_seconds):
                    await member.drained(1, 1)
        except TimeoutError:
            log.info("member left with unacknowledged updates", document=self.name)
        finally:
            await self._place.leave()

    # --- from the client

    def update(self, updates: tuple[bytes, ...], ref: bytes) -> Awaitable[None] | None:
        """Send a batch to the owner; returns an awaitable of back-pressure if too much is unacknowledged."""
        port, member, settings = self._port, self._place.member, self._port.gateway.settings
        if self.state is not RoomState.IN or member is None:
            return None
        if not self.rights.writes:
            port.ack(self.prefix, ref, Status.PERMISSION_DENIED)
            return None
        if not all(updates):
            port.ack(self.prefix, ref, Status.INVALID_UPDATE)
            return None
        if not updates:
            port.ack(self.prefix, ref, Status.OK)
            return None
        batch = _Batch(ref, len(updates))
        for payload in updates:
            member.send(payload).add_done_callback(partial(self._settled, batch))
        updates_max, bytes_max = settings.unacked_updates_max, settings.unacked_bytes_max
        if member.unacked < updates_max and member.unacked_bytes < bytes_max:
            return None
        return member.drained(updates_max, bytes_max)

    def announced(self, _size: int) -> Status | None:
        """Return OK, or the status that refuses an announced update; None: ignore it without an Ack."""
        if self.state is not RoomState.IN:
            return None
        return Status.OK if self.rights.writes else Status.PERMISSION_DENIED

    def failed(self, ref: bytes, status: Status, *, seconds: float = 0.0) -> None:
        """Answer a batch that the connection refused; suggest a rejoin if the client should send it again."""
        if self.state is not RoomState.IN:
            return
        self._port.ack(self.prefix, ref, status)
        if status in (Status.RATE_LIMITED, Status.FRAGMENT_TIMEOUT):
            self._suggest(f"an update was not taken: {status.name.lower()}", seconds=seconds)

    def acked(self, status: Status) -> None:
        """Handle the client's Ack: after a fragment timeout suggest a rejoin."""
        if status is Status.FRAGMENT_TIMEOUT and self.state is RoomState.IN:
            self._timeouts += 1
            if self._timeouts >= _TIMEOUTS_MAX:
                self._end(RoomErrorCode.UNKNOWN, "slow connection: fragments time out repeatedly")
            else:
                self._suggest("fragments did not arrive in time")

    @property
    def unacked(self) -> int:
        """The number of updates without an ACK."""
        return 0 if self._place.member is None else self._place.member.unacked

    async def settled(self) -> None:
        """Return when every update is answered. The caller sets the deadline."""
        if (member := self._place.member) is not None:
            await member.drained(1, 1)
            await asyncio.sleep(0)  # lets the callbacks write the Acks

    def _settled(self, batch: _Batch, future: "asyncio.Future[Receipt]") -> None:
        batch.left -= 1
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            self._lost(batch, error)
        if batch.left == 0 and not batch.silent and not self._place.left:
            self._port.ack(self.prefix, batch.ref, batch.status)

    def _lost(self, batch: _Batch, error: BaseException | None) -> None:
        match error:
            case TooLargeUpdate():
                batch.status = Status.PAYLOAD_TOO_LARGE
            case UpdateRefused() if error.reason.retriable:
                batch.silent = True
                self._suggest("the owner lacks what an update needs")
            case UpdateRefused():
                batch.status = Status.INVALID_UPDATE
            case StorageFull():
                batch.status = Status.APP_ERROR
                self._suggest("the WAL was full", seconds=self._port.gateway.settings.full_seconds)
            case GivenUp() | DocumentDeleted() | None:
                batch.silent = True  # rejoin() or gone() informs the client
            case _:
                log.warning("update failed", document=self.name, problem=str(error))
                batch.silent = True
                self._suggest("an update was not confirmed")

    # --- from the relay (its Listener)

    def accepted(self, payload: bytes) -> None:
        if self.state is RoomState.IN:
            self._pass(payload)

    def aware(self, data: bytes) -> None:
        """Presence is handled by the `%EPH` room."""

    def rejoin(self, why: str) -> None:
        self._suggest(why)

    def gone(self, error: LorogoError) -> None:
        self._end(*gone_code(error))

    # --- internals

    def _pass(self, payload: bytes) -> None:
        port, queue = self._port, self._queue
        if (queue is not None and queue.busy) or len(payload) > port.gateway.settings.fragment_bytes:
            self._enqueue(payload)
            return
        for frame in port.gateway.fanout.frames(Crdt.LORO, self.name, payload):
            port.send(frame)
        port.gateway.counters.updates_out += 1

    def _enqueue(self, payload: bytes) -> None:
        """Queue a large update, or one that must follow it."""
        if self._queue is None:
            self._queue = OutgoingQueue(self._port, self.name)
        if not self._queue.put(payload):
            self._suggest("slow consumer: too many updates are unread")

    def _drop_waiting(self) -> None:
        if self._queue is not None:
            self._queue.drop()

    def _suggest(self, why: str, *, seconds: float = 0.0) -> None:
        """Suggest a rejoin to the client, at a limited rate."""
        if self.state is not RoomState.IN:
            return
        self.state = RoomState.WAITING
        self._rejoining.suggest(why, seconds=seconds)

    def _end(self, code: RoomErrorCode, message: str) -> None:
        self._port.send(room_error(Crdt.LORO, self.name, code, message))
        self._port.forget(Crdt.LORO, self.name)
