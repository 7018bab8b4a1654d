"""Counts of a server's answers, and their records."""

from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import AnswersRecord
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.journal.ack_metrics import AckMetrics

answers = st.lists(st.one_of(st.integers(0, 2**40), st.sampled_from(Reason)), max_size=20)


def count(ack_metrics: AckMetrics, *answered: int | Reason) -> None:
    for one in answered:
        if isinstance(one, Reason):
            ack_metrics.refused(one)
        else:
            ack_metrics.acked(one)


def taken(ack_metrics: AckMetrics, now_ns: int, *, written: bool = True) -> AnswersRecord | None:
    """The record that is written at this time, if any."""
    found: list[AnswersRecord] = []

    def write(record: AnswersRecord) -> bool:
        found.append(record)
        return written

    ack_metrics.report(now_ns, write)
    return found[0] if found else None


def test_a_record_says_what_was_answered_since_the_one_before() -> None:
    """ACKs by how long they took, NACKs by reason; from the last look until now."""
    ack_metrics = AckMetrics("server", 100)
    count(ack_metrics, 0, 5, 7, 1000, Reason.DELETED, Reason.TOO_LARGE, Reason.DELETED)
    counts = (1, 0, 0, 2, *[0] * 6, 1)
    assert taken(ack_metrics, 200) == AnswersRecord(
        "server", 100, 200, 4, counts, {"deleted": 2, "too-large": 1}
    )
    count(ack_metrics, 1, Reason.DELETED)
    assert taken(ack_metrics, 300) == AnswersRecord("server", 200, 300, 1, (0, 1), {"deleted": 1})


def test_where_nothing_was_answered_there_is_no_record() -> None:
    """A quiet minute leaves nothing; the next record begins behind it."""
    ack_metrics = AckMetrics("server", 100)
    assert taken(ack_metrics, 200) is None
    count(ack_metrics, 1)
    assert taken(ack_metrics, 300) == AnswersRecord("server", 200, 300, 1, (0, 1), {})
    assert taken(ack_metrics, 400) is None
    count(ack_metrics, Reason.DELETED)
    assert taken(ack_metrics, 500) == AnswersRecord("server", 400, 500, 0, (), {"deleted": 1})


def test_a_clock_that_is_set_back_makes_no_record_that_ends_before_it_begins() -> None:
    """Then it begins and ends now, and the next goes on from there."""
    ack_metrics = AckMetrics("server", 1000)
    count(ack_metrics, 1)
    assert taken(ack_metrics, 400) == AnswersRecord("server", 400, 400, 1, (0, 1), {})
    count(ack_metrics, 1)
    assert taken(ack_metrics, 500) == AnswersRecord("server", 400, 500, 1, (0, 1), {})


def test_what_could_not_be_written_is_in_the_next_record() -> None:
    """Nothing is lost, and nothing counted twice."""
    ack_metrics = AckMetrics("server", 100)
    count(ack_metrics, 1, 9, Reason.DELETED)
    assert taken(ack_metrics, 200, written=False) is not None
    count(ack_metrics, 1, Reason.DELETED, Reason.NOT_OWNER)
    both = AnswersRecord("server", 100, 300, 3, (0, 2, 0, 0, 1), {"deleted": 2, "not-owner": 1})
    assert taken(ack_metrics, 300) == both
    assert taken(ack_metrics, 400) is None


@given(st.lists(st.tuples(answers, st.booleans()), max_size=8))
def test_records_add_up_to_what_was_answered(rounds: list[tuple[list[int | Reason], bool]]) -> None:
    """However often it is taken, written or not: each answer is counted once, in a readable record."""
    ack_metrics, now, acked = AckMetrics("server", 0), 0, 0
    reasons: dict[str, int] = {}
    for answered, kept in [*rounds, ([], True)]:
        count(ack_metrics, *answered)
        now += 10
        if (record := taken(ack_metrics, now, written=kept)) is None:
            continue
        assert records.decode(records.encode(record)) == record
        if kept:
            acked += record.acked
            reasons = {
                name: reasons.get(name, 0) + record.reasons.get(name, 0)
                for name in {*reasons, *record.reasons}
            }
    every = [one for answered, _ in rounds for one in answered]
    said = [one.value for one in every if isinstance(one, Reason)]
    assert acked == len(every) - len(said)
    assert reasons == {name: said.count(name) for name in set(said)}
    stats = ack_metrics.stats()
    assert (stats["acked"], stats["nacked"]) == (acked, reasons)


def test_the_statistics_are_of_the_whole_life() -> None:
    """Totals and estimates, whatever was taken; no estimate where nothing was ACKed."""
    ack_metrics = AckMetrics("server", 0)
    nothing = {"acked": 0, "nacked": {}, "ack_us_counts": [], "ack_us_sum": 0}
    assert ack_metrics.stats() == {**nothing, "ack_us_p50": None, "ack_us_p99": None}
    count(ack_metrics, *[100] * 98, 5_000, 5_000, Reason.DELETED)
    taken(ack_metrics, 10)
    stats = ack_metrics.stats()
    assert (stats["acked"], stats["nacked"]) == (100, {"deleted": 1})
    assert stats["ack_us_counts"] == [0] * 7 + [98] + [0] * 5 + [2]
    assert stats["ack_us_sum"] == 98 * 100 + 2 * 5_000
    assert stats["ack_us_p50"] == 64 + 64 * 50 // 98
    assert stats["ack_us_p99"] == 4096 + 4096 // 2
