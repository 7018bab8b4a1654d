"""The newest permanently refused updates, read backwards from the stream `loro-rejected`."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.replies import number
from lorogo_transport.errors import StreamMissing
from lorogo_transport.ports import Headers, Transport

_WINDOW = 32  # sequences per read
_WINDOWS_MAX = 64
_BYTES_MAX = 16 * 1024 * 1024  # per request: NATS sends bodies with the headers
_CHARS_MAX = 1_000
_ALL = subjects.rejected("*")


@dataclass(frozen=True, slots=True)
class RejectedUpdate:
    """A permanently refused update; `sequence` is that of its first message in the stream."""

    sequence: int
    document: str
    time: int  # ns
    reason: str
    message: str
    log_id: str
    wal_sequence: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RejectedMessage:
    """A message of the stream, without its body."""

    sequence: int
    document: str
    time_ns: int
    headers: Headers
    bytes: int


async def newest(transport: Transport, limit: int) -> list[RejectedUpdate]:
    """Return at most `limit` refused updates, newest first. Raises TransportError."""
    stream = transport.stream(subjects.REJECTED_STREAM)
    try:
        state = await stream.state()
    except StreamMissing:
        return []  # no server has created the streams yet
    found: list[RejectedMessage] = []
    last, moved = state.last_sequence, 0
    for _ in range(_WINDOWS_MAX):
        if last < state.first_sequence or not state.messages or moved >= _BYTES_MAX:
            break
        first = max(state.first_sequence, last - _WINDOW + 1)
        part = []
        async for stored in stream.read(_ALL, first=first, last=last):
            moved += len(stored.data)
            document = subjects.document_of(stored.subject)
            part.append(
                RejectedMessage(stored.sequence, document, stored.time_ns, stored.headers, len(stored.data))
            )
        found = part + found
        last = first - 1
        if len(rows := together(found)) > limit:  # one more: the oldest may lack its first messages
            return rows[:limit]
    return together(found)[:limit]


def together(messages: Iterable[RejectedMessage]) -> list[RejectedUpdate]:
    """Group messages in stream order into updates, newest first.

    Each chunk of an update is a message. A chunk whose headers did not fit beside its bytes is two messages,
    the second without a reason.
    """
    rows: dict[tuple[str, str, str], RejectedUpdate] = {}
    last: dict[str, tuple[str, str, str]] = {}  # by document: the row of the message before
    for one in messages:
        reason = one.headers.get(h.REASON, "")
        log_id = one.headers.get(h.LOG_ID, "")
        key = (one.document, log_id or f"#{one.sequence}", reason)
        if not reason:
            if one.document not in last:
                continue  # the message with its headers is not in `messages`
            key = last[one.document]
        last[one.document] = key
        if key in rows:
            rows[key] = replace(rows[key], bytes=rows[key].bytes + one.bytes)
            continue
        rows[key] = RejectedUpdate(
            one.sequence,
            one.document,
            one.time_ns,
            reason[:_CHARS_MAX],
            one.headers.get(h.MESSAGE, "")[:_CHARS_MAX],
            log_id[:_CHARS_MAX],
            _wal_sequence(one.headers),
            one.bytes,
        )
    return sorted(rows.values(), key=lambda row: row.sequence, reverse=True)


def _wal_sequence(headers: Headers) -> int:
    try:
        return number(headers, h.SEQUENCE, 0)
    except MalformedMessage:
        return 0
