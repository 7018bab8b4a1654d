"""Read ranges of the WAL from NATS, complete by the leader's account, in record batches.

Batched direct gets are as fast as a consumer (about 45,000 messages/s on one core), and leave no consumer
behind. Any replica may answer; at its end, a request to the leader checks whether messages are missing.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pyarrow as pa

from lorogo_pipeline.sources.errors import StreamBehind
from lorogo_pipeline.sources.nats_connection import connect
from lorogo_pipeline.sources.stream_ranges import SequenceRange, StreamOptions, WalBounds, check_unchanged
from lorogo_pipeline.sources.stream_rows import LookbackAssembler, PartialUpdate, RangeAssembler, RowMaker
from lorogo_pipeline.tables.row_batches import Row, RowBatch
from lorogo_protocol.messages import subjects
from lorogo_server.ownership import epoch
from lorogo_transport.errors import Disconnected, NoResponders, RequestTimeout, StreamMissing
from lorogo_transport.ports import StoredMessage, Stream, Transport

NAME = "lorogo pipeline"
NEAR_MESSAGES = 10_000  # chunks of one update are rarely further apart
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # between tries without progress


async def read_bounds(url: str) -> WalBounds:
    """Connect and read the bounds of the WAL. Raises Unreachable, StreamMissing."""
    async with await connect(url, name=NAME) as transport:
        return await bounds_of(transport)


async def bounds_of(transport: Transport) -> WalBounds:
    """Read the bounds of the WAL. Raises StreamMissing."""
    # The epoch first: if it rises in between, the next call sees it.
    recorded = await epoch.recorded(transport)
    try:
        state = await transport.stream(subjects.WAL_STREAM).state()
    except StreamMissing:
        raise NoWal from None
    return WalBounds(recorded, max(state.first_sequence, 1), state.last_sequence, state.created_ns)


class NoWal(StreamMissing):
    """The stream is missing: no server has run on this NATS, or the stream was deleted."""

    def __init__(self) -> None:
        super().__init__(subjects.WAL_STREAM)
        self.args = (f"{self.args[0]} on this NATS: has a lorogo server ever run there?",)


async def read_range(
    options: StreamOptions, given: SequenceRange, schema: pa.Schema
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the updates that become complete within the range, as batches of `schema`."""
    async with await connect(options.nats, name=NAME) as transport:
        stream = transport.stream(subjects.WAL_STREAM)
        async for batch in batches(stream, options, given, schema):
            yield batch
        state = await stream.state()
        check_unchanged(given, state.last_sequence, state.created_ns)


async def batches(
    stream: Stream, options: StreamOptions, given: SequenceRange, schema: pa.Schema
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the batches of a range of any stream, without the final check."""
    maker = RowMaker(epoch=given.epoch, payload=options.payload)
    updates = RangeAssembler(maker)
    batch = RowBatch(schema)
    for subject in [subjects.wal(name) for name in options.documents or ("*",)]:
        async for stored in exact(stream, subject, given.first, given.last):
            row = updates.add(stored)
            if row is not None and batch.add(row):
                yield batch.take()
    for document_id, opens in updates.unfinished():
        async for row in _look_back(stream, maker, updates, given, document_id, opens):
            if batch.add(row):
                yield batch.take()
    if len(batch):
        yield batch.take()


async def _look_back(
    stream: Stream,
    maker: RowMaker,
    updates: RangeAssembler,
    given: SequenceRange,
    document_id: str,
    opens: dict[str, PartialUpdate],
) -> AsyncIterator[Row]:
    begin = max(given.first - NEAR_MESSAGES, 1)
    while True:
        back = LookbackAssembler(maker, opens, updates.given, first=given.first)
        async for stored in exact(stream, subjects.wal(document_id), begin, given.last):
            row = back.add(stored)
            if row is not None:
                yield row
        opens = back.open_finals
        if begin == 1 or not opens:
            break
        begin = 1
    for row in back.give_up():
        yield row


async def exact(stream: Stream, subject: str, first: int, last: int) -> AsyncIterator[StoredMessage]:
    """Yield every message of the subject that the leader has in the range. Raises StreamBehind."""
    position = first
    tries = 0
    while position <= last:
        before = position
        try:
            async for stored in stream.read(subject, first=position, last=last):
                position = stored.sequence + 1
                yield stored
            expected = await stream.next(subject, position) if position <= last else None
            if expected is None or expected.sequence > last:
                return
            problem = f"the answering replica ends before {expected.sequence}, which its leader has"
        except (RequestTimeout, Disconnected, NoResponders) as error:
            problem = str(error)
        tries = 0 if position > before else tries + 1
        if tries > len(PAUSES):
            raise StreamBehind(
                f"{stream.name} could not be read from {position} to {last}: {problem}; try again later"
            )
        await asyncio.sleep(PAUSES[max(tries - 1, 0)])
