"""The blocks of the handbook's short pages, and the README's, are run as they stand."""

import ast
import asyncio
import inspect
import re
import shutil
import textwrap
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import lorogo_client
from lorogo_cli.connect import closed_folder
from lorogo_server import Server, ServerSettings
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.auth import accounts
from tests.gateway.npm import WEB, node
from tests.gateway.stacks import stack
from tests.handbook.following import Reader
from tests.handbook.markdown import HANDBOOK, ROOT, Block, blocks
from tests.handbook.reasons import check
from tests.journals import in_memory

#: how a block of the README begins, and its treatment
BLOCKS = {
    "make run": "make it sets up an environment",
    "import asyncio": "elsewhere tests/test_readme.py::test_the_example_runs",
    "lorogo_protocol/": "elsewhere tests/test_readme.py::test_files_that_are_named_exist",
}
SECONDS = 60.0


def block(page: str, test: str, language: str) -> Block:
    """Return the only block of a page that names a test of this file and has this language."""
    mark = f"not run: elsewhere tests/handbook/test_short_pages.py::{test}"
    (one,) = [one for one in blocks(HANDBOOK / page) if (one.mark, one.language) == (mark, language)]
    return one


def readme(beginning: str) -> Block:
    (one,) = [one for one in blocks(ROOT / "README.md") if one.first_line.startswith(beginning)]
    return one


async def run(code: str, **names: Any) -> None:
    """Code as it stands, with `await` at the top."""
    made = eval(compile(code, "page.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(made):
        await made


def test_every_block_is_run_or_says_why_not() -> None:
    """Each is one of the table, each of the table is there once, and each reason is true."""
    there = blocks(ROOT / "README.md")
    assert len(there) == len(BLOCKS)
    for beginning, words in BLOCKS.items():
        check(words, readme(beginning))


@pytest.mark.node
@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_javascript_saves(tmp_path: Path) -> None:
    """Copied as it stands, on Node with the npm packages: another client finds what it typed."""
    program = node()
    async with stack(tmp_path) as place:
        code = block("browsers.md", "test_the_javascript_saves", "js").text
        assert code.count("ws://127.0.0.1:8080") == 1
        process = await asyncio.create_subprocess_exec(
            *(
                program,
                "--input-type=module",
                "-e",
                code.replace("ws://127.0.0.1:8080", f"ws{place.web[4:]}"),
            ),
            cwd=WEB,
        )
        try:
            async with (
                lorogo_client.connect(place.nats.url) as client,
                client.open("minutes-2026-11") as session,
                asyncio.timeout(SECONDS),
            ):
                changes = session.changes()
                while session.doc.get_text("body").to_string() != "from JavaScript ":
                    await anext(changes)
        finally:
            process.kill()
            await process.wait()


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_requests_are_answered(tmp_path: Path) -> None:
    """The requests run as they stand: the title is set, read and in the history, and the feed has
    its update.
    """
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    folder = tmp_path / "reader"
    folder.mkdir()
    reader = Reader(folder)
    async with stack(tmp_path) as place:
        reader.web_port = int(place.web.rpartition(":")[2])
        *lines, feed = (
            block("browsers.md", "test_the_requests_are_answered", "sh").text.rstrip("\n").split("\n")
        )
        assert feed.startswith("curl -N ")
        # the feed goes on for ever: until it has an update
        lines += [f"{feed} > feed.out &", "until grep '^data: ' feed.out; do sleep 0.1; done"]
        printed = await reader.run_script("\n".join(lines))
    assert '"durability":"journal"' in printed
    assert '[["Minutes"]]' in printed
    assert re.search(r'"versions":\[\{"version":"v', printed)
    assert re.search(r'data: \{"document":"minutes"', printed)


@pytest.mark.nats
@pytest.mark.slow
async def test_offline_edits_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied as it stands, where the document was opened once: without a network, and saved later."""
    code = block("offline.md", "test_offline_edits_are_stored", "python").text
    address = "nats://127.0.0.1:4222"
    monkeypatch.chdir(tmp_path)
    async with stack(tmp_path) as place:
        async with (
            lorogo_client.connect(place.nats.url, store="my-app.store") as client,
            client.open("minutes-2026-11") as session,
        ):
            await session.ready(SECONDS)
        async with asyncio.timeout(SECONDS):
            await run(code.replace(address, "nats://127.0.0.1:1"), lorogo_client=lorogo_client)
        async with lorogo_client.connect(place.nats.url, store="my-app.store") as client:
            assert [(one.document_id, one.unsaved) for one in client.stored_documents()] == [
                ("minutes-2026-11", 1)
            ]
            async with client.open("minutes-2026-11") as session:
                await session.flush(SECONDS)
        async with lorogo_client.connect(place.nats.url) as client:
            answer = await client.document("minutes-2026-11").get(["$.body"])
            assert answer["matches"] == [["written on a plane "]]


@pytest.mark.deep
@pytest.mark.nats
@pytest.mark.timeout(300)
async def test_the_closed_setup_lets_a_token_in(tmp_path: Path) -> None:
    """Its commands run in their order on free ports: Ana's token opens her document over NATS and
    over HTTP.
    """
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    reader = Reader(tmp_path)
    begin, setup, *lines = (
        block("closed.md", "test_the_closed_setup_lets_a_token_in", "sh").text.rstrip("\n").split("\n")
    )
    assert begin.startswith(". .venv/bin/activate") and setup.startswith("lorogo auth setup closed")
    (wait,) = [line for line in lines if line.startswith("sleep ")]
    (gateway,) = [line for line in lines if line.startswith("lorogo gateway ")]
    lines[lines.index(gateway)] = gateway.replace("gateway ", f"gateway --port {reader.web_port} ", 1)
    # a busy machine may need more than five seconds
    ready = f"curl -s 127.0.0.1:{reader.web_port}/readyz"
    lines[lines.index(wait)] = f"until {ready} | grep -q '\"ready\":true'; do sleep 0.2; done"
    other = f"sed -i.old 's/4222/{reader.nats_port}/' closed/nats.conf"  # as the page advises
    code = block("closed.md", "test_the_closed_setup_lets_a_token_in", "python").text
    program = tmp_path / "ana.py"
    program.write_text(
        "import asyncio, sys, lorogo_client\n"
        f"url, token = 'nats://127.0.0.1:{reader.nats_port}', open('ana.token').read().strip()\n"
        f"async def main():\n{textwrap.indent(code, '    ')}"
        "            print(session.document_id, session.read_only)\n"
        "asyncio.run(main())\n"
    )
    printed = await reader.run_script("\n".join([setup, other, *lines, "echo", "python ana.py"]))
    assert "minutes-1 saved (journal)" in printed
    assert '{"title":"Hello"}' in printed
    assert "minutes-2026-11 False" in printed


def test_the_log_alone_prints_what_it_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copied as it stands: on the disk when it returns, and read back."""
    monkeypatch.chdir(tmp_path)
    exec(
        compile(
            block("log.md", "test_the_log_alone_prints_what_it_appended", "python").text, "log.md", "exec"
        ),
        {},
    )
    assert capsys.readouterr().out == "{'text': 'hello'}\n"


async def test_the_feed_gives_each_update_once() -> None:
    """Copied as it stands, each update comes once, and a later feed resumes at the position."""
    code = block("feed.md", "test_the_feed_gives_each_update_once", "python").text
    names: dict[str, Any] = {"lorogo_client": lorogo_client}
    exec(compile(code, "feed.md", "exec"), names)  # it is what is tested
    nats = MemoryNats()
    async with (
        Server(nats.connect("server"), ServerSettings(), **in_memory()),
        lorogo_client.connect(nats.connect("client")) as client,
        client.open("minutes-2026-11") as session,
        asyncio.timeout(SECONDS),
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
    section = (HANDBOOK / "closed.md").read_text(encoding="utf-8")
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
