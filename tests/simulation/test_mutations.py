"""Every mutation can be made. Whether each is found: `test_found.py`."""

import importlib
import subprocess
import sys

import pytest

from tests.simulation import mutating, mutations, run
from tests.simulation.__main__ import usual_seeds
from tests.simulation.finding import SEEDS_MAX, Finding
from tests.simulation.mutating import Disarmed, Mutation, NoSuchMutation

_INSTALL = """\
import sys
from tests.simulation import mutating, mutations
mutating.install(mutations.named(sys.argv[1]))
"""
_LOOK = """\
import lorogo_server.answers
print(*lorogo_server.answers.Answers.say_what_is_safe.__code__.co_names)
"""


@pytest.mark.parametrize("mutation", mutations.ALL, ids=lambda mutation: mutation.name)
def test_text_is_there(mutation: Mutation) -> None:
    """The text that a mutation replaces is in its module once, and what it becomes is Python."""
    mutation.check()


def test_names_are_unique() -> None:
    """A name means one mutation."""
    assert len({mutation.name for mutation in mutations.ALL}) == len(mutations.ALL) >= 20


def test_unknown_name() -> None:
    """A name that nothing has is an error."""
    with pytest.raises(NoSuchMutation, match="no mutation is named 'not-there'"):
        mutations.named("not-there")


def test_seeds_that_nobody_names() -> None:
    """`--mutation NAME` tries the seeds within which `make test` finds it, however far from 0 they are."""
    far = max(mutations.ALL, key=lambda mutation: mutation.begin)
    assert usual_seeds(far.name) == range(far.begin, far.begin + SEEDS_MAX)
    assert usual_seeds("") == range(100)


@pytest.mark.parametrize(
    ("old", "why"),
    [
        ("this text is nowhere in the journal", "0 times"),
        ("import", r"\d+ times"),
        ("class JournalStopped(", "no Python"),
    ],
)
def test_disarmed(old: str, why: str) -> None:
    """A text that is not there once, or a change that is no Python, is an error that names the mutation."""
    mutation = Mutation("broken", "lorogo_server.journal", old, "class (", "nothing")
    with pytest.raises(Disarmed, match=f"mutation 'broken': .*{why}"):
        mutation.check()


def test_module_is_gone() -> None:
    """A module that is not there any more is an error that names the mutation."""
    with pytest.raises(Disarmed, match=r"mutation 'broken': lorogo_server\.nowhere cannot be read"):
        Mutation("broken", "lorogo_server.nowhere", "a", "b", "nothing").check()


def test_changes_nothing() -> None:
    """A mutation that changes nothing is an error."""
    with pytest.raises(Disarmed, match="changes nothing"):
        Mutation(
            "idle", "lorogo_server.journal", "class JournalStopped(", "class JournalStopped(", ""
        ).check()


def test_too_late() -> None:
    """A mutation of a module that is imported already is an error: it would change nothing."""
    importlib.import_module("lorogo_server.answers")
    with pytest.raises(Disarmed, match="imported already"):
        mutating.install(mutations.named("ack-before-journal"))


@pytest.mark.parametrize(("checker", "found"), [("acked", True), ("world", False), ("crash", False)])
def test_found_by_an_invariant(checker: str, found: bool) -> None:
    """A mutation that breaks the world, or only crashes, is not one that an invariant has found."""
    finding = Finding(mutations.ALL[0], 1, run.Verdict(1, 2.0, 3.0, checker=checker))
    assert finding.by_an_invariant is found


def test_installed_in_memory_only() -> None:
    """A process that installs a mutation runs the changed text; the next process does not."""
    changed = _python(_INSTALL + _LOOK, "ack-before-journal").split()
    plain = _python(_LOOK).split()
    assert "safe" in plain
    assert "_ack" in changed
    assert "safe" not in changed


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=run.environment(),
        timeout=60,
    )
    return done.stdout
