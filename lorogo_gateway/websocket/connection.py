"""One WebSocket connection: a loop reads frames and passes them to rooms; rooms write directly."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

from starlette.types import Receive

from lorogo_client import InvalidDocumentId, LorogoError
from lorogo_gateway import frames
from lorogo_gateway.auth import OPEN, UNCHECKED, AccessDenied, NotSignedIn, Principal, missing
from lorogo_gateway.auth.presented_token import in_message
from lorogo_gateway.frames import Crdt, FragmentRefusal, MalformedFrame, RoomErrorCode, Status
from lorogo_gateway.limits.limiter import LimitExceeded
from lorogo_gateway.limits.reasons import LimitReason
from lorogo_gateway.limits.request_quota import ConnectionQuota, unlimited
from lorogo_gateway.limits.token_bucket import TokenBucket
from lorogo_gateway.rooms import join_errors
from lorogo_gateway.rooms.document_room import DocumentRoom
from lorogo_gateway.rooms.ephemeral_room import EphemeralRoom
from lorogo_gateway.rooms.kept_room import PersistedPresenceRoom
from lorogo_gateway.rooms.rejoin import room_error
from lorogo_gateway.rooms.rights import RoomRights
from lorogo_gateway.state.gateway_state import GatewayState
from lorogo_gateway.transport.transport import PONGS_MAX, FrameWriter
from lorogo_gateway.websocket.frame_pace import FramePace
from lorogo_gateway.websocket.incoming_fragments import IncomingFragments
from lorogo_protocol.access.grants import Access
from lorogo_protocol.access.tokens import TokenRefused
from lorogo_protocol.ids import check_document_id
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

Room = DocumentRoom | EphemeralRoom | PersistedPresenceRoom
_ROOMS: Final[dict[Crdt, type[DocumentRoom] | type[EphemeralRoom] | type[PersistedPresenceRoom]]] = {
    Crdt.LORO: DocumentRoom,
    Crdt.EPHEMERAL: EphemeralRoom,
    Crdt.PERSISTED: PersistedPresenceRoom,
}
_REASON_BYTES_MAX = 123  # of a close frame
TOKEN_ENDED: Final = 4401  # a close code: the token of the handshake is invalid or has ended
_TIMER_SECONDS_MAX = 30 * 86400.0  # longer than any connection lasts
_BAD_TOKENS_MAX = 16  # in JoinRequests of one connection


def _nothing() -> None:
    """Do nothing: there is nothing to undo."""


class WebSocketConnection:
    """A client's connection and its rooms."""

    def __init__(
        self,
        gateway: GatewayState,
        writer: FrameWriter,
        principal: Principal | None = OPEN,
        quota: ConnectionQuota | None = None,
        *,
        now: float,
    ) -> None:
        """`principal`: of the handshake; None: it had no token, so JoinRequests must bring one.

        `quota`: the limits of its address and token; None: no limits.
        """
        settings = gateway.settings
        self.quota = quota or unlimited(gateway.limiter)
        self._principal = principal
        self._bad_tokens = 0
        self._unfollow: dict[tuple[Crdt, str], Callable[[], None]] = {}  # by room with its own token
        self.gateway = gateway
        self.writer = writer
        self.tasks = Tasks(self._broke)
        self.rooms: dict[tuple[Crdt, str], Room] = {}
        self.closing = False  # incoming frames are dropped
        self._updates = TokenBucket(settings.updates_per_second, settings.burst_seconds, now=now)
        self._bytes = TokenBucket(settings.bytes_per_second, settings.burst_seconds, now=now)
        self._frames = FramePace(
            settings,
            gateway.limiter,
            self.quota,
            anonymous=principal is None,
            clock=asyncio.get_running_loop().time,
        )
        self._fragments: IncomingFragments | None = None  # created for the first header
        self._over: str = ""  # the reason of the close
        self._pongs = 0  # since the client last read everything
        self._pace = asyncio.Lock()

    async def run(self, receive: Receive) -> None:
        """Read and handle frames until the connection ends."""
        unfollow, token_timer = self._begin()
        try:
            while True:
                message = await receive()
                if message["type"] == "websocket.disconnect":
                    self._ended(int(message.get("code") or 1005))
                    return
                await self._frames.turn()
                if self.closing:
                    continue
                try:
                    wait = self._handle(message.get("bytes"), message.get("text"))
                except MalformedFrame as error:
                    self.close(4400, str(error), "malformed")
                    continue
                if wait is not None:
                    await self._wait_for_acks(wait)
        finally:
            self.closing = True
            unfollow()
            for forget in self._unfollow.values():
                forget()
            if token_timer is not None:
                token_timer.cancel()
            if self._fragments is not None:
                self._fragments.close()
            await self.tasks.close()
            for room in self.rooms.values():
                self.gateway.tasks.spawn(room.leave(), name=f"leave {room.name}")
            self.rooms.clear()
            self.quota.close()

    @property
    def unacked(self) -> int:
        """The number of updates without an ACK."""
        return sum(room.unacked for room in self.rooms.values())

    def stop_reading(self) -> None:
        """Drop further frames without an Ack."""
        self.closing = True

    async def settled(self) -> None:
        """Return when every update is answered. The caller sets the deadline."""
        for room in list(self.rooms.values()):
            await room.settled()

    # --- the interface for rooms (Seat)

    def send(self, data: bytes) -> None:
        if self._over:
            return
        writer = self.writer
        writer.write(data)
        self.gateway.counters.bytes_out += len(data)
        if writer.unread_bytes > self.gateway.settings.unread_bytes_max:
            self.slow()

    async def send_paced(self, data: bytes, wanted: Callable[[], bool]) -> bool:
        async with self._pace:  # one room at a time: all would find the writer writable
            await self.writer.writable()
            if not wanted():
                return False
            self.send(data)
            return True

    def ack(self, prefix: bytes, ref: bytes, status: Status) -> None:
        self.gateway.counters.acks[status] += 1
        self.send(frames.ack_frame(prefix, ref, status))

    def forget(self, crdt: Crdt, name: str) -> None:
        room = self.rooms.pop((crdt, name), None)
        self._unfollow.pop((crdt, name), _nothing)()
        if self._fragments is not None:
            self._fragments.forget(crdt, name)
        if room is not None:
            self.quota.leave_document(name)
            room.stop()
            self.gateway.tasks.spawn(room.leave(), name=f"leave {name}")

    def slow(self) -> None:
        if not self._over:
            self.gateway.counters.slow_readers += 1
            self.close(1013, "slow consumer; reconnect", "slow_reader")

    def close(self, code: int, reason: str, why: str) -> None:
        if self._over:
            return
        self.closing = True
        self._over = why
        text = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
        seconds = self.gateway.settings.close_seconds
        self.gateway.tasks.spawn(self.writer.close(code, text, seconds=seconds), name=f"close {why}")

    # --- frames

    def _handle(self, data: bytes | None, text: str | None) -> Awaitable[None] | None:
        """Handle one message; returns what to await before reading the next."""
        if data is None:
            self._handle_text(text or "")
            return None
        self.gateway.counters.bytes_in += len(data)
        if len(data) > self.gateway.settings.frame_bytes_max:
            self.close(1009, f"the frame has {len(data)} bytes; send fragments", "too_large")
            return None
        match frames.decode_few(data, self.gateway.settings.unacked_updates_max):
            case frames.DocUpdate() as frame:
                return self._update(frame)
            case frames.OversizedBatch() as frame:
                self._refuse_oversized(frame, len(data))
            case frames.JoinRequest() as frame:
                if seconds := self.quota.join():
                    return self._join_later(frame, seconds)
                self._join(frame)
            case frames.Fragment() as frame:
                return self._fragment(frame)
            case frames.FragmentHeader() as frame:
                self._fragment_header(frame)
            case frames.Leave() as frame:
                self.forget(frame.crdt, frame.room)
            case frames.AckFrame() as frame:
                if (room := self.rooms.get((frame.crdt, frame.room))) is not None:
                    room.acked(frame.status)
            case frames.JoinOk() | frames.JoinError() | frames.RoomError() as frame:
                raise MalformedFrame(f"only servers send a {type(frame).__name__}")
        return None

    def _handle_text(self, text: str) -> None:
        if text == "ping":
            self.writer.write_text("pong")
            self._pongs = self._pongs + 1 if self.writer.unread_bytes else 0
            if self._pongs > PONGS_MAX:
                self.slow()
        elif text != "pong":
            raise MalformedFrame("text messages other than ping and pong are not allowed")

    async def _join_later(self, request: frames.JoinRequest, seconds: float) -> None:
        """Delay a join above the token's rate; the client would take a refusal as final."""
        while seconds:
            await asyncio.sleep(seconds)
            seconds = self.quota.join()
        if not self.closing:
            self._join(request)

    def _join(self, request: frames.JoinRequest) -> None:
        key = (request.crdt, request.room)
        if request.auth and (no := self.quota.blocked(request.auth.decode("latin-1").strip())) is not None:
            self._reject_unchecked(request, no)
            return
        room, kind = self.rooms.get(key), _ROOMS.get(request.crdt)
        if kind is None:
            self._refuse_join(request, "unsupported_crdt", f"this gateway has no rooms of {request.crdt}")
            return
        try:
            check_document_id(request.room)
            rights = self._rights(request)
        except InvalidDocumentId as error:
            self._refuse_join(request, "invalid_document_id", str(error))
            return
        except (NotSignedIn, TokenRefused, AccessDenied) as error:
            self._reject_join(request, error)
            return
        if not self._counted(rights.principal):
            return
        if room is None:
            if len(self.rooms) >= self.gateway.settings.rooms_max:
                most = self.gateway.settings.rooms_max
                self.gateway.limiter.refusals.count(LimitReason.ROOMS)
                self._refuse_join(request, "too_many_rooms", f"a connection has at most {most} rooms")
                return
            if (full := self.quota.enter_document(request.room)) is not None:
                self._refuse_join(request, "too_many_documents", full.detail)
                return
            room = self.rooms[key] = kind(self, request.room, rights)
        room.rights = rights
        self._follow(key, rights.principal)
        if self._fragments is not None:
            self._fragments.forget(*key)
        room.join(request.version)

    def _counted(self, who: Principal) -> bool:
        """Count the connection for its first token; closes it and returns False if that exceeds a limit."""
        if self.quota.identified or who.token is None:
            return True
        no = self.quota.identify(who.token.user)
        self._frames.authenticated()
        if no is not None:
            self.close(1013, f"{no.detail}; reconnect later", "too_many")
        return no is None

    def _refuse_join(self, request: frames.JoinRequest, app_code: str, message: str) -> None:
        self.send(frames.encode(join_errors.refused(request.crdt, request.room, app_code, message)))

    # --- tokens

    def _begin(self) -> tuple[Callable[[], None], asyncio.TimerHandle | None]:
        """Follow the token of the handshake; without one, start the timer for the first join."""
        if self._principal is not None:
            return self.gateway.guard.follow(self._principal, self._token_ended), None
        seconds = self.gateway.settings.join_seconds
        return _nothing, asyncio.get_running_loop().call_later(seconds, self._close_without_token)

    def _close_without_token(self) -> None:
        if not self.rooms:
            self.close(TOKEN_ENDED, "token-missing: no join with a token", "token")

    def _rights(self, request: frames.JoinRequest) -> RoomRights:
        """Return the rights by the token of the request, else of the room, else of the handshake.

        Raises NotSignedIn, TokenRefused, NotAllowed.
        """
        guard = self.gateway.guard
        if request.auth and not guard.open:
            who = guard.verified(in_message(request.auth))
            if who.token is not None:
                self.quota.passed(who.token.user)
        elif (room := self.rooms.get((request.crdt, request.room))) is not None:
            who = room.rights.principal
        elif self._principal is None:
            raise missing()
        else:
            who = self._principal
        who.need(request.room, Access.READ)
        return RoomRights(who, who.access(request.room), self.gateway.settings.read_only)

    def _reject_unchecked(self, request: frames.JoinRequest, no: LimitExceeded) -> None:
        """Refuse a join while tokens are blocked; close an unidentified connection, else end the room."""
        if not self.quota.identified:
            self.close(1013, f"{no.detail}; reconnect later", "token")
            return
        self.gateway.counters.joins_refused += 1
        why = NotSignedIn("rate-limited", f"{no.detail}; try again in {no.retry_after} s")
        self.send(frames.encode(join_errors.auth_failed(request.crdt, request.room, why)))
        self.forget(request.crdt, request.room)

    def _reject_join(self, request: frames.JoinRequest, error: LorogoError) -> None:
        """Refuse a join because of its token; a room that was joined before ends, as the client expects."""
        if error.code == UNCHECKED:
            self.close(1013, f"{error.code}: {error}", "not_served")
            return
        self.gateway.counters.joins_refused += 1
        self.send(frames.encode(join_errors.auth_failed(request.crdt, request.room, error)))
        self.forget(request.crdt, request.room)
        if isinstance(error, TokenRefused):
            self.quota.failed()
            self._bad_tokens += 1
            if self._bad_tokens >= _BAD_TOKENS_MAX:
                self.close(TOKEN_ENDED, f"{error.code}: {error}", "token")

    def _follow(self, key: tuple[Crdt, str], who: Principal) -> None:
        """End the room when its own token ends; the handshake's token ends the whole connection.

        `renew_seconds` before that suggest a rejoin, at which the npm client gets a new token from its app.
        """
        before = self._unfollow.pop(key, _nothing)
        if who is not self._principal:
            guard, soon = self.gateway.guard, self.gateway.settings.renew_seconds
            undo = ExitStack()
            undo.callback(guard.follow(who, partial(self._room_ended, key)))
            if 2 * soon < (left := guard.left(who)) < _TIMER_SECONDS_MAX:
                timer = asyncio.get_running_loop().call_later(left - soon, self._renew, key)
                undo.callback(timer.cancel)
            self._unfollow[key] = undo.close
        before()

    def _renew(self, key: tuple[Crdt, str]) -> None:
        if (room := self.rooms.get(key)) is not None:
            room.rejoin("the token expires soon: join again with a new one")

    def _room_ended(self, key: tuple[Crdt, str], error: TokenRefused) -> None:
        self.send(room_error(*key, RoomErrorCode.UNKNOWN, f"auth_failed: {error.code}: {error}"))
        self.forget(*key)

    def _token_ended(self, error: TokenRefused) -> None:
        for key in list(self.rooms):
            self._room_ended(key, error)
        self.close(TOKEN_ENDED, f"{error.code}: {error}", "token")

    # --- updates

    def _update(self, frame: frames.DocUpdate) -> Awaitable[None] | None:
        room = self.rooms.get((frame.crdt, frame.room))
        if room is None:
            self.ack(frames.room_prefix(frame.crdt, frame.room), frame.batch, Status.PERMISSION_DENIED)
            return None
        self.gateway.counters.updates_in += len(frame.updates)
        if not self._paid(room, frame.batch, len(frame.updates), sum(map(len, frame.updates))):
            return None
        return room.update(frame.updates, frame.batch)

    def _refuse_oversized(self, frame: frames.OversizedBatch, size: int) -> None:
        """Refuse a batch with too many updates: each would become a message of its own."""
        room = self.rooms.get((frame.crdt, frame.room))
        if room is None:
            self.ack(frames.room_prefix(frame.crdt, frame.room), frame.batch, Status.PERMISSION_DENIED)
            return
        self.gateway.counters.updates_in += frame.count
        if self._paid(room, frame.batch, self.gateway.settings.unacked_updates_max, size):
            room.failed(frame.batch, Status.PAYLOAD_TOO_LARGE)

    def _paid(self, room: Room, batch: bytes, count: int, size: int) -> bool:
        """Charge updates to the rates of the connection and its token; returns False after refusing them."""
        now = asyncio.get_running_loop().time()
        size *= room.weight
        if not (self._updates.take(count, now=now) and self._bytes.take(size, now=now)):
            self.gateway.limiter.refusals.count(LimitReason.UPDATES)
            seconds = max(self._updates.seconds(now=now), self._bytes.seconds(now=now))
        elif not (seconds := self.quota.update(count, size)):
            return True
        room.failed(batch, Status.RATE_LIMITED, seconds=seconds)
        return False

    def _fragment_header(self, header: frames.FragmentHeader) -> None:
        """Check rights and rates at the announcement, before fragments take memory."""
        room = self.rooms.get((header.crdt, header.room))
        if room is None:
            self.ack(frames.room_prefix(header.crdt, header.room), header.batch, Status.PERMISSION_DENIED)
            return
        answer = room.announced(header.total)
        if answer is not Status.OK:
            if answer is not None:
                room.failed(header.batch, answer)
            return
        if self._fragments is None:
            self._fragments = IncomingFragments(self.gateway, self.quota.key, self._refused)
        if self._fragments.begin(header) and not self._paid(room, header.batch, 1, header.total):
            self._fragments.drop(header)

    def _fragment(self, fragment: frames.Fragment) -> Awaitable[None] | None:
        room = self.rooms.get((fragment.crdt, fragment.room))
        if self._fragments is None or room is None:
            return None
        payload = self._fragments.add(fragment)
        if payload is None:
            return None
        self.gateway.counters.updates_in += 1
        return room.update((payload,), fragment.batch)

    def _refused(self, refusal: FragmentRefusal) -> None:
        if (room := self.rooms.get((refusal.key.crdt, refusal.key.room))) is not None:
            room.failed(refusal.key.batch, refusal.status, seconds=1.0)

    # --- internals

    async def _wait_for_acks(self, wait: Awaitable[None]) -> None:
        """Apply back-pressure: stop reading until ACKs arrive, at most `join_seconds`."""
        try:
            async with asyncio.timeout(self.gateway.settings.join_seconds):
                await wait
        except TimeoutError:
            self.close(1013, "too many updates without an ACK; reconnect", "not_served")
        except LorogoError as error:
            log.warning("handling a frame failed", problem=str(error))

    def _ended(self, code: int) -> None:
        words = {
            1000: "client",
            1001: "client",
            1005: "lost",
            1006: "lost",
            1009: "too_large",
            1012: "shutdown",
        }
        self.gateway.counters.closed[self._over or words.get(code, "client")] += 1

    def _broke(self, error: Exception) -> None:
        log.error("connection failed", exc_info=error)
        self.close(1013, "internal error; reconnect", "broke")
