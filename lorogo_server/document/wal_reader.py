"""Reads one document's WAL for its host: republished copies, gaps, and the subject from its beginning.

Copies are faster, the stream is the truth. After a missed copy the host reads the stream from its position;
after the stream changed, it reads the subject from the beginning (docs/decisions/0002).
"""

import asyncio
import functools

from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.loro.crdt import CrdtPanic
from lorogo_protocol.messages import subjects
from lorogo_server.document.effects import execute, execute_read
from lorogo_server.document.host import Host
from lorogo_server.document.loading import read_on
from lorogo_server.intake.admission import admit
from lorogo_server.intake.backlog import QueuedMessage
from lorogo_server.intake.follower import AlreadyRead, MessageGap, NextMessage, UnclearPosition
from lorogo_server.journal.disk_journal import JournalStopped
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import Message
from lorogo_transport.stores.republish import Republished, republished

RETRY_SECONDS = 0.5


# --- copies ---------------------------------------------------------------------------------------


async def subscribe(host: Host) -> None:
    """Receive copies of the document's WAL messages."""
    subject = subjects.committed(host.document_id)
    host.copies = await host.context.transport.bus.subscribe(subject, functools.partial(_on_copy, host))


def _on_copy(host: Host, message: Message) -> None:
    """Queue a copy; or unsubscribe if there is no room, and read the stream instead.

    nats-server closes a connection that leaves too much unread, and all documents share one connection.
    """
    context = host.context
    try:
        copy = republished(message)
    except MalformedMessage as error:
        host.log.warning("malformed copy of a WAL message", problem=str(error))
        return
    if not host.backlog.has_room(len(copy.stored.data), context.clock.now()):
        host.state.catch_up = True
        if host.copies is not None:
            host.spawn(host.copies.close())
            host.copies = None
    else:
        batch = context.batch_validation
        validation = None if batch is None else batch.queue(copy.stored.data, host.wake.set)
        host.backlog.add(QueuedMessage(copy, context.clock.now(), validation))
        if validation is not None:
            return  # the validation wakes the host
    host.wake.set()


async def take(host: Host, queued: QueuedMessage, now: float) -> bool:
    """Process a queued copy; return False if the stream must be read first, and keep it queued."""
    copy, loaded = queued.copy, host.loaded
    stored, follower = copy.stored, loaded.follower
    match follower.classify(stored, copy.previous):
        case AlreadyRead():
            return True
        case MessageGap() if host.gap_read_for == stored.sequence:
            return await _settle_doubt(host, copy)  # the gap was read, and its messages are not in the stream
        case MessageGap():
            host.state.catch_up, host.gap_read_for = True, stored.sequence
            return False
        case UnclearPosition():
            return await _settle_doubt(host, copy)
        case NextMessage():
            validate, valid = host.context.validate, queued.is_valid
            try:
                effects = await admit(loaded.intake, stored, now, validate=validate, validated=valid)
            except CrdtPanic as error:
                host.loro_panicked(str(error))
                return True  # the reload reads the message again
            follower.took(follower.at(stored))
            host.context.epochs.saw(follower.position)
            host.received_at = queued.at
            for effect in effects:
                await execute(host, effect)
            return True


async def _settle_doubt(host: Host, copy: Republished) -> bool:
    """Compare a copy that does not fit the position with the stream; return True to drop the copy."""
    try:
        if await host.context.epochs.check():
            return False  # everything is read again, and the copy with it
        if copy.stored.sequence <= host.loaded.follower.position.sequence:
            return True  # an old copy
        stored = await host.context.wal.get(copy.stored.sequence)
        if stored is None or (stored.subject, stored.time_ns) != (copy.stored.subject, copy.stored.time_ns):
            return True  # forged, or lost or deleted since
    except TransportError as error:
        host.log.warning("cannot compare a copy with the stream", problem=str(error))
        host.state.catch_up = True
        await asyncio.sleep(RETRY_SECONDS)
        return False
    host.state.catch_up = True  # the message at the position was purged or deleted
    return False


# --- the stream -----------------------------------------------------------------------------------


async def read_to_the_end(host: Host, *, bytes_max: int | None = None) -> None:
    """Process the stream's messages behind the position. The caller holds `busy`. Raises LorogoError.

    `bytes_max`: stop after about that many bytes; the caller requests the rest.
    """
    state = host.state
    state.catch_up = complete = False
    try:
        await read_on(
            host.load_request(),
            host.loaded,
            functools.partial(execute_read, host),
            bytes_max=bytes_max,
        )
        complete = True
    except CrdtPanic as error:
        host.loro_panicked(str(error))
        raise
    finally:
        # Read the rest in a later turn; without copies the next turn subscribes.
        state.catch_up |= not complete or host.copies is None
        # Note the position before the next await: the stream may change then.
        host.context.epochs.saw(host.loaded.follower.position)


async def read_missing(host: Host, *, bytes_max: int | None = None) -> bool:
    """Read the stream in a turn, and drop the copies of what was read; return False if it must be retried.

    A round that reads less than `bytes_max` subscribes to copies again; the next round reads what was
    stored before the subscription.
    """
    seen, read = host.loaded.intake.seen_bytes, True
    try:
        await read_to_the_end(host, bytes_max=bytes_max)
        if bytes_max is not None and host.loaded.intake.seen_bytes - seen >= bytes_max:
            host.state.catch_up = True
        elif host.copies is None:
            host.state.catch_up = True
            await subscribe(host)
    except JournalStopped:
        raise  # memory has updates that no disk has: nothing may be answered
    except LorogoError as error:
        read = False
        host.log.warning("cannot read the WAL", problem=str(error))
        host.state.catch_up = True
        await asyncio.sleep(RETRY_SECONDS)
    host.backlog.drop_through(host.loaded.follower.position.sequence)
    return read


async def reread(host: Host) -> bool:
    """Read the WAL from its beginning after it changed; memory keeps what the stream lost.

    Return False if that must be tried again. The caller holds `busy`.
    """
    state, loaded, epoch = host.state, host.loaded, host.context.epochs.current
    state.begin_rewind()
    done = False
    loaded.follower.rewind(epoch)
    host.refused.clear()  # their sequences are void
    loaded.intake.begin_again(epoch)
    host.backlog.clear()
    state.memory_is_only_copy = not loaded.intake.deleted  # reconciliation restores a lost tombstone
    try:
        done = await read_missing(host)
    finally:
        state.rewind |= not done
        loaded.intake.go_live()
        host.lease.head = loaded.intake.head.sequence
    if done:
        state.end_read()
        await host.request_sync()
    return done


async def settle_epoch(host: Host) -> None:
    """Read the WAL again if it changed. The caller holds `busy`."""
    if await host.context.epochs.check() or host.epoch != host.context.epochs.current:
        await reread(host)
