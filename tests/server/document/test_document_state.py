"""Phases, requests and storage facts of a document: the table of transitions, and its invariants."""

from itertools import product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lorogo_server.document.document_state import NEXT_PHASE, DocumentState, Phase, Transition

LOADING, LIVE, REREADING, DRAINING, CLOSED = Phase
LOADED, READ_AGAIN, READ_TO_END, STOP, CLOSE = Transition

TABLE = {
    LOADING: {LOADED: LIVE, STOP: CLOSED, CLOSE: CLOSED},
    LIVE: {READ_AGAIN: REREADING, STOP: DRAINING, CLOSE: CLOSED},
    REREADING: {READ_AGAIN: REREADING, READ_TO_END: LIVE, STOP: DRAINING, CLOSE: CLOSED},
    DRAINING: {READ_AGAIN: DRAINING, READ_TO_END: DRAINING, STOP: DRAINING, CLOSE: CLOSED},
    CLOSED: dict.fromkeys(Transition, CLOSED),
}
ANSWERS = {LOADING: "", LIVE: "calls, ACKs", REREADING: "ACKs", DRAINING: "ACKs", CLOSED: ""}


@pytest.mark.parametrize(("phase", "transition"), list(product(Phase, Transition)), ids=lambda one: one.name)
def test_transitions(phase: Phase, transition: Transition) -> None:
    """Each phase has exactly the transitions of the table."""
    assert NEXT_PHASE.get((phase, transition)) == TABLE[phase].get(transition)


@pytest.mark.parametrize("phase", list(Phase), ids=lambda one: one.name)
def test_answers(phase: Phase) -> None:
    """Only LIVE answers calls; LIVE, REREADING and DRAINING send ACKs."""
    state = DocumentState()
    state.phase = phase
    answers = [name for name, may in (("calls", state.is_readable), ("ACKs", state.may_answer)) if may]
    assert ", ".join(answers) == ANSWERS[phase]


def test_a_stop_drains_the_messages_queued_before_it() -> None:
    """Later messages are left to the next owner, which DOWN invites."""
    state = live()
    state.stop("idle", finish=True, newest=7)
    assert (state.phase, state.closed_because, state.writes_down) == (DRAINING, "idle", True)
    assert (state.drains(7), state.drains(8), state.drains_all) == (True, False, True)


def test_a_stop_at_once_drains_nothing_whatever_follows() -> None:
    """A stop at once, of a journal that fails, is not softened by a graceful stop; the first reason stays."""
    state = live()
    state.stop("the journal stopped", finish=False, newest=7)
    state.stop("the server stops", finish=True, newest=7)
    assert (state.drains(1), state.drains_all) == (False, False)
    assert state.closed_because == "the journal stopped"


def test_a_graceful_stop_is_overruled_by_a_stop_at_once() -> None:
    """The queue is dropped."""
    state = live()
    state.stop("idle", finish=True, newest=7)
    state.stop("the journal stopped", finish=False, newest=7)
    assert (state.drains(7), state.drains_all, state.closed_because) == (False, False, "idle")


def test_a_lost_lease_writes_no_down() -> None:
    """The status belongs to the new owner; a stop that comes later changes nothing."""
    state = live()
    state.close("another server has it")
    state.stop("the server stops", finish=True, newest=7)
    assert (state.phase, state.writes_down, state.drains(0)) == (CLOSED, False, False)
    assert state.closed_because == "another server has it"


def test_a_stop_during_the_load_closes_and_writes_down() -> None:
    """No message is processed: the next owner loads them."""
    state = DocumentState()
    state.stop("the server stops", finish=True, newest=7)
    assert (state.phase, state.writes_down, state.drains(7)) == (CLOSED, True, False)


def test_a_reload_takes_the_request_when_it_begins() -> None:
    """A request that comes during the reload needs another one: it may be newer than what was read."""
    state = live()
    state.request_reload(checked=True)
    assert state.begin_reload()
    state.request_reload()
    state.end_read()
    assert (state.reload, state.begin_reload()) == (True, False)


def live() -> DocumentState:
    """A document that is loaded."""
    state = DocumentState()
    state.loaded()
    return state


class Document(RuleBasedStateMachine):
    """A document with requests, failed and successful reads, stops and losses in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.state = DocumentState()
        self.wanted = {"catch up": False, "rewind": False, "reload": False}
        self.checked = self.read_checked = False  # of the request, and of the read under way
        self.under_way = ""
        self.facts = (False, False)
        self.ended = False
        self.why = ""

    @rule()
    @precondition(lambda self: self.state.phase is LOADING)
    def is_loaded(self) -> None:
        self.state.loaded()

    @rule(name=st.sampled_from(["catch up", "rewind", "reload", "checked reload"]))
    def request(self, name: str) -> None:
        match name:
            case "catch up":
                self.state.catch_up = True
            case "rewind":
                self.state.rewind = True
            case _:
                self.checked |= name == "checked reload"
                self.state.request_reload(checked=name == "checked reload")
        self.wanted["reload" if "reload" in name else name] = True

    @rule()
    @precondition(lambda self: self.state.phase in (LIVE, REREADING, DRAINING) and not self.under_way)
    def serve(self) -> None:
        if self.state.reload:
            assert self.state.begin_reload() == self.checked
            self.under_way, self.wanted["reload"] = "reload", False
            self.checked, self.read_checked = False, self.checked
        elif self.state.rewind:
            self.state.begin_rewind()
            self.under_way, self.wanted["rewind"] = "rewind", False
        elif self.state.catch_up:
            self.state.catch_up = self.wanted["catch up"] = False

    @rule(succeeds=st.booleans())
    @precondition(lambda self: self.under_way)
    def finish_read(self, succeeds: bool) -> None:
        if succeeds:
            self.state.end_read()
        elif self.under_way == "rewind":
            self.state.rewind = self.wanted["rewind"] = True
        else:
            self.state.request_reload(checked=self.read_checked)
            self.checked |= self.read_checked
            self.wanted["reload"] = True
        self.under_way = ""

    @rule(finish=st.booleans(), newest=st.integers(0, 5))
    def stop(self, finish: bool, newest: int) -> None:
        self.state.stop("stop", finish=finish, newest=newest)
        self.why = self.why or "stop"
        self.ended = True

    @rule()
    def lose(self) -> None:
        self.state.close("lost")
        self.why = self.why or "lost"
        self.ended = True

    @rule(only_copy=st.booleans(), unverified=st.booleans())
    def learn(self, only_copy: bool, unverified: bool) -> None:
        self.facts = only_copy, unverified
        self.state.memory_is_only_copy, self.state.snapshot_unverified = self.facts

    @invariant()
    def no_request_is_lost(self) -> None:
        state = self.state
        assert {"catch up": state.catch_up, "rewind": state.rewind, "reload": state.reload} == self.wanted
        assert state.has_request == any(self.wanted.values())

    @invariant()
    def facts_are_independent_of_the_phase(self) -> None:
        assert (self.state.memory_is_only_copy, self.state.snapshot_unverified) == self.facts

    @invariant()
    def a_call_reads_only_memory_that_is_trusted(self) -> None:
        if self.state.is_readable:
            assert self.state.phase is LIVE
            assert not self.state.reload

    @invariant()
    def an_end_is_final(self) -> None:
        assert self.state.is_ending == self.ended
        assert self.state.closed_because == self.why
        if self.state.phase is CLOSED:
            assert not (self.state.may_answer or self.state.is_up or self.state.drains(0))

    def teardown(self) -> None:
        """From every phase, the loss of the lease ends in CLOSED."""
        self.state.close("lost")
        assert self.state.phase is CLOSED


TestDocument = Document.TestCase
TestDocument.settings = settings(max_examples=200, stateful_step_count=40)
