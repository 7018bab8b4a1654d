"""Staleness of status entries: how long a revision has not changed, by the local clock."""

from collections import OrderedDict

_REMEMBERED_MAX = 100_000


class StalenessTracker:
    """Measures how long a document's status revision has not changed, by the local clock.

    Wall clocks of other machines are never compared (docs/decisions/0001). Keeps a bounded number of
    documents; the least recently added are dropped.
    """

    def __init__(self, remembered_max: int = _REMEMBERED_MAX) -> None:
        self._first: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._max = remembered_max

    def unchanged_seconds(self, document_id: str, revision: int, now: float) -> float:
        """Return for how long that revision has been the newest known one."""
        known = self._first.get(document_id)
        if known is None or known[0] != revision:
            self._first[document_id] = (revision, now)
            self._first.move_to_end(document_id)
            while len(self._first) > self._max:
                self._first.popitem(last=False)
            return 0.0
        return now - known[1]

    def forget(self) -> None:
        """Start over: time without a connection does not count."""
        self._first.clear()
