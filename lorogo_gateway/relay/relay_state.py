"""State of one relay: the owner's sequence, the version of its members, and what it needs. Pure.

An accepted update that follows its predecessor is passed on. Any other needs a sync from the members'
version, whose answer is passed on instead. If a sync cannot fill the gap (another generation, trimmed
history), the members must join again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lorogo_client.delivery.accepted import AcceptedChain, AcceptedUpdate
from lorogo_client.replica import is_shallow
from lorogo_client.session.syncing import Synced
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Reach
from lorogo_protocol.status import Up

_READ_BYTES_MAX = 64 * 1024  # of an update whose version is read; a sync may repeat larger ones


@dataclass(frozen=True, slots=True)
class RelayedUpdate:
    """An update for the members; `log_id` identifies the sender's update, "": none."""

    payload: bytes
    log_id: str = ""


class RelayState:
    """Knowledge of one relay about its document."""

    def __init__(self) -> None:
        self.chain = AcceptedChain()
        self.live = False  # after a first sync members follow
        self.token = 0  # the newest lease token seen
        self.synced_lease = 0  # that of the last sync
        self.generation = 0
        self.need_owner = True  # no owner is known to be there
        self.need_sync = False
        self._reach = Reach(crdt.nothing_known())
        self._announced: AcceptedUpdate | None = None  # the last one that only a sync can bring

    @property
    def vector(self) -> bytes:
        """A version vector that every member includes."""
        return self._reach.encode()

    # --- messages of the owner

    def note_lease(self, lease: int) -> bool:
        """Note a token; False if it is older than the known one: its owner lost the document."""
        if lease > self.token:
            self.token = lease
            self.need_sync = True
        return lease >= self.token

    def note_status(self, entry: StatusEntry) -> None:
        """Note a newer status."""
        self.token = max(self.token, entry.token)
        if isinstance(entry.status, Up) and entry.token == self.token:
            self.need_owner = False
            self.need_sync |= self.token != self.synced_lease
        else:
            self.need_owner = True

    def found_owner(self, entry: StatusEntry | None) -> None:
        """Note an owner that answered, with its entry as read from the leader."""
        if entry is not None:
            self.token = entry.token
        self.need_owner = False
        self.need_sync |= self.token != self.synced_lease

    def arrived(self, update: AcceptedUpdate) -> RelayedUpdate | None:
        """Return the update to pass on; None: it is kept, or a sync brings it."""
        if not self.note_lease(update.lease):
            return None
        if self.chain.holding:
            self.chain.keep(update)
            return None
        if not self.live or self.need_sync:
            return None
        return self._take(update)

    def _take(self, update: AcceptedUpdate) -> RelayedUpdate | None:
        payload = update.payload
        try:
            if not self.chain.follows(update) or payload is None:
                self._announced = update
                self.need_sync |= not self._is_old(update)
                return None
            if len(payload) <= _READ_BYTES_MAX:
                self._reach.add(payload)
        except CrdtError:
            self.need_sync = True
            return None
        self.chain.took(update)
        return RelayedUpdate(payload, update.log_id)

    def _is_old(self, update: AcceptedUpdate) -> bool:
        """Return True if a sync has brought it."""
        known = update.sequence <= self.chain.head and update.payload is not None
        return known and self._reach.covers(update.payload or b"")

    # --- sync

    def syncing(self) -> None:
        """Begin a sync: later needs require another one."""
        self.need_sync = False
        self.chain.hold()

    def sync_failed(self) -> None:
        self.chain.sync_failed()
        self.need_sync = True

    def begin(self, answer: Synced) -> list[RelayedUpdate]:
        """Begin with the first member's sync; return the updates that arrived meanwhile."""
        self._reach = Reach(answer.vector)
        self.generation = answer.generation
        self.live = True
        return list(self._caught_up(answer))

    def fill(self, answer: Synced) -> list[RelayedUpdate] | None:
        """Return what a sync from the vector passes on; None: the members must join again."""
        if answer.generation != self.generation:
            return None
        if answer.mode == "snapshot" and (self.vector != crdt.nothing_known() or is_shallow(answer.payload)):
            return None
        passed = (
            []
            if self._reach.includes(answer.vector)
            else [RelayedUpdate(answer.payload, self._announced_id(answer))]
        )
        self._reach.merge(answer.vector)
        return [*passed, *self._caught_up(answer)]

    def _announced_id(self, answer: Synced) -> str:
        """Return the log id of the only update in the answer, if it was announced."""
        update = self._announced
        alone = update is not None and self.chain.follows(update) and update.sequence == answer.sequence
        return update.log_id if update is not None and alone else ""

    def stop(self) -> None:
        """Stop: no member follows until the next join."""
        self.live = self.need_sync = False
        self.need_owner = True
        self.chain.sync_failed()

    def _caught_up(self, answer: Synced) -> Iterator[RelayedUpdate]:
        self.token = max(self.token, answer.lease)
        self.synced_lease = answer.lease
        self.need_sync |= self.token != answer.lease
        held, dropped = self.chain.synced(answer.sequence)
        self.need_sync |= dropped
        return self._following(held)

    def _following(self, held: Iterable[AcceptedUpdate]) -> Iterator[RelayedUpdate]:
        for update in held:
            if not self.need_sync and (passed := self._take(update)) is not None:
                yield passed
