"""The NATS operations of opening a new document, without lorogo, through the same library.

The streams are lorogo's own, on a NATS without servers. The steps of a client and a server run one after the
other: 3 compare-and-swap writes and 2 gets from the stream's leader; the claim on the snapshot and the read
of the WAL's end run concurrently. The client is notified of UP, so it needs no further get.
`tests/bench/loads/test_raw_opener.py` compares these steps with a real open.
"""

import asyncio
import time
from typing import Any, Self

from lorogo_bench.loads.typist import OPENING_MAX
from lorogo_protocol import status
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Starting, Up
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.ports import Stream
from lorogo_transport.stores import topology
from lorogo_transport.tasks import together

_ID = "V1StGXR8_Z5jdHi6B-myT"  # the length of server and operation ids
_METADATA = bytes(420)  # about the size of a new document's snapshot metadata
_ROLLUP = {"Nats-Rollup": "sub"}


class RawOpenerLoad:
    """One connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._transport: JetStreamTransport | None = None

    async def __aenter__(self) -> Self:
        self._transport = await connect(self._url, name="bench opener")
        for spec in topology.specs():
            await self._transport.ensure(spec)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._transport is not None:
            await self._transport.close()

    async def do_open(self, *, documents: list[str]) -> dict[str, Any]:
        """Open these, with the concurrency of a benchmark client; return how many are UP."""
        assert self._transport is not None
        streams = (subjects.STATUS_STREAM, subjects.SNAPSHOT_STREAM, subjects.WAL_STREAM)
        statuses, snapshots, wal = map(self._transport.stream, streams)
        opening = asyncio.Semaphore(OPENING_MAX)

        async def one(name: str) -> bool:
            async with opening:
                return await open_raw(name, statuses, snapshots, wal)

        began = time.perf_counter()
        up = await asyncio.gather(*map(one, documents))
        return {"seconds": time.perf_counter() - began, "up": sum(up)}


async def open_raw(document_id: str, statuses: Stream, snapshots: Stream, wal: Stream) -> bool:
    """Run the steps of one open; return whether the document is UP."""
    key = subjects.status_key(document_id)
    metadata = f"$O.{subjects.SNAPSHOT_BUCKET}.M.{document_id}"
    starting = status.encode(Starting(_ID, 0, time.time_ns()))
    await statuses.last(key)  # the client finds no owner
    taken = await statuses.append(key, starting, expected_last=0)  # the server takes the document
    await together(
        snapshots.append(metadata, _METADATA, headers=_ROLLUP, expected_last=0),  # with its fencing token
        wal.last(subjects.wal(document_id)),
    )
    up = await statuses.append(key, status.encode(Up(_ID, time.time_ns())), expected_last=taken)
    return up > taken
