"""A server and a client of it, in both worlds."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from lorogo_server import Server, ServerSettings
from lorogo_server.recovery import recovery
from tests.journals import in_memory
from tests.server.support import QUICK, Probe
from tests.server.worlds import World, memory_world
from tests.transport.conftest import dial, transport, unique, world
from tests.transport.support import Connect

__all__ = ["dial", "transport", "unique", "world"]


@pytest.fixture(autouse=True)
def quick_roll_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of one process answer at once: a document need not wait a second for those never met."""
    monkeypatch.setattr(recovery, "_UNKNOWN_SECONDS", 0.1)


@pytest.fixture
async def serve(dial: Connect) -> AsyncIterator[Callable[..., object]]:
    """A function that starts a server with these settings; stopped with the test."""
    async with AsyncExitStack() as stack:

        async def start(settings: ServerSettings = QUICK, **options: object) -> Server:
            server = Server(await dial(), settings, **{**in_memory(), **options})  # type: ignore[arg-type]  # passed on
            return await stack.enter_async_context(server)

        yield start


@pytest.fixture
async def probe(dial: Connect) -> AsyncIterator[Probe]:
    async with Probe(await dial()) as made:
        yield made


@pytest.fixture
async def memory() -> AsyncIterator[World]:
    """The in-memory NATS, for servers that a test starts."""
    async with memory_world() as made:
        yield made
