"""The loop of one host: load, write UP, follow the WAL in turns, drain, close."""

import asyncio
import contextlib
import functools

from lorogo_protocol.lease import Reclaim
from lorogo_protocol.loro.crdt import CrdtPanic
from lorogo_protocol.messages import subjects
from lorogo_server.document import startup, wal_reader
from lorogo_server.document.document_state import Phase
from lorogo_server.document.effects import answer_replayed, execute_all
from lorogo_server.document.host import Host
from lorogo_server.journal.disk_journal import JournalStopped
from lorogo_transport.ports import Message
from lorogo_transport.stores.statuses import status_of

_TURN_SECONDS = 0.01  # of work on messages, before other tasks run
_ROUND_BYTES_MAX = 16 * 1024 * 1024  # read from the stream in one turn, before other calls get `busy`
_LAST_ACKS_SECONDS = 2.0


class _ClosedEarly(Exception):
    """The host was closed during the load."""


async def run(host: Host) -> None:
    """Own the document from the load to the end. Raises what made it fail."""
    host.spawn(host.acks.run())
    try:
        await _start(host)
        await _follow(host)
        await _finish(host)
    except _ClosedEarly:
        pass
    except Exception as error:
        host.state.close(f"failed: {error}")
        raise
    finally:
        await host.close()


async def _start(host: Host) -> None:
    # A reply to a request on the same connection proves that an earlier subscription is active: here the
    # replies to the load, and for the endpoint the reply to the write of UP (docs/decisions/0002).
    await host.listen(subjects.status(host.document_id), functools.partial(_on_status, host))
    await wal_reader.subscribe(host)
    await _load_unless_closed(host)
    await host.open_endpoint()
    host.state.loaded()  # before UP: clients that read UP ping at once
    if host.state.phase is Phase.CLOSED:
        raise _ClosedEarly
    host.lease.go_up()
    await host.lease.confirm()
    host.context.load_notes.forget(host.document_id)
    host.log.info("up", token=host.lease.token, head=host.lease.head, server=host.lease.server_id)
    await answer_replayed(host)
    host.started.set()


async def _load_unless_closed(host: Host) -> None:
    scope = asyncio.timeout(None)  # expires when the host is closed
    try:
        async with scope:
            host.load_scope = scope
            await startup.first_load(host)
    except TimeoutError:
        if scope.expired():
            raise _ClosedEarly from None
        raise
    finally:
        host.load_scope = None


def _on_status(host: Host, message: Message) -> None:
    if host.lease.on_own_renewal(message):
        return
    entry = status_of(message)
    if entry is None:
        return
    match host.lease.on_status(entry):
        case Reclaim() as reclaim if host.lease.served:
            host.spawn(host.lease.reclaim(reclaim))
        case _:
            pass


async def _follow(host: Host) -> None:
    """Process messages and requests until the end; after a graceful stop, those queued before it."""
    while True:
        await _wait(host)
        if _is_done(host):
            return
        async with host.busy:
            if host.state.is_ending and _is_done(host):
                return  # closed while another task held `busy`
            host.in_turn = True
            await _turn(host)
            host.in_turn = False
        if _has_work(host):
            await asyncio.sleep(0)


def _is_done(host: Host) -> bool:
    if not host.state.is_ending:
        return False
    queue = host.backlog
    drains = len(queue) > 0 and host.state.drains(queue.first.sequence)
    return not (drains and host.context.transport.bus.connected)


async def _wait(host: Host) -> None:
    """Wait for a message, a request, the end, or a deadline."""
    if _has_work(host):
        return
    now = host.context.clock.now()
    deadline = host.loaded.intake.next_deadline()
    delay = host.endpoint.rest_seconds()
    if deadline is not None:
        delay = min(delay, max(0.0, deadline - now))
    host.wake.clear()
    if host.state.is_ending:
        return
    host.timer.ring_at(now + delay)
    await host.wake.wait()


def _has_work(host: Host) -> bool:
    return _has_message(host) or host.state.has_request


def _has_message(host: Host) -> bool:
    """Return True if a copy is queued and validated; while draining, it is not validated in a batch."""
    queue = host.backlog
    return len(queue) > 0 and (queue.first.is_validation_done or host.state.is_ending)


async def _turn(host: Host) -> None:
    state, clock = host.state, host.context.clock
    if state.reload and not await startup.reload(host):
        return
    if state.rewind and not await wal_reader.reread(host):
        return
    if state.catch_up:
        await wal_reader.read_missing(host, bytes_max=_ROUND_BYTES_MAX)
    now = clock.now()
    turn_ends = now + _TURN_SECONDS
    while _has_message(host):
        if not await wal_reader.take(host, host.backlog.first, now):
            return
        host.backlog.drop_first()
        if state.reload:
            return  # after a panic of Loro memory must not judge the next message
        now = clock.now()
        if now >= turn_ends:
            break
    intake = host.loaded.intake
    span = host.context.wal_usage.document_share(host.context.settings)
    try:
        expired = intake.tick(now, span_bytes_max=span)
    except CrdtPanic as error:
        host.loro_panicked(str(error))
        return
    await execute_all(host, expired)
    host.endpoint.sweep(now)
    if intake.wal_bytes >= host.context.settings.compact_wal_bytes:
        host.due.want("the WAL is long")
    elif intake.nearly_full:
        host.due.want("the document is nearly full")


async def _finish(host: Host) -> None:
    """Send the last ACKs after a stop, and note the journal's coverage for the next load."""
    if host.state.phase is Phase.DRAINING:
        await host.acks.flush(_LAST_ACKS_SECONDS if host.state.drains_all else 0.0)
    with contextlib.suppress(JournalStopped):
        await host.journalled()
