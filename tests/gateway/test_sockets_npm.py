"""The npm client, unchanged, against the gateway."""

import asyncio
import shutil
from pathlib import Path

import pytest

from lorogo_transport.memory import MemoryNats
from tests.gateway.support import gate

WEB = Path(__file__).parents[2] / "web"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.usefixtures("server"),
    pytest.mark.skipif(
        NODE is None or not (WEB / "node_modules" / "loro-websocket").exists(),
        reason="needs Node and the packages of web/: npm ci in web/",
    ),
]


@pytest.mark.slow
async def test_the_npm_client_edits_shows_who_is_there_and_comes_back(world: MemoryNats) -> None:
    """Offline edits, updates, fragments, presence, kept presence; then another gateway on that port."""
    assert NODE is not None
    pipe = asyncio.subprocess.PIPE
    async with gate(world, seed=1) as first:
        port = first.port
        node = await asyncio.create_subprocess_exec(
            NODE, "test/client.mjs", first.url, cwd=WEB, stdin=pipe, stdout=pipe, stderr=pipe
        )
        assert node.stdin is not None
        assert node.stdout is not None
        assert node.stderr is not None
        said = b""
        try:
            async with asyncio.timeout(60):
                said = await node.stdout.readline()
        finally:
            if said != b"ready\n" and node.returncode is None:
                node.kill()
        assert said == b"ready\n", (await node.stderr.read()).decode()
        acks = first.stat("acks")
        assert acks["ok"] == sum(acks.values()) > 5
    async with gate(world, seed=2, port=port):
        async with asyncio.timeout(60):
            said, errors = await node.communicate(b"go\n")
        assert (said, node.returncode) == (b"done\n", 0), errors.decode()


async def test_the_vectors_are_what_the_npm_package_encodes_today() -> None:
    assert NODE is not None
    node = await asyncio.create_subprocess_exec(
        NODE, "test/frames.mjs", cwd=WEB, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        said, _ = await node.communicate()
    assert said == Path(__file__).with_name("frames.json").read_bytes()
