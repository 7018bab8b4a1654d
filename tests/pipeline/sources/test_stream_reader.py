"""Reading exactly what the leader has, although any replica may answer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from lorogo_pipeline.sources import stream_reader
from lorogo_pipeline.sources.errors import StreamBehind
from lorogo_pipeline.sources.stream_reader import NoWal, bounds_of, exact
from lorogo_protocol.messages.subjects import EPOCH_KEY, STATUS_STREAM, WAL_STREAM
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.errors import RequestTimeout
from lorogo_transport.ports import StoredMessage, Stream
from tests.pipeline.wal import memory_wal, pieces, update


@dataclass
class Laggard:
    """A stream that is answered by a replica which has only messages up to `has`, and is cut off at times."""

    stream: Stream
    has: int
    grows: int  # with every read
    cuts: int = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)

    async def read(
        self, subject: str, *, first: int = 1, last: int | None = None
    ) -> AsyncIterator[StoredMessage]:
        async for stored in self.stream.read(subject, first=first, last=last):
            if stored.sequence > self.has:
                break
            if self.cuts and stored.sequence == 3:
                self.cuts -= 1
                raise RequestTimeout("the connection was lost while reading")
            yield stored
        self.has += self.grows


async def sequences(stream: object, first: int, last: int) -> list[int]:
    assert isinstance(stream, Laggard)
    return [stored.sequence async for stored in exact(stream, "loro.wal.*", first, last)]  # type: ignore[arg-type]


@pytest.fixture
async def wal(monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setattr(stream_reader, "PAUSES", (0.0, 0.0, 0.0))
    _, stream = await memory_wal(
        ("ab"[number % 2], pieces(update(), f"l{number}", 1)[0]) for number in range(8)
    )
    await stream.delete(8)
    await stream.delete(5)
    return stream


async def test_a_replica_that_lags(wal: Stream) -> None:
    """It is asked again from where it ended: nothing is left out, nothing comes twice, gaps do not matter."""
    assert await sequences(Laggard(wal, has=2, grows=1), 1, 8) == [1, 2, 3, 4, 6, 7]
    assert await sequences(Laggard(wal, has=2, grows=1), 2, 6) == [2, 3, 4, 6]
    assert await sequences(Laggard(wal, has=8, grows=0), 8, 8) == []


async def test_a_replica_that_never_catches_up(wal: Stream) -> None:
    """After some tries the read fails with a sentence; half a range is never taken for a whole one."""
    with pytest.raises(
        StreamBehind, match=r"loro-wal could not be read from 4 to 8: .* which its leader has"
    ):
        await sequences(Laggard(wal, has=3, grows=0), 1, 8)


async def test_a_connection_that_is_cut(wal: Stream) -> None:
    """A read that is cut off goes on where it was."""
    assert await sequences(Laggard(wal, has=9, grows=0, cuts=2), 1, 8) == [1, 2, 3, 4, 6, 7]
    with pytest.raises(StreamBehind, match="the connection was lost while reading"):
        await sequences(Laggard(wal, has=9, grows=0, cuts=99), 1, 8)


async def test_what_is_seen() -> None:
    """The first and last sequence of the WAL, and the epoch that is recorded; 1 if none is."""
    transport, stream = await memory_wal(("d", pieces(update(), f"l{number}", 1)[0]) for number in range(4))
    await stream.delete(1)
    found = await bounds_of(transport)
    assert (found.epoch, found.first, found.last) == (1, 2, 4)
    record = b'{"epoch":7,"sequence":4,"time_ns":5,"created_ns":6}'
    await transport.stream(STATUS_STREAM).append(EPOCH_KEY, record)
    assert (await bounds_of(transport)).epoch == 7


async def test_no_wal() -> None:
    """A NATS that never had a server is an error of one sentence."""
    with pytest.raises(NoWal, match=f"stream '{WAL_STREAM}' does not exist on this NATS"):
        await bounds_of(MemoryNats().connect())
