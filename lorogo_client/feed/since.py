"""The start of a feed: converts `since` into a state to read from."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from lorogo_client.feed.memory import FeedMemory
from lorogo_client.feed.position import FeedPosition, FeedState
from lorogo_protocol.ids import check_document_id
from lorogo_protocol.journal.pages import DOCUMENTS_MAX, EVERYTHING, FeedStart
from lorogo_protocol.messages import subjects
from lorogo_transport.errors import StreamMissing
from lorogo_transport.ports import Transport

Since = int | datetime | FeedPosition | str | None

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
# JetStream's times may step back a little after a change of the stream's leader; sequences do not.
_STEP_BACK_NS = 60 * 1_000_000_000


def check(since: Since, documents: Iterable[str] | None) -> tuple[Since, frozenset[str] | None]:
    """Validate `since` and `documents`. Raises ValueError, TypeError, InvalidDocumentId, InvalidPosition."""
    if isinstance(documents, str):
        raise TypeError("documents must be several ids, not one text")
    wanted = None if documents is None else frozenset(check_document_id(one) for one in documents)
    if wanted is not None and not 0 < len(wanted) <= DOCUMENTS_MAX:
        raise ValueError(f"documents must be 1 to {DOCUMENTS_MAX} ids, or None for all")
    match since:
        case None | "now":
            return None, wanted
        case bool():
            raise ValueError("since must be a sequence, a datetime, a position or 'now'")
        case int() if since < 0:
            raise ValueError("since must not be negative: 0 is the start of the journals")
        case datetime() if since.tzinfo is None:
            raise ValueError("since must have a time zone: datetime.now(UTC), not datetime.now()")
        case str():
            return FeedPosition.parse(since), wanted
        case _:
            return since, wanted


async def begin(transport: Transport, since: Since, documents: frozenset[str] | None) -> FeedState:
    """Return the initial state of a feed. Raises ValueError, InvalidPosition, TransportError."""
    match since:
        case FeedPosition():
            state = since.state()
            if documents is not None and documents != state.documents:
                raise ValueError("a position must be resumed with the same documents")
            return state
        case datetime():
            start = FeedStart(time_ns=(since - _UNIX) // timedelta(microseconds=1) * 1000)
        case 0:
            start = EVERYTHING
        case int():
            start = await _behind(transport, since)
        case _:
            start = await _now(transport)
    return FeedState(start, documents, {}, FeedMemory(start))


async def _now(transport: Transport) -> FeedStart:
    try:
        state = await transport.stream(subjects.WAL_STREAM).state()
    except StreamMissing:
        return EVERYTHING  # no server has ever run on this NATS
    return await _behind(transport, state.last_sequence)


async def _behind(transport: Transport, sequence: int) -> FeedStart:
    """Start after a sequence of the current epoch; its time, if available, speeds up the search."""
    epoch = await _epoch(transport)
    stored = await transport.stream(subjects.WAL_STREAM).get(sequence) if sequence else None
    return FeedStart(epoch, sequence, 0 if stored is None else max(0, stored.time_ns - _STEP_BACK_NS))


async def _epoch(transport: Transport) -> int:
    try:
        stored = await transport.stream(subjects.STATUS_STREAM).last(subjects.EPOCH_KEY)
        return 1 if stored is None else int(json.loads(stored.data)["epoch"])
    except (StreamMissing, ValueError, KeyError, TypeError):
        return 1
