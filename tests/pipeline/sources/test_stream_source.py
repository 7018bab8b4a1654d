"""`lorogo.stream` through Spark, on a real nats-server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from lorogo_pipeline.sources.registration import register
from lorogo_pipeline.tables.schemas import RECORDS, spark_schema
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.subjects import EPOCH_KEY, STATUS_STREAM, WAL_STREAM, wal
from lorogo_transport.nats import streams
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.stores.topology import specs
from tests.pipeline.wal import pieces, store, update

pytestmark = pytest.mark.nats


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
        return spark.read.format("lorogo.stream").options(**{"nats": fresh_nats.url, **options}).load()

    return load


async def fill(transport: JetStreamTransport, names: range) -> None:
    """One update per name, in one to three chunks, over four documents."""
    stream = transport.stream(WAL_STREAM)
    for number in names:
        chunks = pieces(update(f"text {number}"), f"log{number}", number % 3 + 1)
        await store(stream, f"doc{number % 4}", *chunks)


async def rows(frame: DataFrame) -> list[Row]:
    return await asyncio.to_thread(frame.collect)


async def test_batch(transport: JetStreamTransport, source: Callable[..., DataFrame]) -> None:
    """Every whole update of the WAL is a row, however it is partitioned; nothing stays in JetStream."""
    await fill(transport, range(12))
    await transport.stream(WAL_STREAM).append(wal("odd"), b"?")
    frame = source(partition_messages=5)
    assert frame.schema == spark_schema(RECORDS)
    found = await rows(frame.orderBy("log_sequence"))
    assert [row.log_id for row in found if row.kind == "update"] == [f"log{number}" for number in range(12)]
    assert [(row.document_id, row.problem) for row in found if row.kind == "malformed"] == [
        ("odd", "no LORO_LOG_ID")
    ]
    third = found[2]
    assert (third.document_id, third.log, third.log_sequence, third.sequence) == ("doc2", "loro-wal", 6, 6)
    assert bytes(third.payload) == update("text 2")
    assert (third.digest, third.digest_ok, third.epoch) == (digest(update("text 2")), True, 1)
    assert third.spans == [Row(peer=str(2**63 + 5), first=0, end=6)]
    assert third.accepted_ns // 10**9 == int(third.accepted_at.timestamp())
    assert (third.lease, third.generation, third.problem) == (None, None, None)
    state = await transport.stream(WAL_STREAM).state()
    assert state.consumers == 0


async def test_options(transport: JetStreamTransport, source: Callable[..., DataFrame]) -> None:
    """Payloads can be left out, and documents and sequences chosen; rows have the recorded epoch."""
    await fill(transport, range(12))
    record = json.dumps({"epoch": 5, "sequence": 1, "time_ns": 1}).encode()
    await transport.stream(STATUS_STREAM).append(EPOCH_KEY, record)
    found = await rows(source(payload="false", documents="doc1,doc2", first=2, last=12))
    assert {(row.document_id, row.log_id) for row in found} == {
        ("doc1", "log1"),
        ("doc2", "log2"),
        ("doc1", "log5"),
    }
    assert {(row.payload, row.epoch, row.digest_ok) for row in found} == {(None, 5, True)}
    assert await rows(source(first=999)) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bogus": "1"}, "lorogo.stream has no option 'bogus'"),
        ({"first": "9", "last": "3"}, "option first is 9 and last is 3"),
        ({"first": "nine"}, "option first is 'nine'; it must be a whole number"),
        ({"nats": "nats://127.0.0.1:1"}, "nothing answers at nats://127.0.0.1:1"),
    ],
)
async def test_what_cannot_be_read(
    transport: JetStreamTransport,
    source: Callable[..., DataFrame],
    options: dict[str, str],
    words: str,
) -> None:
    """Spark's exception contains lorogo's sentence."""
    del transport
    with pytest.raises(PySparkException) as caught:
        await rows(source(**options))
    assert words in str(caught.value)


async def test_no_stream(source: Callable[..., DataFrame]) -> None:
    """A NATS that never had a server is an error of one sentence."""
    with pytest.raises(PySparkException, match="stream 'loro-wal' does not exist on this NATS"):
        await rows(source())


class Query:
    """A streaming query into Parquet, with its checkpoint: run it as often as you like."""

    def __init__(self, spark: SparkSession, url: str, folder: Path, **options: object) -> None:
        self._spark = spark
        self._options: dict[str, Any] = {"nats": url, **options}
        self._folder = folder

    def run(self) -> int:
        """Take what is there; returns how many batches had rows."""
        frame = self._spark.readStream.format("lorogo.stream").options(**self._options).load()
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self._folder / "table"))
        )
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return sum(progress["numInputRows"] > 0 for progress in query.recentProgress)

    def found(self) -> list[Row]:
        return self._spark.read.parquet(str(self._folder / "table")).orderBy("epoch", "sequence").collect()


async def test_stream(
    transport: JetStreamTransport, spark: SparkSession, fresh_nats: EmbeddedNats, tmp_path: Path
) -> None:
    """A query that is run again goes on where it was: each update comes once, also one that was cut."""
    register(spark)
    stream = transport.stream(WAL_STREAM)
    begin, end = pieces(update("cut"), "cut", 2)
    await fill(transport, range(6))
    await store(stream, "doc1", begin)
    query = Query(spark, fresh_nats.url, tmp_path, maxMessagesPerTrigger=7)
    batches = await asyncio.to_thread(query.run)
    assert batches == 2  # thirteen messages, seven at a time
    assert [row.log_id for row in query.found()] == [f"log{number}" for number in range(6)]
    await store(stream, "doc1", end)
    await fill(transport, range(6, 9))
    await asyncio.to_thread(query.run)
    names = [*(f"log{number}" for number in range(6)), "cut", "log6", "log7", "log8"]
    assert [row.log_id for row in query.found()] == names
    assert {row.kind for row in query.found()} == {"update"}


async def test_a_stream_that_was_recreated(
    transport: JetStreamTransport, spark: SparkSession, fresh_nats: EmbeddedNats, tmp_path: Path
) -> None:
    """A stream that was deleted and made again is a new epoch, read from its first message on."""
    register(spark)
    await fill(transport, range(4))
    query = Query(spark, fresh_nats.url, tmp_path)
    await asyncio.to_thread(query.run)
    await streams.call(transport.bus, "STREAM.DELETE", WAL_STREAM, None, 5.0)
    for spec in specs():
        await transport.ensure(spec)
    await fill(transport, range(10, 16))  # longer than the old one: only the time of its making tells
    await asyncio.to_thread(query.run)
    await asyncio.to_thread(query.run)  # and only once
    found = [(row.epoch, row.log_id) for row in query.found()]
    assert found == [
        *((1, f"log{number}") for number in range(4)),
        *((2, f"log{number}") for number in range(10, 16)),
    ]


async def test_a_query_that_begins_with_what_is_new(
    transport: JetStreamTransport, spark: SparkSession, fresh_nats: EmbeddedNats, tmp_path: Path
) -> None:
    """`startingOffset` is the start of a query without a checkpoint."""
    register(spark)
    await fill(transport, range(3))
    query = Query(spark, fresh_nats.url, tmp_path, startingOffset="latest")
    await asyncio.to_thread(query.run)
    await fill(transport, range(3, 5))
    await asyncio.to_thread(query.run)
    assert [row.log_id for row in query.found()] == ["log3", "log4"]
