"""The README keeps its promises: its example runs, its links lead somewhere."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

import lorogo_client
from lorogo_server import Server, ServerSettings
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/OBSERVABILITY.md",
    "docs/DEPLOY.md",
    "docs/PROTOCOL.md",
    "docs/RELEASING.md",
    "docs/SECURITY.md",
]
PAGES += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "decisions").glob("*.md"))
ADDRESS = "nats://127.0.0.1:4222"
RUN_SECONDS = 60.0


def example() -> str:
    """Return the only Python block of the README."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return str(code)


def test_the_example_is_short() -> None:
    """Ten lines and the two that start them, without the empty ones."""
    assert len([line for line in example().splitlines() if line.strip()]) <= 12


@pytest.mark.nats
async def test_the_example_runs(tmp_path: Path) -> None:
    """Copied as it stands, it saves its edit on a real server, and another client finds it there."""
    code = example()
    assert code.count(ADDRESS) == 1
    async with EmbeddedNats(tmp_path / "nats") as nats, await connect(nats.url, name="readme") as transport:
        script = tmp_path / "example.py"
        script.write_text(code.replace(ADDRESS, nats.url), encoding="utf-8")
        async with Server(transport, ServerSettings(), data=tmp_path / "data"):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                script,
                cwd=ROOT,
                env={"PYTHONPATH": str(ROOT)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                async with asyncio.timeout(RUN_SECONDS):
                    out, err = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            assert process.returncode == 0, err.decode()
            assert re.fullmatch(r"saved at \d+, durability journal\n", out.decode()), out
            async with lorogo_client.connect(nats.url) as client, client.open("minutes-2026-11") as session:
                assert session.doc.get_text("body").to_string() == "hello "


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Every link to a file of ours names one that is there; every link into a page names a heading."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, target


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_are_named_exist(page: str) -> None:
    """A path in backquotes, or in the tree, is a path in the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:lorogo_\w+|tests|docs)/[\w/.-]+)`", text)
    named += re.findall(r"^    ((?:lorogo_\w+|tests|docs)/[\w./]*)  ", text, re.MULTILINE)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
