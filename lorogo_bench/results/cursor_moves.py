"""Schedule of cursor moves at a steady pace, and the delay until each move was seen. Pure.

Moves happen when they are due, even if the previous one was not seen yet, and delays count from the due time:
a late start does not make a delay look short. A move that was never shown because a newer one replaced it
counts as seen with the newer one.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The moves of all participants, spread evenly over time."""

    begin_ns: int  # on the machine's monotonic clock
    participants: int
    moves: int  # per participant
    per_second: float  # per participant
    first: int = 0  # the number of the first move: the next schedule continues where this one ends

    def due_ns(self, who: int, number: int) -> int:
        """Return the time of a participant's move."""
        interval_ns = 1e9 / self.per_second
        turns = (number - self.first) + who / self.participants
        return self.begin_ns + int(turns * interval_ns)

    def turns(self, mine: Collection[int]) -> Iterator[tuple[int, int]]:
        """Yield participant and number of each move of these participants, in order of time."""
        for number in range(self.first, self.first + self.moves):
            for who in sorted(mine):
                yield who, number

    @property
    def last(self) -> int:
        """Return the number of the last move."""
        return self.first + self.moves - 1


class ObservedMoves:
    """The moves of a schedule that one observer has seen."""

    def __init__(self, schedule: Schedule, whom: Collection[int]) -> None:
        """Observe the participants in `whom` only."""
        self._schedule = schedule
        self._next = dict.fromkeys(whom, schedule.first)
        self._behind = len(self._next)
        self.late_ns: list[int] = []
        self.shown = 0  # moves that were shown themselves

    @property
    def whole(self) -> bool:
        """Return whether the last move of each participant was seen."""
        return self._behind == 0

    def observe(self, who: int, number: int, now_ns: int) -> None:
        """Record that a participant's move was shown."""
        due = self._next.get(who)
        if due is None or number < due or number > self._schedule.last:
            return
        self.shown += 1
        self.late_ns += [now_ns - self._schedule.due_ns(who, one) for one in range(due, number + 1)]
        self._next[who] = number + 1
        self._behind -= number == self._schedule.last


class MoveObserver:
    """An observer over several schedules; moves that arrive before their schedule are kept for it."""

    def __init__(self) -> None:
        self._seen: ObservedMoves | None = None
        self._last = -1  # the last move of the schedules up to now
        self._early: list[tuple[int, int, int]] = []

    def follow(self, schedule: Schedule, whom: Collection[int]) -> ObservedMoves:
        """Start to observe this schedule, which continues the previous one."""
        seen = self._seen = ObservedMoves(schedule, whom)
        self._last = schedule.last
        early, self._early = self._early, []
        for one in early:
            self.observe(*one)
        return seen

    def observe(self, who: int, number: int, now_ns: int) -> bool:
        """Record a participant's move; return whether all moves were seen."""
        if number > self._last:
            self._early.append((who, number, now_ns))
        elif self._seen is not None:
            self._seen.observe(who, number, now_ns)
        return self._seen is not None and self._seen.whole
