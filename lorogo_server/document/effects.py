"""Execution of what `Intake` decided about a message: journal, publish, ACK, NACK, quarantine.

The safe order is here: the message is stored (it came from the stream), the update is applied, given to the
journal and published, and ACKed when its record is on the disk (docs/decisions/0008).
"""

from collections.abc import Awaitable, Iterable
from dataclasses import replace

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.document.host import Host
from lorogo_server.intake.decisions import (
    Accepted,
    Again,
    Effect,
    Poisoned,
    RefusedUpdate,
)
from lorogo_server.journal.disk_journal import JournalStopped
from lorogo_transport.errors import TransportError


async def execute(host: Host, effect: Effect, *, announce: bool = True) -> None:
    """Execute one effect; `announce`: an accepted update is new for journal and clients."""
    acks, context = host.acks, host.context
    try:
        match effect:
            case Accepted(update=update, new=new):
                intake, lease, counters = host.loaded.intake, host.lease, context.counters
                host.touch()
                lease.head = intake.head.sequence
                durable = acks.last  # a replay, or an update without new operations, needs no record
                if announce and new:
                    durable = await _journal(host, effect)
                    # After a re-read clients sync; after the end of the lease the new owner publishes it.
                    if intake.is_live and not lease.ended:
                        await acks.publish_accepted(effect)
                if context.tracing is not None:
                    context.tracing.accepted(host.log, host.document_id, effect, host.received_at)
                acks.add(
                    durable, update.log_id, update.digest, update.inbox, update.sequence, host.received_at
                )
                counters.accepted += 1
                counters.accepted_bytes += len(update.payload)
            case Again(log_id, digest, inbox, sequence):
                if context.tracing is not None:
                    context.tracing.again(host.log, effect)
                acks.add(acks.last, log_id, digest, inbox, sequence, host.received_at)
            case RefusedUpdate():
                if context.tracing is not None:
                    context.tracing.refused(host.document_id, effect, host.received_at)
                keeps = host.refused.keeps(effect)
                if keeps:
                    host.loaded.intake.leave(effect.sequences)
                if effect.reason is Reason.OUTDATED:
                    effect = await _moved(host, effect)
                elif host.refused.add(effect):
                    host.spawn(host.refused.move(effect, host.epoch))
                await acks.nack(effect, final=not keeps)
            case Poisoned():
                # Loro panics on some honest updates of trees. The reload tries the update again, and refuses
                # it if Loro panics then.
                host.state.request_reload()
    except TransportError as error:
        # The sender repeats its update, and a client sees the gap: an unsent message loses nothing.
        host.log.info("reply not sent", problem=str(error))


async def _moved(host: Host, no: RefusedUpdate) -> RefusedUpdate:
    """Move the update out of the WAL before its NACK; return the refusal, or a retriable one if that failed.

    Its client makes the edit again, and a load, which refuses nothing for its time, would apply both.
    """
    host.refused.add(no)
    try:
        for copy in host.refused.copies(no):
            await host.refused.move(copy, host.epoch)
    except LorogoError as error:
        host.log.warning("refused update not moved", log_id=no.log_id, problem=str(error))
    if not host.refused.copies(no):
        return no
    return replace(no, reason=Reason.BUSY, message="the refused update is still in the WAL; retry")


async def execute_all(host: Host, effects: Iterable[Effect]) -> None:
    """Execute the effects of elapsed time."""
    for effect in effects:
        host.received_at = host.context.clock.now()
        await execute(host, effect)


async def execute_read(host: Host, effect: Effect, _time_ns: int) -> None:
    """Execute an effect of a message that was read from the stream."""
    host.received_at = host.context.clock.now()
    await execute(host, effect)


async def answer_replayed(host: Host) -> None:
    """Answer the updates whose senders may have got no answer from the previous owner."""
    loaded = host.loaded
    for effect in loaded.unanswered:
        await execute(host, effect, announce=False)
    loaded.unanswered = []  # only now: until then they bound the coverage


async def _journal(host: Host, accepted: Accepted) -> Awaitable[object]:
    """Give the update to the journal; later ACKs wait for its record."""
    try:
        durable = await host.journal.accepted(accepted, host.loaded.facts.generation)
    except JournalStopped as error:
        host.state.close(f"failed: {error}")  # memory has an update that no disk has: answer nothing
        raise
    host.acks.last = durable
    return durable
