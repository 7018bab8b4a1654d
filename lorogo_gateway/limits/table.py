"""Rates, counts and deadlines by key, in bounded memory. Pure."""

from collections import Counter, OrderedDict

from lorogo_gateway.limits.token_bucket import TokenBucket


class RateTable:
    """A token bucket for each key; above `keys_max` the least recently used are dropped.

    A dropped key starts again with a full bucket. This gives an attacker nothing: evicting a key takes as
    many other addresses, each with a full bucket of its own.
    """

    __slots__ = ("_buckets", "_burst_seconds", "_keys_max", "_rate")

    def __init__(self, rate: float, burst_seconds: float, *, keys_max: int) -> None:
        self._rate = rate
        self._burst_seconds = burst_seconds
        self._keys_max = keys_max
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, amount: float, *, now: float) -> float:
        """Take from the key's bucket; returns 0.0, or the seconds until a retry if nothing was taken."""
        bucket = self._bucket(key, now)
        if bucket.take(amount, now=now):
            return 0.0
        return max(bucket.seconds(now=now), 0.001)

    def wait(self, key: str, *, now: float) -> float:
        """Return what `take` would return, without taking."""
        return self.take(key, 0.0, now=now)

    def charge(self, key: str, amount: float, *, now: float) -> None:
        """Take even if the bucket is empty; later calls of `take` wait longer."""
        self._bucket(key, now).charge(amount, now=now)

    def _bucket(self, key: str, now: float) -> TokenBucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._rate, self._burst_seconds, now=now)
            if len(self._buckets) > self._keys_max:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket


class UsageTable:
    """Current amounts by key; a key with nothing takes no memory."""

    __slots__ = ("_counts", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._counts)

    def of(self, key: str) -> int:
        """Return the current amount of the key."""
        return self._counts.get(key, 0)

    def enter(self, key: str, amount: int = 1) -> bool:
        """Add to the key's amount unless that exceeds the limit; the first addition may have any size."""
        if self.of(key) and self.of(key) + amount > self._most:
            return False
        self._counts[key] += amount
        return True

    def leave(self, key: str, amount: int = 1) -> None:
        """Subtract from the key's amount; pair with each `enter` that returned True."""
        self._counts[key] -= amount
        if self._counts[key] <= 0:
            del self._counts[key]


class DeadlineTable:
    """Deadlines by key; above `keys_max` the oldest are dropped."""

    __slots__ = ("_keys_max", "_until")

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._until: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def set(self, key: str, until: float) -> None:
        """Set the key's deadline."""
        self._until[key] = until
        self._until.move_to_end(key)
        if len(self._until) > self._keys_max:
            self._until.popitem(last=False)

    def left(self, key: str, *, now: float) -> float:
        """Return the seconds until the key's deadline; 0.0 if it has passed or is not set."""
        until = self._until.get(key)
        if until is None:
            return 0.0
        if until <= now:
            del self._until[key]
            return 0.0
        return until - now
