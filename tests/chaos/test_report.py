"""The report of a run: sentences for people, JSON for scripts, an exit code for both."""

import json
from dataclasses import replace

import pytest

from lorogo_chaos import report
from lorogo_chaos.fault_run import FaultRunResult, FaultRunSettings
from lorogo_chaos.processes.servers import last_message
from lorogo_chaos.processes.usage import UsageGrowth
from lorogo_chaos.verdict import FaultRecord, FaultRunVerdict, FinalContents, judge
from tests.chaos.incarnations import incarnation

VERSIONS = {"lorogo": "0.1.0", "nats-server": "2.15"}
MIB = 1 << 20


def outcome(*marks: str, read: bool = True) -> FaultRunResult:
    """Of a drill in which two edits were ACKed, and a new client was given these marks."""
    one = incarnation(("wrote", 11, "a", 1), ("wrote", 12, "a", 2), ("acked", 13, "a", 2))
    faults = [
        FaultRecord("server-kill", "kill -9 of server-1", 12, 14, 15, ("a",)),
        FaultRecord("nats-kill", "kill -9 of nats-1", 20, 21, None),
    ]
    final = FinalContents(marks, "d") if read else None
    return FaultRunResult(
        judge([one], {"a": final}, faults),
        fault_records=faults,
        left_out={"disk-full": "no small disk"},
        growths=[
            UsageGrowth("server-1", 7, 200, 50 * MIB, 51 * MIB, 20, 21, 3.0 * MIB, "no growth"),
            UsageGrowth("server-1", 8, 20, 40 * MIB, 40 * MIB, 19, 19, None, "too short to tell"),
            UsageGrowth("server-2", 9, 20, 40 * MIB, 40 * MIB, None, None, None, "too short to tell"),
        ],
        seconds=90.0,
        began_at=10.0,
    )


def test_a_drill_that_lost_nothing_says_so() -> None:
    """Exit code 0, and a plain sentence."""
    good = outcome("0.1.1", "0.1.2")
    assert report.exit_code(good) == 0
    assert report.sentences(good)[0] == "nothing lost: all 2 ACKed edits are in their documents"


def test_a_lost_edit_is_named() -> None:
    """Exit code 1; the report names the lost edit, its document and the time of its ACK, and contains no
    "nothing lost".
    """
    bad = outcome("0.1.1")
    words = report.sentences(bad)
    assert report.exit_code(bad) == 1
    assert words[:2] == [
        "LOST: 1 of 2 ACKed edits are not in their documents",
        "  a: edit 0.1.2, ACKed 3.0 s after the start",
    ]
    assert not any("nothing lost" in sentence for sentence in words)


def test_what_could_not_be_verified_is_not_called_good() -> None:
    """Exit code 1, and which document it was."""
    unread = outcome(read=False)
    assert report.exit_code(unread) == 1
    assert report.sentences(unread)[0].startswith("NOT VERIFIED: ")
    assert "a" in report.sentences(unread)[0]


def test_a_document_that_is_not_served_is_not_called_good() -> None:
    """A document that stays in ERROR is reported, although a reader may still get it."""
    stuck = outcome("0.1.1", "0.1.2")
    stuck.in_error = ["a"]
    assert report.exit_code(stuck) == 1
    assert report.sentences(stuck)[0] == "NOT SERVED: in the state ERROR at the end: a"


def test_duplicates_and_missing_recoveries_are_reported() -> None:
    """They are facts, and no loss."""
    twice = outcome("0.1.1", "0.1.2", "0.1.2")
    words = report.sentences(twice)
    assert report.exit_code(twice) == 0
    assert "1 edits were applied twice, in a" in words
    assert "after 1 faults, not every edit was ACKed in time" in words


def test_growth_is_reported_in_a_sentence() -> None:
    """The report names growing processes with their growth, or reports no growth, or that the run was too
    short.
    """
    one = outcome("0.1.1", "0.1.2")
    assert report.sentences(one)[-1] == "memory and open files: no growth in 1 processes"
    one.growths[0] = replace(one.growths[0], words="grows by 9.0 MiB")
    assert report.sentences(one)[-1] == "memory and open files: server-1 grows by 9.0 MiB"
    one.fresh_bytes = {"server-1": 60 * MIB}
    assert report.sentences(one)[-1].endswith("its share of the documents loaded: server-1 60.0 MiB")
    assert report.exit_code(one) == 0
    del one.growths[0]
    assert (
        report.sentences(one)[-1]
        == "memory and open files: the run was too short (a process must run 5.5 minutes)"
    )


def test_the_figures_are_a_table() -> None:
    """Each with its unit; what was not measured is a dash."""
    figures = {row[0]: row[1] for row in report.main_part(outcome("0.1.1"), VERSIONS).rows}
    assert figures["edits"] == "2"
    assert figures["ACKed"] == "2"
    assert figures["lost"] == "1"
    assert figures["faults"] == "2"
    assert figures["recovery p50 / max"] == "1.00 / 1.00 s"
    assert figures["takeover p50 / p99"] == "-"
    assert figures["longest unavailability"] == "2.0 s (a)"
    assert figures["versions"] == "lorogo 0.1.0, nats-server 2.15"


def test_faults_are_counted_by_kind_and_those_left_out_say_why() -> None:
    """The reader can distinguish a fault that was left out from one that was survived."""
    assert report.faults_part(outcome()).rows == (
        ("nats-kill", "1", "-"),
        ("server-kill", "1", "1.00 / 1.00 s"),
        ("disk-full", "-", "left out: no small disk"),
    )


def test_a_fault_without_an_effect_is_not_taken_for_one_that_was_survived() -> None:
    """The table and the JSON have the number of faults with an effect."""
    some = outcome("0.1.1", "0.1.2")
    some.fault_records = [
        replace(some.fault_records[0], effective=False),
        replace(some.fault_records[1], name="server-kill"),
    ]
    assert report.faults_part(some).rows[0][:2] == ("server-kill", "2, 1 with effect")
    found = report.as_json(some, FaultRunSettings(), VERSIONS)
    assert found["faults_felt"] == {"server-kill": 1}
    assert [one["felt"] for one in found["history"]] == [False, True]


def test_only_processes_that_could_be_judged_are_shown() -> None:
    """Figures of short processes are only in the JSON; without a judged process there is no table."""
    short = outcome()
    shown = report.usage_part(short)
    assert [row[:3] for row in shown.rows] == [("server-1", "200 s", "50.0 / 51.0")]
    assert all(len(row) == len(shown.columns) for row in shown.rows)
    del short.growths[0]
    assert report.usage_part(short).rows == ()


def test_the_json_has_everything() -> None:
    """It is plain JSON, and its names stay."""
    found = json.loads(json.dumps(report.as_json(outcome("0.1.1"), FaultRunSettings(seed=7), VERSIONS)))
    assert found["good"] is False
    assert found["settings"]["seed"] == 7
    assert (found["edits"], found["acked"], found["lost"], found["duplicated"]) == (2, 2, 1, 0)
    assert found["lost_edits"] == [{"document": "a", "mark": "0.1.2"}]
    assert found["faults"] == {"nats-kill": 1, "server-kill": 1}
    assert found["faults_left_out"] == {"disk-full": "no small disk"}
    assert found["recovery_seconds"] == {"p50": 1.0, "max": 1.0}
    assert found["takeover_seconds"] == {"count": 0, "p50": None, "p99": None}
    assert found["history"][0] == {
        "fault": "server-kill",
        "words": "kill -9 of server-1",
        "felt": True,
        "at": 2.0,
        "lasted": 2.0,
        "recovery_seconds": 1.0,
        "documents_owned": 1,
        "takeover_seconds": [],
    }
    assert [one["pid"] for one in found["processes"]] == [7, 8, 9]
    assert found["versions"] == VERSIONS
    assert found["fresh_server_bytes"] == {}


def test_without_an_ack_nothing_is_verified() -> None:
    """A run that was interrupted before the first ACK does not claim that nothing was lost."""
    found = FaultRunResult(FaultRunVerdict(edits=3))
    assert report.exit_code(found) == 1
    assert "NOT VERIFIED: nothing was ACKed" in report.sentences(found)
    assert not any("nothing lost" in words for words in report.sentences(found))


def test_an_interrupted_drill_that_could_not_read_the_disks_is_not_verified() -> None:
    """Whatever the writers saw: only what was read after the last restart counts."""
    found = outcome(read=False)
    found.interrupted = found.unfinished = True
    words = report.sentences(found)
    assert report.exit_code(found) == 1
    assert words[0] == "NOT VERIFIED: interrupted before every document was read from disks"
    assert not any("nothing lost" in sentence for sentence in words)
    found = outcome("0.1.1", "0.1.2")
    found.unfinished = True
    assert report.exit_code(found) == 1


def test_a_drill_without_a_fault_says_so() -> None:
    """Nothing lost where nothing struck is no news."""
    found = outcome("0.1.1", "0.1.2")
    assert not any("no fault was injected" in words for words in report.sentences(found))
    found.fault_records = []
    assert "no fault was injected: this run proves nothing about faults" in report.sentences(found)


def test_troubles_are_counted_and_the_first_are_named() -> None:
    """A drill without any does not speak of them; with many it stays one sentence."""
    found = outcome("0.1.1", "0.1.2")
    assert not any("problem" in words for words in report.sentences(found))
    found.problems = ["a went wrong"]
    assert "1 problem: a went wrong" in report.sentences(found)
    found.problems = list("abcde")
    assert "5 problems: a; b; c; and 2 more" in report.sentences(found)
    assert report.exit_code(found) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            '{"message": "serving"}\nlorogo: one\n{"message": "x"}\nlorogo: no room\n',
            "no room",
        ),
        ('{"message": "serving"}\n{"level": "error", "message": "lost"}', "lost"),
        ("Traceback\nValueError: odd", "ValueError: odd"),
        ("[1]", "[1]"),
        ("", "(no output)"),
    ],
)
def test_why_a_server_ended_is_one_sentence(words: str, said: str) -> None:
    """Its log is JSON for machines: people get the last words that were meant for them."""
    assert last_message(words) == said
