"""The outbox: order, identity of bytes, window, and what each answer asks for."""

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_client.delivery.outbox import MERGED_BYTES_MAX, Outbox, OutgoingUpdate
from lorogo_client.delivery.retry_policy import ReplyAction, backoff, decide
from lorogo_client.settings import ClientSettings
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack

SETTINGS = ClientSettings(
    reply_seconds=5, doubt_seconds=1, in_flight_updates_max=3, in_flight_bytes_max=100, unsent_bytes_max=50
)


def ids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"id{next(numbers)}"


def send_all(outbox: Outbox, now: float, new_id: Callable[[], str]) -> list[OutgoingUpdate]:
    """What leaves now, in order."""
    sent = []
    while (flight := outbox.next_to_send(now, new_id)) is not None:
        outbox.sending(flight.log_id, now)
        sent.append(flight)
    return sent


def ack(flight: OutgoingUpdate, lease: int = 7) -> Ack:
    return Ack(flight.log_id, flight.digest, 1, "stream", lease)


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        (Reason.DIGEST_MISMATCH, ReplyAction.AGAIN),
        (Reason.CHUNK_MISSING, ReplyAction.AGAIN),
        (Reason.BUSY, ReplyAction.AGAIN),
        (Reason.RATE_LIMITED, ReplyAction.AGAIN),
        (Reason.NOT_OWNER, ReplyAction.FIND_OWNER),
        (Reason.MISSING_DEPENDENCIES, ReplyAction.SYNC),
        (Reason.HISTORY_TRIMMED, ReplyAction.REBASE),
        (Reason.DELETED, ReplyAction.DELETED),
        (Reason.STORAGE_FULL, ReplyAction.FULL),
        (Reason.INVALID_UPDATE, ReplyAction.REFUSED),
        (Reason.TOO_LARGE, ReplyAction.REFUSED),
        (Reason.READ_ONLY, ReplyAction.REFUSED),
    ],
)
def test_every_reason_leads_to_one_thing(reason: Reason, wanted: ReplyAction) -> None:
    """A NACK is retried, answered with a sync or a rebase, or given to the app, by its reason alone."""
    assert decide(reason) is wanted


@given(attempt=st.integers(0, 1000), jitter=st.floats(0, 1))
def test_a_pause_grows_is_spread_and_has_a_bound(attempt: int, jitter: float) -> None:
    """Between half and the whole of a doubling time, never above the most."""
    pause = backoff(attempt, least=0.1, most=5.0, jitter=jitter)
    whole = min(5.0, 0.1 * 2.0 ** min(attempt, 30))
    assert whole / 2 <= pause <= whole


def test_updates_leave_in_order_up_to_the_window() -> None:
    """Several are in flight at once, and the next leaves when one is ACKed."""
    outbox, new_id = Outbox(SETTINGS), ids()
    for number in range(5):
        outbox.add(b"%d" % number)
    sent = send_all(outbox, 0.0, new_id)
    assert [flight.payload for flight in sent] == [b"0", b"1", b"2"]
    assert outbox.answer(ack(sent[0]), token=7, now=0.1, jitter=0) == (ReplyAction.SETTLED, sent[0])
    assert [flight.payload for flight in send_all(outbox, 0.1, new_id)] == [b"3"]


def test_an_update_larger_than_the_window_flies_alone() -> None:
    """It waits until nothing else is in flight, then leaves."""
    outbox, new_id = Outbox(SETTINGS), ids()
    outbox.add(b"small")
    outbox.add(b"x" * 1000)
    (first,) = send_all(outbox, 0.0, new_id)
    outbox.answer(ack(first), token=7, now=0.1, jitter=0)
    (second,) = send_all(outbox, 0.1, new_id)
    assert len(second.payload) == 1000


def test_a_lost_answer_sends_the_same_bytes_under_the_same_id() -> None:
    """What was sent once keeps id and bytes, even when more was queued behind it."""
    outbox, new_id = Outbox(SETTINGS), ids()
    outbox.add(b"a")
    (flight,) = send_all(outbox, 0.0, new_id)
    outbox.add(b"b")
    outbox.add(b"c")
    assert outbox.overdue(4.9) == []
    assert outbox.ping_due(1.0)
    assert outbox.overdue(5.0) == [flight]
    outbox.unsent(flight.log_id, 5.0, jitter=1.0)
    outbox.merge(b"".join)
    again = send_all(outbox, 100.0, new_id)
    assert [(one.log_id, one.payload) for one in again] == [("id1", b"a"), ("id2", b"bc")]


def test_a_doubtful_first_try_gets_one_more_before_it_is_overdue() -> None:
    """Only the one that waits longest, and only once: the owner may be slow, and nothing is lost."""
    outbox, new_id = Outbox(SETTINGS), ids()
    outbox.add(b"a")
    outbox.add(b"b")
    first, second = send_all(outbox, 0.0, new_id)
    assert not outbox.second_try(0.9, jitter=1.0)
    assert outbox.second_try(1.0, jitter=1.0)
    assert not outbox.awaits_reply(first.log_id)
    assert outbox.awaits_reply(second.log_id)
    assert send_all(outbox, 1.0 + SETTINGS.retry_seconds_min, new_id) == [first]
    assert (first.attempts, first.payload, first.unanswered) == (2, b"a", False)
    outbox.answer(ack(second), token=7, now=1.1, jitter=0)
    assert not outbox.second_try(4.0, jitter=1.0)
    assert outbox.overdue(6.1) == [first]


def test_a_first_try_that_was_confirmed_gets_no_second_one() -> None:
    """JetStream has stored all of it: the owner is only slow."""
    outbox, new_id = Outbox(SETTINGS), ids()
    outbox.add(b"a")
    (flight,) = send_all(outbox, 0.0, new_id)
    flight.confirmed = True
    assert outbox.ping_due(1.0)
    assert not outbox.second_try(1.0, jitter=1.0)
    assert outbox.overdue(5.0) == [flight]


def test_nothing_overtakes_an_update_that_waits_for_its_next_try() -> None:
    """While the first pauses, those behind it are not sent."""
    outbox, new_id = Outbox(SETTINGS), ids()
    outbox.add(b"a")
    (flight,) = send_all(outbox, 0.0, new_id)
    outbox.answer(Nack(flight.log_id, flight.digest, Reason.BUSY, ""), token=7, now=1.0, jitter=1.0)
    outbox.add(b"b")
    assert send_all(outbox, 1.0, new_id) == []
    due = outbox.next_deadline(after=0.0)
    assert due is not None
    assert due > 1.0
    assert [one.payload for one in send_all(outbox, due, new_id)] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("log_id", "digest_"),
    [("id1", "0"), ("id9", digest(b"a")), ("", ""), ("id1", "")],
)
def test_an_answer_counts_only_with_exact_log_id_and_digest(log_id: str, digest_: str) -> None:
    """Anything else is about something that we did not send."""
    outbox = Outbox(SETTINGS)
    outbox.add(b"a")
    send_all(outbox, 0.0, ids())
    assert (
        outbox.answer(Ack(log_id, digest_, 1, "stream", 9), token=7, now=0, jitter=0)[0]
        is ReplyAction.IGNORED
    )
    assert not outbox.empty


def test_the_ack_of_a_server_that_lost_the_document_is_not_believed() -> None:
    """A receipt with a lower token than the newest seen means: send again, to whoever owns it now."""
    outbox, new_id = Outbox(SETTINGS), ids()
    outbox.add(b"a")
    (flight,) = send_all(outbox, 0.0, new_id)
    assert outbox.answer(ack(flight, lease=6), token=7, now=0.1, jitter=0)[0] is ReplyAction.FIND_OWNER
    assert not outbox.empty
    (again,) = send_all(outbox, 10.0, new_id)
    assert (again.log_id, again.payload) == (flight.log_id, flight.payload)
    assert outbox.answer(ack(again, lease=7), token=7, now=10.1, jitter=0)[0] is ReplyAction.SETTLED
    assert outbox.empty


def test_merged_updates_stay_below_the_limit() -> None:
    """What was queued becomes as few updates as the limit of one update allows."""
    outbox = Outbox(ClientSettings(update_bytes_max=10))
    for size in (4, 4, 4, 9, 1):
        outbox.add(b"x" * size)
    outbox.merge(b"".join)
    assert [len(payload) for payload in outbox.payloads()] == [8, 4, 10]


def test_merged_updates_are_small_enough_for_an_owner() -> None:
    """Offline edits of an hour are several updates: an owner refuses one of many operations."""
    outbox = Outbox(ClientSettings())
    for _ in range(1_000):
        outbox.add(b"x" * 100)
    outbox.merge(b"".join)
    sizes = [len(payload) for payload in outbox.payloads()]
    assert sum(sizes) == 100_000
    assert max(sizes) <= MERGED_BYTES_MAX < max(sizes) + 100


def test_a_full_buffer_says_so_and_takes_what_is_in_the_document_anyway() -> None:
    """Bytes that Loro has committed are never refused here: that would lose them."""
    outbox = Outbox(SETTINGS)
    outbox.add(b"x" * 49)
    before = outbox.full
    outbox.add(b"x")
    assert (before, outbox.full) == (False, True)
    outbox.add(b"y")
    assert outbox.unsaved == 3


def test_a_replacement_holds_what_was_unsaved_and_waits_before_it_goes() -> None:
    """Whoever waits for an old commit waits for the replacement; a refused owner is not hammered."""
    outbox, new_id = Outbox(SETTINGS), ids()
    outbox.add(b"a")
    (flight,) = send_all(outbox, 0.0, new_id)
    outbox.add(b"b")
    outbox.replace([b"ab"], new_id, now=1.0, jitter=1.0)
    assert not outbox.saved_through(1)
    assert not outbox.saved_through(2)
    assert send_all(outbox, 1.0, new_id) == []
    (replacement,) = send_all(outbox, 2.0, new_id)
    assert outbox.answer(ack(flight), token=7, now=2.0, jitter=0)[0] is ReplyAction.IGNORED
    outbox.answer(ack(replacement), token=7, now=2.0, jitter=0)
    assert outbox.saved_through(2)


def test_parts_of_a_replacement_go_in_order_and_are_saved_together() -> None:
    """Any of them may hold what somebody waits for."""
    outbox, new_id = Outbox(SETTINGS), ids()
    outbox.add(b"ab")
    flights = outbox.replace([b"a", b"b"], new_id, now=1.0, jitter=1.0)
    assert [flight.payload for flight in flights] == [b"a", b"b"]
    assert send_all(outbox, 1.0, new_id) == flights
    outbox.answer(ack(flights[0]), token=7, now=1.0, jitter=0)
    assert not outbox.saved_through(1)
    outbox.answer(ack(flights[1]), token=7, now=1.0, jitter=0)
    assert outbox.saved_through(1)
    assert outbox.empty


class Model:
    """What an outbox may do, told by its inputs and outputs only."""

    def __init__(self) -> None:
        self.outbox = Outbox(SETTINGS)
        self.new_id = ids()
        self.now = 0.0
        self.bytes_of: dict[str, bytes] = {}
        self.acked: list[bytes] = []
        self.committed: list[bytes] = []
        self.in_flight: list[OutgoingUpdate] = []


@given(
    st.lists(
        st.sampled_from(["commit", "send", "ack", "ack-last", "nack", "time", "merge", "resend"]), max_size=60
    )
)
def test_everything_committed_is_acked_once_and_no_id_names_two_byte_strings(steps: Sequence[str]) -> None:
    """Whatever happens in between, all commits end up ACKed, in order within what was merged."""
    model = Model()
    outbox = model.outbox

    def send() -> None:
        for flight in send_all(outbox, model.now, model.new_id):
            known = model.bytes_of.setdefault(flight.log_id, flight.payload)
            assert known == flight.payload
            if flight not in model.in_flight:
                model.in_flight.append(flight)

    def settle(index: int) -> None:
        if model.in_flight:
            flight = model.in_flight.pop(index)
            assert outbox.answer(ack(flight), token=7, now=model.now, jitter=0.5)[0] is ReplyAction.SETTLED
            model.acked.append(flight.payload)

    for step in steps:
        match step:
            case "commit":
                payload = b"<%d>" % len(model.committed)
                model.committed.append(payload)
                outbox.add(payload)
            case "send":
                send()
            case "ack":
                settle(0)
            case "ack-last":
                settle(-1)
            case "nack" if model.in_flight:
                flight = model.in_flight[0]
                nack = Nack(flight.log_id, flight.digest, Reason.CHUNK_MISSING, "")
                outbox.answer(nack, token=7, now=model.now, jitter=0.5)
            case "time":
                model.now += 10
                for flight in outbox.overdue(model.now):
                    outbox.unsent(flight.log_id, model.now, 0.5)
            case "merge":
                outbox.merge(b"".join)
            case "resend":
                outbox.resend(model.now)
        due = outbox.next_deadline(after=model.now)
        if step == "send" and due is not None:
            assert due > model.now, "the keeper would spin"
        assert outbox.empty is (sorted(b"".join(model.acked)) == sorted(b"".join(model.committed)))
        assert outbox.saved_through(outbox.commits) is outbox.empty
    while not outbox.empty:
        model.now += 100
        send()
        settle(0)
    assert sorted(b"".join(model.acked)) == sorted(b"".join(model.committed))
    assert all(payload in b"".join(model.acked) for payload in model.committed)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["commit", "sending", "sent", "ack", "nack", "unsent", "resend", "drop"]),
            st.integers(0, 4),
            st.floats(0, 3),
        ),
        max_size=60,
    )
)
def test_deadlines_are_those_of_whatever_waits_longest(steps: Sequence[tuple[str, int, float]]) -> None:
    """In whatever order updates are sent, answered, sent again or given up."""
    outbox, new_id, now = Outbox(SETTINGS), ids(), 0.0
    flights: dict[str, OutgoingUpdate] = {}  # all that is not settled
    sent_at: dict[str, float] = {}  # of those that wait for an answer

    for step, which, seconds in steps:
        now += seconds
        name = sorted(flights)[which % len(flights)] if flights else ""
        match step:
            case "commit":
                outbox.add(b"x")
            case "sending" if (flight := outbox.next_to_send(now, new_id)) is not None:
                outbox.sending(flight.log_id, now)
                flights[flight.log_id], sent_at[flight.log_id] = flight, now
            case "sent" if name in sent_at:
                outbox.sent(name, now)
                sent_at[name] = now
            case "ack" if name:
                outbox.answer(ack(flights.pop(name)), token=7, now=now, jitter=0.5)
                sent_at.pop(name, None)
            case "nack" if name:
                nack = Nack(name, flights[name].digest, Reason.BUSY, "")
                outbox.answer(nack, token=7, now=now, jitter=0.5)
                sent_at.pop(name, None)
            case "unsent" if name:
                outbox.unsent(name, now, 0.5)
                sent_at.pop(name, None)
            case "resend":
                outbox.resend(now)
                sent_at.clear()
            case "drop" if name:
                outbox.drop(name)
                del flights[name]
                sent_at.pop(name, None)
        reply, doubt = SETTINGS.reply_seconds, SETTINGS.doubt_seconds
        late = {one for one, when in sent_at.items() if when + reply <= now}
        assert {flight.log_id for flight in outbox.overdue(now)} == late
        assert outbox.ping_due(now) is any(now - when >= doubt for when in sent_at.values())
        assert all(outbox.awaits_reply(one) is (one in sent_at) for one in flights)
        due = [time for when in sent_at.values() for time in (when + reply, max(when, 2.0) + doubt)]
        parked = [flight for one, flight in flights.items() if one not in sent_at]
        due += [flight.due for flight in parked if flight.first == min(one.first for one in parked)]
        assert outbox.next_deadline(after=2.0) == min(due, default=None)
