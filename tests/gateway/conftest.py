"""One in-memory NATS; a real server on it, or a fake owner that can be bent."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import FakeOwner, new_world
from tests.server.support import QUICK as QUICK_SERVER


@pytest.fixture
async def world() -> MemoryNats:
    return await new_world()


@pytest.fixture
async def owner(world: MemoryNats) -> AsyncIterator[FakeOwner]:
    async with FakeOwner(world) as owner:
        yield owner


@pytest.fixture
async def server(world: MemoryNats, tmp_path: Path) -> AsyncIterator[Server]:
    async with Server(world.connect("server"), QUICK_SERVER, data=tmp_path) as server:
        yield server
