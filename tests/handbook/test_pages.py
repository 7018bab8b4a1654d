"""Every page of the handbook is true: what it says to type is typed, and what it shows is what comes."""

from pathlib import Path

import pytest

from tests.handbook.following import Reader
from tests.handbook.markdown import HANDBOOK, blocks

OWN = ("$ lorogo dev", "$ nats-server", "$ lorogo bench")  # a page with one of these needs no other
ELSEWHERE = {"pipeline"}  # needs Spark: tests/pipeline/test_guide.py
PAGES = sorted(path.stem for path in HANDBOOK.glob("*.md") if path.stem not in ELSEWHERE)


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", [name for name in PAGES if blocks(HANDBOOK / f"{name}.md")])
async def test_a_page_can_be_followed(page: str, tmp_path: Path) -> None:
    """From top to bottom, on a machine with a `lorogo dev`; a block that is neither run nor marked fails."""
    found = blocks(HANDBOOK / f"{page}.md")
    reader = Reader(tmp_path)
    if not any(line.startswith(OWN) for block in found for line in block.text.splitlines()):
        await reader.begin_dev()
    await reader.read(found)
