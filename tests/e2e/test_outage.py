"""An outage of all servers for a minute: it is no failure of a document, so none ends in ERROR.

Real processes, real NATS, default settings. Run with `-s` to see the figures.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import lorogo_client
from lorogo_client import State
from lorogo_protocol.status import Failed
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.e2e.support import Typist, servers


@pytest.mark.deep
async def test_a_minute_without_any_server_leaves_no_document_in_error(tmp_path: Path) -> None:
    """Clients keep asking; the first server back serves every document. Clocks agree, or are hours apart."""
    async with asyncio.TaskGroup() as both:  # side by side: they wait most of the time
        both.create_task(a_minute_without_servers(tmp_path / "agree", skew=0.0))
        both.create_task(a_minute_without_servers(tmp_path / "apart", skew=3600.0))


async def a_minute_without_servers(folder: Path, *, skew: float) -> None:
    names = [f"doc-{number}" for number in range(10)]
    async with AsyncExitStack() as stack:
        url = (await stack.enter_async_context(EmbeddedNats(folder))).url
        start = await stack.enter_async_context(servers(url))
        client = await stack.enter_async_context(lorogo_client.connect(url))
        first = await start(skew)
        typists = []
        for name in names:
            session = await stack.enter_async_context(client.open(name))
            typists.append(Typist(session, "w"))
            await typists[-1].word()
        await first.kill()
        asking = [asyncio.create_task(typist.word(timeout=120.0)) for typist in typists]
        await asyncio.sleep(60)
        assert not any(task.done() for task in asking)
        assert all(typist.session.state is not State.SAVED for typist in typists)
        await start(-skew)
        back_at = time.monotonic()
        await asyncio.gather(*asking)
        served = time.monotonic() - back_at
        states = [entry.status async for _, entry in client.statuses()]
        failed = [status for status in states if isinstance(status, Failed)]
        print(
            f"\n60 s without servers (clock skew {skew:g} s): {len(names)} documents served again"
            f" {served:.2f} s after the first server came back; in ERROR: {len(failed)}"
        )
        assert not failed
