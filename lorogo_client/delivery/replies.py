"""Publishing updates into the WAL, and one reply inbox for all documents of a client."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING

from lorogo_client.delivery.outbox import OutgoingUpdate
from lorogo_protocol import limits
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.messages import calls, chunks, replies, subjects
from lorogo_protocol.messages.chunks import Chunk
from lorogo_protocol.messages.replies import Reply
from lorogo_transport.errors import OutcomeUnknown, RequestTimeout, StorageFull
from lorogo_transport.headers import record_bytes
from lorogo_transport.ports import Bus, Message, SubjectSubscription
from lorogo_transport.tasks import cancel
from lorogo_transport.telemetry.logs import get_logger

if TYPE_CHECKING:
    from lorogo_client.context import ClientContext  # which has a `Replies`

log = get_logger(__name__)

_CHUNKS_AT_ONCE = 8
# Of a long update whose chunks nothing confirms: the first try; a further one has half, down to the least
_PACED_BYTES_PER_SECOND = 32 * limits.MIB
_PACED_BYTES_PER_SECOND_MIN = 2 * limits.MIB


class Replies:
    """The reply inbox: routes each reply to the room that sent the update."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._takers: dict[str, Callable[[Reply], None]] = {}
        self._subscription: SubjectSubscription | None = None

    async def start(self) -> None:
        self._subscription = await self._bus.subscribe(f"{self._bus.new_inbox()}.*", self._on_message)

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()
        self._takers.clear()

    def expect(self, log_id: str, taker: Callable[[Reply], None]) -> str:
        """Return the reply subject for one update; do not cache it: it changes with the token."""
        assert self._subscription is not None, "not started"
        self._takers[log_id] = taker
        return f"{self._subscription.subject.removesuffix('*')}{log_id}"

    def forget(self, log_id: str) -> None:
        self._takers.pop(log_id, None)

    def _on_message(self, message: Message) -> None:
        log_id = message.subject.rpartition(".")[2]
        taker = self._takers.get(log_id)
        if taker is None:
            return
        try:
            reply = replies.decode(message.data, message.headers)
        except MalformedMessage as error:
            log.warning("malformed reply", log_id=log_id, problem=str(error))
            return
        if reply.log_id == log_id:
            taker(reply)


async def send(context: "ClientContext", document_id: str, flight: OutgoingUpdate, inbox: str) -> None:
    """Publish all chunks of an update; only the owner's ACK proves that it is saved.

    The first attempt of a short update is only published. A resend, and a long update, waits for JetStream to
    confirm each chunk: this limits the rate and detects a full stream. Clients with a token get no
    confirmations from JetStream (docs/decisions/0016), which drops messages while too many wait for the
    stream: there a long update keeps below a rate, halved with each attempt, and the owner reports free
    space in the WAL.
    Raises StorageFull, StreamMissing, TooLarge, Disconnected, OutcomeUnknown.
    """
    transport, settings = context.transport, context.settings
    stream = transport.stream(subjects.WAL_STREAM)
    subject = subjects.wal(document_id)
    size = chunks.chunk_bytes(transport.bus.max_payload, settings.chunk_bytes_max)
    if flight.attempts <= 1 and len(flight.payload) <= size and settings.confirmed_chunks_min:
        whole = Chunk(
            flight.log_id, 0, flight.payload, final=True, count=1, digest=flight.digest, inbox=inbox
        )
        await stream.append_unconfirmed(subject, whole.data, headers=whole.headers())
        return
    parts = list(chunks.split(flight.payload, flight.log_id, chunk_bytes_max=size, inbox=inbox))
    if flight.attempts <= 1 and len(parts) <= settings.confirmed_chunks_min:
        for part in parts:
            await stream.append_unconfirmed(subject, part.data, headers=part.headers())
        return
    if transport.bus.guarded:
        if flight.unanswered or flight.attempts <= 1:  # not if the resend is due to a new owner
            await _require_room(context, document_id, parts)
        await _paced(context, subject, parts, flight.attempts)
        return
    *body, final = parts
    for start in range(0, len(body), _CHUNKS_AT_ONCE):
        await _all_of(
            stream.append(subject, part.data, headers=part.headers(), timeout=settings.reply_seconds)
            for part in body[start : start + _CHUNKS_AT_ONCE]
        )
    await stream.append(subject, final.data, headers=final.headers(), timeout=settings.reply_seconds)
    flight.confirmed = True


async def _require_room(context: "ClientContext", document_id: str, parts: Sequence[Chunk]) -> None:
    """Raise StorageFull if the owner reports that the WAL has no space for the update.

    If the owner does not report it, the update is sent anyway.
    """
    try:
        seconds = context.settings.reply_seconds
        facts = await context.call("version", document_id, {"wal": True}, timeout=seconds)
        left = calls.maybe(facts, "wal_bytes_left", int)
    except LorogoError as error:
        log.info("cannot read free WAL space from the owner", document=document_id, problem=str(error))
        return
    subject = subjects.wal(document_id)
    size = sum(record_bytes(subject, part.data, part.headers()) for part in parts)
    if left is not None and size > left:
        raise StorageFull(f"the WAL has space for {max(left, 0)} bytes; the update needs {size}")


def bytes_per_second(attempt: int) -> float:
    """Return the rate of an attempt of a long update where JetStream confirms no chunk."""
    return max(_PACED_BYTES_PER_SECOND_MIN, _PACED_BYTES_PER_SECOND / 2.0 ** max(0, min(attempt, 30) - 1))


async def _paced(context: "ClientContext", subject: str, parts: Sequence[Chunk], attempt: int) -> None:
    transport, clock = context.transport, context.clock
    stream = transport.stream(subjects.WAL_STREAM)
    rate, began, sent = bytes_per_second(attempt), clock.now(), 0
    for start in range(0, len(parts), _CHUNKS_AT_ONCE):
        if (early := began + sent / rate - clock.now()) > 0:
            await asyncio.sleep(early)
        for part in parts[start : start + _CHUNKS_AT_ONCE]:
            await stream.append_unconfirmed(subject, part.data, headers=part.headers())
            sent += len(part.data)
        try:
            await transport.bus.barrier(context.settings.reply_seconds)
        except RequestTimeout as error:
            raise OutcomeUnknown(f"NATS did not confirm that it received {subject!r}") from error


async def _all_of(appends: Iterable[Coroutine[object, object, int]]) -> None:
    """Run the appends concurrently; the first error cancels the others and is raised unchanged."""
    tasks = [asyncio.ensure_future(append) for append in appends]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel(*tasks)
