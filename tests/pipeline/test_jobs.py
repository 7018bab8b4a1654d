"""The jobs on a real system: a server's own journal, from the first edit to the audit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lorogo_pipeline.audit.comparison import JournalDocument
from lorogo_pipeline.audit.job import reread, run_audit
from lorogo_pipeline.jobs.ingest import IngestReport
from lorogo_pipeline.pipeline import Pipeline, Settings, build
from lorogo_protocol.journal.records import ErasedRecord, Record, UpdateRecord
from lorogo_protocol.messages.digest import digest
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.pipeline.living import everything, serving, write
from tests.pipeline.replaying import copied

pytestmark = [pytest.mark.nats, pytest.mark.slow]


def made(spark: SparkSession, lake: Path, *journals: Path) -> Pipeline:
    return build(spark, Settings(lake=str(lake), journals=tuple(map(str, journals))))


async def test_an_audit_of_a_clean_system_finds_nothing(
    spark: SparkSession, tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """Every document that a live system serves is what its journals replay to, whatever was done to it."""
    url, data = fresh_nats.url, tmp_path / "data"
    names = await everything(url, data)
    async with serving(url, data / "worker-1") as client:
        await write(client, "plain", "more ")
        found = await asyncio.to_thread(run_audit, spark, [str(data)], url)
    assert found.differences == ()
    assert found.clean
    assert found.documents >= len(names)


async def test_an_audit_finds_a_record_that_was_changed_by_hand(
    spark: SparkSession, tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """One with other bytes has a wrong digest; one with a digest to match lacks what the server has."""
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        await write(client, "one", "abc ", "def ")
        await write(client, "two", "abc ", "def ")

    def changed(document_id: str, record: Record) -> Record:
        if document_id != "two" or not isinstance(record, UpdateRecord) or b"def" not in record.payload:
            return record
        payload = record.payload.replace(b"def", b"xyz")
        return replace(record, payload=payload)

    bad = copied(data, tmp_path / "bad", changed)
    found = await asyncio.to_thread(run_audit, spark, [str(bad)], url)
    assert [(one.document_id, one.kind.value) for one in found.differences] == [("two", "bad-digest")]

    def forged(document_id: str, record: Record) -> Record:
        if (made_ := changed(document_id, record)) is record or not isinstance(made_, UpdateRecord):
            return record
        return replace(made_, digest=digest(made_.payload))

    forgery = copied(data, tmp_path / "forged", forged)
    found = await asyncio.to_thread(run_audit, spark, [str(forgery)], url)
    assert not found.clean
    assert {one.document_id for one in found.differences} == {"two"}


async def test_one_document_is_read_again_from_the_journals(tmp_path: Path, fresh_nats: EmbeddedNats) -> None:
    """A document that is read alone equals its row in the tables; an erased one has only that state."""
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        await write(client, "one", "abc ", "def ")
        await write(client, "gone", "abc ")
        await client.document("gone").delete(purge=True)
    found = reread([str(data)], "one")
    assert found is not None
    assert found.json == '{"body":"abc def "}'
    assert not found.problem
    assert reread([str(data)], "nowhere") is None
    assert reread([str(data)], "gone") == JournalDocument("gone", "erased")


async def test_an_audit_finds_a_document_that_should_be_nowhere(
    spark: SparkSession, tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """Erased in the journals and served all the same is wrong, and not merely in no journal."""
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        await write(client, "one", "abc ")
        await write(client, "two", "abc ")

    def erased(document_id: str, record: Record) -> Record:
        return ErasedRecord("erasure", (), 0, 0, 1) if document_id == "two" else record

    journals = copied(data, tmp_path / "erased", erased)
    found = await asyncio.to_thread(run_audit, spark, [str(journals)], url)
    assert [(one.document_id, one.kind.value) for one in found.differences] == [("two", "deletion-differs")]


async def test_the_live_stream_and_the_journal_make_one_table(
    spark: SparkSession, tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """The updates in JetStream are ingested, too; an update of both counts once, and the
    journal's row stays.
    """
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        await write(client, "one", "abc ", "def ")
        pipeline = made(spark, tmp_path / "lake", data)
        live = await asyncio.to_thread(pipeline.ingest_stream, url)
        assert (live.updates, live.repeated) == (2, 0)
        assert _sources(pipeline) == {"stream": 2}
        kept = await asyncio.to_thread(pipeline.ingest)
        assert (kept.updates, kept.repeated) == (0, 2)
        assert _sources(pipeline) == {"journal": 2}
        again = await asyncio.to_thread(pipeline.ingest_stream, url)
        assert (again.updates, again.repeated) == (0, 2)
        assert _sources(pipeline) == {"journal": 2}


async def test_the_row_of_an_update_is_found_by_its_log_id(
    spark: SparkSession, tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """The id in a receipt leads to one row of `updates`, at the sequence of the receipt."""
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        await write(client, "one", "abc ")
        async with client.open("one") as session:
            session.doc.get_text("body").insert(0, "def ")
            receipt = await session.flush(timeout=30)
        pipeline = made(spark, tmp_path / "lake", data)
        await asyncio.to_thread(pipeline.ingest)
    assert receipt is not None
    found = pipeline.sql(f"select document_id, sequence from updates where log_id = '{receipt.log_id}'")
    assert [tuple(row) for row in found.collect()] == [("one", receipt.sequence)]


async def test_following_the_stream_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """Each run takes what came since the last one, by its checkpoint; nothing twice, nothing left out."""
    url, data = fresh_nats.url, tmp_path / "data"
    counts: list[int] = []
    async with serving(url, data) as client:
        pipeline = made(spark, tmp_path / "lake", data)

        def counted(done: IngestReport) -> None:
            counts.append(done.records)

        def follow() -> int:
            before = len(counts)
            pipeline.follow_stream(
                url, every_seconds=1, on_batch=lambda done: counts.append(done.records), once=True
            )
            return sum(counts[before:])

        await write(client, "one", "abc ", "def ")
        assert await asyncio.to_thread(follow) == 2
        await write(client, "two", "ghi ")
        assert await asyncio.to_thread(follow) == 1
        assert await asyncio.to_thread(follow) == 0
    assert pipeline.dataframe("updates").count() == 3


async def test_erased_on_the_server_is_erased_from_the_lake(
    spark: SparkSession, tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """`delete --purge` reaches the tables: at the next ingest the rows go, with `erase` the bytes."""
    url, data = fresh_nats.url, tmp_path / "data"
    async with serving(url, data) as client:
        await write(client, "one", "abc ")
        await write(client, "secret", "abc ", "def ")
        pipeline = made(spark, tmp_path / "lake", data)
        await asyncio.to_thread(pipeline.ingest)
        await asyncio.to_thread(pipeline.materialise)
        assert pipeline.dataframe("updates").where("document_id = 'secret'").count() == 2
        await client.document("secret").delete(purge=True)
    await asyncio.to_thread(pipeline.ingest)
    assert pipeline.dataframe("updates").where("document_id = 'secret'").count() == 0
    done = await asyncio.to_thread(pipeline.erase)
    assert done.documents == ["secret"]
    assert done.proved
    assert done.tables["documents"].rows_before == 1
    assert pipeline.dataframe("documents").select("document_id").collect() == [("one",)]
    assert not any(
        b"secret" in path.read_bytes() for path in (tmp_path / "lake" / "updates").rglob("*.parquet")
    )


def _sources(pipeline: Pipeline) -> dict[str, int]:
    rows = pipeline.dataframe("updates").groupBy("source").count().collect()
    return {row["source"]: row["count"] for row in rows}
