"""Clients of the unchanged npm packages in one Node process, as Python calls."""

import asyncio
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
SCRIPT = WEB / "npm" / "clients.mjs"
_SECONDS = 60.0
_LINE_BYTES_MAX = 1 << 24
_FETCHED = ROOT / "build" / "node" / "tools"  # where web/with-node.sh puts one


class NpmError(Exception):
    """An error that an npm client threw."""


def node() -> str:
    """A Node that is modern enough; skips the test if there is none, or nothing for it to run."""
    if not (WEB / "node_modules" / "loro-websocket").is_dir():
        pytest.skip("web/node_modules is not there: `make pages` fetches it")
    path = os.pathsep.join([str(_FETCHED), os.environ.get("PATH", "")])
    for found in filter(None, (shutil.which("node"), shutil.which("node", path=path))):
        said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=30, check=False)
        major, minor = (int(part) for part in (said.stdout.strip().lstrip("v") or "0.0").split(".")[:2])
        if (major, minor) >= (20, 19):
            return found
    pytest.skip("no Node 20.19 or newer here, and web/with-node.sh has fetched none")


class Npm:
    """The process: give it clients' names and what they shall do."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def call(self, do: str, **given: object) -> Any:
        """Send a command and return its answer. Raises NpmError."""
        assert self._process.stdin is not None
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._process.stdin.write(json.dumps({"id": number, "do": do, **given}).encode() + b"\n")
        async with asyncio.timeout(_SECONDS):
            return await answer

    async def client(self, url: str, name: str = "") -> "NpmClient":
        """A new client, connected."""
        client = NpmClient(self, name or f"client{next(self._numbers)}")
        await client("connect", url=url)
        return client

    async def read(self) -> None:
        """Hand out the answers until the process ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = json.loads(line)
            future = self._waiting.pop(answer["id"])
            if future.done():
                continue
            if "error" in answer:
                future.set_exception(NpmError(answer["error"]))
            else:
                future.set_result(answer["value"])
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(NpmError("the Node process ended"))


class NpmClient:
    """One client: `await ann("join", room="paper")`. What it can do is the table in clients.mjs."""

    def __init__(self, npm: Npm, name: str) -> None:
        self._npm = npm
        self.name = name

    async def __call__(self, do: str, **given: object) -> Any:
        return await self._npm.call(do, client=self.name, **given)


@asynccontextmanager
async def npm_clients() -> AsyncIterator[Npm]:
    """A Node process for npm clients; it is gone afterwards, and so are they."""
    process = await asyncio.create_subprocess_exec(
        node(),
        str(SCRIPT),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
    )
    npm = Npm(process)
    reading = asyncio.create_task(npm.read())
    try:
        yield npm
    finally:
        process.kill()
        await process.wait()
        await reading
