"""ACKs that wait for the journal, NACKs, and accepted updates of one document.

`Intake` decides whether an update is good. Here the owner publishes the decision, under a valid lease that is
checked right before each message: a message of a former owner would contradict its successor.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable
from typing import NamedTuple

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import is_user_inbox
from lorogo_protocol.messages import chunks, reasons, replies, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.calls import Refused as CallRefused
from lorogo_protocol.messages.chunks import Chunk
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_server.context import ServerContext
from lorogo_server.document.document_state import DocumentState
from lorogo_server.intake.decisions import (
    Accepted,
    RefusedUpdate,
)
from lorogo_server.journal.disk_journal import safe
from lorogo_server.ownership.lease import Lease
from lorogo_transport.errors import TransportError
from lorogo_transport.light import Event
from lorogo_transport.telemetry.logs import StructuredLogger

_ACKS_MAX = 10_000  # that wait for the journal, of one document
_IN_DOUBT = "the lease is in doubt"


class _PendingAck(NamedTuple):
    """An ACK that waits for the journal."""

    durable: Awaitable[object] | None  # None: it is durable
    log_id: str
    digest: str
    inbox: str
    sequence: int
    received_at: float  # when the update arrived, by the local clock


class AckQueue:
    """Replies of one document's owner to the senders of updates."""

    __slots__ = (
        "_accepted_subject",
        "_bus",
        "_context",
        "_document_id",
        "_empty",
        "_lease",
        "_log",
        "_pending",
        "_state",
        "_submitted",
        "_work",
        "last",
    )

    def __init__(
        self,
        document_id: str,
        context: ServerContext,
        lease: Lease,
        state: DocumentState,
        log: StructuredLogger,
    ) -> None:
        self.last: Awaitable[object] | None = None  # done when all accepted updates so far are durable
        self._document_id = document_id
        self._accepted_subject = subjects.accepted(document_id)
        self._context = context
        self._bus = context.transport.bus
        self._lease = lease
        self._state = state
        self._log = log
        self._submitted: dict[str, asyncio.Future[Ack]] = {}  # updates of calls, by log id
        self._pending: OrderedDict[tuple[str, str, str], _PendingAck] = OrderedDict()  # oldest first
        self._work = Event()
        self._empty = Event()
        self._empty.set()

    @property
    def waiting(self) -> int:
        """ACKs that wait for the journal."""
        return len(self._pending)

    # --- ACKs -------------------------------------------------------------------------------------

    def add(
        self,
        durable: Awaitable[object] | None,
        log_id: str,
        digest: str,
        inbox: str,
        sequence: int,
        received_at: float,
    ) -> None:
        """ACK an update once the journal has it and all updates before it; the follower does not wait.

        A repeated update is ACKed once. If too many ACKs wait, this one is dropped: its sender repeats it.
        """
        key = (log_id, digest, inbox)
        if key in self._pending or len(self._pending) >= _ACKS_MAX:
            return
        self._pending[key] = _PendingAck(durable, log_id, digest, inbox, sequence, received_at)
        self._empty.clear()
        self._work.set()

    async def run(self) -> None:
        """Send ACKs in order as their records become durable, until cancelled. Raises JournalStopped."""
        pending = self._pending
        while True:
            while pending:
                key, first = next(iter(pending.items()))
                if first.durable is not None:
                    await safe(first.durable)
                try:
                    await self._ack(first)
                except TransportError as error:
                    # The sender repeats its update, so an unsent ACK loses nothing.
                    self._log.info("ACK not sent", log_id=first.log_id, problem=str(error))
                del pending[key]
            self._empty.set()
            self._work.clear()
            await self._work.wait()

    async def flush(self, timeout: float) -> None:
        """Return when every ACK is sent, or after the timeout."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            self._log.warning("ACKs not sent before the timeout", waiting=len(self._pending))

    async def _ack(self, one: _PendingAck) -> None:
        context, log_id, digest = self._context, one.log_id, one.digest
        if not await self._may_ack():
            nack = Nack(log_id, digest, Reason.NOT_OWNER, _IN_DOUBT)
            if await self._reply(one.inbox, nack):
                context.ack_metrics.refused(nack.reason)
            if context.tracing is not None:
                context.tracing.answered(self._log, self._document_id, one.sequence, nack)
            return
        ack = Ack(log_id, digest, one.sequence, context.journal.durability, self._lease.token)
        waiting = self._submitted.pop(log_id, None) if self._submitted else None
        if waiting is not None and not waiting.done():
            waiting.set_result(ack)
        if await self._reply(one.inbox, ack) or waiting is not None:
            context.ack_metrics.acked(int((context.clock.now() - one.received_at) * 1e6))
        if context.tracing is not None:
            context.tracing.answered(self._log, self._document_id, one.sequence, ack)

    async def _may_ack(self) -> bool:
        """Return True under a valid lease; confirm a lease that expired while the loop was busy, once."""
        if self._is_owner() or not self._state.may_answer:
            return self._state.may_answer
        try:
            await self._lease.confirm()
        except LorogoError:
            return False
        return self._is_owner()

    def _is_owner(self) -> bool:
        return self._state.may_answer and self._lease.valid()

    # --- NACKs ------------------------------------------------------------------------------------

    async def nack(self, no: RefusedUpdate, *, final: bool) -> None:
        """NACK a refused update; `final`: no later owner will accept it."""
        self._context.counters.refused += 1
        self._log.info(
            "update refused",
            log_id=no.log_id,
            sequence=max(no.sequences, default=0),
            reason=no.reason.value,
            problem=no.message,
        )
        nack = Nack(no.log_id, no.digest, no.reason, no.message)
        if not (final and self._is_owner()):
            # Another owner may accept the update: a client that trusts the NACK would apply the edit twice.
            nack = Nack(no.log_id, no.digest, Reason.NOT_OWNER, _IN_DOUBT)
        if (waiting := self._submitted.pop(no.log_id, None)) is not None and not waiting.done():
            waiting.set_exception(CallRefused(nack.reason, nack.message))
        if await self._reply(no.inbox, nack) or waiting is not None:
            self._context.ack_metrics.refused(nack.reason)

    # --- publications -----------------------------------------------------------------------------

    async def publish_accepted(self, accepted: Accepted) -> None:
        """Publish an accepted update to all clients, once."""
        update, subject = accepted.update, self._accepted_subject
        size = chunks.chunk_bytes(self._bus.max_payload)
        position = {
            h.SEQUENCE: str(update.sequence),
            h.PREVIOUS: str(accepted.previous),
            h.LEASE: str(self._lease.token),
        }
        if len(update.payload) > self._context.settings.accepted_inline_bytes_max:
            omitted = {h.LOG_ID: update.log_id, h.OMITTED: str(len(update.payload)), **position}
            await self._bus.publish(subject, headers=omitted)
            return
        if len(update.payload) <= size:  # as `split()` returns it, without computing the digest again
            whole = Chunk(update.log_id, 0, update.payload, True, 1, update.digest)
            await self._bus.publish(subject, update.payload, headers={**whole.headers(), **position})
            return
        for chunk in chunks.split(update.payload, update.log_id, chunk_bytes_max=size):
            await self._bus.publish(subject, chunk.data, headers={**chunk.headers(), **position})

    async def publish_deleted(self, why: str = reasons.DELETED) -> None:
        """Publish to all clients that the document is deleted."""
        headers = {h.REASON: Reason.DELETED.value, h.MESSAGE: why, h.LEASE: str(self._lease.token)}
        await self._bus.publish(self._accepted_subject, headers=headers)

    async def publish_sync(self, sequence: int) -> None:
        """Have all clients sync, since the document has content that was not published."""
        headers = {
            h.OMITTED: "0",
            h.SEQUENCE: str(sequence),
            h.PREVIOUS: str(sequence),
            h.LEASE: str(self._lease.token),
        }
        await self._bus.publish(self._accepted_subject, headers=headers)

    # --- updates of calls -------------------------------------------------------------------------

    async def submit(self, payload: bytes, timeout: float) -> Ack:
        """Send an update of a call through the WAL, as a client does, and wait for its ACK."""
        log_id, begun_ns = self._context.new_id(), self._context.clock.wall_ns()
        size = chunks.chunk_bytes(self._bus.max_payload)
        waiting: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(_retrieve)  # it may be refused while its last chunk is not confirmed
        self._submitted[log_id] = waiting
        try:
            async with asyncio.timeout(timeout):
                for chunk in chunks.split(payload, log_id, chunk_bytes_max=size):
                    await self._context.wal.append(
                        subjects.wal(self._document_id), chunk.data, headers=chunk.headers()
                    )
                ack = await waiting
        finally:
            self._submitted.pop(log_id, None)
        if self._context.tracing is not None:
            self._context.tracing.submitted(self._document_id, len(payload), begun_ns, ack)
        return ack

    def close(self) -> None:
        """Refuse the calls whose updates are not ACKed yet."""
        for waiting in self._submitted.values():
            if not waiting.done():
                waiting.set_exception(CallRefused(Reason.NOT_OWNER, "the document was given up meanwhile"))

    async def _reply(self, inbox: str, reply: replies.Reply) -> bool:
        """Publish a reply; return False if there is no inbox to which this server may publish."""
        if not inbox:
            return False
        if self._bus.users_only and not is_user_inbox(inbox):
            # Any client may subscribe to other inboxes. The update itself is judged as usual.
            self._context.counters.unanswerable += 1
            return False
        body, headers = replies.encode(reply)
        try:
            await self._bus.publish(inbox, body, headers=headers)
        except ValueError as error:  # the inbox came from the wire
            self._log.warning("the reply inbox is no valid subject", problem=str(error))
            return False
        return True


def _retrieve(waiting: asyncio.Future[Ack]) -> None:
    """Retrieve the exception, so that the loop does not log it."""
    if not waiting.cancelled():
        waiting.exception()
