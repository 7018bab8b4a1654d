"""What NATS has to do when a new document is opened, without lorogo, through the same library.

The streams are lorogo's own, on a NATS that no server has. For each document one step after the other, as a
client and a server take them: 3 compare-and-swap writes and 2 gets, each asked of the stream's leader; the
claim on the snapshot and the WAL's end at once. The client hears that it is UP, so it does not ask.
`tests/bench/loads/test_raw_opener.py` holds that against a real open.
"""

import asyncio
import time
from typing import Any, Self

from lorogo_bench.loads.typist import OPENING_MAX
from lorogo_protocol import status, subjects
from lorogo_protocol.status import Starting, Up
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.ports import Stream
from lorogo_transport.stores import topology
from lorogo_transport.tasks import together

_ID = "V1StGXR8_Z5jdHi6B-myT"  # as long as those of servers and operations
_METADATA = bytes(420)  # about what the metadata of a new document's snapshot has
_ROLLUP = {"Nats-Rollup": "sub"}


class Load:
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
        """These, as many at once as a client of the benchmark opens; how many are UP then."""
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
    """The steps of one; whether it is UP, as it should be."""
    key = subjects.status_key(document_id)
    metadata = f"$O.{subjects.SNAPSHOT_BUCKET}.M.{document_id}"
    starting = status.encode(Starting(_ID, 0, time.time_ns()))
    await statuses.last(key)  # the client: nobody serves it
    taken = await statuses.append(key, starting, expected_last=0)  # the server: it is asked to
    await together(
        snapshots.append(metadata, _METADATA, headers=_ROLLUP, expected_last=0),  # its token is on it
        wal.last(subjects.wal(document_id)),
    )
    up = await statuses.append(key, status.encode(Up(_ID, time.time_ns())), expected_last=taken)
    return up > taken
