"""Merge of many journals into one feed: decides which record comes next (docs/decisions/0010). Pure.

    pages of each journal ──▶ add() ──▶ one queue per journal ──▶ take() ──▶ items, each once, in order

`take()` delivers from any journal. A journal whose next record depends on an undelivered change is
held; this starts a barrier. The journal continues when every other journal was read to its end since then,
or is held by a record of a higher lease, or is away.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from lorogo_client.feed.items import FeedItem
from lorogo_client.feed.memory import FeedDecision, FeedMemory
from lorogo_protocol.journal.pages import FeedPage, PageEntry
from lorogo_protocol.journal.records import ErasedRecord


@dataclass(slots=True)
class FeedSource:
    """The read state of one journal."""

    journal: str
    read: str = ""  # the position after the last page
    entries: deque[PageEntry] = field(default_factory=deque)  # read, not yet delivered
    ended: int = 0  # the newest barrier since which it was read to its end
    away: bool = False  # it does not answer, and the feed no longer waits for it
    held: int = 0  # the barrier of its held record; 0: not held


class FeedMerge:
    """The journals of a feed and their delivered changes."""

    def __init__(self, memory: FeedMemory, positions: Mapping[str, str] | None = None) -> None:
        self.memory = memory
        self.sources: dict[str, FeedSource] = {}
        self.barrier = 0  # the number of barriers so far
        self.searched = 0  # the newest barrier since which servers were searched
        self._full: dict[str, FeedSource] = {}  # journals with records; the last one to deliver is at the end
        self._moved: set[str] = set()
        for journal, read in (positions or {}).items():
            self.sources[journal] = FeedSource(journal, read)

    def source(self, journal: str) -> FeedSource:
        """Return a journal's state; adds the journal to the feed."""
        if journal not in self.sources:
            self.sources[journal] = FeedSource(journal)
        return self.sources[journal]

    @property
    def holding(self) -> bool:
        """True if a journal is held."""
        return any(source.held for source in self._full.values())

    def add(self, journal: str, page: FeedPage, asked: int) -> None:
        """Add a page; `asked` is the value of `barrier` at the time of its request."""
        source = self.source(journal)
        source.away = False
        source.read = page.next
        source.entries.extend(page.entries)
        if source.entries:
            self._full[journal] = source
        if page.end:
            source.ended = max(source.ended, asked)

    def take(self) -> FeedItem | None:
        """Return the next item; None if more pages are needed first."""
        for source in list(self._full.values()):
            item = self._take_from(source)
            if item is not None or not source.entries:
                del self._full[source.journal]
            if item is not None:
                if source.entries:
                    self._full[source.journal] = (
                        source  # round robin: a busy journal does not delay the others
                    )
                return item
        return None

    def moved(self) -> set[str]:
        """Return the journals that delivered records since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def positions(self) -> dict[str, str]:
        """Return each journal's resume position: its first undelivered record."""
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
                    gap = memory.skip_missing(entry, away=away)
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
    """Return the resume position: the first undelivered record, else the end of the last page."""
    return f"{source.entries[0].sequence}:0:0" if source.entries else source.read
