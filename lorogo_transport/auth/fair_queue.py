"""A fair queue: round robin over addresses, and over the users of each address.

A client that sends much waits behind its own items. All share one bound; beyond it, the newest item
of the address with the most items is dropped, so no client can fill the queue of others.
"""

import ipaddress
from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue that is fair to addresses and to the users of each. Plain calls, no waiting."""

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._groups: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, address: str, user: str, item: T) -> T | None:
        """Add an item; return the item that is dropped instead, possibly this one."""
        group = address_group(address)
        self._groups.setdefault(group, OrderedDict()).setdefault(user, deque()).append(item)
        self._counts[group] = self._counts.get(group, 0) + 1
        self._count += 1
        if self._count <= self._waiting_max:
            return None
        fullest = max(reversed(self._groups), key=self._counts.__getitem__)
        users = self._groups[fullest]
        greediest = max(reversed(users), key=lambda name: len(users[name]))
        dropped = users[greediest].pop()
        self._decrement(fullest, greediest)
        return dropped

    def take(self) -> T:
        """Remove and return the next item. Raises IndexError if the queue is empty."""
        if not self._groups:
            raise IndexError("the queue is empty")
        group, users = next(iter(self._groups.items()))
        user, items = next(iter(users.items()))
        item = items.popleft()
        self._groups.move_to_end(group)
        users.move_to_end(user)
        self._decrement(group, user)
        return item

    def _decrement(self, group: str, user: str) -> None:
        self._count -= 1
        self._counts[group] -= 1
        users = self._groups[group]
        if not users[user]:
            del users[user]
        if not users:
            del self._groups[group], self._counts[group]


def address_group(address: str) -> str:
    """Return the group of an address: for IPv6 its first 64 bits, because one customer has all the rest."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.IPv6Address(int(found) >> 64 << 64))
    return str(found if found.version == 4 else found.ipv4_mapped)
