"""Presence: one EphemeralStore per document, one entry per session.

Entries expire when they are not renewed, so a task renews local entries well before that. Loro stamps an
entry with the wall clock in milliseconds and keeps the older of two entries with the same stamp: two
publications of one entry are therefore some milliseconds apart.

Only the entries that Loro reports as changed are compared: a message changes one of possibly hundreds.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from loro import EphemeralStoreEvent

from lorogo_client.errors import ClientError, SessionClosed
from lorogo_client.session.notifications import NotificationQueue, latest
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.loro import crdt, ephemeral
from lorogo_protocol.messages import subjects
from lorogo_transport.errors import TransportError
from lorogo_transport.light import Event
from lorogo_transport.ports import Bus, Message
from lorogo_transport.tasks import within
from lorogo_transport.telemetry.logs import get_logger

if TYPE_CHECKING:
    from loro import LoroValue  # a type of its stub only

log = get_logger(__name__)

_APART_SECONDS = 0.005
_RENEWALS = 3  # renewals before an entry would expire at other clients

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
        self._active = Event()  # there is, or recently was, any entry
        self._feeds: list[NotificationQueue[Entries]] = []
        self._shown: Entries = {}
        self._stored: set[str] = set()  # keys in Loro's store
        self._changed_keys: dict[str, bool] = {}  # changed keys, and whether the store has them
        with crdt.guard():
            self._presence.store.subscribe(_recorder(self._changed_keys)).detach()

    def set(self, key: str, value: "LoroValue") -> None:
        """Set the local entry under this key, and keep renewing it."""
        probe = ephemeral.PresenceStore(self._timeout_seconds)
        with crdt.guard():
            probe.store.set(key, value)
        size = len(probe.encode_all())
        if size > self._bytes_max:
            raise PresenceTooLarge(f"the entry has {size} bytes, at most {self._bytes_max} are allowed")
        self._mine[key] = value
        self._publish_soon(key)

    def remove(self, key: str) -> None:
        """Remove the local entry under this key."""
        if key in self._mine:
            del self._mine[key]
            self._publish_soon(key)

    def all(self) -> Entries:
        """Return all entries that have not expired, local ones as last set."""
        self._push_changes()
        return dict(self._shown)

    def watch(self) -> NotificationQueue[Entries]:
        """Iterate over `all()`, now and after each change; an unread value is replaced by a newer one."""
        feed = latest(self.all())
        self._feeds.append(feed)
        return feed

    def forget(self, feed: NotificationQueue[Entries]) -> None:
        """Close a reader's feed."""
        feed.close()
        with suppress(ValueError):
            self._feeds.remove(feed)

    def on_message(self, message: Message) -> None:
        """Handle a message on `loro.awareness.{id}`."""
        if len(message.data) <= self._bytes_max:
            self.apply(message.data)

    def apply(self, data: bytes) -> None:
        """Merge remote entries."""
        try:
            self._presence.apply(data)
        except CrdtError as error:
            log.warning("malformed presence", subject=self._subject, problem=str(error))
            return
        self._active.set()
        self._push_changes()

    async def run(self) -> None:
        """Publish changes, renew local entries, detect expired ones. Runs until the room cancels it."""
        while True:
            if not (self._mine or self._dirty or self._stored or self._shown):
                self._active.clear()
                await self._active.wait()  # nothing to renew, nothing that could expire
            await within(self._timeout_seconds / _RENEWALS, self._wake.wait())
            self._wake.clear()
            await self.publish(self._dirty or set(self._mine))
            self._push_changes()
            await asyncio.sleep(_APART_SECONDS)

    async def publish(self, keys: Iterable[str]) -> None:
        """Publish local entries now; the next renewal retries a failed one."""
        for key in sorted(keys):
            self._dirty.discard(key)
            self._mark_changed(key)
            with crdt.guard():
                if key in self._mine:
                    self._presence.store.set(key, self._mine[key])
                else:
                    self._presence.store.delete(key)
                data = self._presence.store.encode(key)
            try:
                await self._bus.publish(self._subject, data)
            except TransportError as error:
                log.debug("cannot publish presence", subject=self._subject, problem=str(error))

    async def leave(self) -> None:
        """Remove all local entries and publish the removal at once."""
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
        self._mark_changed(key)
        self._wake.set()
        self._active.set()
        self._push_changes()

    def _mark_changed(self, key: str) -> None:
        self._changed_keys.setdefault(key, key in self._stored)

    def _push_changes(self) -> None:
        """Update the shown entries, and push them to readers if they changed."""
        with crdt.guard():
            self._presence.store.remove_outdated()
        changed = False
        for key, stored in self._changed_keys.items():
            (self._stored.add if stored else self._stored.discard)(key)
            if self._show(key):
                changed = True
        self._changed_keys.clear()
        if changed and self._feeds:
            entries = dict(self._shown)
            for feed in self._feeds:
                feed.push(entries)

    def _show(self, key: str) -> bool:
        """Update one shown entry; return whether it changed."""
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


def _recorder(changed: dict[str, bool]) -> Callable[[EphemeralStoreEvent], bool]:
    """Return a Loro callback that records changed keys; it returns True, else Loro drops it."""

    def note(event: EphemeralStoreEvent) -> bool:
        changed.update(dict.fromkeys(event.added, True))
        changed.update(dict.fromkeys(event.updated, True))
        changed.update(dict.fromkeys(event.removed, False))
        return True

    return note


class Presence:
    """One session's view: its own entry, and all entries."""

    def __init__(self, room: Callable[[], RoomPresence], key: str) -> None:
        self._room = room
        self.key = key  # of the session's entry in `all()`

    def end(self, document_id: str) -> None:
        """Release the room after the session is closed."""

        def closed() -> RoomPresence:
            raise SessionClosed(f"the session of {document_id} is closed")

        self._room = closed

    def set(self, value: "LoroValue") -> None:
        """Publish this entry until the session is left or `clear()`."""
        self._room().set(self.key, value)

    def clear(self) -> None:
        """Remove the session's entry."""
        self._room().remove(self.key)

    def all(self) -> Entries:
        """Return every entry that has not expired, by its key."""
        return self._room().all()

    def watch(self) -> NotificationQueue[Entries]:
        """Iterate over `all()`, now and after each change; an unread value is replaced by a newer one."""
        return self._room().watch()
