"""A `%EPH` room on one connection: presence of all clients; this client's is deleted when it leaves."""

import asyncio
from collections.abc import Awaitable

from lorogo_client import LorogoError, NoSuchDocument, PresenceTooLarge, TransportError
from lorogo_gateway import frames
from lorogo_gateway.auth.call_token import document_of
from lorogo_gateway.frames import Crdt, Status
from lorogo_gateway.rooms.connection_port import ConnectionPort
from lorogo_gateway.rooms.membership import Membership
from lorogo_gateway.rooms.presence_room import (
    PRESENCE_WEIGHT,
    announced,
    may_show,
    reject_join,
    retrying,
    send_present,
)
from lorogo_gateway.rooms.rejoin import RejoinTimer, gone_code, room_error
from lorogo_gateway.rooms.rights import RoomRights, permission
from lorogo_gateway.state.cursors import Cursors
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import calls
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_APART_SECONDS = 0.005  # Loro keeps the older of two entries of the same millisecond


class EphemeralRoom:
    """The presence of one document on one connection."""

    crdt = Crdt.EPHEMERAL
    weight = PRESENCE_WEIGHT  # factor for its bytes in the rates
    unacked = 0

    def __init__(self, port: ConnectionPort, name: str, rights: RoomRights) -> None:
        self.name = name
        self.rights = rights
        self.prefix = frames.room_prefix(Crdt.EPHEMERAL, name)
        self._port = port
        self._joined = False
        self._busy = False
        self._rejoining = RejoinTimer(port, Crdt.EPHEMERAL, name)
        self._place = Membership(port.gateway, name, self, lambda: self.rights)
        fresh = Cursors(setter_bytes_max=port.gateway.settings.presence_bytes_max)
        self._cursors = port.gateway.cursors.setdefault(name, fresh)
        self._cursors.members += 1

    def join(self, _version: bytes) -> None:
        """Answer a JoinRequest; ignored while another one is being answered."""
        if not self._busy:
            self._busy = True
            self._rejoining.cancel()
            self._port.tasks.spawn(self._join(), name=f"join presence of {self.name}")

    async def _join(self) -> None:
        port, seconds = self._port, self._port.gateway.settings.join_seconds
        try:
            async with asyncio.timeout(seconds):
                self._cursors.receive(await retrying(lambda: self._present(seconds)))
        except (LorogoError, TimeoutError) as error:
            if not self._place.left:
                reject_join(self._port, Crdt.EPHEMERAL, self.name, error)
            return
        finally:
            self._busy = False
        if self._place.left:
            return
        self._joined = True
        port.gateway.counters.joins += 1
        port.send(
            frames.encode(
                frames.JoinOk(Crdt.EPHEMERAL, self.name, permission(self.rights.shows_presence), b"")
            )
        )
        if present := self._cursors.all():
            await send_present(port, Crdt.EPHEMERAL, self.name, present, lambda: not self._place.left)

    async def _present(self, seconds: float) -> bytes:
        """Join the relay and return the current presence from the owner."""
        member = await self._place.enter()
        document = document_of(self._port.gateway.client, self.name, self.rights.principal)
        try:
            vector = calls.need(await document.version(timeout=seconds), "vector", bytes)
        except NoSuchDocument:
            vector = crdt.nothing_known()  # the join creates the document
        # with the owner's own version a join returns little more than the presence
        return (await member.join(vector, timeout=seconds)).presence

    def update(self, updates: tuple[bytes, ...], ref: bytes) -> Awaitable[None] | None:
        """Publish this client's presence, then Ack it."""
        port = self._port
        if not self._joined or not may_show(
            port, self.prefix, updates, ref, allowed=self.rights.shows_presence
        ):
            return None
        try:
            self._cursors.set_by(self, *updates)
        except PresenceTooLarge:
            port.ack(self.prefix, ref, Status.PAYLOAD_TOO_LARGE)
            return None
        except CrdtError:
            port.ack(self.prefix, ref, Status.INVALID_UPDATE)
            return None
        return self._publish(updates, ref)

    async def _publish(self, updates: tuple[bytes, ...], ref: bytes) -> None:
        status = Status.OK
        try:
            for data in updates:
                if (member := self._place.member) is None:
                    return  # the room was left
                await member.tell(data)
        except PresenceTooLarge:
            status = Status.PAYLOAD_TOO_LARGE
        except TransportError as error:
            log.info("publishing presence failed", document=self.name, problem=str(error))
            status = Status.APP_ERROR
        self._port.ack(self.prefix, ref, status)
        if status is Status.APP_ERROR:
            self.rejoin("presence could not be published")

    def announced(self, size: int) -> Status | None:
        """Return OK, or the status that refuses announced presence; None: ignore it without an Ack."""
        return announced(self._port, size, joined=self._joined, allowed=self.rights.shows_presence)

    def failed(self, ref: bytes, status: Status, *, seconds: float = 0.0) -> None:
        """Answer refused presence; the client's next update replaces it."""
        if self._joined:
            self._port.ack(self.prefix, ref, status)

    def acked(self, status: Status) -> None:
        """Ignored: clients repeat presence."""

    async def settled(self) -> None:
        """Return at once: presence is Acked before the next frame is read."""

    def stop(self) -> None:
        """Stop sending and receiving; `leave` follows."""
        self._rejoining.cancel()
        self._place.left = True
        self._joined = False

    async def leave(self) -> None:
        """Delete the presence that this client set and leave the relay."""
        self.stop()
        gateway, cursors = self._port.gateway, self._cursors
        try:
            async with asyncio.timeout(gateway.settings.close_seconds):
                await asyncio.sleep(_APART_SECONDS)
                if (member := self._place.member) is not None and (gone := cursors.deletion(self)):
                    await member.tell(gone)
        except (TimeoutError, LorogoError) as error:
            log.info("deleting presence failed", document=self.name, problem=str(error))
        finally:
            cursors.members -= 1
            if cursors.members == 0 and gateway.cursors.get(self.name) is cursors:
                del gateway.cursors[self.name]
            await self._place.leave()

    # --- from the relay (its Listener)

    def accepted(self, payload: bytes) -> None:
        """Updates are handled by the `%LOR` room."""

    def aware(self, data: bytes) -> None:
        try:
            self._cursors.receive(data)
        except CrdtError:
            return
        if self._joined:
            self._pass(data)

    def rejoin(self, why: str) -> None:
        if self._joined:
            self._joined = False
            self._rejoining.suggest(why)

    def gone(self, error: LorogoError) -> None:
        self._port.send(room_error(Crdt.EPHEMERAL, self.name, *gone_code(error)))
        self._port.forget(Crdt.EPHEMERAL, self.name)

    def _pass(self, data: bytes) -> None:
        for frame in self._port.gateway.fanout.frames(Crdt.EPHEMERAL, self.name, data):
            self._port.send(frame)
