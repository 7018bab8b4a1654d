"""Each row of the status table in docs/PROTOCOL.md, as a row of a table here."""

from dataclasses import replace

import pytest

from lorogo_protocol import limits
from lorogo_protocol.lease import (
    Acquire,
    AcquireStep,
    ClientStep,
    Condemn,
    Decline,
    Failures,
    GiveUp,
    OwnerStep,
    OwnWrite,
    Ping,
    Reacquire,
    Reclaim,
    RequestStart,
    Serve,
    StatusEntry,
    StepDown,
    Wait,
    answer_init,
    begins_series,
    lease_valid,
    owner_step,
    taken_from,
    wish,
)
from lorogo_protocol.status import Down, Failed, Starting, Up

DOWN = StatusEntry(Down(0), 7)
UP = StatusEntry(Up("a", 0), 8, server="a", lease=5)
STARTING = StatusEntry(Starting("op", 2, 0), 9)
FAILED_3 = StatusEntry(Starting("op", 3, 0), 9, trace="t", failures=3)
LOADING = StatusEntry(Starting("op", 2, 0), 10, server="a")
ERROR = StatusEntry(Failed("trace", 0), 11, server="a")


@pytest.mark.parametrize(
    ("entry", "token"),
    [
        (DOWN, 0),
        (STARTING, 0),
        (LOADING, 10),
        (StatusEntry(Starting("op", 2, 0), 12, server="a", lease=10), 10),
        (UP, 5),
    ],
    ids=["down", "requested", "acquired", "renewed", "up"],
)
def test_the_token_is_the_revision_of_the_write_that_acquired(entry: StatusEntry, token: int) -> None:
    """The first write of a server has no LORO_LEASE and is the token; later ones carry it."""
    assert entry.token == token


@pytest.mark.parametrize(
    ("entry", "seen_seconds", "ping", "init_answered", "expected"),
    [
        (None, 0.0, None, False, RequestStart(0, 0)),
        (DOWN, 0.0, None, False, RequestStart(0, 7)),
        (UP, 0.0, True, False, Serve()),
        (UP, 99.0, True, False, Serve()),
        (UP, 0.0, None, False, Ping()),
        (UP, 4.9, None, False, Ping()),
        (UP, 0.0, False, False, RequestStart(0, 8)),
        (UP, 5.0, None, False, RequestStart(0, 8)),
        (STARTING, 0.0, None, False, Wait(5.0)),
        (STARTING, 4.0, None, True, Wait(1.0)),
        (STARTING, 5.0, None, False, RequestStart(2, 9)),
        (STARTING, 5.0, None, True, RequestStart(3, 9)),
        (LOADING, 4.0, None, False, Wait(1.0)),
        (LOADING, 5.0, None, False, RequestStart(3, 10)),
        (LOADING, 5.0, None, True, RequestStart(3, 10)),
        (ERROR, 0.0, None, False, GiveUp("trace")),
        (ERROR, 99.0, False, True, GiveUp("trace")),
    ],
)
def test_the_next_step_of_a_client(
    entry: StatusEntry | None,
    seen_seconds: float,
    ping: bool | None,
    init_answered: bool,
    expected: ClientStep,
) -> None:
    """Any client may start a document without an owner; an attempt counts only if a server took it."""
    assert wish(entry, seen_seconds=seen_seconds, ping=ping, init_answered=init_answered) == expected


def test_how_long_a_status_may_stand_is_a_setting() -> None:
    """Staleness is judged by the seconds that the observer gives, against the limit that it gives."""
    assert wish(STARTING, seen_seconds=0.5, stale_seconds=0.5) == RequestStart(2, 9)
    assert wish(STARTING, seen_seconds=0.25, stale_seconds=0.5) == Wait(0.25)


@pytest.mark.parametrize("entry", [DOWN, UP, STARTING, LOADING, ERROR])
def test_timestamps_decide_nothing(entry: StatusEntry) -> None:
    """Two machines whose clocks are an hour apart come to the same decisions."""
    later = replace(entry, status=replace(entry.status, time_ns=3600 * 10**9))
    for seen in (0.0, 4.9, 5.0):
        for ping in (None, True, False):
            assert wish(entry, seen_seconds=seen, ping=ping) == wish(later, seen_seconds=seen, ping=ping)


@pytest.mark.parametrize(
    ("entry", "operation_id", "expected"),
    [
        (None, "op", Decline("the document is not STARTING")),
        (DOWN, "op", Decline("the document is not STARTING")),
        (UP, "op", Decline("the document is not STARTING")),
        (ERROR, "op", Decline("the document is not STARTING")),
        (STARTING, "other", Decline("another operation is starting the document")),
        (LOADING, "op", Decline("a server has taken this operation already")),
        (STARTING, "op", Acquire(Starting("op", 2, 0), 9)),
        (StatusEntry(Starting("op", 3, 0), 9), "op", Acquire(Starting("op", 3, 0), 9)),
        (FAILED_3, "op", Acquire(Starting("op", 3, 0), 9, Failures(3, "t"))),
        (replace(FAILED_3, failures=4), "op", Condemn(Failures(4, "t"), 9)),
        (StatusEntry(Starting("op", 4, 0), 9), "op", Acquire(Starting("op", 0, 0), 9, restarted=True)),
        (
            StatusEntry(Starting("op", 4, 0), 9, trace="t", failures=1),
            "op",
            Acquire(Starting("op", 0, 0), 9, Failures(1, "t"), restarted=True),
        ),
    ],
)
def test_the_server_that_takes_an_init(
    entry: StatusEntry | None, operation_id: str, expected: AcquireStep
) -> None:
    """The server acquires only the operation of the init, once; above three failures of the document it
    writes ERROR, above three attempts with fewer failures the count restarts at 0.
    """
    assert answer_init(entry, operation_id) == expected


def test_a_server_remembers_failures_that_a_clients_move_dropped() -> None:
    """A client that moves the status without our headers does not make a document immortal."""
    assert answer_init(STARTING, "op", known=Failures(4, "t")) == Condemn(Failures(4, "t"), 9)
    assert answer_init(STARTING, "op", known=Failures(3, "t")) == Acquire(
        Starting("op", 2, 0), 9, Failures(3, "t")
    )


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (StatusEntry(Starting("op", 0, 0), 9), True),
        (StatusEntry(Starting("op", 1, 0), 9), False),
        (StatusEntry(Starting("op", 0, 0), 9, trace="t", failures=1), False),
        (DOWN, False),
    ],
)
def test_which_attempt_is_the_first(entry: StatusEntry, expected: bool) -> None:
    """Failures from before the document was UP or DOWN do not count."""
    assert begins_series(entry) is expected


def test_how_many_failures_are_too_many_is_a_setting() -> None:
    """The limit may be lowered, down to no retry at all."""
    failed = replace(STARTING, failures=2)
    assert isinstance(answer_init(failed, "op", retries_max=1), Condemn)
    assert isinstance(answer_init(failed, "op", retries_max=2), Acquire)


GAP = StepDown("another server may have owned it meanwhile")


@pytest.mark.parametrize(
    ("entry", "missed", "expected"),
    [
        (None, False, Reacquire()),
        (None, True, Reacquire()),
        (StatusEntry(Up("me", 0), 13, server="me", lease=5), False, OwnWrite(13)),
        (StatusEntry(Up("me", 0), 13, server="me", lease=5), True, OwnWrite(13)),
        (
            StatusEntry(Up("me", 0), 13, server="me", lease=6),
            False,
            StepDown("server me owns it with token 6"),
        ),
        (
            StatusEntry(Up("you", 0), 13, server="you", lease=9),
            False,
            StepDown("server you owns it with token 9"),
        ),
        (StatusEntry(Starting("op", 0, 0), 5, server="me"), False, OwnWrite(5)),
        (StatusEntry(Starting("op", 0, 0), 13, server="me", lease=5), False, OwnWrite(13)),
        (StatusEntry(Starting("op", 0, 0), 13, server="me"), False, StepDown("operation op starts it")),
        (
            StatusEntry(Starting("op", 0, 0), 13, server="you", lease=5),
            False,
            StepDown("operation op starts it"),
        ),
        (StatusEntry(Starting("new", 0, 0), 13), False, StepDown("operation new starts it")),
        (
            StatusEntry(Starting("new", 0, 0), 13, server="me", lease=5),
            False,
            StepDown("operation new starts it"),
        ),
        (StatusEntry(Down(0), 13), False, Reclaim(13)),
        (StatusEntry(Down(0), 13, server="me", lease=5), False, Reclaim(13)),
        (StatusEntry(Down(0), 13, server="you", lease=9), False, GAP),
        (StatusEntry(Down(0), 13), True, GAP),
        (StatusEntry(Down(0), 12), False, OwnWrite(12)),
        (StatusEntry(Down(0), 4), True, OwnWrite(12)),
        (StatusEntry(Failed("t", 0), 13), False, Reclaim(13)),
        (StatusEntry(Failed("t", 0), 13, server="you"), False, GAP),
        (StatusEntry(Failed("t", 0), 13), True, GAP),
        (StatusEntry(Failed("t", 0), 11), False, OwnWrite(12)),
    ],
)
def test_the_owner_that_sees_its_key(entry: StatusEntry | None, missed: bool, expected: OwnerStep) -> None:
    """It writes UP over a stray DOWN or ERROR, unless another server may have owned it; else it yields."""
    seen = owner_step(entry, server_id="me", token=5, revision=12, operation_id="op", missed=missed)
    assert seen == expected


@pytest.mark.parametrize(("now", "valid"), [(100.0, True), (103.9, True), (104.0, False), (200.0, False)])
def test_a_lease_lasts_from_when_the_renewal_was_sent(now: float, valid: bool) -> None:
    """The owner stops trusting its lease before another server may acquire the document."""
    assert lease_valid(now=now, confirmed_sent=100.0) is valid
    assert limits.LEASE_SECONDS < limits.STALE_SECONDS


def test_how_long_a_lease_lasts_is_a_setting() -> None:
    assert lease_valid(now=100.5, confirmed_sent=100.0, lease_seconds=1.0)
    assert not lease_valid(now=101.0, confirmed_sent=100.0, lease_seconds=1.0)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (None, ""),
        (StatusEntry(Down(0), 1, server="a"), ""),
        (StatusEntry(Failed("trace", 0), 1, server="a"), ""),
        (StatusEntry(Up("a", 0), 1, server="a", lease=1), "a"),
        (StatusEntry(Starting("op", 0, 0), 1), ""),
        (StatusEntry(Starting("op", 0, 0), 1, server="b", taken_from="a"), "b"),
        (StatusEntry(Starting("op", 0, 0), 1, taken_from="a"), "a"),
    ],
)
def test_the_owner_that_lost_the_document(entry: StatusEntry | None, expected: str) -> None:
    """The document is taken from the owner that did not write DOWN; an unfinished start keeps that name."""
    assert taken_from(entry) == expected
