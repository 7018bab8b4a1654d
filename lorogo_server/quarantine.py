"""Updates that can never be accepted: copied to `loro-rejected`, then deleted from the WAL.

In that order, message by message, so that nothing is deleted that is not kept.
"""

import asyncio
from collections.abc import Callable

import structlog

from lorogo_protocol import headers as h
from lorogo_protocol import subjects
from lorogo_protocol.replies import sentence
from lorogo_server.intake import Refused
from lorogo_server.lease import Lease
from lorogo_transport.errors import StorageFull, StreamMissing, TooLarge, TransportError
from lorogo_transport.ports import Transport

log = structlog.get_logger(__name__)

_MESSAGES_AT_ONCE = 8


class Quarantine:
    """Moves refused updates out of the WAL; a few messages at a time for the whole server."""

    def __init__(self, transport: Transport) -> None:
        self._wal = transport.stream(subjects.WAL_STREAM)
        self._rejected = transport.stream(subjects.REJECTED_STREAM)
        self._slots = asyncio.Semaphore(_MESSAGES_AT_ONCE)

    async def move(self, lease: Lease, no: Refused, same_stream: Callable[[], bool]) -> bool:
        """True when every message of the update is kept there and gone here.

        A server that lost the document deletes nothing: the next owner will decide for itself.
        `same_stream` says whether the sequences still mean what they meant when they were read.
        """
        moved = 0
        try:
            for sequence in no.sequences:
                async with self._slots:
                    moved += await self._move_one(lease, no, sequence, same_stream)
        except (StorageFull, StreamMissing, TooLarge) as error:
            log.warning("quarantine is not possible", document=lease.document_id, problem=str(error))
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

    async def _move_one(
        self, lease: Lease, no: Refused, sequence: int, same_stream: Callable[[], bool]
    ) -> bool:
        stored = await self._wal.get(sequence)
        if stored is None:
            return True
        if stored.subject != subjects.wal(lease.document_id) or not same_stream():
            return False
        await self._rejected.append(
            subjects.rejected(lease.document_id),
            stored.data,
            headers={
                **stored.headers,
                h.REASON: no.reason.value,
                h.MESSAGE: sentence(no.message),
                h.SEQUENCE: str(sequence),
            },
        )
        if not (lease.valid() and same_stream()):
            return False
        return await self._wal.delete(sequence)
