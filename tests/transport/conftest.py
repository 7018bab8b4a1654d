"""Worlds for one contract: real NATS, the in-memory twin, and the twin with messages that take their time."""

import itertools
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.transport.support import AnyTransport, Connect, Slow, StartNats, nats_with

_names = itertools.count(1)


@pytest.fixture
def unique() -> str:
    """A token that no other test uses, for subjects and streams."""
    return f"t{next(_names)}-{random.getrandbits(32):x}"


@pytest.fixture(params=["memory", "slow memory", pytest.param("nats", marks=pytest.mark.nats)])
def world(request: pytest.FixtureRequest) -> MemoryNats | str:
    """The twin, or the address of the real thing. Not async: a session's server starts outside our loop."""
    if request.param == "memory":
        return MemoryNats()
    if request.param == "slow memory":
        return MemoryNats(fault_model=Slow())
    server: EmbeddedNats = request.getfixturevalue("nats_server")
    return server.url


@pytest.fixture
async def dial(world: MemoryNats | str) -> AsyncIterator[Connect]:
    """A function that makes another connection to the same world; closed with the test."""
    async with AsyncExitStack() as stack:

        async def make() -> AnyTransport:
            made: AnyTransport
            made = await connect(world, name="test") if isinstance(world, str) else world.connect()
            return await stack.enter_async_context(made)

        yield make


@pytest.fixture
async def transport(dial: Connect) -> AnyTransport:
    return await dial()


@pytest.fixture
async def start_nats(tmp_path: Path) -> AsyncIterator[StartNats]:
    """A function that starts a nats-server with settings of our own and returns its address."""
    async with AsyncExitStack() as stack:

        async def start(settings: dict[str, object]) -> str:
            return await stack.enter_async_context(nats_with(tmp_path, settings))

        yield start
