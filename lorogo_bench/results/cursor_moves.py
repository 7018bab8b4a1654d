"""Cursors that move at a steady pace: who moves when, and how late each move was seen. Pure.

Moves happen when they are due, whether the one before was seen or not, and lateness counts from when a move
was due: nothing looks quick because it was slow to begin. A move that was never shown, since a newer one took
its place, counts as seen with that one.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Everybody's moves, spread evenly over time."""

    begin_ns: int  # on the machine's clock
    participants: int
    moves: int  # of each
    per_second: float  # of each
    first: int = 0  # the number of the first move: a later schedule goes on where this one ends

    def due_ns(self, who: int, number: int) -> int:
        """When a participant makes the move of this number."""
        interval_ns = 1e9 / self.per_second
        turns = (number - self.first) + who / self.participants
        return self.begin_ns + int(turns * interval_ns)

    def turns(self, mine: Collection[int]) -> Iterator[tuple[int, int]]:
        """Who makes which move, of these participants, in the order in which they are due."""
        for number in range(self.first, self.first + self.moves):
            for who in sorted(mine):
                yield who, number

    @property
    def last(self) -> int:
        """The number of everybody's last move."""
        return self.first + self.moves - 1


class ObservedMoves:
    """What one pair of eyes has seen of a schedule."""

    def __init__(self, schedule: Schedule, whom: Collection[int]) -> None:
        """`whom` is looked at; all others are not."""
        self._schedule = schedule
        self._next = dict.fromkeys(whom, schedule.first)
        self._behind = len(self._next)
        self.late_ns: list[int] = []
        self.shown = 0  # moves that were really shown

    @property
    def whole(self) -> bool:
        """Whether everybody's last move was seen."""
        return self._behind == 0

    def saw(self, who: int, number: int, now_ns: int) -> None:
        """This participant is where the move of this number led."""
        due = self._next.get(who)
        if due is None or number < due or number > self._schedule.last:
            return
        self.shown += 1
        self.late_ns += [now_ns - self._schedule.due_ns(who, one) for one in range(due, number + 1)]
        self._next[who] = number + 1
        self._behind -= number == self._schedule.last


class MoveObserver:
    """One pair of eyes over several schedules: what comes before a schedule is known here is kept for it."""

    def __init__(self) -> None:
        self._seen: ObservedMoves | None = None
        self._last = -1  # the last number of the schedules up to now
        self._early: list[tuple[int, int, int]] = []

    def turn_to(self, schedule: Schedule, whom: Collection[int]) -> ObservedMoves:
        """From now on this schedule is looked at; it goes on where the last one has ended."""
        seen = self._seen = ObservedMoves(schedule, whom)
        self._last = schedule.last
        early, self._early = self._early, []
        for one in early:
            self.saw(*one)
        return seen

    def saw(self, who: int, number: int, now_ns: int) -> bool:
        """This participant is there; whether all that was to be seen is seen by now."""
        if number > self._last:
            self._early.append((who, number, now_ns))
        elif self._seen is not None:
            self._seen.saw(who, number, now_ns)
        return self._seen is not None and self._seen.whole
