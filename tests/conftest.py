"""Fixtures for every test: real nats-servers, shared or one's own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lorogo_transport.embedded import EmbeddedNats


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def nats_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedNats]:
    """One nats-server for the whole run: use names of your own in it, and do not stop it."""
    async with EmbeddedNats(tmp_path_factory.mktemp("nats")) as nats:
        yield nats


@pytest.fixture
async def fresh_nats(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    """A nats-server of this test's own: kill it, pause it, start it again."""
    async with EmbeddedNats(tmp_path / "nats") as nats:
        yield nats
