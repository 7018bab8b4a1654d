"""Quarantine of updates that can never be accepted: copy them to `loro-rejected`, then delete the originals.

Each message is copied before it is deleted, so that none is lost. `DocumentQuarantine` has one document's
refused updates that are still in the WAL; `Quarantine` moves messages, for the whole server.
"""

import asyncio
from collections.abc import Callable

from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import sentence
from lorogo_server.document.document_state import DocumentState
from lorogo_server.intake.decisions import (
    RefusedUpdate,
)
from lorogo_server.ownership.epoch import EpochTracker
from lorogo_server.ownership.lease import Lease
from lorogo_transport.clock import Clock
from lorogo_transport.errors import StorageFull, StreamMissing, TooLarge, TransportError
from lorogo_transport.ports import Headers, StoredMessage, Transport
from lorogo_transport.stores.overwrite import overwrite
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_MESSAGES_AT_ONCE = 8
_RETRY_SECONDS = 5.0  # between two attempts to move what could not be moved


class Quarantine:
    """Moves refused updates out of the WAL; a few messages at a time for the whole server."""

    def __init__(self, transport: Transport) -> None:
        self._wal = transport.stream(subjects.WAL_STREAM)
        self._rejected = transport.stream(subjects.REJECTED_STREAM)
        self._slots = asyncio.Semaphore(_MESSAGES_AT_ONCE)

    async def move(self, lease: Lease, no: RefusedUpdate, still_valid: Callable[[], bool]) -> bool:
        """Return True if every message of the update was copied and deleted.

        A server without the lease deletes nothing: the next owner decides about the update.
        `still_valid` returns False once the sequences or the refusal may have become invalid.
        """
        moved = 0
        try:
            for sequence in no.sequences:
                async with self._slots:
                    moved += await self._move_one(lease, no, sequence, still_valid)
        except (StorageFull, StreamMissing, TooLarge) as error:
            log.warning("quarantine failed", document=lease.document_id, problem=str(error))
        except TransportError as error:
            log.warning("quarantine interrupted", document=lease.document_id, problem=str(error))
        whole = moved == len(no.sequences)
        log.info(
            "update quarantined" if whole else "update left in the WAL",
            document=lease.document_id,
            log_id=no.log_id,
            reason=no.reason.value,
            messages=moved,
        )
        return whole

    async def forget(self, document_id: str) -> None:
        """Remove the refused updates of an erased document."""
        await overwrite(self._rejected, subjects.rejected(document_id))

    async def _copy(self, document_id: str, stored: StoredMessage, no: RefusedUpdate) -> None:
        subject = subjects.rejected(document_id)
        added = {
            h.REASON: no.reason.value,
            h.MESSAGE: sentence(no.message),
            h.SEQUENCE: str(stored.sequence),
        }
        try:
            await self._rejected.append(subject, stored.data, headers={**stored.headers, **added})
        except TooLarge:  # a message of maximal size: store headers and payload as two messages
            await self._rejected.append(subject, b"", headers={**_shortened(stored.headers), **added})
            await self._rejected.append(subject, stored.data)

    async def _move_one(
        self, lease: Lease, no: RefusedUpdate, sequence: int, still_valid: Callable[[], bool]
    ) -> bool:
        stored = await self._wal.get(sequence)
        if stored is None:
            return True
        if stored.subject != subjects.wal(lease.document_id) or not still_valid():
            return False
        await self._copy(lease.document_id, stored, no)
        if not (lease.valid() and still_valid()):
            return False
        return await self._wal.delete(sequence)


class DocumentQuarantine:
    """Refused updates of one document whose messages are still in the WAL."""

    __slots__ = (
        "_clock",
        "_epochs",
        "_lease",
        "_mover",
        "_retry_at",
        "_state",
        "kept",
        "moved",
        "to_move",
        "trim_unstored",
    )

    def __init__(
        self, mover: Quarantine, lease: Lease, state: DocumentState, epochs: EpochTracker, clock: Clock
    ) -> None:
        self.trim_unstored = False  # memory has a trim line that no stored snapshot has
        self.to_move: dict[int, RefusedUpdate] = {}  # by first sequence
        self.kept: dict[int, RefusedUpdate] = {}  # by first sequence: refused because of `trim_unstored`
        self.moved = 0  # messages moved out of the WAL since it was last read from its beginning
        self._mover = mover
        self._lease = lease
        self._state = state
        self._epochs = epochs
        self._clock = clock
        self._retry_at = 0.0

    def keeps(self, no: RefusedUpdate) -> bool:
        """Return True if the update stays in the WAL: without a stored trim line, a load would accept it."""
        return self.trim_unstored and no.reason is Reason.HISTORY_TRIMMED

    def add(self, no: RefusedUpdate) -> bool:
        """Note a refused update; return True if the caller must `move` it."""
        if not (no.quarantine and no.sequences):
            return False
        if self.keeps(no):
            self.kept[min(no.sequences)] = no
            return False
        self.to_move[min(no.sequences)] = no
        return True

    def copies(self, no: RefusedUpdate) -> list[RefusedUpdate]:
        """Return every copy of the update that is not moved yet."""
        return [one for one in self.to_move.values() if one.digest == no.digest]

    def trim_stored(self) -> bool:
        """Note that the trim line is stored; return True if the caller must `move_all` the kept updates."""
        self.trim_unstored = False
        had_kept = bool(self.kept)
        self.to_move.update(self.kept)
        self.kept.clear()
        return had_kept

    def clear(self) -> None:
        """Drop all refusals, since the WAL is read from its beginning and they are judged again."""
        self.moved = 0
        self.to_move.clear()
        self.kept.clear()

    def is_due(self, now: float) -> bool:
        """Return True if an update waits, and the last attempt was long enough ago."""
        return bool(self.to_move) and now >= self._retry_at

    async def move_all(self, epoch: int) -> None:
        """Try to move every waiting update; `epoch`: that of their sequences."""
        for no in list(self.to_move.values()):
            await self.move(no, epoch)

    async def move(self, no: RefusedUpdate, epoch: int) -> None:
        """Try to move one update, under a confirmed lease. Raises LeaseLost, TransportError."""
        reads, first = self._state.reads, min(no.sequences)
        if self.to_move.get(first) is not no:
            return  # moved meanwhile, or judged again
        self._retry_at = self._clock.now() + _RETRY_SECONDS
        await self._lease.confirm()

        def still_valid() -> bool:
            return self._epochs.current == epoch and self._state.reads == reads

        whole = await self._mover.move(self._lease, no, still_valid)
        if whole and self.to_move.get(first) is no:  # a concurrent attempt has not counted it
            del self.to_move[first]
            self.moved += len(no.sequences)


def _shortened(headers: Headers) -> dict[str, str]:
    """Shorten headers so that they fit: a hostile client may have filled a message with headers."""
    return {name[:100]: value[:1000] for name, value in list(headers.items())[:20]}
