"""Vouchers: which updates servers publish again, so that no limit of size refuses what was ACKed once.

A server that publishes an update again from a journal announces its digest to all servers first, on a
subject on which clients may not publish (docs/NATS_RIGHTS.md). The header LORO_AGAIN alone proves nothing.
A voucher that arrives late costs no update: the journal still has it, and the next pass publishes it again.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence

from lorogo_protocol.messages import subjects
from lorogo_transport.clock import Clock
from lorogo_transport.ports import Bus, Message, Subscription

_KEPT_SECONDS = 600.0
_KEPT_MAX = 100_000  # the oldest go first
_TOGETHER = 1000  # digests in a message
_DIGEST = re.compile(r"[0-9]{1,20}")  # xxh64, in decimal


class Vouchers:
    """The vouchers that this server gave and received."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], float] = OrderedDict()  # (document id, digest): until then

    async def listen(self) -> Subscription:
        """Receive the vouchers of all servers."""
        return await self._bus.subscribe(subjects.VOUCHED_ALL, self._on_message)

    async def give(self, document_id: str, digests: Sequence[str]) -> None:
        """Return when NATS has the vouchers. Raises TransportError."""
        for first in range(0, len(digests), _TOGETHER):
            some = digests[first : first + _TOGETHER]
            self._keep(document_id, some)
            await self._bus.publish(subjects.vouched(document_id), " ".join(some).encode())
        if digests:
            await self._bus.barrier()

    def has(self, document_id: str, digest: str) -> bool:
        """Return True if a server vouches for an update with this digest."""
        until = self._kept.get((document_id, digest))
        return until is not None and self._clock.now() < until

    def _on_message(self, message: Message) -> None:
        digests = message.data.decode("ascii", errors="replace").split(" ", _TOGETHER)[:_TOGETHER]
        self._keep(subjects.document_of(message.subject), [one for one in digests if _DIGEST.fullmatch(one)])

    def _keep(self, document_id: str, digests: Sequence[str]) -> None:
        until = self._clock.now() + _KEPT_SECONDS
        for digest in digests:
            self._kept[document_id, digest] = until
            self._kept.move_to_end((document_id, digest))
        while len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
