"""Reading the current snapshots from NATS, several at a time, in record batches.

Their heads come with a few requests; then sixteen snapshots are fetched at once, each by one batched direct
get: 2,000 of 10 kB take 0.2 s. One that is replaced meanwhile is read again from its new head.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pyarrow as pa

from lorogo_pipeline.row_batches import Row, RowBatch
from lorogo_pipeline.snapshot_rows import Share, SnapshotOptions, damaged_row, whole_row, windows
from lorogo_pipeline.stream_reading import NAME
from lorogo_protocol import subjects
from lorogo_protocol.limits import MIB
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import Disconnected, NoResponders, RequestTimeout, StreamMissing, TooLarge
from lorogo_transport.jetstream import connect
from lorogo_transport.ports import Stream, Transport
from lorogo_transport.snapshots import SnapshotDamaged, SnapshotHead, SnapshotReplaced, SnapshotStore

_SNAPSHOT_BYTES_MAX = 1024 * MIB  # Arrow and Spark hold no more than 2 GiB in a value
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # between tries of one snapshot


class NoSnapshots(StreamMissing):
    """No server has ever run on this NATS, or somebody deleted its bucket."""

    def __init__(self) -> None:
        super().__init__(subjects.SNAPSHOT_STREAM)
        self.args = (f"{self.args[0]} on this NATS: has a lorogo server ever run there?",)


async def stored_bytes(url: str) -> int:
    """How much the bucket holds. Raises Unreachable, NoSnapshots."""
    async with await connect(url, name=NAME) as transport:
        try:
            return (await transport.stream(subjects.SNAPSHOT_STREAM).state()).bytes
        except StreamMissing:
            raise NoSnapshots from None


async def read_share(
    options: SnapshotOptions, share: Share, schema: pa.Schema
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The snapshots of a share of the documents, as batches of `schema`."""
    async with await connect(options.nats, name=NAME) as transport:
        batch = RowBatch(schema)
        async for row in rows(transport, options, share):
            if batch.add(row):
                yield batch.take()
        if len(batch):
            yield batch.take()


async def rows(transport: Transport, options: SnapshotOptions, share: Share) -> AsyncIterator[Row]:
    """The same as rows. Raises SnapshotDamaged if that was asked for."""
    stream = transport.stream(subjects.SNAPSHOT_STREAM)
    store = SnapshotStore(
        stream, max_payload=transport.bus.max_payload, clock=SystemClock(), new_id=_writes_nothing
    )
    heads: list[SnapshotHead] = []
    async for head in _heads(store, options):
        if isinstance(head, SnapshotHead):
            if share.has(head.document_id):
                heads.append(head)
        elif share.has(head.document_id):
            yield _damaged(head, None, options)
    if not options.payload:
        async for row in _uncopied(stream, store, heads, options):
            yield row
        return
    for window in windows(heads):
        for row in await asyncio.gather(*(_whole(store, head, options) for head in window)):
            if row is not None:
                yield row


async def _heads(
    store: SnapshotStore, options: SnapshotOptions
) -> AsyncIterator[SnapshotHead | SnapshotDamaged]:
    if not options.documents:
        async for head in store.heads():
            yield head
        return
    for document_id in options.documents:
        try:
            found = await store.head(document_id)
        except SnapshotDamaged as damage:
            yield damage
        else:
            if found is not None:
                yield found


async def _whole(store: SnapshotStore, head: SnapshotHead, options: SnapshotOptions) -> Row | None:
    """The row of one document, with its bytes; None if it is gone."""
    current: SnapshotHead | None = head
    for pause in (*_PAUSES, None):
        assert current is not None
        try:
            return whole_row(current, await store.get(current, bytes_max=_SNAPSHOT_BYTES_MAX))
        except SnapshotDamaged as damage:
            return _damaged(damage, current, options)
        except TooLarge as error:
            return _damaged(SnapshotDamaged(current.document_id, str(error)), current, options)
        except (SnapshotReplaced, RequestTimeout, Disconnected, NoResponders):
            if pause is None:
                raise
        await asyncio.sleep(pause)
        current = await store.head(head.document_id)
        if current is None:
            return None
    return None


async def _uncopied(
    stream: Stream, store: SnapshotStore, heads: list[SnapshotHead], options: SnapshotOptions
) -> AsyncIterator[Row]:
    """Rows without bytes: whether all chunks are there can be told without moving them."""
    every = store.chunk_subject("*")
    counts = {} if options.documents else await stream.subjects(every)
    for listed in heads:
        head: SnapshotHead | None = listed
        there = counts.get(store.chunk_subject(listed.nuid), 0)
        if there != listed.chunks:  # replaced since, or damaged: the leader knows
            head = await store.head(listed.document_id)
            there = 0 if head is None else await stream.count(store.chunk_subject(head.nuid))
        if head is None:
            continue
        if there != head.chunks:
            reason = f"{there} of its {head.chunks} chunks are there"
            yield _damaged(SnapshotDamaged(head.document_id, reason), head, options)
        else:
            yield whole_row(head, None)


def _damaged(damage: SnapshotDamaged, head: SnapshotHead | None, options: SnapshotOptions) -> Row:
    if options.fail:
        raise SnapshotDamaged(damage.document_id, f"{damage.reason}; option damaged=skip reads the others")
    return damaged_row(damage, head)


def _writes_nothing() -> str:
    raise AssertionError("a reader names no snapshots")
