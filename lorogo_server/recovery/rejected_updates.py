"""Updates in `loro-rejected` that no load can accept: recovery does not publish them again."""

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.sandbox.decode_sandbox import SUSPECTED
from lorogo_transport.ports import StoredMessage, Stream

_FOR_EVER = (Reason.INVALID_UPDATE, Reason.HISTORY_TRIMMED)  # a limit may be raised


async def rejected_updates(rejected: Stream, document_id: str) -> dict[tuple[str, str], str]:
    """Return the updates that can never be accepted: (log id, digest), and the reason.

    A forged update may be found only after it was journalled, and must not come back. A client can send
    a message with the log id of another's update: the digest of the bytes identifies the update.
    """
    refused: dict[tuple[str, str], str] = {}
    assembler = chunks.ChunkAssembler()
    previous: StoredMessage | None = None  # has the headers, the next message the bytes
    async for stored in rejected.read(subjects.rejected(document_id)):
        headers = stored.headers
        if h.LOG_ID not in headers and previous is not None:
            headers = previous.headers
        previous = stored if h.LOG_ID in stored.headers and not stored.data else None
        if headers.get(h.REASON) not in _FOR_EVER:
            continue
        try:
            chunk = chunks.parse(headers, stored.data)
        except MalformedMessage:
            continue
        if chunk.final and not stored.data and chunk.digest != digest(b""):
            continue  # the next message has its bytes
        # At one time for all: no chunk is too late.
        match assembler.add(chunk, sequence=stored.sequence, now=0.0):
            case chunks.Assembled(log_id=log_id, digest=actual):
                if refused.get((log_id, actual), SUSPECTED) == SUSPECTED:  # a definite reason stays
                    refused[log_id, actual] = headers.get(h.MESSAGE, "")
            case _:
                pass
    return refused
