"""Turns: what waits is taken address by address, and of each address user by user.

Whoever sends much waits behind itself. There is one bound for all; when it is reached, the newest goes of
whoever has most waiting, so nobody can fill the room of others.
"""

import ipaddress
from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue that is fair to addresses and, behind each address, to users. No waiting: plain calls."""

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._places: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, address: str, user: str, item: T) -> T | None:
        """Let it wait; what has to go instead, maybe this very item, comes back."""
        place = line_of(address)
        self._places.setdefault(place, OrderedDict()).setdefault(user, deque()).append(item)
        self._counts[place] = self._counts.get(place, 0) + 1
        self._count += 1
        if self._count <= self._waiting_max:
            return None
        fullest = max(reversed(self._places), key=self._counts.__getitem__)
        users = self._places[fullest]
        greediest = max(reversed(users), key=lambda name: len(users[name]))
        dropped = users[greediest].pop()
        self._less(fullest, greediest)
        return dropped

    def take(self) -> T:
        """Whose turn it is. Raises IndexError if nobody waits."""
        if not self._places:
            raise IndexError("nobody waits")
        place, users = next(iter(self._places.items()))
        user, items = next(iter(users.items()))
        item = items.popleft()
        self._places.move_to_end(place)
        users.move_to_end(user)
        self._less(place, user)
        return item

    def _less(self, place: str, user: str) -> None:
        self._count -= 1
        self._counts[place] -= 1
        users = self._places[place]
        if not users[user]:
            del users[user]
        if not users:
            del self._places[place], self._counts[place]


def line_of(address: str) -> str:
    """What addresses are told apart by: of IPv6 the first 64 bits, for one line has all of the rest."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.IPv6Address(int(found) >> 64 << 64))
    return str(found if found.version == 4 else found.ipv4_mapped)
