"""Deferred purges: of one document, or of all messages below a sequence (docs/decisions/0014).

`compaction.cover` has stored each document's snapshot. Right before a purge, the journal is made durable,
every lease is confirmed, the epoch is checked, and every document must still have that snapshot stored.
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
from lorogo_server.document.wal_bounds import first_needed
from lorogo_server.ownership.lease import LeaseLost
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_AT_ONCE = 64
_QUIET_SECONDS = 5.0
_PURGE_SECONDS = 60.0
_EVERYTHING = ">"  # not `loro.wal.*`: only without a filter does nats-server drop whole blocks


class PurgeRefused(LorogoError):
    """Nothing was purged: this server lost these documents, or their snapshots changed."""

    code = "conflict"

    def __init__(self, documents: Iterable[str]) -> None:
        self.documents = frozenset(documents)
        super().__init__(
            f"{len(self.documents)} documents have a new owner or snapshot; plan the purge again"
        )


@dataclass(frozen=True, slots=True)
class PurgeCandidate:
    """An owned document with a stored snapshot and a deferred purge."""

    host: Host
    covering: VerifiedSnapshot

    def unneeded_before(self) -> int:
        """Return the first sequence that a purge must keep; 0: purge nothing.

        The plan holds while the same snapshot is stored, and the WAL is not read again.
        """
        host, state, covering = self.host, self.host.state, self.covering
        if not (state.is_up and state.is_settled) or state.memory_is_only_copy or state.snapshot_unverified:
            return 0
        if host.refused.to_move or host.loaded.intake.deleted:
            return 0
        if host.epoch != covering.position.epoch or host.snapshot_revision != covering.revision:
            return 0
        return min(covering.before, first_needed(host.loaded, host.refused))


async def purge_one(held: PurgeCandidate) -> int:
    """Remove the messages that the document's snapshot covers; return their number.

    Raises LeaseLost, JournalStopped, TransportError.
    """
    async with held.host.compacting:
        before = held.unneeded_before()
        return await compaction.purge(held.host, before, held.covering.position.epoch) if before else 0


async def purge_prefix(
    context: ServerContext, held: Mapping[str, PurgeCandidate], *, before: int, removed: Mapping[str, int]
) -> int:
    """Remove every message of the WAL below a sequence; return their number.

    `removed` has their number by document: all these documents are in `held`, and no message is the newest
    of its document. Raises PurgeRefused if this no longer holds, OutcomeUnknown, TransportError.
    """
    ours = [held[document_id] for document_id in sorted(removed)]
    async with _lock_hosts([one.host for one in ours]):
        await _confirm_all(ours)
        if await context.epochs.check():
            raise PurgeRefused(removed)
        # No await between these checks and the purge request.
        gone = [
            one.host.document_id
            for one in ours
            if not one.host.lease.valid()
            or one.covering.position.epoch != context.epochs.current
            or one.unneeded_before() < before
        ]
        if gone:
            raise PurgeRefused(gone)
        purged = await context.wal.purge(_EVERYTHING, before=before, timeout=_PURGE_SECONDS)
        for one in ours:
            one.host.purged(before, removed[one.host.document_id])
        if purged > (expected := sum(removed.values())):
            log.error(
                "purged unreadable WAL messages: a replica of the stream is damaged;"
                " reconciliation restores them from the owners' journals",
                purged=purged,
                expected=expected,
            )
        return purged


@asynccontextmanager
async def _lock_hosts(hosts: Sequence[Host]) -> AsyncIterator[None]:
    """Block other compactions, deletions and purges of these documents. Raises PurgeRefused."""
    async with AsyncExitStack() as stack:
        for host in hosts:
            try:
                async with asyncio.timeout(_QUIET_SECONDS):
                    await stack.enter_async_context(host.compacting)
            except TimeoutError:
                raise PurgeRefused([host.document_id]) from None
        yield


async def _confirm_all(ours: Sequence[PurgeCandidate]) -> None:
    """Make the journals durable and confirm the leases.

    Raises PurgeRefused, JournalStopped, TransportError.
    """
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
