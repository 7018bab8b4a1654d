"""Quarantine of updates that can never be accepted: copy them to `loro-rejected`, then delete the originals.

Each message is copied before it is deleted, so that none is lost.
"""

import asyncio
from collections.abc import Callable

from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.replies import sentence
from lorogo_server.document.intake import RefusedUpdate
from lorogo_server.ownership.lease import Lease
from lorogo_transport.errors import StorageFull, StreamMissing, TooLarge, TransportError
from lorogo_transport.ports import Headers, StoredMessage, Transport
from lorogo_transport.stores.overwrite import overwrite
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_MESSAGES_AT_ONCE = 8


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


def _shortened(headers: Headers) -> dict[str, str]:
    """Shorten headers so that they fit: a hostile client may have filled a message with headers."""
    return {name[:100]: value[:1000] for name, value in list(headers.items())[:20]}
