"""Purges that were put off: of one document, or of everything below a sequence (docs/decisions/0014).

`compaction.cover` stored each document's snapshot. Nothing is purged on the strength of that alone: just
before, the journal is on the disk, every lease is confirmed, the epoch is checked, and every document is
asked whether what was stored then is still what is stored now.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from lorogo_protocol.errors import LorogoError
from lorogo_server.compaction import compaction
from lorogo_server.compaction.compaction import VerifiedSnapshot
from lorogo_server.context import ServerContext
from lorogo_server.document.host import Host
from lorogo_server.ownership.lease import LeaseLost
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_AT_ONCE = 64
_QUIET_SECONDS = 5.0
_PURGE_SECONDS = 60.0
_EVERYTHING = ">"  # not `loro.wal.*`: only without a filter does nats-server drop whole blocks


class PurgeRefused(LorogoError):
    """Nothing was purged: these documents are not ours, or not covered, any more."""

    code = "conflict"

    def __init__(self, documents: Iterable[str]) -> None:
        self.documents = frozenset(documents)
        super().__init__(f"{len(self.documents)} documents changed hands or are being changed: plan again")


@dataclass(frozen=True, slots=True)
class PurgeCandidate:
    """A document that is ours and whose snapshot is stored; its purge is put off."""

    host: Host
    covering: VerifiedSnapshot

    def unneeded_before(self) -> int:
        """Nobody needs its messages below that; 0: nothing of it may go."""
        covering = self.covering
        return self.host.unneeded_before(covering.epoch, covering.revision, covering.before)


async def purge_one(held: PurgeCandidate) -> int:
    """Remove what the document's own snapshot covers; returns how many messages.

    Raises LeaseLost, JournalStopped, TransportError.
    """
    async with held.host.compacting:
        before = held.unneeded_before()
        return await compaction.purge(held.host, before, held.covering.epoch) if before else 0


async def purge_prefix(
    context: ServerContext, held: Mapping[str, PurgeCandidate], *, before: int, removed: Mapping[str, int]
) -> int:
    """Remove every message of the WAL below a sequence; returns how many.

    `removed` says whose they are, and how many of each: all of documents that are held, and the newest
    of none. Raises NotHeld if that is not so any more, OutcomeUnknown, TransportError.
    """
    ours = [held[document_id] for document_id in sorted(removed)]
    async with _quiet([one.host for one in ours]):
        await _settle(ours)
        if await context.check_epoch():
            raise PurgeRefused(removed)
        # From here to the purge nothing is awaited: what is checked is so when it is sent.
        gone = [
            one.host.document_id
            for one in ours
            if not one.host.lease.valid()
            or one.covering.epoch != context.epochs.current
            or one.unneeded_before() < before
        ]
        if gone:
            raise PurgeRefused(gone)
        purged = await context.wal.purge(_EVERYTHING, before=before, timeout=_PURGE_SECONDS)
        for one in ours:
            one.host.purged(before, removed[one.host.document_id])
        if purged > (expected := sum(removed.values())):
            log.error(
                "the WAL had messages that could not be read: a replica of it is damaged; their owners'"
                " journals have them, and reconciliation brings them back",
                purged=purged,
                expected=expected,
            )
        return purged


@asynccontextmanager
async def _quiet(hosts: Sequence[Host]) -> AsyncIterator[None]:
    """Nobody else stores, deletes or purges any of these meanwhile. Raises NotHeld."""
    async with AsyncExitStack() as stack:
        for host in hosts:
            try:
                async with asyncio.timeout(_QUIET_SECONDS):
                    await stack.enter_async_context(host.compacting)
            except TimeoutError:
                raise PurgeRefused([host.document_id]) from None
        yield


async def _settle(ours: Sequence[PurgeCandidate]) -> None:
    """Every journal on the disk, every lease confirmed. Raises NotHeld, JournalStopped, TransportError."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def settle(one: PurgeCandidate) -> str:
        async with slots:
            try:
                await one.host.journalled()
                await one.host.lease.confirm()
            except LeaseLost:
                return one.host.document_id
            return ""

    found = await asyncio.gather(*(settle(one) for one in ours), return_exceptions=True)
    for problem in found:
        if isinstance(problem, BaseException):
            raise problem
    if lost := [name for name in found if isinstance(name, str) and name]:
        raise PurgeRefused(lost)
