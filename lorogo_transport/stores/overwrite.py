"""Secure removal of messages: overwrites their bytes, which a purge alone leaves on the disk.

JetStream overwrites a message that is deleted by sequence (unless `no_erase` is set), in the file itself.
"""

import asyncio

from lorogo_transport.errors import TransportError
from lorogo_transport.ports import Stream
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_AT_ONCE = 32


async def overwrite(stream: Stream, subject: str, *, before: int | None = None) -> int:
    """Overwrite and remove the subject's messages with sequence < `before` (None: all); return their number.

    A failure to overwrite is logged, and the messages are purged anyway. Raises TransportError if that fails
    too.
    """
    done = 0
    try:
        last = None if before is None else before - 1
        sequences = [stored.sequence async for stored in stream.read(subject, last=last)]
        for start in range(0, len(sequences), _AT_ONCE):
            some = sequences[start : start + _AT_ONCE]
            done += sum(await asyncio.gather(*(stream.delete(sequence) for sequence in some)))
    except TransportError as error:
        log.warning("messages removed but not overwritten", subject=subject, problem=str(error))
    return done + await stream.purge(subject, before=before)
