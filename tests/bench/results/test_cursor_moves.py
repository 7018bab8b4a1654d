"""Cursors at a steady pace, and how late they were seen."""

from lorogo_bench.results.cursor_moves import MoveObserver, ObservedMoves, Schedule

MS = 1_000_000
SCHEDULE = Schedule(begin_ns=1000 * MS, participants=2, moves=3, per_second=5, first=7)


def test_moves_are_spread_evenly_and_come_in_order() -> None:
    """Five times a second: 200 ms apart, and two participants 100 ms from each other."""
    turns = list(SCHEDULE.turns([1, 0]))
    assert turns == [(0, 7), (1, 7), (0, 8), (1, 8), (0, 9), (1, 9)]
    due = [SCHEDULE.due_ns(who, number) // MS for who, number in turns]
    assert due == [1000, 1100, 1200, 1300, 1400, 1500]
    assert SCHEDULE.last == 9


def test_a_move_is_late_from_when_it_was_due() -> None:
    """Each once, however often it is shown."""
    seen = ObservedMoves(SCHEDULE, [0])
    seen.observe(0, 7, 1003 * MS)
    seen.observe(0, 7, 1009 * MS)
    assert (seen.late_ns, seen.shown, seen.whole) == ([3 * MS], 1, False)


def test_a_move_that_was_never_shown_is_seen_with_the_next() -> None:
    """Else who shows little would look quick."""
    seen = ObservedMoves(SCHEDULE, [0])
    seen.observe(0, 9, 1401 * MS)
    assert (seen.late_ns, seen.shown, seen.whole) == ([401 * MS, 201 * MS, 1 * MS], 1, True)


def test_who_is_not_looked_at_and_what_is_of_another_schedule_does_not_count() -> None:
    """One's own moves are not seen from elsewhere."""
    seen = ObservedMoves(SCHEDULE, [0])
    for who, number in ((1, 7), (0, 6), (0, 10)):
        seen.observe(who, number, 2000 * MS)
    assert (seen.late_ns, seen.shown, seen.whole) == ([], 0, False)


def test_what_comes_before_its_schedule_is_known_counts_when_it_is() -> None:
    """Another process may have begun a moment earlier; with the time at which it was seen."""
    eyes = MoveObserver()
    first = Schedule(begin_ns=0, participants=2, moves=1, per_second=5)
    assert not eyes.observe(0, 0, 4 * MS)
    seen = eyes.follow(first, [0])
    assert (seen.late_ns, seen.whole) == ([4 * MS], True)
    assert eyes.observe(0, 1, 1003 * MS), "that is of the next one"
    assert seen.late_ns == [4 * MS]
    following = eyes.follow(Schedule(begin_ns=1000 * MS, participants=2, moves=2, per_second=5, first=1), [0])
    assert (following.late_ns, following.whole) == ([3 * MS], False)
    assert eyes.observe(0, 2, 1201 * MS)
    assert following.late_ns == [3 * MS, 1 * MS]
