"""Staleness of status entries: how long a revision has not changed, by the local clock."""

from collections import OrderedDict

_TRACKED_MAX = 100_000


class StalenessTracker:
    """Measures how long each document's status revision has not changed, by the local clock.

    Clients and servers follow this one rule. Wall clocks of other machines are never compared
    (docs/decisions/0001). Keeps a bounded number of documents; the least recently changed are dropped.
    """

    def __init__(self, tracked_max: int = _TRACKED_MAX) -> None:
        self._first: OrderedDict[str, tuple[int, float]] = OrderedDict()  # revision, first seen
        self._max = tracked_max

    def saw(self, document_id: str, revision: int, now: float, *, read: bool = True) -> float:
        """Record a revision; return for how many seconds the document's revision has not changed.

        A revision `read` from the stream's leader is current; one from a status message may be outdated.
        """
        known = self._first.get(document_id)
        outdated = known is not None and not read and revision < known[0]
        if known is None or (revision != known[0] and not outdated):
            self._first[document_id] = known = (revision, now)
            self._first.move_to_end(document_id)
            if len(self._first) > self._max:
                self._first.popitem(last=False)
        return now - known[1]

    def unchanged_seconds(self, document_id: str, now: float) -> float:
        """Return for how many seconds the newest revision has not changed; 0 if none was seen."""
        known = self._first.get(document_id)
        return 0.0 if known is None else now - known[1]

    def reset(self) -> None:
        """Restart every measurement after a change of the connection.

        Without a connection no renewal arrives, and the owner may not be able to send any.
        """
        self._first.clear()
