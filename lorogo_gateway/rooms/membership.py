"""Membership in the relay of one document; it can be left at any time, also while it is being entered."""

import asyncio
from collections.abc import Callable

from lorogo_client import LorogoError, SessionClosed
from lorogo_gateway.relay.subscriber import Listener, Subscriber
from lorogo_gateway.rooms.rights import RoomRights
from lorogo_gateway.state.gateway_state import GatewayState
from lorogo_transport.stores.catalogue import read_summary


class RoomNotFound(LorogoError):
    """The document does not exist, and this member may not create it."""

    code = "not-found"


class Membership:
    """One room's member of the relay."""

    __slots__ = ("_gateway", "_listener", "_lock", "_name", "_rights", "left", "member")

    def __init__(
        self, gateway: GatewayState, name: str, listener: Listener, rights: Callable[[], RoomRights]
    ) -> None:
        self._gateway = gateway
        self._rights = rights  # the current ones
        self._name = name
        self._listener = listener
        self._lock = asyncio.Lock()
        self.member: Subscriber | None = None
        self.left = False

    async def enter(self) -> Subscriber:
        """Return the member; the first call creates it. Raises SessionClosed if left, NoSuchDocument."""
        async with self._lock:
            if self.left:
                raise SessionClosed("the room was left")
            rights, transport = self._rights(), self._gateway.client.transport
            if self.member is None:
                if not rights.writes and not (await read_summary(transport, self._name)).known:
                    raise RoomNotFound(
                        f"document {self._name} does not exist, and read access cannot create it"
                    )
                token = rights.principal.text
                self.member = await self._gateway.relays.enter(self._name, self._listener, token)
            self.member.token = rights.principal.text  # a later join may bring another token
            return self.member

    async def leave(self) -> None:
        """Leave permanently."""
        self.left = True
        async with self._lock:
            member, self.member = self.member, None
            if member is not None:
                await self._gateway.relays.leave(member)
