"""A `%EPS` room on one connection: persisted presence in the KV bucket `loro-presence`."""

import asyncio
from collections.abc import Awaitable

from lorogo_client import DocumentDeleted, LorogoError, TransportError
from lorogo_client.session.presence import PresenceTooLarge
from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, Status
from lorogo_gateway.rooms.connection_port import ConnectionPort
from lorogo_gateway.rooms.presence_room import PRESENCE_WEIGHT, announced, may_show, reject_join, retrying
from lorogo_gateway.rooms.rejoin import RejoinTimer, gone_code, room_error
from lorogo_gateway.rooms.rights import RoomRights, permission
from lorogo_protocol.errors import CrdtError
from lorogo_transport.errors import StorageFull
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_AGAIN_SECONDS = 1.0
_WAITING_MAX = 32  # batches of one room that are not merged yet: 8 MiB at most


class PersistedPresenceRoom:
    """The persisted presence of one document on one connection."""

    crdt = Crdt.PERSISTED
    weight = PRESENCE_WEIGHT  # factor for its bytes in the rates

    def __init__(self, port: ConnectionPort, name: str, rights: RoomRights) -> None:
        self.name = name
        self.rights = rights
        self.prefix = frames.room_prefix(Crdt.PERSISTED, name)
        self._port = port
        self._joined = False
        self._busy = False
        self._left = False
        self._running = False
        self._limit: asyncio.Timeout | None = None  # of the running merges
        self._merging = False
        self._last = b""  # a value that this client has
        self._held = b""  # received during a merge of this client: it may be the client's own value
        self._queue: asyncio.Queue[tuple[tuple[bytes, ...], bytes]] = asyncio.Queue(_WAITING_MAX)
        self._rejoining = RejoinTimer(port, Crdt.PERSISTED, name)

    @property
    def unacked(self) -> int:
        return self._queue.qsize() + int(self._merging)

    def join(self, _version: bytes) -> None:
        """Answer a JoinRequest; ignored while another one is being answered."""
        if not self._busy:
            self._busy = True
            self._rejoining.cancel()
            self._port.tasks.spawn(self._join(), name=f"join kept presence of {self.name}")

    async def _join(self) -> None:
        port, gateway = self._port, self._port.gateway
        try:
            async with asyncio.timeout(gateway.settings.join_seconds):
                await retrying(lambda: gateway.kept.bucket.check(self.name))
                await retrying(lambda: gateway.kept.follow(self.name, self.receive))
                kept = await retrying(lambda: gateway.kept.bucket.load(self.name))
        except (LorogoError, TimeoutError) as error:
            if not self._left:
                reject_join(self._port, Crdt.PERSISTED, self.name, error)
            return
        finally:
            self._busy = False
            if self._left:
                await gateway.kept.leave(self.name, self.receive)
        if self._left:
            return
        self._joined = True
        gateway.counters.joins += 1
        port.send(
            frames.encode(frames.JoinOk(Crdt.PERSISTED, self.name, permission(self.rights.writes), b""))
        )
        if kept:
            self.receive(kept)

    def update(self, updates: tuple[bytes, ...], ref: bytes) -> Awaitable[None] | None:
        """Store a batch; its Ack follows when it is stored."""
        port = self._port
        if not self._joined or not may_show(port, self.prefix, updates, ref, allowed=self.rights.writes):
            return None
        return self._put(updates, ref)

    async def _put(self, updates: tuple[bytes, ...], ref: bytes) -> None:
        await self._queue.put((updates, ref))
        if not self._running:
            self._running = True
            tasks = self._port.gateway.tasks  # may run for some seconds after the connection has ended
            tasks.spawn(self._merge_all(), name=f"keep presence of {self.name}", on_error=self._broke)

    async def _merge_all(self) -> None:
        """Store the queued batches in order."""
        try:
            seconds = self._port.gateway.settings.close_seconds if self._left else None
            async with asyncio.timeout(seconds) as self._limit:
                while not self._queue.empty():
                    await self._merge(*self._queue.get_nowait())
                    self._queue.task_done()
        except TimeoutError:
            log.info("storing presence timed out", document=self.name, batches=self.unacked)
        finally:
            self._running = False
            self._limit = None

    async def _merge(self, updates: tuple[bytes, ...], ref: bytes) -> None:
        self._merging = True
        try:
            status, problem = await self._stored(updates)
        finally:
            self._merging = False
        self._port.ack(self.prefix, ref, status)
        held, self._held = self._held, b""
        self.receive(held)
        match problem:
            case DocumentDeleted():
                self._gone(problem)
            case TransportError():
                self._try_again(problem)

    async def _stored(self, updates: tuple[bytes, ...]) -> tuple[Status, LorogoError | None]:
        try:
            for data in updates:
                self._last = await self._port.gateway.kept.bucket.merge(self.name, data)
        except PresenceTooLarge:
            return Status.PAYLOAD_TOO_LARGE, None
        except CrdtError:
            return Status.INVALID_UPDATE, None
        except (DocumentDeleted, TransportError) as error:
            log.info("storing presence failed", document=self.name, problem=str(error))
            return Status.APP_ERROR, error
        return Status.OK, None

    def _gone(self, error: LorogoError) -> None:
        if self._joined:
            self._joined = False
            self._port.send(room_error(Crdt.PERSISTED, self.name, *gone_code(error)))
            self._port.forget(Crdt.PERSISTED, self.name)

    def rejoin(self, why: str) -> None:
        """Suggest a rejoin to the client."""
        if self._joined:
            self._joined = False
            self._rejoining.suggest(why)

    def _try_again(self, error: TransportError) -> None:
        if not self._left:
            self._joined = False
            full = isinstance(error, StorageFull)
            seconds = self._port.gateway.settings.full_seconds if full else _AGAIN_SECONDS
            self._rejoining.suggest("presence could not be stored", seconds=seconds)

    def receive(self, data: bytes) -> None:
        """Send the persisted presence to the client after a change."""
        if self._merging:
            self._held = data
        elif self._joined and data and data != self._last:
            for frame in self._port.gateway.fanout.frames(Crdt.PERSISTED, self.name, data):
                self._port.send(frame)

    def announced(self, size: int) -> Status | None:
        """Return OK, or the status that refuses announced presence; None: ignore it without an Ack."""
        return announced(self._port, size, joined=self._joined, allowed=self.rights.writes)

    def failed(self, ref: bytes, status: Status, *, seconds: float = 0.0) -> None:
        """Answer refused presence; suggest a rejoin, at which the client sends it again."""
        if not self._joined:
            return
        self._port.ack(self.prefix, ref, status)
        if status in (Status.RATE_LIMITED, Status.FRAGMENT_TIMEOUT):
            self._joined = False
            self._rejoining.suggest(f"presence was refused: {status.name.lower()}", seconds=seconds)

    def acked(self, status: Status) -> None:
        """Ignored: the next change sends the whole value."""

    async def settled(self) -> None:
        """Return when all received batches are stored. The caller sets the deadline."""
        await self._queue.join()

    def _broke(self, error: Exception) -> None:
        log.error("storing presence failed", document=self.name, exc_info=error)
        self._port.close(1013, "internal error; reconnect", "broke")

    def stop(self) -> None:
        """Stop sending and receiving; `leave` follows."""
        self._joined = False
        self._left = True
        self._rejoining.cancel()

    async def leave(self) -> None:
        """Leave the room; queued batches get `close_seconds` to be stored."""
        self.stop()
        if self._limit is not None:
            now = asyncio.get_running_loop().time()
            self._limit.reschedule(now + self._port.gateway.settings.close_seconds)
        await self._port.gateway.kept.leave(self.name, self.receive)
