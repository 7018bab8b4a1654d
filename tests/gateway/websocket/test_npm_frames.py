"""The npm client, unchanged, against the gateway."""

import asyncio
from pathlib import Path

import pytest

from lorogo_testing.memory_nats import MemoryNats
from tests.gateway.npm import WEB, node
from tests.gateway.support import gate

pytestmark = [pytest.mark.usefixtures("server"), pytest.mark.node]


@pytest.mark.slow
async def test_the_npm_client_edits_shows_who_is_there_and_comes_back(world: MemoryNats) -> None:
    """Offline edits, updates, fragments, presence, kept presence; then another gateway on that port."""
    program = node()
    pipe = asyncio.subprocess.PIPE
    async with gate(world, seed=1) as first:
        port = first.port
        client = await asyncio.create_subprocess_exec(
            program, "test/client.mjs", first.url, cwd=WEB, stdin=pipe, stdout=pipe, stderr=pipe
        )
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stderr is not None
        said = b""
        try:
            async with asyncio.timeout(60):
                said = await client.stdout.readline()
        finally:
            if said != b"ready\n" and client.returncode is None:
                client.kill()
        assert said == b"ready\n", (await client.stderr.read()).decode()
        acks = first.stat("acks")
        assert acks["ok"] == sum(acks.values()) > 5
    async with gate(world, seed=2, port=port):
        async with asyncio.timeout(60):
            said, errors = await client.communicate(b"go\n")
        assert (said, client.returncode) == (b"done\n", 0), errors.decode()


async def test_the_vectors_are_what_the_npm_package_encodes_today() -> None:
    encoder = await asyncio.create_subprocess_exec(
        node(), "test/frames.mjs", cwd=WEB, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        said, _ = await encoder.communicate()
    assert said == (Path(__file__).parents[1] / "frames.json").read_bytes()
