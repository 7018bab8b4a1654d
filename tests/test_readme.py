"""The README keeps its promises: its example runs, its links lead somewhere."""

import asyncio
import re
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import lorogo_client
from lorogo_cli.connect import closed_folder
from lorogo_server import Server, ServerSettings
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.auth import accounts
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.journals import in_memory

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
    """The first Python block of the README."""
    return blocks()[0]


def blocks() -> list[str]:
    """The Python blocks of the README."""
    return [str(code) for code in re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)]


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


async def test_the_feed_in_it_gives_what_was_written() -> None:
    """Copied as it stands, it gives each update once, and goes on from the position that it gave."""
    (code,) = [block for block in blocks() if "client.feed(" in block]
    names: dict[str, Any] = {"lorogo_client": lorogo_client}
    exec(compile(code, "README.md", "exec"), names)  # it is what is tested
    nats = MemoryNats()
    async with (
        Server(nats.connect("server"), ServerSettings(), **in_memory()),
        lorogo_client.connect(nats.connect("client")) as client,
        client.open("minutes-2026-11") as session,
        asyncio.timeout(RUN_SECONDS),
    ):
        position: str | int = 0
        found = []
        for word in ("a", "b"):
            session.doc.get_text("body").insert(0, word)
            await session.flush()
            async with aclosing(names["follow"](client, position)) as following:
                item, position = await anext(following)
            found.append(item)
        assert [type(item) for item in found] == [lorogo_client.Update] * 2
        assert found[0].sequence < found[1].sequence


def test_the_closed_setup_names_what_setup_makes() -> None:
    """Each file of `closed/` in its commands is one that `lorogo auth setup closed` writes."""
    section = README.partition("## Closed by default")[2].partition("\n## ")[0]
    named = set(re.findall(r"closed/([a-z-]+\.[a-z]+)", section))
    made = {f"{name}.seed" for name in accounts.KINDS} | {
        closed_folder.CONF,
        closed_folder.SIGNING_KEY,
        closed_folder.KEY_SET,
    }
    assert {"server.seed", "gateway.seed", "tokens.jwk", "keys.jwks", "nats.conf"} <= named <= made
    assert ". .venv/bin/activate" in section
    assert (
        "--data closed/server" in section
    )  # else it is the folder of `make run`, which brings it into the open


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
