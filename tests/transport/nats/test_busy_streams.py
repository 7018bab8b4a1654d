"""A stream that has too much to store: nats-server refuses, and an append asks again."""

import asyncio
import json
import time
from pathlib import Path
from typing import cast

import pytest

from lorogo_transport.errors import StreamBusy
from lorogo_transport.nats import embedded
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.streams import JetStreamStream
from lorogo_transport.ports import Bus, Headers, Message, StreamSpec

BUSY = {
    "error": {"code": 429, "err_code": 10167, "description": "too many requests"},
    "stream": "s",
    "seq": 0,
}
STORED = {"stream": "s", "seq": 7}


class _Bus:
    """Gives these answers, one after the other."""

    guarded = False

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.asked: list[Headers | None] = []

    async def request(
        self, subject: str, data: bytes, *, headers: Headers | None = None, timeout: float
    ) -> Message:
        self.asked.append(headers)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return Message(subject, json.dumps(answer).encode())


async def test_an_append_is_sent_again_until_the_stream_takes_it() -> None:
    """Nothing was stored, so a compare-and-swap may go again as it is."""
    bus = _Bus(BUSY, BUSY, STORED)
    assert await JetStreamStream(cast(Bus, bus), "s").append("s.a", b"x", expected_last=3) == 7
    assert len(bus.asked) == 3
    assert bus.asked[0] is not None
    assert bus.asked[0] == bus.asked[2]


async def test_an_append_gives_up_in_time() -> None:
    """The append raises an error with the reason, which is retriable."""
    bus, began = _Bus(BUSY), time.monotonic()
    with pytest.raises(StreamBusy, match="too many requests"):
        await JetStreamStream(cast(Bus, bus), "s").append("s.a", b"x", timeout=0.1)
    assert time.monotonic() - began < 5.0
    assert len(bus.asked) > 1
    assert StreamBusy.retriable


@pytest.mark.nats
async def test_nats_server_refuses_what_is_above_its_bound(tmp_path: Path) -> None:
    """`ingest_bytes_max` reaches it; what is refused is not stored, and smaller messages are."""
    async with (
        embedded.EmbeddedNats(tmp_path / "nats", ingest_bytes_max=1000) as nats,
        await connect(nats.url, name="test") as transport,
    ):
        await transport.ensure(StreamSpec(name="s", subjects=("s.*",)))
        stream = transport.stream("s")
        with pytest.raises(StreamBusy):
            await stream.append("s.a", bytes(2000), timeout=1.0)
        assert await stream.append("s.a", bytes(500)) == 1
        await stream.append_unconfirmed("s.a", bytes(2000))
        await asyncio.sleep(0)
        assert await stream.append("s.a", b"last") == 2
