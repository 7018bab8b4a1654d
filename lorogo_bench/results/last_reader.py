"""When all of several readers have a thing. Pure."""

from collections import deque


class SlowestReader:
    """Readers who get the same things in the same order, each at its own pace."""

    def __init__(self, readers: int) -> None:
        if readers < 1:
            raise ValueError("nobody is not everyone")
        self._readers = readers
        self._have = [0] * readers
        self._all = 0  # so many things have been had by all
        self._lacking: deque[int] = deque()  # how many lack each of those behind

    def has(self, reader: int, count: int) -> int:
        """This reader has so many things now: how many more all have by that."""
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
