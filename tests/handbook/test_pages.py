"""Every page of the handbook is true: its commands are typed, and its output is the printed one."""

import re
import shutil
from pathlib import Path

import pytest

from tests.handbook.following import Reader, statements, treatment
from tests.handbook.markdown import HANDBOOK, ROOT, Block, blocks, name_of
from tests.handbook.reasons import REASONS, check

OWN = ("$ lorogo dev", "$ nats-server", "$ lorogo bench")  # a page with one of these needs no other
ELSEWHERE = {"pipeline"}  # needs Spark: tests/pipeline/test_guide.py
WRITTEN = [*sorted(HANDBOOK.glob("*.md")), *sorted((ROOT / "examples").glob("**/README.md"))]
WRITTEN = [path for path in WRITTEN if "node_modules" not in path.parts]
QUICK = {"client", "concepts", "quickstart"}  # in `make test`; the others in `make test-deep`
PAGES = [
    path.stem
    for path in sorted(HANDBOOK.glob("*.md"))
    if any(not one.mark.startswith("not run: ") for one in blocks(path))
]


def block(language: str, text: str = "x", mark: str = "") -> Block:
    return Block("page.md", 1, language, text, mark)


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    """Each has a treatment; a reason not to run one is a reason that we know, and true of the block."""
    below = False
    for one in blocks(page):
        how, words = treatment(one, below_python=below)
        below = how in ("run", "program")
        if how == "leave":
            check(words, one)
        elif page.parent != HANDBOOK:
            raise AssertionError(
                f"{one.where}: no test follows this page: mark it with the test that runs it"
            )


@pytest.mark.nats
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.deep)
        for name in PAGES
        if name not in ELSEWHERE
    ],
)
async def test_a_page_can_be_followed(page: str, tmp_path: Path) -> None:
    """From top to bottom, on a machine with a `lorogo dev`; what is shown is what comes."""
    found = blocks(HANDBOOK / f"{page}.md")
    if shutil.which("curl") is None and any("curl " in one.text for one in found):
        pytest.skip("no curl on this machine: install it to have this page followed")
    reader = Reader(tmp_path)
    if not any(line.startswith(OWN) for one in found for line in one.text.splitlines()):
        await reader.begin_dev()
    await reader.read(found)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (block(""), "neither run nor marked"),
        (block("sh"), "neither run nor marked"),
        (block("text"), "neither run nor marked"),
        (block("console", mark="file"), "means nothing"),
        (block("python", mark="skip: it is late"), "means nothing"),
        (block("python", mark="terminal: ana"), "neither run nor marked"),
    ],
)
def test_a_block_that_no_test_runs_is_found(one: Block, words: str) -> None:
    """Whatever its language and its mark."""
    with pytest.raises(AssertionError, match=words):
        treatment(one, below_python=False)


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_can_be_pasted(page: str) -> None:
    """Each into `python -m asyncio`, which ends a compound statement at a blank line only."""
    for one in blocks(HANDBOOK / f"{page}.md"):
        if one.language == "python" and treatment(one, below_python=False)[0] == "run":
            statements(one)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("for _ in [1]:\n    pass\nprint(1)", "page.md:3: an interpreter refuses 'print"),
        ("try:\n    pass\nexcept OSError:\n    pass\ntry:\n    pass\nfinally:\n    pass", "page.md:5"),
        ("if True:\n    a = 1\n\n    b = 2", "page.md:4: an interpreter refuses '    b"),
        ("print(", "page.md:1: an interpreter waits"),
    ],
)
def test_a_block_that_cannot_be_pasted_is_found(text: str, words: str) -> None:
    """A missing blank line, one inside of a statement, a statement without an end."""
    with pytest.raises(AssertionError, match=re.escape(words)):
        statements(block("python", text))


def test_statements_keep_their_lines() -> None:
    """Compound statements, one that spans lines, `await`, and comments between them."""
    text = "a = (\n    1\n)\nasync with b:\n    c\n\n# d\nawait e\n"
    assert statements(block("python", text)) == [
        (1, "a = (\n    1\n)"),
        (4, "async with b:\n    c\n"),
        (7, "# d"),
        (8, "await e"),
    ]


@pytest.mark.parametrize(
    ("words", "one"),
    [
        ("because of rain", block("console")),
        ("make", block("console", "$ make nothing-of-the-kind")),
        ("make", block("console", "$ rm -r /")),
        ("elsewhere tests/nowhere.py::test_it", block("console")),
        ("elsewhere tests/handbook/test_pages.py::test_nothing", block("console")),
        ("options", block("console", "$ lorogo status")),
        ("options it is slow", block("console", "$ ls")),
        ("options it is slow", block("console", "$ lorogo status --no-such-option")),
        ("npm examples/react", block("console", "$ npm run nothing")),
        ("drawing", block("python")),
    ],
)
def test_a_reason_that_is_not_true_is_found(words: str, one: Block) -> None:
    """Of each kind of reason, one that does not hold."""
    with pytest.raises(AssertionError):
        check(words, one)
    assert set(REASONS) == {"make", "elsewhere", "options", "npm", "drawing"}


async def test_a_page_that_is_not_true_is_found(tmp_path: Path) -> None:
    """Another output or exit code, a missing prompt, words that are never printed: each with its place."""
    wrong = [
        [block("console", "$ echo one\ntwo")],
        [block("console", "$ echo one")],
        [block("console", "$ false")],
        [block("console", "$ true\n$ exit 3", "exit code: 2")],
        [block("console", "$ echo one\ntwo", "terminal: a")],
        [block("console", "$ echo one\none\n> two", "terminal: a")],
        [block("python", "print(1)"), block("text", "2")],
        [block("python", "import asyncio\nasyncio.run(asyncio.sleep(0))\nprint(1)"), block("text", "2")],
        [block("python", "import asyncio\nasyncio.run(None)")],
    ]
    for number, found in enumerate(wrong):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(AssertionError) as error:
            await Reader(folder).read(found)
        assert "in page.md:1" in error.value.__notes__


async def test_what_is_right_passes(tmp_path: Path) -> None:
    """Wildcards in a line and for lines, exit codes, files in parts, commands over two lines, `await`."""
    await Reader(tmp_path).read(
        [
            block(
                "console", "$ printf 'a\\nb\\nc 17 d\\n'\na\n...\nc ... d\n$ echo one \\\n    two\none two"
            ),
            block("console", "$ exit 3", "exit code: 3"),
            block("python", "A = 1\n", "file: one.py"),
            block("python", "B = 2\n", "file: one.py"),
            block("python", "import asyncio\n\nimport one\n\nawait asyncio.sleep(0)\nprint(one.A, one.B)"),
            block("text", "1 2"),
            block("console", "$ printf '> '; cat\n> hello\nhello", "terminal: a"),
            block("console", "^C", "terminal: a"),
        ]
    )
    assert (tmp_path / "one.py").read_text() == "A = 1\n\n\nB = 2\n"
