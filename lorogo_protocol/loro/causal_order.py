"""Causal order of updates: each after those that it depends on."""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import TypeVar

from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Replica

T = TypeVar("T")


def ready(replica: Replica, updates: Iterable[tuple[bytes, T]]) -> Iterator[T | None]:
    """Yield the item of each update whose dependencies the replica has; the caller applies it at once.

    Yields None for an update that is not ready, so that the caller may run other tasks.

    An update that is not ready waits for one operation that the replica lacks, so it is examined about once
    per dependency, however many updates wait. Raises CrdtError.
    """
    queue = deque((payload, number, item) for number, (payload, item) in enumerate(updates))
    waiting: dict[int, list[tuple[int, int, bytes, T]]] = defaultdict(list)  # heaps of counters, by peer
    while queue:
        payload, number, item = queue.popleft()
        if (lacks := replica.missing(payload)) is not None:
            peer, counter = lacks
            heapq.heappush(waiting[peer], (counter, number, payload, item))
            yield None
            continue
        yield item
        for peer, _, end in crdt.spans(payload):
            heap = waiting[peer]
            while heap and heap[0][0] < end:
                _, number, payload, item = heapq.heappop(heap)
                queue.append((payload, number, item))
