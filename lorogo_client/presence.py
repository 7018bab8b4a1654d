"""Who else is here: one EphemeralStore per document, one entry per session.

Entries vanish when they are not renewed, so a task renews ours well before that. Loro stamps an entry
with the wall clock in milliseconds and keeps the older of two with the same stamp: publications of
one entry are therefore some milliseconds apart.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from lorogo_client.errors import ClientError, SessionClosed
from lorogo_client.feeds import Feed, latest
from lorogo_protocol import crdt, subjects
from lorogo_protocol.errors import CrdtError
from lorogo_transport.errors import TransportError
from lorogo_transport.logs import get_logger
from lorogo_transport.ports import Bus, Message

if TYPE_CHECKING:
    from loro import LoroValue  # a type of its stub only

log = get_logger(__name__)

_APART_SECONDS = 0.005
_RENEWALS = 3  # tries before an entry expires elsewhere

Entries = dict[str, object]


class PresenceTooLarge(ClientError):
    """The entry has more bytes than presence may carry."""

    code = "too-large"


class RoomPresence:
    """The presence of one document, shared by its sessions."""

    def __init__(self, bus: Bus, document_id: str, *, timeout_seconds: float, bytes_max: int) -> None:
        self._bus = bus
        self._subject = subjects.awareness(document_id)
        self._timeout_seconds = timeout_seconds
        self._bytes_max = bytes_max
        self._presence = crdt.Presence(timeout_seconds)
        self._mine: dict[str, LoroValue] = {}
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()
        self._feeds: list[Feed[Entries]] = []
        self._shown: Entries = {}

    def set(self, key: str, value: "LoroValue") -> None:
        """Our entry under this key, from now on."""
        probe = crdt.Presence(self._timeout_seconds)
        with crdt.guard():
            probe.store.set(key, value)
        size = len(probe.encode_all())
        if size > self._bytes_max:
            raise PresenceTooLarge(f"the entry has {size} bytes, at most {self._bytes_max} are allowed")
        self._mine[key] = value
        self._publish_soon(key)

    def remove(self, key: str) -> None:
        """Take our entry away."""
        if self._mine.pop(key, None) is not None:
            self._publish_soon(key)

    def all(self) -> Entries:
        """Everything that has not expired, ours as we last set it."""
        return {**self._others(), **self._mine}

    def watch(self) -> Feed[Entries]:
        """What `all()` says, now and whenever it changes; the latest wins."""
        feed = latest(self.all())
        self._feeds.append(feed)
        return feed

    def forget(self, feed: Feed[Entries]) -> None:
        """A reader is done."""
        feed.close()
        with suppress(ValueError):
            self._feeds.remove(feed)

    def on_message(self, message: Message) -> None:
        """Take a message of `loro.awareness.{id}`."""
        if len(message.data) <= self._bytes_max:
            self.apply(message.data)

    def apply(self, data: bytes) -> None:
        """Merge the entries of others."""
        try:
            self._presence.apply(data)
        except CrdtError as error:
            log.warning("not a presence", subject=self._subject, problem=str(error))
            return
        self._tell()

    async def run(self) -> None:
        """Publish what changed, renew what is ours, notice what expired. For ever; the room owns it."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_seconds / _RENEWALS):
                    await self._wake.wait()
            self._wake.clear()
            await self.publish(self._dirty or set(self._mine))
            self._tell()
            await asyncio.sleep(_APART_SECONDS)

    async def publish(self, keys: Iterable[str]) -> None:
        """Send these entries of ours now; what cannot be sent is sent by the next renewal."""
        for key in sorted(keys):
            self._dirty.discard(key)
            with crdt.guard():
                if key in self._mine:
                    self._presence.store.set(key, self._mine[key])
                else:
                    self._presence.store.delete(key)
                data = self._presence.store.encode(key)
            try:
                await self._bus.publish(self._subject, data)
            except TransportError as error:
                log.debug("presence was not sent", subject=self._subject, problem=str(error))

    async def leave(self) -> None:
        """Take all our entries away, and say so at once."""
        keys = set(self._mine) | self._dirty
        self._mine.clear()
        for feed in self._feeds:
            feed.close()
        self._feeds.clear()
        if keys:
            await asyncio.sleep(_APART_SECONDS)
            await self.publish(keys)

    def _publish_soon(self, key: str) -> None:
        self._dirty.add(key)
        self._wake.set()
        self._tell()

    def _others(self) -> Entries:
        states = self._presence.states()
        return {key: value for key, value in states.items() if key not in self._dirty}

    def _tell(self) -> None:
        entries = self.all()
        if entries != self._shown:
            self._shown = entries
            for feed in self._feeds:
                feed.push(entries)


class Presence:
    """One session's view: its own entry, and everybody's."""

    def __init__(self, room: Callable[[], RoomPresence], key: str) -> None:
        self._room = room
        self.key = key  # the name of our entry in `all()`

    def end(self, document_id: str) -> None:
        """The session is over: we hold it no more."""

        def closed() -> RoomPresence:
            raise SessionClosed(f"the session of {document_id} is closed")

        self._room = closed

    def set(self, value: "LoroValue") -> None:
        """Show this to everybody, until the session is left or `clear()`."""
        self._room().set(self.key, value)

    def clear(self) -> None:
        """Show nothing."""
        self._room().remove(self.key)

    def all(self) -> Entries:
        """Every entry that has not expired, by its key."""
        return self._room().all()

    def watch(self) -> Feed[Entries]:
        """What `all()` says, now and whenever it changes; the latest wins."""
        return self._room().watch()
