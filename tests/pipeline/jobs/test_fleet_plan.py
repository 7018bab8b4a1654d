"""Which documents are cold, and which messages may go: against a model that tries everything."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from lorogo_pipeline.jobs.fleet_plan import (
    FAILED,
    WARM,
    DocumentActivity,
    PurgeEstimate,
    PurgePrefix,
    choose,
    keep_from,
    plan,
)
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.status import Down, Failed, Starting, Status, Up

NAMES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class World:
    """A stream, and what we hold of it: per document the sequence below which nothing is needed."""

    stream: tuple[tuple[int, str], ...]
    unneeded: dict[str, int]

    def newest(self, name: str) -> int:
        return max((sequence for sequence, owner in self.stream if owner == name), default=0)

    def must_stay(self, sequence: int, name: str) -> bool:
        """The rules, one by one."""
        held = name in self.unneeded
        covered = held and sequence < self.unneeded[name]
        return not held or not covered or sequence == self.newest(name)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    owners = draw(st.lists(st.sampled_from(NAMES), max_size=40))
    gaps = draw(st.lists(st.integers(1, 3), min_size=len(owners), max_size=len(owners)))
    sequence, stream = draw(st.integers(0, 5)), []
    for owner, gap in zip(owners, gaps, strict=True):
        sequence += gap
        stream.append((sequence, owner))
    held = draw(st.sets(st.sampled_from(NAMES)))
    unneeded = {name: draw(st.integers(0, sequence + 2)) for name in sorted(held)}
    return World(tuple(stream), unneeded)


def grown(world: World) -> PurgePrefix:
    """The prefix as the job finds it: the stream is read no further than it goes."""
    keep = {
        name: keep_from(before, world.newest(name))
        for name, before in world.unneeded.items()
        if before and world.newest(name)
    }
    prefix = PurgePrefix(keep)
    for sequence, name in world.stream:
        if not prefix.take(sequence, name, 10):
            break
    return prefix


@given(worlds())
def test_a_prefix_never_takes_what_must_stay(world: World) -> None:
    """No message goes that is not covered, not of a held document, or the newest of its subject."""
    prefix = grown(world)
    gone = [(sequence, name) for sequence, name in world.stream if sequence < prefix.before]
    assert [one for one in gone if world.must_stay(*one)] == []
    for name in NAMES:
        if world.newest(name):
            assert world.newest(name) >= prefix.before


@given(worlds())
def test_a_prefix_is_as_long_as_it_can_be(world: World) -> None:
    """The first message that is left is one that must stay, and every message before it is counted."""
    prefix = grown(world)
    stays = [sequence for sequence, name in world.stream if world.must_stay(sequence, name)]
    best = [name for sequence, name in world.stream if sequence < min(stays, default=0)]
    assert sum(prefix.messages.values()) == len(best)
    assert {name: best.count(name) for name in best} == prefix.messages
    assert prefix.bytes == {name: 10 * count for name, count in prefix.messages.items()}


@given(worlds(), st.integers(1, 4), st.integers(0, 60))
def test_every_document_ends_by_the_fewest_purges(world: World, messages_min: int, bytes_min: int) -> None:
    """The prefix is used only if it spares a purge; what is left is never worth one of its own."""
    prefix = grown(world)
    removable = {}
    for name, before in world.unneeded.items():
        end = keep_from(before, world.newest(name))
        count = sum(owner == name and sequence < end for sequence, owner in world.stream)
        removable[name] = PurgeEstimate(count, 10 * count)
    purges = plan(prefix, removable, messages_min=messages_min, bytes_min=bytes_min)
    without = plan(PurgePrefix({}), removable, messages_min=messages_min, bytes_min=bytes_min)
    assert not without.prefix
    assert len(purges.one_by_one) + purges.prefix <= len(without.one_by_one)
    for name, rest in removable.items():
        gone = prefix.messages.get(name, 0) if purges.prefix else 0
        stays = rest.messages - gone
        if name in purges.one_by_one:
            assert stays > 0
        else:
            assert stays == 0 or (stays + 1 <= messages_min and 10 * stays <= bytes_min)
            assert purges.left.get(name, PurgeEstimate(0, 0)).messages == stays


def test_a_prefix_that_has_ended_grows_no_more() -> None:
    """Messages after one that must stay are kept."""
    prefix = PurgePrefix({"a": 9})
    assert prefix.take(3, "a", 1)
    assert not prefix.take(4, "b", 1)
    assert not prefix.take(5, "a", 1)
    assert (prefix.before, prefix.messages) == (4, {"a": 1})


def seen(name: str, newest: int, newest_ns: int, status: Status | None) -> DocumentActivity:
    return DocumentActivity(name, 5, newest, newest_ns, None if status is None else StatusEntry(status, 1))


def test_the_coldest_comes_first_and_the_warm_do_not_come() -> None:
    """Age decides the order; the owner of a document does not matter; only an operator resets ERROR."""
    choice = choose(
        [
            seen("down", 7, 100, Down(0)),
            seen("none", 5, 100, None),
            seen("stale", 6, 100, Up("gone", 0)),
            seen("starting", 3, 100, Starting("op", 0, 0)),
            seen("failed", 1, 100, Failed("trace", 0)),
            seen("warm", 9, 951, Down(0)),
            seen("just", 8, 950, Down(0)),
        ],
        now_ns=1000,
        cold_ns=50,
    )
    assert choice.cold == ("starting", "none", "stale", "down", "just")
    assert choice.skipped == {"failed": FAILED, "warm": WARM}
