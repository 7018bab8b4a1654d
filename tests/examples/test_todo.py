"""examples/todo: the list, what may be typed, and the files as the tutorial has them; it runs them, too."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from loro import ExportMode, LoroDoc

from tests.examples.running import EXAMPLES, SECONDS, module, program, said, serving
from tests.handbook.following import shown_files
from tests.handbook.markdown import HANDBOOK, blocks

TODO = module("todo/todo.py")


def texts(doc: LoroDoc) -> list[str]:
    return [f"{'x' if row['done'] else ' '} {row['text']}" for row in TODO.items.rows(doc)]


def test_the_tutorial_has_both_files_whole() -> None:
    """A copy of the tutorial's blocks is the example, byte for byte."""
    shown = shown_files(blocks(HANDBOOK / "tutorial.md"))
    assert shown.keys() == {"items.py", "todo.py"}
    for name, text in shown.items():
        assert text == (EXAMPLES / "todo" / name).read_text(encoding="utf-8"), name


@pytest.mark.nats
async def test_the_screen_shows_the_list_alone(tmp_path: Path) -> None:
    """The log of the client, such as a lost connection, is in a file and not between lines of the list."""
    async with AsyncExitStack() as app_stack:
        async with serving(tmp_path) as url:
            started = program("todo/todo.py", "groceries", "ana", folder=tmp_path, LOROGO_NATS=url)
            app = await app_stack.enter_async_context(started)
            await said(app, "groceries: saved (ana)")
        await said(app, "groceries: offline")
        async with asyncio.timeout(SECONDS):
            _, errors = await app.communicate(b"quit\n")
    assert errors == b""
    assert "connection to NATS lost" in (tmp_path / "ana.log").read_text(encoding="utf-8")


def test_lines_edit_the_list() -> None:
    """add, done, move, remove; a text may have blanks."""
    doc = LoroDoc()
    for line in ("add milk", "add  rye  bread", "add coffee", "done 2", "move 3 1", "remove 2"):
        TODO.edit(doc, line)
    assert texts(doc) == ["  coffee", "x rye  bread"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("done 3", "item 3 does not exist: the list has 1"),
        ("done 0", "item 0 does not exist"),
        ("move 1 2", "item 2 does not exist"),
        ("remove -1", "unknown command; use add TEXT, done N"),
        ("done one", "unknown command; use add TEXT, done N"),
        ("add", "unknown command; use add TEXT"),
        ("buy milk", "unknown command; use add TEXT"),
    ],
)
def test_a_line_that_makes_no_sense_changes_nothing(line: str, words: str) -> None:
    """The error names the valid commands or the length of the list."""
    doc = LoroDoc()
    TODO.edit(doc, "add milk")
    with pytest.raises(ValueError, match=words):
        TODO.edit(doc, line)
    assert texts(doc) == ["  milk"]


def test_a_number_means_the_item_that_its_writer_saw() -> None:
    """Whatever others insert or move above it before the edit arrives."""
    ana, ben = LoroDoc(), LoroDoc()
    TODO.edit(ana, "add milk")
    TODO.edit(ana, "add bread")
    ana.commit()
    ben.import_(ana.export(ExportMode.Snapshot()))
    TODO.edit(ana, "add coffee")
    TODO.edit(ana, "move 3 1")
    TODO.edit(ben, "done 2")
    ana.import_(ben.export(ExportMode.Snapshot()))
    assert texts(ana) == ["  coffee", "  milk", "x bread"]
