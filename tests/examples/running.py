"""Helpers of the example tests: their folder, an example as a module, a server for them."""

import asyncio
import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

from lorogo_server import Server, ServerSettings
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SECONDS = 60.0


def module(path: str) -> ModuleType:
    """The example's file as a module of its own, not run as a program."""
    file = EXAMPLES / path
    spec = importlib.util.spec_from_file_location(f"example_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(made)
    finally:
        sys.path.remove(str(file.parent))
    return made


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[str]:
    """The address of a NATS with a document server on it."""
    async with (
        EmbeddedNats(folder / "nats") as nats,
        await connect(nats.url, name="examples") as transport,
        Server(transport, ServerSettings(), data=folder / "data"),
    ):
        yield nats.url


@asynccontextmanager
async def program(
    path: str, *arguments: str, folder: Path, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The example as people run it; it is gone afterwards."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / path), *arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: asyncio.subprocess.Process, words: str) -> str:
    """The next line of it that has these words."""
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        while line := (await process.stdout.readline()).decode():
            if words in line:
                return line
    assert process.stderr is not None
    raise AssertionError(f"it ended without {words!r}: {(await process.stderr.read()).decode()}")


async def until(true: Callable[[], bool], next_event: Callable[[], Awaitable[object]]) -> None:
    """Return when the condition is true; it is checked after each event."""
    async with asyncio.timeout(SECONDS):
        while not true():
            await next_event()
