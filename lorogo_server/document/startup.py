"""First load and later reloads of one document: compare journals, load, claim the snapshot, journal.

A load counts once its snapshot has this lease's token and the journal has what was loaded
(docs/decisions/0007, 0021).
"""

import asyncio
import functools
from dataclasses import replace

from lorogo_server.document import wal_bounds
from lorogo_server.document.effects import answer_replayed
from lorogo_server.document.host import Host
from lorogo_server.document.loading import DocumentLoadFailed, Loaded, TombstoneLost, claim, load
from lorogo_transport.errors import TransportError

_LOAD_TRIES = 5
_RETRY_SECONDS = 0.5


async def first_load(host: Host) -> None:
    """Load the document once the journals are compared. Raises what made the load fail."""
    await asyncio.sleep(host.lease.wait_seconds)
    while True:
        losses = await host.context.data_losses()
        await _recover(host)
        if await _load_in_turn(host, losses):
            return


async def _recover(host: Host) -> None:
    """Wait until the journals have restored what NATS lost of the document (docs/decisions/0021).

    It is not a part of the load: it has its own deadline, takes no load slot, and its end is no failure.
    """
    counters = host.context.counters
    host.recovering = True
    counters.recovering += 1
    try:
        host.incomplete = await host.context.recover(host.document_id, host.lease.journal_of)
    finally:
        host.recovering = False
        counters.recovering -= 1
    if host.incomplete:
        host.log.warning("served without journals of absent servers", journals=list(host.incomplete))


async def _load_in_turn(host: Host, losses: int) -> bool:
    """Load when a slot is free, within the deadline of a load; return False if the load does not count."""
    context = host.context
    context.counters.loads_waiting += 1
    try:
        await context.load_slots.acquire()
    finally:
        context.counters.loads_waiting -= 1
    deadline = asyncio.timeout(context.settings.load_seconds_max)
    try:
        await context.load_notes.begin(host.document_id, host.lease.failures)
        async with deadline:
            return await _load(host, losses=losses)
    except TimeoutError:
        if not deadline.expired():
            raise
        raise DocumentLoadFailed(f"it was not loaded in {context.settings.load_seconds_max:g} s") from None
    finally:
        context.load_notes.end(host.document_id)
        context.load_slots.release()


async def _load(host: Host, *, checked: bool = False, losses: int | None = None) -> bool:
    """Load what is stored, claim it, and journal it.

    `losses`: number of data losses before the journals were compared. Return False, without a claim, if NATS
    lost data since: a lost tombstone could not be stored again over a claim.
    """
    context = host.context
    host.received_at = context.clock.now()
    for _ in range(_LOAD_TRIES):
        if context.epochs.in_doubt:
            await context.epochs.check()  # the journal's coverage is a position in an epoch
        covered = host.journal.covered.position
        request = replace(host.load_request(), checked=checked, covered=covered, accepted=covered)
        loaded = await load(request)
        if losses is not None and losses != await context.data_losses():
            return False
        if _is_tombstone_lost(host, loaded):
            raise TombstoneLost("NATS has lost its tombstone, which a journal must bring back")
        if loaded.facts.lease > host.lease.token:
            # A newer owner stored it, or the tokens of a lost status bucket were higher.
            await host.lease.confirm()
        term, token = host.journal.term, host.lease.token
        if await claim(context.snapshots, host.document_id, loaded, token=token, term=term):
            durable = await host.journal.loaded(loaded)
            host.acks.last = durable or host.acks.last
            host.adopt_loaded(loaded)
            is_vouched_for = functools.partial(context.vouchers.has, host.document_id)
            loaded.intake.share(context.unfinished, is_vouched_for)
            host.journal.cover(wal_bounds.covered_through(loaded, host.refused))
            context.epochs.saw(loaded.follower.position)
            return True
    raise DocumentLoadFailed("other servers keep storing snapshots of the document")


def _is_tombstone_lost(host: Host, loaded: Loaded) -> bool:
    """Return True if memory has the tombstone, and storage neither it nor a later restore."""
    if not host.is_loaded or not host.loaded.facts.deleted or loaded.intake.deleted:
        return False
    return loaded.facts.generation <= host.loaded.facts.generation


async def reload(host: Host) -> bool:
    """Load the document again; return False if that must wait. The caller holds `busy`."""
    state, done = host.state, False
    checked = state.begin_reload()
    host.refused.clear()  # judged again
    try:
        await _load(host, checked=checked)
        done = True
    except TombstoneLost as error:
        # Memory stands: reconciliation takes the tombstone from the journal, and stores it again.
        host.log.warning("the document stays deleted", problem=str(error))
        state.end_read()
        done = True
        return True
    except TransportError as error:
        if not error.retriable:
            raise
        host.log.warning("cannot load the document again yet", problem=str(error))
        await asyncio.sleep(_RETRY_SECONDS)
        return False
    finally:
        if not done:
            state.request_reload(checked=checked)
    state.end_read()
    await answer_replayed(host)
    await host.request_sync()
    return True
