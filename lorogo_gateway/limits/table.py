"""Rates and counts by key, in bounded memory. Pure."""

from collections import Counter, OrderedDict

from lorogo_gateway.limits.token_bucket import TokenBucket


class RateTable:
    """A token bucket for each key; above `keys_max` those that were not used for longest are forgotten.

    A bucket that is forgotten is a full one, so an attacker with many addresses gains what they have anyway.
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
        """0.0: it passed. Else nothing was taken, and a try makes sense after so many seconds."""
        bucket = self._bucket(key, now)
        if bucket.take(amount, now=now):
            return 0.0
        return max(bucket.seconds(now=now), 0.001)

    def wait(self, key: str, *, now: float) -> float:
        """What `take` would answer, without taking."""
        return self.take(key, 0.0, now=now)

    def charge(self, key: str, amount: float, *, now: float) -> None:
        """It happened, whatever the bucket says; who comes next pays."""
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
    """How many of something a key has now; what is gone leaves nothing behind."""

    __slots__ = ("_counts", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._counts)

    def of(self, key: str) -> int:
        """What it has."""
        return self._counts.get(key, 0)

    def enter(self, key: str, amount: int = 1) -> bool:
        """So many more, if there is room for it; who has nothing yet may have one thing of any size."""
        if self.of(key) and self.of(key) + amount > self._most:
            return False
        self._counts[key] += amount
        return True

    def leave(self, key: str, amount: int = 1) -> None:
        """So many less; each `enter` that was True has one `leave`."""
        self._counts[key] -= amount
        if self._counts[key] <= 0:
            del self._counts[key]


class DeadlineTable:
    """Until when something holds for a key; the oldest go first above `keys_max`."""

    __slots__ = ("_keys_max", "_until")

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._until: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def set(self, key: str, until: float) -> None:
        """From now on, until then."""
        self._until[key] = until
        self._until.move_to_end(key)
        if len(self._until) > self._keys_max:
            self._until.popitem(last=False)

    def left(self, key: str, *, now: float) -> float:
        """How many seconds it still holds; 0.0: it does not."""
        until = self._until.get(key)
        if until is None:
            return 0.0
        if until <= now:
            del self._until[key]
            return 0.0
        return until - now
