"""`lorogo.snapshots` through Spark, on a real nats-server; and what of it is pure."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from lorogo_pipeline.sources import snapshot_reader
from lorogo_pipeline.sources.errors import BadSourceOption
from lorogo_pipeline.sources.registration import register
from lorogo_pipeline.sources.snapshot_reader import rows as read_rows
from lorogo_pipeline.sources.snapshot_rows import (
    PARTITION_BYTES,
    WINDOW_BYTES,
    WINDOW_HEADS,
    DocumentShare,
    FetchWindow,
    SnapshotOptions,
    shares,
)
from lorogo_pipeline.tables.schemas import SNAPSHOTS, spark_schema
from lorogo_protocol.messages.subjects import SNAPSHOT_STREAM
from lorogo_protocol.position import Position
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.clock import SystemClock
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.stores.snapshots import CHUNK_BYTES, SnapshotDamaged, SnapshotHead, SnapshotStore
from lorogo_transport.stores.topology import specs

AnyTransport = JetStreamTransport | MemoryTransport
FACTS = SnapshotMetadata(position=Position(2, 7, 5), frontiers=b"\x01", lease=5, generation=1)
BIG = os.urandom(3 * CHUNK_BYTES)


def store_on(transport: AnyTransport) -> SnapshotStore:
    names = itertools.count(1)
    return SnapshotStore(
        transport.stream(SNAPSHOT_STREAM),
        max_payload=transport.bus.max_payload,
        clock=SystemClock(),
        new_id=lambda: f"id{next(names)}",
    )


async def fill(transport: AnyTransport, count: int) -> SnapshotStore:
    """So many documents; `big` has three chunks, and `gone` is deleted."""
    store = store_on(transport)

    async def put(number: int) -> None:
        await store.put(f"doc{number}", b"%d" % number, FACTS.render(), expected_revision=0)

    for some in range(0, count - 2, 50):
        await asyncio.gather(*(put(number) for number in range(some, min(some + 50, count - 2))))
    await store.put("big", BIG, FACTS.render(), expected_revision=0)
    gone = SnapshotMetadata(generation=2, deleted_ns=1_800_000_000 * 10**9, erased_ns=1)
    await store.put("gone", b"", gone.render(), expected_revision=0)
    return store


async def damage(transport: AnyTransport, store: SnapshotStore, document_id: str) -> None:
    """Lose the last chunk."""
    head = await store.head(document_id)
    assert head is not None
    stream = transport.stream(SNAPSHOT_STREAM)
    last = await stream.last(store.chunk_subject(head.nuid))
    assert last is not None
    assert await stream.delete(last.sequence)


def test_options() -> None:
    """Options are checked; by default the first damaged snapshot fails a read."""
    assert SnapshotOptions.parse({}) == SnapshotOptions(fail=True)
    parsed = SnapshotOptions.parse({"nats": "n", "documents": "a,b", "payload": "false", "damaged": "Skip"})
    assert parsed == SnapshotOptions("n", ("a", "b"), False, False)
    with pytest.raises(BadSourceOption, match="damaged is 'ignore'; it must be fail or skip"):
        SnapshotOptions.parse({"damaged": "ignore"})
    with pytest.raises(BadSourceOption, match="has no option 'first'"):
        SnapshotOptions.parse({"first": "1"})


@pytest.mark.parametrize(
    ("size", "options", "tasks"),
    [
        (0, SnapshotOptions(), 1),
        (PARTITION_BYTES, SnapshotOptions(), 1),
        (PARTITION_BYTES + 1, SnapshotOptions(), 2),
        (10 * PARTITION_BYTES, SnapshotOptions(), 10),
        (10 * PARTITION_BYTES, SnapshotOptions(payload=False), 1),
        (10 * PARTITION_BYTES, SnapshotOptions(documents=("a",)), 1),
    ],
)
def test_tasks(size: int, options: SnapshotOptions, tasks: int) -> None:
    """There is a task for every 256 MiB that must be moved, and every document has exactly one."""
    found = shares(size, options)
    assert len(found) == tasks
    for number in range(100):
        assert sum(share.has(f"doc{number}") for share in found) == 1


def test_windows() -> None:
    """Few snapshots are fetched at once, and not too many bytes; a larger one is fetched alone."""

    def head(name: str, size: int) -> SnapshotHead:
        return SnapshotHead(name, 1, name, size, 1, "")

    window = FetchWindow()
    small = [head(f"s{number}", 1) for number in range(WINDOW_HEADS + 1)]
    assert [window.add(each) for each in small] == [[]] * WINDOW_HEADS + [small[:-1]]
    large = [head("l1", WINDOW_BYTES + 1), head("l2", WINDOW_BYTES)]
    assert window.add(large[0]) == small[-1:]
    assert window.add(large[1]) == large[:1]
    assert window.take() == large[1:]
    assert window.take() == []


async def test_a_snapshot_that_is_replaced_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose bytes were swept before they were read is read again from its new head."""
    monkeypatch.setattr(snapshot_reader, "PAUSES", (0.0, 0.0))
    transport = MemoryNats().connect()
    for spec in specs():
        await transport.ensure(spec)
    store = await fill(transport, 4)
    old = await store.head("big")
    assert old is not None
    real = SnapshotStore.heads

    async def late(self: SnapshotStore) -> AsyncIterator[SnapshotHead | SnapshotDamaged]:
        heads = [head async for head in real(self)]
        await store.put("big", b"new", FACTS.render(), expected_revision=old.revision)
        await store.discard(old)
        for head in heads:
            yield head

    monkeypatch.setattr(SnapshotStore, "heads", late)
    found = [row async for row in read_rows(transport, SnapshotOptions(), DocumentShare())]
    assert {row["document_id"]: row["payload"] for row in found}["big"] == b"new"
    assert len(found) == 4


@pytest.fixture
async def transport(fresh_nats: EmbeddedNats) -> AsyncIterator[JetStreamTransport]:
    async with await connect(fresh_nats.url, name="test") as made:
        for spec in specs():
            await made.ensure(spec)
        yield made


@pytest.fixture
def source(spark: SparkSession, fresh_nats: EmbeddedNats) -> Callable[..., DataFrame]:
    register(spark)

    def load(**options: str | int) -> DataFrame:
        return spark.read.format("lorogo.snapshots").options(nats=fresh_nats.url, **options).load()

    return load


async def rows(frame: DataFrame) -> dict[str, Row]:
    found = await asyncio.to_thread(frame.collect)
    assert len({row.document_id for row in found}) == len(found)
    return {row.document_id: row for row in found}


@pytest.mark.nats
async def test_snapshots(transport: JetStreamTransport, source: Callable[..., DataFrame]) -> None:
    """Each document's current snapshot is a row; deleted ones have the time, damaged ones the problem."""
    store = await fill(transport, 500)
    head = await store.head("doc1")
    assert head is not None
    await store.put("doc1", b"newer", FACTS.render(), expected_revision=head.revision)
    frame = source()
    assert frame.schema == spark_schema(SNAPSHOTS)
    found = await rows(frame)
    assert len(found) == 500
    assert bytes(found["big"].payload) == BIG
    assert bytes(found["doc1"].payload) == b"newer"
    assert all(bytes(found[f"doc{number}"].payload) == b"%d" % number for number in range(2, 498))
    seven = found["doc7"]
    facts = (seven.sequence, seven.epoch, seven.lease, seven.generation, bytes(seven.frontiers), seven.size)
    assert facts == (7, 2, 5, 1, b"\x01", 1)
    assert seven.digest.startswith("SHA-256=")
    assert (seven.deleted_at, seven.erased, seven.problem) == (None, False, None)
    gone = found["gone"]
    assert (gone.deleted_at.timestamp(), gone.erased, gone.generation) == (1_800_000_000, True, 2)

    await damage(transport, store, "big")
    found = await rows(source(damaged="skip"))
    assert len(found) == 500
    assert [row.document_id for row in found.values() if row.problem] == ["big"]
    assert (found["big"].payload, found["big"].size) == (None, len(BIG))
    assert "its chunks do not have" in found["big"].problem
    with pytest.raises(PySparkException, match=r"the snapshot of 'big' is damaged: .* damaged=skip"):
        await rows(source())


@pytest.mark.nats
async def test_without_payload(transport: JetStreamTransport, source: Callable[..., DataFrame]) -> None:
    """Without payloads no bytes are moved, and missing chunks are noticed all the same."""
    store = await fill(transport, 20)
    await damage(transport, store, "big")
    await damage(transport, store, "doc3")
    await transport.stream(SNAPSHOT_STREAM).append("$O.loro-document-snapshots.M.b2Rk", b"{")
    found = await rows(source(payload="false", damaged="skip"))
    assert len(found) == 21
    assert {row.payload for row in found.values()} == {None}
    problems = {name: row.problem for name, row in found.items() if row.problem}
    assert problems.keys() == {"big", "doc3", "odd"}
    assert (problems["big"], problems["doc3"]) == (
        "2 of its 3 chunks exist",
        "0 of its 1 chunks exist",
    )
    assert "does not parse" in problems["odd"]
    assert found["odd"].revision is None


@pytest.mark.nats
async def test_some_documents(transport: JetStreamTransport, source: Callable[..., DataFrame]) -> None:
    """With `documents`, only those are read; one that is not there is no row."""
    await fill(transport, 20)
    for payload in ("true", "false"):
        found = await rows(source(documents="doc3,gone,nobody", payload=payload))
        assert found.keys() == {"doc3", "gone"}


@pytest.mark.nats
async def test_no_bucket(source: Callable[..., DataFrame]) -> None:
    """A NATS that never had a server is an error of one sentence."""
    with pytest.raises(PySparkException, match="does not exist on this NATS"):
        await rows(source())
