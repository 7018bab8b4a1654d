"""The verdict of a drill: what was ACKed and is not there is lost."""

from hypothesis import example, given
from hypothesis import strategies as st

from lorogo_chaos import report
from lorogo_chaos.fault_run import FaultRunResult, FaultRunSettings
from lorogo_chaos.fleet.event_log import Kind, WriterEvent, WriterRun
from lorogo_chaos.verdict import FaultRecord, FinalContents, judge, percentile
from tests.chaos.incarnations import incarnation


def final(*marks: str, digest: str = "d") -> FinalContents:
    return FinalContents(marks, digest)


def test_what_was_acked_and_is_there_is_not_lost() -> None:
    """Edits and ACKs are counted; an ACK speaks of its edit and all before it."""
    one = incarnation(("wrote", 1, "a", 1), ("wrote", 2, "b", 2), ("wrote", 3, "a", 3), ("acked", 4, "a", 3))
    verdict = judge([one], {"a": final("0.1.1", "0.1.3"), "b": final()})
    assert (verdict.edits, verdict.acked, verdict.unknown) == (3, 2, 1)
    assert verdict.lost == []
    assert verdict.good


def test_what_was_acked_and_is_missing_is_lost() -> None:
    """The lost edit is named, with its document and the time of its ACK."""
    one = incarnation(("wrote", 1, "a", 1), ("acked", 2, "a", 1), ("wrote", 3, "a", 2), ("acked", 4, "a", 2))
    verdict = judge([one], {"a": final("0.1.1")})
    assert [(missing.document, missing.mark, missing.promised_at) for missing in verdict.lost] == [
        ("a", "0.1.2", 4)
    ]
    assert not verdict.good


def test_a_mark_of_another_life_or_writer_does_not_count() -> None:
    """Each life has names of its own."""
    incarnations = [
        incarnation(("wrote", 1, "a", 1), ("acked", 2, "a", 1), writer=writer, number=number)
        for writer, number in ((0, 1), (0, 2), (1, 1))
    ]
    verdict = judge(incarnations, {"a": final("0.1.1", "1.1.1")})
    assert [missing.mark for missing in verdict.lost] == ["0.2.1"]


def test_an_ack_speaks_of_its_own_document_only() -> None:
    """And of nothing that was written later."""
    one = incarnation(("wrote", 1, "a", 1), ("wrote", 2, "b", 2), ("acked", 3, "b", 2), ("wrote", 4, "b", 3))
    verdict = judge([one], {"a": final(), "b": final("0.1.2")})
    assert verdict.acked == 1
    assert verdict.lost == []


def test_what_ended_with_its_session_is_not_promised_by_a_later_ack() -> None:
    """A session that failed may take with it what was not ACKed."""
    one = incarnation(
        ("wrote", 1, "a", 1), ("dropped", 2, "a", 1), ("wrote", 3, "a", 2), ("acked", 4, "a", 2)
    )
    verdict = judge([one], {"a": final("0.1.2")})
    assert (verdict.acked, verdict.lost, verdict.unknown) == (1, [], 1)


def test_a_mark_that_is_there_twice_was_applied_twice() -> None:
    """Duplicates are listed in the verdict, and are no loss."""
    one = incarnation(("wrote", 1, "a", 1), ("acked", 2, "a", 1))
    verdict = judge([one], {"a": final("0.1.1", "0.1.1")})
    assert verdict.duplicated == {"a": ["0.1.1"]}


def test_what_a_local_store_promised_must_come() -> None:
    """A writer with a store was killed and came back: what was stored and not ACKed is sent from there."""
    first = incarnation(
        ("wrote", 1, "a", 1), ("stored", 2, "a", 1), ("wrote", 3, "a", 2), stored=True, ended=4
    )
    second = incarnation(number=2, stored=True)
    assert judge([first, second], {"a": final("0.1.1")}).good
    verdict = judge([first, second], {"a": final()})
    assert [missing.mark for missing in verdict.forgotten] == ["0.1.1"]
    assert verdict.unknown == 1  # the second edit, which was neither stored nor ACKed
    assert not verdict.good


def test_an_undrained_store_is_not_blamed() -> None:
    """Writers that did not drain are listed instead: the run could not verify them."""
    first = incarnation(("wrote", 1, "a", 1), ("stored", 2, "a", 1), stored=True)
    verdict = judge([first], {"a": final()}, undrained=[0])
    assert verdict.forgotten == []
    assert verdict.undrained == [0]
    assert (verdict.edits, verdict.not_known) == (1, 1)
    assert not verdict.verified


def test_an_unreadable_document_is_not_verified() -> None:
    """Unknown is not good."""
    one = incarnation(("wrote", 1, "a", 1), ("acked", 2, "a", 1))
    verdict = judge([one], {"a": None})
    assert (verdict.unread, verdict.lost, verdict.good) == (["a"], [], False)


def test_an_edited_document_without_a_final_read_is_not_verified() -> None:
    """A verdict without the final state of a document does not claim that none of its edits is lost."""
    one = incarnation(
        ("wrote", 1, "a", 1), ("acked", 2, "a", 1), ("wrote", 3, "a_2", 2), ("acked", 4, "a_2", 2)
    )
    verdict = judge([one], {"a": final("0.1.1")})
    assert (verdict.unread, verdict.lost, verdict.good) == (["a_2"], [], False)


def test_different_final_replicas_are_listed() -> None:
    """The last look of a writer is compared with the document that a new client was given."""
    seen = WriterRun(
        0, 1, False, 0.0, [WriterEvent("seen", 1, "a", 0, "old"), WriterEvent("seen", 2, "a", 0, "d")]
    )
    assert judge([seen], {"a": final()}).differing == []
    other = WriterRun(1, 1, False, 0.0, [WriterEvent("seen", 3, "a", 0, "x")])
    assert judge([seen, other], {"a": final()}).differing == ["a"]


def fault(injected: float, *owned: str, ended: float = 0, recovered: float | None = None) -> FaultRecord:
    return FaultRecord("kill", "server-1 was killed", injected, ended or injected, recovered, owned)


def test_a_takeover_ends_with_the_ack_of_an_edit_that_came_after_the_strike() -> None:
    """An ACK that was on its way already is none of the new owner."""
    one = incarnation(
        ("wrote", 9.9, "a", 1),
        ("acked", 10.1, "a", 1),
        ("wrote", 10.2, "b", 2),
        ("acked", 10.3, "b", 2),
        ("wrote", 10.5, "a", 3),
        ("acked", 16.0, "a", 3),
    )
    verdict = judge([one], {"a": final("0.1.1", "0.1.3"), "b": final("0.1.2")}, [fault(10, "a")])
    assert verdict.takeovers == [6.0]


def test_a_document_without_edits_measures_no_takeover() -> None:
    """Only one that was edited within a second of the strike was waited for."""
    one = incarnation(("wrote", 13, "a", 1), ("acked", 13.1, "a", 1))
    assert judge([one], {"a": final("0.1.1")}, [fault(10, "a", "b")]).takeovers == []


def test_the_longest_silence_is_that_of_a_document_with_something_unacked() -> None:
    """Time in which nothing waited does not count; an ACK of any writer ends a silence."""
    first = incarnation(
        ("wrote", 1, "a", 1), ("acked", 3, "a", 1), ("wrote", 100, "a", 2), ("acked", 101, "a", 2)
    )
    second = incarnation(("wrote", 2, "a", 1), ("acked", 8, "a", 1), writer=1)
    silence = judge([first, second], {"a": final("0.1.1", "0.1.2", "1.1.1")}).silence
    assert (silence.seconds, silence.document, silence.began_at) == (5, "a", 3)


def test_a_killed_writer_waits_no_longer() -> None:
    """Its unACKed edits count as waiting until the kill, not longer."""
    first = incarnation(("wrote", 1, "a", 1), ended=2.5)
    second = incarnation(("wrote", 50, "a", 1), ("acked", 51, "a", 1), writer=1)
    assert judge([first, second], {"a": final("1.1.1")}).silence.seconds == 1.5


def test_recoveries_are_counted_from_the_end_of_a_fault() -> None:
    """One that did not come in time is counted apart."""
    some = [
        fault(1, ended=4, recovered=4.5),
        fault(10, ended=12, recovered=None),
        fault(20, ended=21, recovered=20.5),
    ]
    verdict = judge([], {}, some)
    assert verdict.recoveries == [0.5, 0.0]
    assert verdict.unrecovered == 1
    assert verdict.faults == {"kill": 3}


def test_percentiles_are_values_that_were_measured() -> None:
    """The nearest rank; None where nothing was measured."""
    assert percentile([], 0.5) is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([7.0], 0.99) == 7.0


def test_what_is_there_without_a_noted_ack_is_counted() -> None:
    """A writer killed between an ACK and its event has an edit that is there, and no loss."""
    one = incarnation(("wrote", 1, "a", 1), ("wrote", 2, "a", 2), ("wrote", 3, "b", 3), ended=4)
    verdict = judge([one], {"a": final("0.1.1"), "b": None})
    assert (verdict.edits, verdict.acked) == (3, 0)
    assert (verdict.unrecorded, verdict.unknown, verdict.not_known) == (1, 1, 1)


kinds = st.sampled_from(["wrote", "wrote", "stored", "acked", "dropped"])
happenings = st.lists(st.tuples(kinds, st.sampled_from("ab"), st.booleans()), max_size=30)


@example([([("wrote", "a", False), ("stored", "a", False)], True)], "a", False)
@given(
    st.lists(st.tuples(happenings, st.booleans()), max_size=3),
    st.sampled_from(["", "a", "ab"]),
    st.booleans(),
)
def test_every_edit_is_counted_once(
    some: list[tuple[list[tuple[Kind, str, bool]], bool]], readable: str, rested: bool
) -> None:
    """The rows of the table add up, whatever was noted, found, or could not be read."""
    incarnations: list[WriterRun] = []
    marks: dict[str, list[str]] = {"a": [], "b": []}
    for writer, (fault_records, stored) in enumerate(some):
        number = 0
        lines: list[tuple[Kind, float, str, int]] = []
        for kind, document, found in fault_records:
            if kind == "wrote":
                number += 1
                marks[document] += [f"{writer}.1.{number}"] if found else []
            if kind != "stored" or stored:
                lines.append((kind, 1.0, document, number))
        incarnations.append(incarnation(*lines, writer=writer, stored=stored))
    finals = {name: final(*marks[name]) if name in readable else None for name in marks}
    verdict = judge(incarnations, finals, undrained=[] if rested else [0, 1, 2])
    rows = {row[0]: row[1] for row in report.main_part(FaultRunResult(verdict), {}).rows}
    parts = (
        "ACKed",
        "not recorded as ACKed, but present",
        "never ACKed, and gone with their writer",
        "kept by a local store, and lost",
        "not ACKed, outcome unknown",
    )
    assert int(rows["edits"]) == sum(int(rows.get(name, "0")) for name in parts)
    figures = report.as_json(FaultRunResult(verdict), FaultRunSettings(), {})
    names = ("acked", "not_noted_but_there", "never_acked_and_gone", "forgotten", "not_known")
    assert figures["edits"] == sum(figures[name] for name in names)
