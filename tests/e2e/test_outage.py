"""No server at all for a minute: nobody is to blame, so no document ends in ERROR.

Real processes, real NATS, default settings. Run with `-s` to see the figures.
"""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

import lorogo_client
from lorogo_client import State
from lorogo_protocol.status import Failed
from lorogo_transport.embedded import EmbeddedNats
from tests.e2e.support import Typist, servers


@pytest.mark.parametrize("skew", [0.0, 3600.0], ids=["clocks agree", "an hour apart"])
async def test_a_minute_without_any_server_leaves_no_document_in_error(
    fresh_nats: EmbeddedNats, skew: float
) -> None:
    """Clients keep asking; the first server back serves every document."""
    url = fresh_nats.url
    names = [f"doc-{number}" for number in range(10)]
    async with servers(url) as start, lorogo_client.connect(url) as client, AsyncExitStack() as stack:
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
