"""Helpers for tests of the stream's source: updates, their messages, and a WAL to read them from."""

import itertools
from collections.abc import Iterable, Mapping

import pyarrow as pa
from loro import ExportMode, LoroDoc, VersionVector

from lorogo_pipeline.sources.stream_ranges import SequenceRange, StreamOptions
from lorogo_pipeline.sources.stream_reader import batches
from lorogo_pipeline.tables.schemas import RECORDS
from lorogo_protocol.messages.chunks import Chunk, split
from lorogo_protocol.messages.subjects import WAL_STREAM, wal
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.ports import StoredMessage, Stream
from lorogo_transport.stores.topology import specs

_SECOND_NS = 1_000_000_000


def update(text: str = "hello", peer: int = 2**63 + 5) -> bytes:
    """A real update of one peer."""
    doc = LoroDoc()
    doc.peer_id = peer
    doc.get_text("text").insert(0, text)
    return doc.export(ExportMode.Updates(VersionVector()))


def pieces(payload: bytes, log_id: str, count: int) -> list[Chunk]:
    """The payload in `count` chunks."""
    made = list(split(payload, log_id, chunk_bytes_max=-(-len(payload) // count)))
    assert len(made) == count
    return made


def message(chunk: Chunk, sequence: int, document_id: str = "doc") -> StoredMessage:
    """The chunk as the WAL holds it."""
    return StoredMessage(wal(document_id), sequence, sequence * _SECOND_NS, chunk.data, chunk.headers())


def messages(chunks: Iterable[tuple[str, Chunk]]) -> list[StoredMessage]:
    """Chunks of documents, stored one after another from sequence 1 on."""
    return [
        message(chunk, sequence, document_id)
        for sequence, (document_id, chunk) in zip(itertools.count(1), chunks, strict=False)
    ]


async def memory_wal(chunks: Iterable[tuple[str, Chunk]] = ()) -> tuple[MemoryTransport, Stream]:
    """A WAL in memory, and its connection."""
    transport = MemoryNats().connect()
    for spec in specs():
        await transport.ensure(spec)
    stream = transport.stream(WAL_STREAM)
    for document_id, chunk in chunks:
        await store(stream, document_id, chunk)
    return transport, stream


async def store(stream: Stream, document_id: str, *chunks: Chunk) -> None:
    for chunk in chunks:
        await stream.append(wal(document_id), chunk.data, headers=chunk.headers())


async def read(
    stream: Stream, first: int, last: int, options: StreamOptions | None = None
) -> list[Mapping[str, object]]:
    """The rows of one range."""
    given = SequenceRange(first, last, epoch=1, created=0)
    found = [batch async for batch in batches(stream, options or StreamOptions(), given, RECORDS)]
    rows: list[Mapping[str, object]] = pa.Table.from_batches(found, RECORDS).to_pylist()
    return rows
