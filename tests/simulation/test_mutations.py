"""Every mutation can be made. Whether each is found: `test_found.py`."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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
import lorogo_server.document.ack_queue
print(*lorogo_server.document.ack_queue.AckQueue.run.__code__.co_names)
"""


@pytest.mark.parametrize("mutation", mutations.ALL, ids=lambda mutation: mutation.name)
def test_code_is_there(mutation: Mutation) -> None:
    """The code that a mutation replaces is in its function once, and what it becomes is Python."""
    mutation.made()


def test_names_are_unique() -> None:
    """A name means one mutation."""
    assert len({mutation.name for mutation in mutations.ALL}) == len(mutations.ALL) >= 20


def test_unknown_name() -> None:
    """A name that nothing has is an error."""
    with pytest.raises(NoSuchMutation, match="no mutation is named 'not-there'"):
        mutations.named("not-there")


def test_seeds_without_names() -> None:
    """`--mutation NAME` tries the seeds within which `make test` finds it, however far from 0 they are."""
    far = max(mutations.ALL, key=lambda mutation: mutation.begin)
    assert usual_seeds(far.name) == range(far.begin, far.begin + SEEDS_MAX)
    assert usual_seeds("") == range(100)


PRODUCT = """
class Owner:
    async def answer(self, update, other):
        if self.full:
            self.count += 1
            return None
        await self.journal(update)  # before the ACK
        await self.ack(update)
        self.count += 1
        return self.count + 1

def answer(update):
    return None
"""


def _product(root: Path, text: str = PRODUCT, module: str = "lorogo_any/owner.py") -> Path:
    (root / module).parent.mkdir(parents=True)
    (root / module).write_text(text)
    return root


def _broken(old: str, new: str = "", where: str = "Owner.answer") -> Mutation:
    return Mutation("broken", where, old, new, "nothing")


@pytest.mark.parametrize(
    ("mutation", "why"),
    [
        (_broken("await self.journal(other)"), "0 times in Owner.answer, not once: nowhere"),
        (_broken("self.count += 1"), "2 times in Owner.answer"),
        (_broken("update", "other"), "2 times in Owner.answer"),
        (_broken("await self.journal(update)", where="answer"), "0 times in answer"),
        (_broken("await self.journal(update)", where="Owner.gone"), "0 times in Owner.gone"),
        (_broken("await self.ack(update)", "case 1:"), "'case 1:' is not Python"),
        (_broken("await self.ack(update)", "break"), "Owner.answer is not Python with it"),
        (_broken("await self.ack(update)", "await  self . ack(update)  # the same"), "changes nothing"),
        (_broken("", "pass"), "replaces nothing"),
    ],
)
def test_disarmed(mutation: Mutation, why: str, tmp_path: Path) -> None:
    """Code that is not in its function exactly once, or a change that is not Python, is an error."""
    with pytest.raises(Disarmed, match=f"mutation 'broken': .*{re.escape(why)}"):
        mutation.made(_product(tmp_path))


@pytest.mark.parametrize(
    ("mutation", "before", "after"),
    [
        (_broken("await self.journal(update)"), "journal", "ack"),
        (_broken("self.count + 1", "self.safe"), "count", "safe"),
        (_broken("if self.full:\n    self.count += 1\n    return None"), "full", "ack"),
    ],
)
def test_layout_and_modules_do_not_count(mutation: Mutation, before: str, after: str, tmp_path: Path) -> None:
    """A function that moved to another module, and is laid out in another way, is mutated as before."""
    moved = PRODUCT.replace("(update)", "(\n            update\n        )").replace("    ", "  ")
    for root, module in (("here", "lorogo_any/owner.py"), ("there", "lorogo_other/chapter/__init__.py")):
        made = mutation.made(_product(tmp_path / root, PRODUCT if root == "here" else moved, module))
        assert made.module == module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        space: dict[str, Any] = {}
        exec(made.code, space)  # the text above
        names = space["Owner"].answer.__code__.co_names
        assert after in names
        assert before not in names or before == "count"


def test_two_functions_of_one_name(tmp_path: Path) -> None:
    """The code is found once in all packages, or not at all."""
    _product(tmp_path)
    _product(tmp_path, module="lorogo_twin/owner.py")
    with pytest.raises(Disarmed, match=r"2 times in Owner\.answer.*lorogo_any.*lorogo_twin"):
        _broken("await self.ack(update)").made(tmp_path)


def test_an_emptied_block_passes(tmp_path: Path) -> None:
    """A function whose only statement is removed does nothing."""
    space: dict[str, Any] = {}
    exec(_broken("return None", where="answer").made(_product(tmp_path)).code, space)
    assert space["answer"].__code__.co_names == ()


def test_too_late() -> None:
    """A mutation of a module that is imported already is an error: it would change nothing."""
    importlib.import_module("lorogo_server.document.ack_queue")
    with pytest.raises(Disarmed, match="imported already"):
        mutating.install(mutations.named("ack-before-journal"))


@pytest.mark.parametrize(("checker", "found"), [("acked", True), ("world", False), ("crash", False)])
def test_found_by_an_invariant(checker: str, found: bool) -> None:
    """A mutation that breaks the world, or only crashes, is not one that an invariant has found."""
    finding = Finding(mutations.ALL[0], 1, run.Verdict(1, 2.0, 3.0, checker=checker))
    assert finding.by_an_invariant is found


def test_installed_in_memory_only() -> None:
    """A process that installs a mutation runs the changed code; the next process does not."""
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
