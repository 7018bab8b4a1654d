"""Count the items that all of several readers have. Pure."""

from collections import deque


class SlowestReader:
    """Readers that get the same items in the same order, each at its own pace."""

    def __init__(self, readers: int) -> None:
        if readers < 1:
            raise ValueError("there must be at least one reader")
        self._readers = readers
        self._have = [0] * readers
        self._all = 0  # items that all readers have
        self._lacking: deque[int] = deque()  # for each later item, the number of readers without it

    def has(self, reader: int, count: int) -> int:
        """Record a reader's number of items; return how many more items all readers have now."""
        for number in range(self._have[reader], count):
            place = number - self._all
            if place == len(self._lacking):
                self._lacking.append(self._readers)
            self._lacking[place] -= 1
        self._have[reader] = max(count, self._have[reader])
        before = self._all
        while self._lacking and self._lacking[0] == 0:
            self._lacking.popleft()
            self._all += 1
        return self._all - before
