"""Who else is here: one EphemeralStore per document, one entry per session.

Entries vanish when they are not renewed, so a task renews ours well before that. Loro stamps an entry
with the wall clock in milliseconds and keeps the older of two with the same stamp: publications of
one entry are therefore some milliseconds apart.

Loro says which entries changed, and only those are looked at: a message changes one, of hundreds in a crowd.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from loro import EphemeralStoreEvent

from lorogo_client.errors import ClientError, SessionClosed
from lorogo_client.session.notifications import NotificationQueue, latest
from lorogo_protocol import crdt, ephemeral, subjects
from lorogo_protocol.errors import CrdtError
from lorogo_transport.errors import TransportError
from lorogo_transport.light import Event
from lorogo_transport.ports import Bus, Message
from lorogo_transport.telemetry.logs import get_logger

if TYPE_CHECKING:
    from loro import LoroValue  # a type of its stub only

log = get_logger(__name__)

_APART_SECONDS = 0.005
_RENEWALS = 3  # tries before an entry expires elsewhere

_NOTHING = object()

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
        self._presence = ephemeral.PresenceStore(timeout_seconds)
        self._mine: dict[str, LoroValue] = {}
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()
        self._somebody = Event()  # there is, or was a moment ago, an entry of anybody
        self._feeds: list[NotificationQueue[Entries]] = []
        self._shown: Entries = {}
        self._stored: set[str] = set()  # keys that Loro's store has
        self._touched: dict[str, bool] = {}  # keys to show anew, and whether the store has them
        with crdt.guard():
            self._presence.store.subscribe(_noting(self._touched)).detach()

    def set(self, key: str, value: "LoroValue") -> None:
        """Our entry under this key, from now on."""
        probe = ephemeral.PresenceStore(self._timeout_seconds)
        with crdt.guard():
            probe.store.set(key, value)
        size = len(probe.encode_all())
        if size > self._bytes_max:
            raise PresenceTooLarge(f"the entry has {size} bytes, at most {self._bytes_max} are allowed")
        self._mine[key] = value
        self._publish_soon(key)

    def remove(self, key: str) -> None:
        """Take our entry away."""
        if key in self._mine:
            del self._mine[key]
            self._publish_soon(key)

    def all(self) -> Entries:
        """Everything that has not expired, ours as we last set it."""
        self._tell()
        return dict(self._shown)

    def watch(self) -> NotificationQueue[Entries]:
        """What `all()` says, now and whenever it changes; the latest wins."""
        feed = latest(self.all())
        self._feeds.append(feed)
        return feed

    def forget(self, feed: NotificationQueue[Entries]) -> None:
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
        self._somebody.set()
        self._tell()

    async def run(self) -> None:
        """Publish what changed, renew what is ours, notice what expired. For ever; the room owns it."""
        while True:
            if not (self._mine or self._dirty or self._stored or self._shown):
                self._somebody.clear()
                await self._somebody.wait()  # nothing to renew, nothing that could expire
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
            self._touch(key)
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
        self._touch(key)
        self._wake.set()
        self._somebody.set()
        self._tell()

    def _touch(self, key: str) -> None:
        self._touched.setdefault(key, key in self._stored)

    def _tell(self) -> None:
        """Bring up to date what is shown, and tell whoever watches if that is another."""
        with crdt.guard():
            self._presence.store.remove_outdated()
        changed = False
        for key, stored in self._touched.items():
            (self._stored.add if stored else self._stored.discard)(key)
            if self._show(key):
                changed = True
        self._touched.clear()
        if changed and self._feeds:
            entries = dict(self._shown)
            for feed in self._feeds:
                feed.push(entries)

    def _show(self, key: str) -> bool:
        """Show the entry as it is now; whether it was shown otherwise."""
        value: object
        if key in self._mine:
            value = self._mine[key]
        elif key in self._stored and key not in self._dirty:
            with crdt.guard():
                value = self._presence.store.get(key)
        else:
            return self._shown.pop(key, _NOTHING) is not _NOTHING
        if key in self._shown and self._shown[key] == value:
            return False
        self._shown[key] = value
        return True


def _noting(touched: dict[str, bool]) -> Callable[[EphemeralStoreEvent], bool]:
    """For Loro, which forgets a callback that does not return True: notes which keys are there, or gone."""

    def note(event: EphemeralStoreEvent) -> bool:
        touched.update(dict.fromkeys(event.added, True))
        touched.update(dict.fromkeys(event.updated, True))
        touched.update(dict.fromkeys(event.removed, False))
        return True

    return note


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

    def watch(self) -> NotificationQueue[Entries]:
        """What `all()` says, now and whenever it changes; the latest wins."""
        return self._room().watch()
