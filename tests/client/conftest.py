"""One in-memory NATS, and one fake owner on it."""

from collections.abc import AsyncIterator

import pytest

from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import FakeOwner, new_world


@pytest.fixture
async def world() -> MemoryNats:
    return await new_world()


@pytest.fixture
async def owner(world: MemoryNats) -> AsyncIterator[FakeOwner]:
    async with FakeOwner(world) as owner:
        yield owner
