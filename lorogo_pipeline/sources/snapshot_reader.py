"""Read the current snapshots from NATS, several at a time, in record batches.

A few requests list their heads; then sixteen snapshots are fetched at once, each by one batched direct get:
2,000 of 10 kB take 0.2 s. A snapshot that is replaced during the read is read again from its new head.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import pyarrow as pa

from lorogo_pipeline.sources.nats_connection import connect
from lorogo_pipeline.sources.snapshot_rows import (
    DocumentShare,
    FetchWindow,
    SnapshotOptions,
    damaged_row,
    whole_row,
)
from lorogo_pipeline.sources.stream_reader import NAME, PAUSES
from lorogo_pipeline.tables.row_batches import Row, RowBatch
from lorogo_protocol.limits import MIB
from lorogo_protocol.messages import subjects
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import Disconnected, NoResponders, RequestTimeout, StreamMissing, TooLarge
from lorogo_transport.ports import Stream, Transport
from lorogo_transport.stores.snapshots import SnapshotDamaged, SnapshotHead, SnapshotReplaced, SnapshotStore

_SNAPSHOT_BYTES_MAX = 1024 * MIB  # Arrow and Spark hold no more than 2 GiB in a value


class NoSnapshots(StreamMissing):
    """The bucket is missing: no server has run on this NATS, or the bucket was deleted."""

    def __init__(self) -> None:
        super().__init__(subjects.SNAPSHOT_STREAM)
        self.args = (f"{self.args[0]} on this NATS: has a lorogo server ever run there?",)


async def stored_bytes(url: str) -> int:
    """Return the size of the bucket. Raises Unreachable, NoSnapshots."""
    async with await connect(url, name=NAME) as transport:
        try:
            return (await transport.stream(subjects.SNAPSHOT_STREAM).state()).bytes
        except StreamMissing:
            raise NoSnapshots from None


async def read_share(
    options: SnapshotOptions, share: DocumentShare, schema: pa.Schema
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the snapshots of a share of the documents, as batches of `schema`."""
    async with await connect(options.nats, name=NAME) as transport:
        batch = RowBatch(schema)
        async for row in rows(transport, options, share):
            if batch.add(row):
                yield batch.take()
        if len(batch):
            yield batch.take()


async def rows(transport: Transport, options: SnapshotOptions, share: DocumentShare) -> AsyncIterator[Row]:
    """Yield the snapshots as rows. Raises SnapshotDamaged with `options.fail`."""
    stream = transport.stream(subjects.SNAPSHOT_STREAM)
    store = SnapshotStore(
        stream, max_payload=transport.bus.max_payload, clock=SystemClock(), new_id=_writes_nothing
    )
    counts: Mapping[str, int] = {}
    if not options.payload and not options.documents:
        counts = await stream.subjects(store.chunk_subject("*"))
    window = FetchWindow()
    async for head in _heads(store, options):
        if not share.has(head.document_id):
            continue
        if isinstance(head, SnapshotDamaged):
            yield _damaged(head, None, options)
        elif options.payload:
            for row in await _fetched(store, window.add(head), options):
                yield row
        else:
            without = await _without_bytes(stream, store, head, counts, options)
            if without is not None:
                yield without
    for row in await _fetched(store, window.take(), options):
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


async def _fetched(store: SnapshotStore, heads: list[SnapshotHead], options: SnapshotOptions) -> list[Row]:
    """Fetch the snapshots concurrently; return their rows."""
    results = await asyncio.gather(
        *(_whole(store, head, options) for head in heads), return_exceptions=True
    )  # waits for all, so that no task is left running
    found: list[Row] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        if result is not None:
            found.append(result)
    return found


async def _whole(store: SnapshotStore, listed: SnapshotHead, options: SnapshotOptions) -> Row | None:
    """Fetch one snapshot; None if it was removed."""
    head: SnapshotHead | None = listed
    for pause in (*PAUSES, None):
        try:
            head = head or await store.head(listed.document_id)
            if head is None:
                return None
            return whole_row(head, await store.get(head, bytes_max=_SNAPSHOT_BYTES_MAX))
        except SnapshotDamaged as damage:
            return _damaged(damage, head, options)
        except TooLarge as error:
            return _damaged(SnapshotDamaged(listed.document_id, str(error)), head, options)
        except (SnapshotReplaced, RequestTimeout, Disconnected, NoResponders):
            if pause is None:
                raise
        head = None
        await asyncio.sleep(pause)
    return None


async def _without_bytes(
    stream: Stream,
    store: SnapshotStore,
    listed: SnapshotHead,
    counts: Mapping[str, int],
    options: SnapshotOptions,
) -> Row | None:
    """Return the row without payload; the chunks are counted, not transferred."""
    if counts.get(store.chunk_subject(listed.nuid), 0) == listed.chunks:
        return whole_row(listed, None)
    head = await store.head(listed.document_id)  # replaced or damaged: the leader knows
    if head is None:
        return None
    there = await stream.count(store.chunk_subject(head.nuid))
    if there == head.chunks:
        return whole_row(head, None)
    reason = f"{there} of its {head.chunks} chunks exist"
    return _damaged(SnapshotDamaged(head.document_id, reason), head, options)


def _damaged(damage: SnapshotDamaged, head: SnapshotHead | None, options: SnapshotOptions) -> Row:
    if options.fail:
        raise SnapshotDamaged(damage.document_id, f"{damage.reason}; option damaged=skip reads the others")
    return damaged_row(damage, head)


def _writes_nothing() -> str:
    raise AssertionError("a reader names no snapshots")
