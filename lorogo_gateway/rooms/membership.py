"""Membership in the relay of one document; it can be left at any time, also while it is being entered."""

import asyncio
from collections.abc import Callable

from lorogo_client import Client, Listener, LorogoError, Member, SessionClosed
from lorogo_client.awaitables import AwaitableContext
from lorogo_gateway.rooms.rights import RoomRights
from lorogo_transport.stores.catalogue import read_summary


class RoomNotFound(LorogoError):
    """The document does not exist, and this member may not create it."""

    code = "not-found"


class Membership:
    """One room's member of the relay."""

    __slots__ = ("_client", "_listener", "_lock", "_name", "_relay", "_rights", "left", "member")

    def __init__(
        self, client: Client, name: str, listener: Listener, rights: Callable[[], RoomRights]
    ) -> None:
        self._client = client
        self._rights = rights  # the current ones
        self._name = name
        self._listener = listener
        self._relay: AwaitableContext[Member] | None = None
        self._lock = asyncio.Lock()
        self.member: Member | None = None
        self.left = False

    async def enter(self) -> Member:
        """Return the member; the first call creates it. Raises SessionClosed if left, NoSuchDocument."""
        async with self._lock:
            if self.left:
                raise SessionClosed("the room was left")
            rights = self._rights()
            if self.member is None:
                if not rights.writes and not (await read_summary(self._client.transport, self._name)).known:
                    raise RoomNotFound(
                        f"document {self._name} does not exist, and read access cannot create it"
                    )
                relay = self._client.relay(self._name, self._listener, token=rights.principal.text)
                self.member = await relay.__aenter__()
                self._relay = relay
            self.member.token = rights.principal.text  # a later join may bring another token
            return self.member

    async def leave(self) -> None:
        """Leave permanently."""
        self.left = True
        async with self._lock:
            relay, self._relay, self.member = self._relay, None, None
            if relay is not None:
                await relay.__aexit__(None, None, None)
