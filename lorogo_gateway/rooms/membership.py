"""A place in the relay of one document, that can be left at any moment, also while it is being taken."""

import asyncio
from collections.abc import Callable

from lorogo_client import Client, Listener, LorogoError, Member, SessionClosed
from lorogo_client.awaitables import AwaitableContext
from lorogo_client.inspection.overview import read_summary
from lorogo_gateway.rooms.rights import RoomRights


class RoomNotFound(LorogoError):
    """The document never was, and this member may not begin it."""

    code = "not-found"


class Membership:
    """One room's member of the relay."""

    __slots__ = ("_client", "_door", "_listener", "_name", "_rights", "_turn", "left", "member")

    def __init__(
        self, client: Client, name: str, listener: Listener, rights: Callable[[], RoomRights]
    ) -> None:
        self._client = client
        self._rights = rights  # as they are now
        self._name = name
        self._listener = listener
        self._door: AwaitableContext[Member] | None = None
        self._turn = asyncio.Lock()
        self.member: Member | None = None
        self.left = False

    async def enter(self) -> Member:
        """The member; made the first time. Raises SessionClosed if it was left, NoSuchDocument."""
        async with self._turn:
            if self.left:
                raise SessionClosed("the room was left")
            rights = self._rights()
            if self.member is None:
                if not rights.writes and not (await read_summary(self._client.transport, self._name)).known:
                    raise RoomNotFound(f"there is no document {self._name}, and you may only read")
                door = self._client.relay(self._name, self._listener, token=rights.principal.text)
                self.member = await door.__aenter__()
                self._door = door
            self.member.token = rights.principal.text  # the newest: a join may bring another
            return self.member

    async def leave(self) -> None:
        """Once and for all."""
        self.left = True
        async with self._turn:
            door, self._door, self.member = self._door, None, None
            if door is not None:
                await door.__aexit__(None, None, None)
