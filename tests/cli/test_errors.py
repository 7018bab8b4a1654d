"""An impossible command is one sentence on stderr and exit code 2, never a traceback."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lorogo_transport.nats.embedded import EmbeddedNats, find_nats_server
from tests.cli.support import environment, lorogo, refused, said, until

pytestmark = pytest.mark.nats


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["doc", "get", "x", "--nats", "http://example"], "'http://example' is not a NATS address"),
        (["doc", "get", "x", "--nats", "nats://127.0.0.1:99999"], "is not a NATS address"),
        (["doc", "get", "x", "--nats", ""], "is not a NATS address"),
        (["doc", "get", "x"], "nothing answers at nats://127.0.0.1:1 .*start one with `lorogo dev`"),
        (["status"], "start one with `lorogo dev`"),
        (["serve"], "start one with `lorogo dev`"),
        (["serve", "--workers", "2"], "start one with `lorogo dev`"),
        (["doc", "get", "a.b"], "'a.b' is not a document id: '.' is not allowed"),
        (["doc", "get", ""], "it is empty"),
        (["doc", "set", "x", "title", "Hello"], "'Hello' is not JSON; .*quotes"),
        (["doc", "set", "x", "a..b", "1"], "'a..b' is not a path"),
        (["doc", "list"], "No such command 'list'; `lorogo status` lists documents; see `lorogo doc --help`"),
        (["doc", "get", "x", "--at", "yesterday"], "'yesterday' is neither a time"),
        (["doc", "get", "x", "--at", "v!"], "'v!' is not a version"),
        (["doc", "revert", "x", "-10parsecs"], "is neither a time"),
        (["doc", "import", "x", "no-such-file"], "cannot read no-such-file: No such file or directory"),
        (["doc", "import", "x", "."], "cannot read .: Is a directory"),
        (["doc", "import", "x", "-"], "stdin is empty"),
        (["serve", "--replicas", "2"], "replicas must be 1, 3 or 5"),
        (["serve", "--idle-seconds", "0"], "--idle-seconds must be a number above 0, not '0'"),
        (
            ["serve", "--wal-bytes-max", "much"],
            "--wal-bytes-max must be a size above 0 .* as 512KiB, 64MiB, 10GiB, not 'much'",
        ),
        (["serve", "--workers", "0"], "--workers"),
        (["dev", "--port", "70000"], "--port"),
        (["doc", "get"], "Missing argument 'ID'; see `lorogo doc get --help`"),
        (["doc", "get", "x", "--nope"], "No such option: --nope; see `lorogo doc get --help`"),
        (["nope"], "No such command 'nope'; see `lorogo --help`"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: list[str], words: str) -> None:
    """Each mistake has its own sentence, which names a valid value or the next step."""
    result = lorogo(*arguments, cwd=tmp_path, env={"LOROGO_NATS": "nats://127.0.0.1:1"})
    sentence = refused(result)
    assert re.search(words, sentence), sentence


def test_a_log_level_that_is_none_is_refused(tmp_path: Path) -> None:
    """LOROGO_LOG is checked as options are."""
    assert "LOROGO_LOG" in refused(lorogo("status", cwd=tmp_path, env={"LOROGO_LOG": "loud"}))


def test_help_is_quick_and_loads_nothing_heavy(tmp_path: Path) -> None:
    """`lorogo --help` needs neither loro nor nats; without a command the help comes too, with 2."""
    code = (
        "import sys\nfrom lorogo_cli.app import run\ncode = run(['doc', 'get', '--help'])\n"
        "heavy = {'loro', 'nats', 'asyncio', 'structlog', 'msgpack'} & sys.modules.keys()\n"
        "assert not heavy, heavy\nsys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert b"--at" in result.stdout
    assert said(lorogo("--version", cwd=tmp_path)).startswith("lorogo ")
    assert lorogo(cwd=tmp_path).returncode == 2


@pytest.fixture
async def no_jetstream(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a nats-server without JetStream."""
    config = tmp_path / "nats.conf"
    config.write_text(json.dumps({"host": "127.0.0.1", "port": -1, "ports_file_dir": str(tmp_path)}))
    binary = await asyncio.to_thread(find_nats_server)
    server = await asyncio.create_subprocess_exec(
        binary, "--config", config, stderr=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
    )
    try:

        def look() -> str | None:
            for path in tmp_path.glob("*.ports"):
                if text := path.read_text():
                    return str(json.loads(text)["nats"][0])
            return None

        yield await asyncio.to_thread(until, "the ports file", look)
    finally:
        server.kill()
        await server.wait()


async def test_a_nats_without_jetstream_is_an_error(no_jetstream: str, tmp_path: Path) -> None:
    """The commonest mistake with NATS: JetStream is not on."""
    for command in (
        ("status",),
        ("doc", "get", "x"),
        ("doc", "set", "x", "t", '"t"'),
        ("serve", "--workers", "2"),
    ):
        result = await asyncio.to_thread(lorogo, *command, "--nats", no_jetstream, cwd=tmp_path)
        assert "JetStream is not enabled on this NATS server: enable it (nats-server -js)" in refused(
            result
        ), command


async def test_a_nats_without_servers_is_an_error(fresh_nats: EmbeddedNats, tmp_path: Path) -> None:
    """A NATS that never had a server has no streams, and the error appears without a long wait."""
    for command in (("status",), ("doc", "get", "x"), ("doc", "set", "x", "t", '"t"')):
        result = await asyncio.to_thread(lorogo, *command, "--nats", fresh_nats.url, cwd=tmp_path)
        assert f"`lorogo serve --nats {fresh_nats.url}`" in refused(result), command
