"""The limit of opens asks of NATS what a real open asks of it."""

from collections import Counter

import pytest

from lorogo_bench.loads.raw.opener import open_raw
from lorogo_protocol.messages import subjects
from lorogo_server import Server, ServerSettings
from lorogo_testing.memory_nats import MemoryNats
from lorogo_testing.stream import MemoryStream
from lorogo_transport.errors import WrongLastSequence
from tests.client.support import client_of, new_world
from tests.journals import in_memory

Asked = Counter[tuple[str, str]]  # (stream, write or get)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The number of reads and writes of each stream, over all connections, for the documents of this test."""
    found: Asked = Counter()

    def counted(method: str, kind: str) -> None:
        real = getattr(MemoryStream, method)

        async def count(stream: MemoryStream, subject: str, *rest: object, **named: object) -> object:
            if subject.rpartition(".")[2] in {"doc", "ZG9j"}:  # a snapshot's name is in base64
                found[stream.name, kind] += 1
            return await real(stream, subject, *rest, **named)

        monkeypatch.setattr(MemoryStream, method, count)

    counted("append", "write")
    counted("last", "get")
    return found


async def raw(world: MemoryNats) -> bool:
    streams = (subjects.STATUS_STREAM, subjects.SNAPSHOT_STREAM, subjects.WAL_STREAM)
    return await open_raw("doc", *map(world.connect("raw").stream, streams))


async def test_a_real_open_writes_the_same_and_asks_no_less(asked: Asked) -> None:
    """The same writes to the same streams; a client that waits may look more often than it has to."""
    assert await raw(await new_world())
    needed = asked.copy()
    asked.clear()
    world = await new_world()
    async with (
        Server(world.connect("server"), ServerSettings(), **in_memory()),
        client_of(world) as client,
        client.open("doc"),
    ):
        real = asked.copy()
    writes = {place: count for place, count in needed.items() if place[1] == "write"}
    assert writes == {place: count for place, count in real.items() if place[1] == "write"}
    assert sum(writes.values()) == 3 and needed.total() == 5
    assert needed <= real


async def test_it_is_up_only_once() -> None:
    """A second one of the same name is not what a new document's open is, and fails."""
    world = await new_world()
    assert await raw(world)
    with pytest.raises(WrongLastSequence):
        await raw(world)
