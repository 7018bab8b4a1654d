"""The reasons why a block of a page is not run as it stands. Each reason is checked: it must be true of the
block.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from tests.handbook.markdown import ROOT, Block
from tests.pages import unknown_options

Check = Callable[[str, Block], None]


def check(words: str, block: Block) -> None:
    """Raise AssertionError if `REASON WORDS` is no reason, or not true of the block."""
    reason, _, rest = words.partition(" ")
    assert reason in REASONS, f"{reason!r} is no reason; there are {', '.join(REASONS)}"
    REASONS[reason](rest, block)


def _make(_: str, block: Block) -> None:
    """It sets up a whole environment. Every line is `make` and targets that there are."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for line in _commands(block):
        command, *words = shlex.split(line, comments=True)
        assert command == "make", line
        named = {word for word in words if "=" not in word}
        assert named <= targets, f"no target {named - targets}"


def _elsewhere(words: str, block: Block) -> None:
    """Another test runs it: `elsewhere tests/x.py::test_name`, and the test is there."""
    path, _, name = words.partition("::")
    assert (ROOT / path).is_file(), path
    assert re.search(rf"def {re.escape(name)}\(", (ROOT / path).read_text(encoding="utf-8")), words
    assert block.text.strip()


def _options(words: str, block: Block) -> None:
    """The block needs something that a test lacks, and its words name it. Its commands of lorogo and their
    options exist.
    """
    assert words, "name what it needs"
    found = [shlex.split(line, comments=True) for line in _commands(block) if line.startswith("lorogo ")]
    assert found, "no command of lorogo"
    for command in found:
        assert not unknown_options(command), command


def _npm(words: str, block: Block) -> None:
    """It fetches packages: `npm FOLDER`, and what it runs are scripts of that folder's package.json."""
    package = (ROOT / words / "package.json").read_text(encoding="utf-8")
    for line in _commands(block):
        for name in re.findall(r"npm run (\S+)", line):
            assert f'"{name}":' in package, name
        assert re.match(r"(cd|npm|lorogo) ", line), line


def _drawing(_: str, block: Block) -> None:
    """Nothing in it could be run: it has no language."""
    assert not block.language, block.language


def _commands(block: Block) -> list[str]:
    """The lines that a user would type, joined with their continuation lines."""
    text = block.text.replace("\\\n", " ")
    return [line.removeprefix("$ ").strip() for line in text.splitlines() if line.strip()]


REASONS: dict[str, Check] = {
    "make": _make,
    "elsewhere": _elsewhere,
    "options": _options,
    "npm": _npm,
    "drawing": _drawing,
}


def tests_of(path: Path) -> set[str]:
    """The names of the tests in a file."""
    return set(re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8")))
