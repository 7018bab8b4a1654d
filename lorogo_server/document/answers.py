"""What the owner says about updates: published to everyone, ACKed, NACKed, or moved out of the WAL.

Nothing here decides whether an update is good; `intake` did. Here it is only said, and only as long as
the document is ours to speak for.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
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
from lorogo_server.document.intake import Accepted, RefusedUpdate
from lorogo_server.journal.disk_journal import safe
from lorogo_server.ownership.lease import Lease
from lorogo_transport.errors import TransportError
from lorogo_transport.light import Event
from lorogo_transport.tasks import Work
from lorogo_transport.telemetry.logs import StructuredLogger

_ACKS_MAX = 10_000  # that wait for disks, of one document
_IN_DOUBT = "the lease is in doubt"
_QUARANTINE_SECONDS = 5.0  # between two tries to move what could not be moved


class _Unsafe(NamedTuple):
    """An ACK that waits for the disk."""

    safe: Awaitable[object] | None  # None: it is
    log_id: str
    digest: str
    inbox: str
    sequence: int
    received_at: float  # when the update was here, by our own clock


class Answers:
    """The voice of one document's owner."""

    def __init__(
        self,
        document_id: str,
        context: ServerContext,
        lease: Lease,
        *,
        log: StructuredLogger,
        spawn: Callable[[Work], None],
        is_up: Callable[[], bool],
    ) -> None:
        self.to_quarantine: dict[int, RefusedUpdate] = {}  # by first sequence, until it is moved
        self._document_id = document_id
        self._accepted_subject = subjects.accepted(document_id)
        self._context = context
        self._bus = context.transport.bus
        self._lease = lease
        self._log = log
        self._spawn = spawn
        self._is_up = is_up
        self.trimming = False  # a trim line is in force here, and no stored snapshot has it yet
        self.left: dict[
            int, RefusedUpdate
        ] = {}  # by first sequence: refused for that line, and still in the WAL
        self._quarantine_at = 0.0  # not to be tried again before
        self.moved = 0  # messages that we took out of the WAL since it was last read from its beginning
        self.life = 0  # of the document in memory; a reload begins another
        self._submitted: dict[str, asyncio.Future[Ack]] = {}
        self._unsafe: OrderedDict[tuple[str, str, str], _Unsafe] = OrderedDict()  # oldest first
        self._work = Event()
        self._all_said = Event()
        self._all_said.set()
        self.last: Awaitable[object] | None = None  # done when everything accepted so far is safe

    @property
    def waiting(self) -> int:
        """ACKs that wait for disks."""
        return len(self._unsafe)

    async def announce(self, accepted: Accepted) -> None:
        """Publish an accepted update to every client, once."""
        update, subject = accepted.update, self._accepted_subject
        size = chunks.chunk_bytes(self._bus.max_payload)
        facts = {
            h.SEQUENCE: str(update.sequence),
            h.PREVIOUS: str(accepted.previous),
            h.LEASE: str(self._lease.token),
        }
        if len(update.payload) > self._context.settings.accepted_inline_bytes_max:
            omitted = {h.LOG_ID: update.log_id, h.OMITTED: str(len(update.payload)), **facts}
            await self._bus.publish(subject, headers=omitted)
            return
        if len(update.payload) <= size:  # as `split()` says it, whose digest is known here
            whole = Chunk(update.log_id, 0, update.payload, True, 1, update.digest)
            await self._bus.publish(subject, update.payload, headers={**whole.headers(), **facts})
            return
        for chunk in chunks.split(update.payload, update.log_id, chunk_bytes_max=size):
            await self._bus.publish(subject, chunk.data, headers={**chunk.headers(), **facts})

    async def tell_deleted(self, why: str = reasons.DELETED) -> None:
        """Tell everybody who has the document open that it is deleted."""
        await self._bus.publish(
            subjects.accepted(self._document_id),
            headers={h.REASON: Reason.DELETED.value, h.MESSAGE: why, h.LEASE: str(self._lease.token)},
        )

    async def tell_restored(self, sequence: int) -> None:
        """Let everybody sync: the document begins another life."""
        await self._bus.publish(
            subjects.accepted(self._document_id),
            headers={
                h.OMITTED: "0",
                h.SEQUENCE: str(sequence),
                h.PREVIOUS: str(sequence),
                h.LEASE: str(self._lease.token),
            },
        )

    def ack_when_safe(
        self,
        done: Awaitable[object] | None,
        log_id: str,
        digest: str,
        inbox: str,
        sequence: int,
        received_at: float,
    ) -> None:
        """ACK when the journal has it, and everything before it; the follower goes on meanwhile.

        What comes again while it waits is answered once. Where too many wait, this one is not answered:
        its sender asks again.
        """
        key = (log_id, digest, inbox)
        if key in self._unsafe or len(self._unsafe) >= _ACKS_MAX:
            return
        self._unsafe[key] = _Unsafe(done, log_id, digest, inbox, sequence, received_at)
        self._all_said.clear()
        self._work.set()

    async def say_what_is_safe(self) -> None:
        """Send ACKs as their records reach the disk, in order; ends with the host, or JournalStopped."""
        unsafe = self._unsafe
        while True:
            while unsafe:
                key, first = next(iter(unsafe.items()))
                if first.safe is not None:
                    await safe(first.safe)
                try:
                    await self._ack(first)
                except TransportError as error:
                    # The sender asks again: nothing is lost by an unsent message.
                    self._log.info("answer not sent", log_id=first.log_id, problem=str(error))
                del unsafe[key]
            self._all_said.set()
            self._work.clear()
            await self._work.wait()

    async def all_said(self, timeout: float) -> None:
        """Return when every ACK is out, or the time is over."""
        try:
            async with asyncio.timeout(timeout):
                await self._all_said.wait()
        except TimeoutError:
            self._log.warning("ACKs were not said in time", waiting=len(self._unsafe))

    async def all_on_disk(self) -> None:
        """Return when everything accepted so far is in our own journal. Raises JournalStopped."""
        if self.last is not None:
            await safe(self._context.journal.on_disk(self.last))

    async def _ack(self, one: _Unsafe) -> None:
        """Say that the update is safe and applied, if the document is still ours to speak for."""
        context, log_id, digest = self._context, one.log_id, one.digest
        if not await self._may_speak():
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

    def leaves(self, no: RefusedUpdate) -> bool:
        """Whether what is refused stays in the WAL: no stored snapshot has the trim line yet."""
        return self.trimming and no.reason is Reason.HISTORY_TRIMMED

    async def refuse(self, no: RefusedUpdate, epoch: int) -> None:
        """Say no, and move what can never be accepted out of the WAL; `epoch` is that of its sequences."""
        self._context.counters.refused += 1
        self._log.info(
            "update refused",
            log_id=no.log_id,
            sequence=max(no.sequences, default=0),
            reason=no.reason.value,
            problem=no.message,
        )
        nack = Nack(no.log_id, no.digest, no.reason, no.message)
        unstored = self.leaves(no)
        self._remember(no, epoch)  # before anything is waited for: nobody may be there to be told
        if unstored or not (self._is_up() and self._lease.valid()):
            # Whoever has the document now may take it: who believes our no would make the edit once more.
            nack = Nack(no.log_id, no.digest, Reason.NOT_OWNER, _IN_DOUBT)
        if (waiting := self._submitted.pop(no.log_id, None)) is not None and not waiting.done():
            waiting.set_exception(CallRefused(nack.reason, nack.message))
        told = await self._reply(no.inbox, nack)
        if told or waiting is not None:
            self._context.ack_metrics.refused(nack.reason)

    def _remember(self, no: RefusedUpdate, epoch: int) -> None:
        if not (no.quarantine and no.sequences):
            return
        if self.leaves(no):
            self.left[min(no.sequences)] = no
        else:
            self.to_quarantine[min(no.sequences)] = no
            self._spawn(self._quarantine(no, epoch))

    def trim_line_stored(self, epoch: int) -> None:
        """What was refused for it can never be accepted now: it leaves the WAL like anything else."""
        self.trimming = False
        if self.left:
            self.to_quarantine.update(self.left)
            self.left.clear()
            self._spawn(self.retry_quarantine(epoch))

    def forget_quarantine(self) -> None:
        """What was refused is judged again: move nothing on the strength of the old judgement."""
        self.life += 1
        self.moved = 0
        self.to_quarantine.clear()
        self.left.clear()

    def quarantine_due(self, now: float) -> bool:
        """Whether something is to be moved that nobody has tried to move just now."""
        return bool(self.to_quarantine) and now >= self._quarantine_at

    async def retry_quarantine(self, epoch: int) -> None:
        """Try again to move what could not be moved."""
        for no in list(self.to_quarantine.values()):
            await self._quarantine(no, epoch)

    async def submit(self, payload: bytes, timeout: float) -> Ack:
        """Send an update of the server's own through the WAL, like anybody's, and wait for its ACK."""
        log_id, begun_ns = self._context.new_id(), self._context.clock.wall_ns()
        size = chunks.chunk_bytes(self._bus.max_payload)
        waiting: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(_looked_at)  # it may be refused while its last chunk is not confirmed
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

    def give_up(self) -> None:
        """The host closes: nobody will hear of what is still on its way."""
        for waiting in self._submitted.values():
            if not waiting.done():
                waiting.set_exception(CallRefused(Reason.NOT_OWNER, "the document was given up meanwhile"))
        self._spawn, self._is_up = _dropped, _never  # of a host that is closed: we hold it no more

    async def _may_speak(self) -> bool:
        """Whether the document is ours; a lease that ran out while we were busy is asked for once."""
        if not self._is_up():
            return False
        if self._lease.valid():
            return True
        try:
            await self._lease.confirm()
        except LorogoError:
            return False
        return self._is_up() and self._lease.valid()

    async def _quarantine(self, no: RefusedUpdate, epoch: int) -> None:
        life, epochs, first = self.life, self._context.epochs, min(no.sequences)
        if self.to_quarantine.get(first) is not no:
            return  # moved meanwhile, or judged again
        self._quarantine_at = self._context.clock.now() + _QUARANTINE_SECONDS
        await self._lease.confirm()

        def still_so() -> bool:
            return epochs.current == epoch and self.life == life

        whole = await self._context.quarantine.move(self._lease, no, still_so)
        if whole and self.to_quarantine.get(first) is no:  # else another, who tried as well, has counted it
            del self.to_quarantine[first]
            self.moved += len(no.sequences)

    async def _reply(self, inbox: str, reply: replies.Reply) -> bool:
        """Whether there is somebody to tell, and it is on its way."""
        if not inbox:
            return False
        if self._bus.users_only and not is_user_inbox(inbox):
            # Nobody is answered where anybody might listen. The update itself is judged as any.
            self._context.counters.unanswerable += 1
            return False
        body, headers = replies.encode(reply)
        try:
            await self._bus.publish(inbox, body, headers=headers)
        except ValueError as error:  # the inbox came from the wire
            self._log.warning("an inbox that is no subject", problem=str(error))
            return False
        return True


def _looked_at(waiting: asyncio.Future[Ack]) -> None:
    """Nobody needs to be told by the loop that nobody looked at its exception."""
    if not waiting.cancelled():
        waiting.exception()


def _dropped(work: Work) -> None:
    work.close()


def _never() -> bool:
    return False
