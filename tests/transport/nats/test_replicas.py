"""A stream's own account of who keeps it."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from lorogo_chaos.processes import nats_nodes
from lorogo_transport.errors import TransportError
from lorogo_transport.nats.api import state_from_info
from lorogo_transport.nats.connection import connect
from lorogo_transport.ports import StreamSpec, StreamState

NAME = "replicas"
GOOD = {"name": "b", "current": True}
SECONDS = 60.0


def info(kept: int = 1, **cluster: Any) -> dict[str, Any]:
    names = ("first_seq", "last_seq", "messages", "bytes", "consumer_count")
    reported: dict[str, Any] = {"config": {"num_replicas": kept}, "state": dict.fromkeys(names, 0)}
    return reported | ({"cluster": cluster} if cluster else {})


@pytest.mark.parametrize(
    ("reported", "kept", "current"),
    [
        (info(), 1, 1),
        (info(leader="a"), 1, 1),
        (info(leader="a", replicas=None), 1, 1),
        (info(3, leader="a", replicas=[GOOD, GOOD]), 3, 3),
        (info(3, leader="a", replicas=[GOOD, {"name": "c", "current": False}]), 3, 2),
        (info(3, leader="a", replicas=[GOOD, {"name": "c", "current": True, "offline": True}]), 3, 2),
        (info(3, leader="a", replicas=[GOOD]), 3, 2),
    ],
)
def test_who_is_offline_or_behind_does_not_count(reported: dict[str, Any], kept: int, current: int) -> None:
    """The answering node is the leader and has every message."""
    state = state_from_info(reported)
    assert (state.replicas, state.replicas_current) == (kept, current)


@pytest.mark.deep
@pytest.mark.nats
async def test_a_lost_node_is_seen(tmp_path: Path) -> None:
    """Of three real nodes one is killed; the stream reports two current replicas, whichever node it was."""
    nodes, lines = await nats_nodes.cluster(tmp_path, random.Random(1))
    try:
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(node.start())
        await nats_nodes.formed(nodes)
        urls = ",".join(node.url for node in nodes)
        async with await connect(urls, name="replicas") as transport:
            async with asyncio.timeout(SECONDS):
                while True:
                    try:
                        await transport.ensure(StreamSpec(NAME, ("replicas.*",), replicas=3))
                        break
                    except TransportError:  # a busy machine: the three have no leader that answers in time
                        await asyncio.sleep(0.1)

            async def until(current: int) -> StreamState:
                async with asyncio.timeout(SECONDS):
                    while True:
                        try:
                            state = await transport.stream(NAME).state()
                            if state.replicas_current == current:
                                return state
                        except TransportError:
                            pass  # it has no leader yet, or we are not connected
                        await asyncio.sleep(0.1)

            assert (await until(3)).replicas == 3
            await nodes[2].kill()
            assert (await until(2)).replicas == 3
    finally:
        for node in nodes:
            await node.kill()
        for line in lines:
            await line.close()
