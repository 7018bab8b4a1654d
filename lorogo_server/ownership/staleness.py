"""How long this process has seen a document's status unchanged, by its own clock."""

from collections import OrderedDict

_REMEMBERED_MAX = 100_000


class StalenessTracker:
    """Remembers when each revision was first seen; the oldest are forgotten first."""

    def __init__(self, remembered_max: int = _REMEMBERED_MAX) -> None:
        self._first: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._max = remembered_max

    def unchanged_seconds(self, document_id: str, revision: int, now: float) -> float:
        """How long that revision has been the newest that we know."""
        known = self._first.get(document_id)
        if known is None or known[0] != revision:
            self._first[document_id] = (revision, now)
            self._first.move_to_end(document_id)
            while len(self._first) > self._max:
                self._first.popitem(last=False)
            return 0.0
        return now - known[1]

    def forget(self) -> None:
        """Begin again: time without a connection does not count."""
        self._first.clear()
