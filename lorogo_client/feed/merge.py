"""One feed of many journals: which record may be given next (docs/decisions/0010). Pure.

    pages of each journal ──▶ add() ──▶ one queue per journal ──▶ take() ──▶ items, each once, in order

`take()` gives what it can from any journal. A journal whose next record needs something that was not
given is held: the barrier. It goes on when every other journal was read to its end since then, or is
held itself by a record of a higher lease, or is away.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from lorogo_client.feed.items import FeedItem
from lorogo_client.feed.memory import FeedDecision, FeedMemory
from lorogo_protocol.pages import FeedPage, PageEntry
from lorogo_protocol.records import ErasedRecord


@dataclass(slots=True)
class FeedSource:
    """One journal, as far as it was read."""

    journal: str
    read: str = ""  # the position behind the last page
    entries: deque[PageEntry] = field(default_factory=deque)  # read and not taken
    ended: int = 0  # the newest barrier since which it was asked and had no more
    away: bool = False  # it does not answer, and nothing waits for it any more
    held: int = 0  # the barrier that began when its next record was held; 0: it is not


class FeedMerge:
    """The journals of a feed and what was given of them."""

    def __init__(self, memory: FeedMemory, positions: Mapping[str, str] | None = None) -> None:
        self.memory = memory
        self.sources: dict[str, FeedSource] = {}
        self.barrier = 0  # counts the times that a journal was held
        self.searched = 0  # the newest barrier since which servers were looked for
        self._full: dict[str, FeedSource] = {}  # those with records; who gave one goes to the end
        self._moved: set[str] = set()
        for journal, read in (positions or {}).items():
            self.sources[journal] = FeedSource(journal, read)

    def source(self, journal: str) -> FeedSource:
        """That journal; it belongs to the feed from here on."""
        if journal not in self.sources:
            self.sources[journal] = FeedSource(journal)
        return self.sources[journal]

    @property
    def holding(self) -> bool:
        """Whether a journal waits for the others."""
        return any(source.held for source in self._full.values())

    def add(self, journal: str, page: FeedPage, asked: int) -> None:
        """A page came; `asked` is what `barrier` was when it was asked for."""
        source = self.source(journal)
        source.away = False
        source.read = page.next
        source.entries.extend(page.entries)
        if source.entries:
            self._full[journal] = source
        if page.end:
            source.ended = max(source.ended, asked)

    def take(self) -> FeedItem | None:
        """The next item; None if nothing can be given before more is read."""
        for source in list(self._full.values()):
            item = self._take_from(source)
            if item is not None or not source.entries:
                del self._full[source.journal]
            if item is not None:
                if source.entries:
                    self._full[source.journal] = source  # a busy journal does not keep the others waiting
                return item
        return None

    def moved(self) -> set[str]:
        """The journals of which something was taken since this was asked last."""
        moved, self._moved = self._moved, set()
        return moved

    def positions(self) -> dict[str, str]:
        """Where each journal goes on: at the first record that was not taken."""
        return {source.journal: _resume(source) for source in self.sources.values()}

    def _take_from(self, source: FeedSource) -> FeedItem | None:
        entries, memory = source.entries, self.memory
        while entries:
            entry = entries[0]
            match memory.look(entry):
                case FeedDecision.PASS:
                    self._took(source)
                case FeedDecision.GIVE:
                    self._took(source)
                    return memory.give(entry)
                case FeedDecision.HOLD:
                    if not source.held:
                        self.barrier += 1
                        source.held = self.barrier
                    if not self._may_go_on(source):
                        return None
                    away = any(other.away for other in self.sources.values())
                    gap = memory.settle(entry, away=away)
                    source.held = 0
                    if gap is not None:
                        return gap
        return None

    def _took(self, source: FeedSource) -> None:
        source.entries.popleft()
        self._moved.add(source.journal)
        source.held = 0

    def _may_go_on(self, source: FeedSource) -> bool:
        if self.searched < source.held:
            return False
        mine = _rank(source)
        return all(
            other.away
            or (not other.entries and other.ended >= source.held)
            or (bool(other.held) and _rank(other) > mine)
            for other in self.sources.values()
            if other is not source
        )


def _rank(source: FeedSource) -> tuple[int, str]:
    record = source.entries[0].record
    assert not isinstance(record, ErasedRecord)
    return record.lease, source.journal


def _resume(source: FeedSource) -> str:
    """Where to read from: behind the last page, or at the first of its records that was not taken."""
    return f"{source.entries[0].place}:0:0" if source.entries else source.read
