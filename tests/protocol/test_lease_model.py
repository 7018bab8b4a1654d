"""Every world that two clients, two servers and one key can get into, up to a bound.

Writes are compare-and-swaps that may land late, twice or never, and whose outcome the writer may
not learn. Servers crash, stop, fail to load, miss entries and read again; people write DOWN. What each
does is decided by the functions of `lorogo_protocol.lease`, and by nothing else.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from lorogo_protocol.lease import (
    NO_FAILURES,
    Acquire,
    AcquireStep,
    ClientStep,
    Condemn,
    Decline,
    Failures,
    OwnerStep,
    OwnWrite,
    Reclaim,
    RequestStart,
    StatusEntry,
    StepDown,
    answer_init,
    begins_series,
    owner_step,
    wish,
)
from lorogo_protocol.status import Down, Failed, Starting, Up

SERVERS = ("a", "b")
CLIENTS = ("c", "d")


@dataclass(frozen=True, slots=True)
class Idle:
    """Does not serve the document."""

    known: int = 0  # failures of the document that this server recorded


@dataclass(frozen=True, slots=True)
class Asked:
    """The server sent the write that acquires, and has no answer yet."""

    operation: str
    revision: int  # that its write will have if it lands
    retry_count: int
    failures: int


@dataclass(frozen=True, slots=True)
class Holds:
    """Believes that it owns the document."""

    token: int
    revision: int  # the newest entry that it knows
    operation: str
    retry_count: int = 0
    failures: int = 0
    up: bool = False


Server = Idle | Asked | Holds


@dataclass(frozen=True, slots=True)
class World:
    """The key's whole past (entry n has revision n + 1), the writes under way, and the servers.

    The key is alone in its bucket, so a write that expects revision n becomes revision n + 1 or
    nothing at all: a write under way is simply the entry that it would become.
    """

    log: tuple[StatusEntry, ...] = ()
    in_flight: frozenset[StatusEntry] = frozenset()
    servers: tuple[Server, ...] = (Idle(),) * len(SERVERS)
    revisions_max: int = 6
    in_flight_max: int = 2
    moved: bool = True  # by clients; else by the server that takes it, with the same write
    foreign: bool = False  # clients drop our headers
    failed: bool = False  # a load ran and failed

    @property
    def newest(self) -> StatusEntry | None:
        return self.log[-1] if self.log else None

    def send(self, write: StatusEntry) -> "World":
        """Put a write on its way; one that can never land is not worth following."""
        if not len(self.log) < write.revision <= self.revisions_max:
            return self
        if len(self.in_flight) >= self.in_flight_max:
            return self
        return replace(self, in_flight=self.in_flight | {write})

    def land(self, write: StatusEntry) -> "World":
        """The compare-and-swap succeeds; every other write that expected the same is lost."""
        rest = frozenset(other for other in self.in_flight if other.revision > write.revision)
        return replace(self, log=(*self.log, write), in_flight=rest)

    def become(self, index: int, server: Server) -> "World":
        return replace(self, servers=(*self.servers[:index], server, *self.servers[index + 1 :]))


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a model run; tests break one rule to show that the search detects it."""

    sees: Callable[[StatusEntry | None, str, Holds, bool], OwnerStep]
    wrote: Callable[[StatusEntry, str, Asked], bool]
    answers: Callable[[StatusEntry, str, Failures], AcquireStep]


def sees(entry: StatusEntry | None, server_id: str, holds: Holds, missed: bool) -> OwnerStep:
    return owner_step(
        entry,
        server_id=server_id,
        token=holds.token,
        revision=holds.revision,
        operation_id=holds.operation,
        missed=missed,
    )


def wrote(entry: StatusEntry, server_id: str, asked: Asked) -> bool:
    """Return True if the entry is the one that this server wrote."""
    match entry.status:
        case Starting(operation_id=operation):
            return operation == asked.operation and entry.server == server_id
        case _:
            return False


def answers(entry: StatusEntry, operation: str, known: Failures) -> AcquireStep:
    return answer_init(entry, operation, known=known, retries_max=0)


def wishes(world: World) -> set[ClientStep]:
    """Every step that a client may take after reading the key, with or without a wait or an answer."""
    return {
        wish(world.newest, seen_seconds=seen, ping=ping, init_answered=answered)
        for seen in (0.0, 5.0)
        for ping in (None, False)
        for answered in (False, True)
    }


def clients(world: World) -> Iterator[World]:
    """A client reads the key, has waited or not, was answered or not, and sends what it wishes.

    Clients differ only in name, so the second one matters only while the first has a write under way.
    """
    for wished in wishes(world) if world.moved else ():
        if isinstance(wished, RequestStart):
            rivals = any(write.revision == wished.expected_revision + 1 for write in world.in_flight)
            operation = f"{CLIENTS[rivals]}{wished.expected_revision}"
            status = Starting(operation, wished.retry_count, 0)
            newest = None if world.foreign else world.newest
            trace, failures = ("", 0) if newest is None else (newest.trace, newest.failures)
            yield world.send(
                StatusEntry(status, wished.expected_revision + 1, trace=trace, failures=failures)
            )


def people(world: World) -> Iterator[World]:
    """A person, or a foreign tool, writes DOWN."""
    if world.newest is not None and len(world.log) < world.revisions_max:
        yield world.land(StatusEntry(Down(0), len(world.log) + 1))


def idle(world: World, index: int, state: Idle, rules: Rules) -> Iterator[World]:
    """An init reaches the server, either of the key's operation or of one that no client has written yet.

    Servers differ only in name, so the first that does anything is the first.
    """
    if index > 0 and not any(entry.server for entry in world.log) and isinstance(world.servers[0], Idle):
        return
    match world.newest:
        case StatusEntry(status=Starting(operation_id=operation)) as entry:
            yield from answered(world, index, state, rules, entry, operation)
        case _:
            pass
    for wished in () if world.moved else wishes(world):
        if isinstance(wished, RequestStart):
            operation = f"{SERVERS[index]}{wished.expected_revision}"
            status, newest = Starting(operation, wished.retry_count, 0), world.newest
            trace, failures = ("", 0) if newest is None else (newest.trace, newest.failures)
            unmoved = StatusEntry(status, wished.expected_revision, trace=trace, failures=failures)
            yield from answered(world, index, state, rules, unmoved, operation)


def answered(
    world: World, index: int, state: Idle, rules: Rules, entry: StatusEntry, operation: str
) -> Iterator[World]:
    """The server answers the init, with the failures that it knows of this series of attempts."""
    me = SERVERS[index]
    known = NO_FAILURES if begins_series(entry) else Failures(state.known, "t" if state.known else "")
    match rules.answers(entry, operation, known):
        case Acquire(status, expected, failures):
            write = StatusEntry(
                status, expected + 1, server=me, trace=failures.trace_id, failures=failures.count
            )
            asks = Asked(operation, expected + 1, status.retry_count, failures.count)
            yield world.send(write).become(index, asks)
        case Condemn(failures, expected):
            failed = Failed(failures.trace_id, 0)
            yield world.send(StatusEntry(failed, expected + 1, server=me, failures=failures.count))
        case Decline():
            pass


def asked(world: World, index: int, state: Asked, rules: Rules) -> Iterator[World]:
    """The server hears that its write landed, late perhaps, or finds out by reading."""
    if len(world.log) >= state.revision and wrote(world.log[state.revision - 1], SERVERS[index], state):
        count, failures = state.retry_count, state.failures
        yield world.become(index, Holds(state.revision, state.revision, state.operation, count, failures))
    newest = world.newest
    if (
        newest is not None
        and newest.revision >= state.revision
        and rules.wrote(newest, SERVERS[index], state)
    ):
        count, failures = state.retry_count, state.failures
        yield world.become(index, Holds(newest.token, newest.revision, state.operation, count, failures))


def holds(world: World, index: int, state: Holds, rules: Rules) -> Iterator[World]:
    """The owner loads, renews, stops, follows its key entry by entry, or reads it after a gap."""
    me = SERVERS[index]
    starting = Starting(state.operation, state.retry_count, 0)
    yield world.become(index, replace(state, up=True))
    if state.up:
        yield world.send(StatusEntry(Up(me, 0), state.revision + 1, server=me, lease=state.token))
    else:
        renewal = StatusEntry(starting, state.revision + 1, server=me, lease=state.token)
        if state.failures:
            renewal = replace(renewal, trace="t", failures=state.failures)
        yield world.send(renewal)
        left = replace(renewal, trace="t", failures=state.failures + 1)
        yield replace(world.send(left), failed=True).become(index, Idle(state.failures + 1))
    stopped = world.send(StatusEntry(Down(0), state.revision + 1, server=me, lease=state.token))
    yield stopped.become(index, Idle())
    views = [(world.newest, True)]
    if state.revision < len(world.log):
        views.append((world.log[state.revision], False))
    for entry, missed in views:
        match rules.sees(entry, me, state, missed):
            case OwnWrite(revision):
                yield world.become(index, replace(state, revision=revision))
            case StepDown():
                yield world.become(index, Idle())
            case Reclaim(expected):
                reclaimed = world.send(StatusEntry(Up(me, 0), expected + 1, server=me, lease=state.token))
                yield reclaimed.become(index, replace(state, revision=expected))


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Everything that may happen next."""
    yield from clients(world)
    yield from people(world)
    for write in world.in_flight:
        if write.revision == len(world.log) + 1:
            yield world.land(write)
    for index, state in enumerate(world.servers):
        match state:
            case Idle():
                yield from idle(world, index, state, rules)
            case Asked():
                yield from asked(world, index, state, rules)
                yield world.become(index, Idle())  # gives up, or crashes: its write may still land
            case Holds():
                yield from holds(world, index, state, rules)
                yield world.become(index, Idle())  # crashes


def problem(world: World) -> str:
    """The violated invariant of this world; empty if there is none."""
    tokens = [state.token for state in world.servers if isinstance(state, Holds)]
    if len(tokens) != len(set(tokens)):
        return "two servers hold one token"
    for server_id, state in zip(SERVERS, world.servers, strict=True):
        if isinstance(state, Holds) and world.log[state.token - 1].server != server_id:
            return "a server holds a token that it did not acquire"
    written = [entry.token for entry in world.log if entry.token]
    if written != sorted(written):
        return "a token came back after a newer one"
    if not world.failed and any(isinstance(entry.status, Failed) for entry in world.log):
        return "ERROR without a failure of the document"
    return ""


def explore(start: World, rules: Rules) -> tuple[str, int]:
    """The first problem in the shortest history that has one, and how many worlds were seen."""
    seen = {start}
    todo = deque([start])
    while todo:
        world = todo.popleft()
        for after in steps(world, rules):
            if after in seen:
                continue
            if found := problem(after):
                return found, len(seen)
            seen.add(after)
            todo.append(after)
    return "", len(seen)


RULES = Rules(sees, wrote, answers)
NOTHING = World(revisions_max=4, in_flight_max=3)
SERVED = World(
    log=(
        StatusEntry(Starting("c0", 0, 0), 1),
        StatusEntry(Starting("c0", 0, 0), 2, server="a"),
        StatusEntry(Up("a", 0), 3, server="a", lease=2),
    ),
    servers=(Holds(2, 3, "c0", up=True), Idle()),
    revisions_max=7,
)


@pytest.mark.parametrize(
    ("start", "at_least"),
    [
        (NOTHING, 4_000),
        (replace(NOTHING, foreign=True), 4_000),
        (replace(NOTHING, moved=False), 4_000),
        (SERVED, 10_000),
        (replace(SERVED, moved=False), 10_000),
    ],
    ids=[
        "nothing, moved by clients",
        "nothing, moved by foreign clients",
        "nothing, moved by servers",
        "served, moved by clients",
        "served, moved by servers",
    ],
)
def test_two_servers_never_hold_the_current_token(start: World, at_least: int) -> None:
    """Whatever is lost, late, doubled or unknown: one token has one owner, tokens only rise, and ERROR
    stands only after a load that ran and failed.
    """
    found, worlds = explore(start, RULES)
    assert found == ""
    assert worlds > at_least


def never_missed(entry: StatusEntry | None, server_id: str, state: Holds, missed: bool) -> OwnerStep:
    """An owner that trusts a DOWN after a gap, whichever server wrote it."""
    if entry is not None and isinstance(entry.status, Down):
        entry = replace(entry, server="")
    return sees(entry, server_id, state, False)


def by_value(entry: StatusEntry, server_id: str, state: Asked) -> bool:
    """A server that knows its write by the value alone: another's is equal."""
    return wrote(replace(entry, server=server_id), server_id, state)


def by_attempts(entry: StatusEntry, operation: str, known: Failures) -> AcquireStep:
    """A server that takes every attempt for a failure of the document."""
    count = entry.status.retry_count if isinstance(entry.status, Starting) else 0
    return answers(entry, operation, Failures(max(count, known.count), known.trace_id))


@pytest.mark.parametrize(
    ("start", "rules", "expected"),
    [
        (SERVED, replace(RULES, sees=never_missed), "a token came back after a newer one"),
        (NOTHING, replace(RULES, wrote=by_value), "a server holds a token that it did not acquire"),
        (NOTHING, replace(RULES, answers=by_attempts), "ERROR without a failure of the document"),
    ],
    ids=["reclaim after a gap", "resolve an unknown outcome by value", "count attempts"],
)
def test_the_search_finds_what_a_broken_rule_allows(start: World, rules: Rules, expected: str) -> None:
    """The search above would notice: each of these mistakes leads to a world that it refuses."""
    found, _ = explore(start, rules)
    assert found == expected
