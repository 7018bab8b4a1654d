"""Records as rows of the tables."""

from dataclasses import replace
from typing import Any

import msgpack
import pyarrow as pa
import pytest
import xxhash

from lorogo_log.format.batch import pack_value
from lorogo_pipeline.decode.records import record_rows
from lorogo_pipeline.decode.segments import JournalFilter
from lorogo_pipeline.tables.schemas import ANSWERS, EVENTS, RECORDS, TABLES, UPDATES
from lorogo_pipeline.tables.table_rows import BEST, KEYS, ORDER, bucket_of, identity, rows_of
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import (
    AnswersRecord,
    BaseRecord,
    DeletedRecord,
    ErasedRecord,
    Record,
)
from lorogo_protocol.messages.digest import digest
from tests.journals import restored_record
from tests.pipeline.decode.test_records import batch_of
from tests.pipeline.journals import SECOND, START, Author, made, session


def table_rows(*found: tuple[str, Record], source: str = "journal") -> dict[str, pa.RecordBatch]:
    """The rows of tables that these records give, of eight buckets."""
    values = [pack_value(records.encode(record)) for _, record in found]
    batch = batch_of(values, [key.encode() for key, _ in found])
    (rows,) = record_rows([batch], "log/0", JournalFilter())
    return rows_of(rows, 8, source=source)


def test_each_record_goes_into_its_table() -> None:
    """Updates, events and answers part; what is none of them is in no table."""
    update = session(1, 1)[0].record
    rows = table_rows(
        ("a", update),
        ("b", BaseRecord(1, 1, 1, 0, digest(b"s"), b"v", b"f", b"s")),
        ("c", DeletedRecord("tombstone", (), 1, 0, START)),
        ("c", restored_record(1, 1)),
        ("d", ErasedRecord("erasure", (), 0, 0, START)),
        ("-answers", AnswersRecord("server", START, START + SECOND, 0, (), {})),
    )
    assert {name: batch.num_rows for name, batch in rows.items()} == {"updates": 1, "events": 4, "answers": 1}
    for name, batch in rows.items():
        assert batch.schema == TABLES[name]
        batch.validate(full=True)
    assert rows["events"]["kind"].to_pylist() == ["base", "deleted", "restored", "erased"]


def test_nothing_comes_of_nothing() -> None:
    """Tables without rows are left out."""
    assert rows_of(pa.RecordBatch.from_pylist([], schema=RECORDS), 8) == {}


def test_an_update() -> None:
    """An update's row counts its operations and changes, and names who wrote them."""
    one, two = Author("doc", (1 << 64) - 5), Author("doc", 7)
    first = one.type("hello")
    two.doc.import_(first)
    second = two.type(" there")
    one.doc.import_(second)
    one.type("!")
    everything = Author("doc", 9).doc
    everything.import_(one.doc.export(_all()))
    merged = made("doc", one.doc.export(_all()), START, sequence=4)
    row = table_rows(("doc", merged.record), source="stream")["updates"].to_pylist()[0]
    assert row["ops"] == 12 and row["changes"] == 3 and row["source"] == "stream"
    assert sorted(row["peers"]) == sorted([str((1 << 64) - 5), "7"])
    assert row["bucket"] == bucket_of("doc", 8) == xxhash.xxh64_intdigest(b"doc") % 8
    assert row["identity"] == identity("doc", merged.record.log_id, merged.record.digest)


def _all() -> Any:
    from loro import ExportMode, VersionVector  # noqa: PLC0415 - one test's need

    return ExportMode.Updates(VersionVector())


def test_an_update_without_changes() -> None:
    """An update that brought nothing new has no peers and no operations; those beside it keep theirs."""
    good = session(1, 3)
    empty = replace(good[1].record, spans=())
    rows = table_rows(("a", good[0].record), ("a", empty), ("a", good[2].record))["updates"]
    assert [len(peers) for peers in rows["peers"].to_pylist()] == [1, 0, 1]
    assert rows["ops"].to_pylist()[1] == 0 and rows["ops"].to_pylist()[2] == 2
    alone = table_rows(("a", empty))["updates"].to_pylist()[0]
    assert alone["peers"] == [] and alone["spans"] == []


def test_an_update_that_does_not_decode() -> None:
    """Bytes that are no update are a row with an unknown number of changes."""
    record = replace(session(1, 1)[0].record, payload=b"no update", digest=digest(b"no update"))
    row = table_rows(("a", record))["updates"].to_pylist()[0]
    assert row["changes"] is None and row["digest_ok"] is True


def test_a_snapshot_that_is_not_what_it_says() -> None:
    """A base whose content does not match its digest is a base without content."""
    right = BaseRecord(1, 1, 1, 0, digest(b"snapshot"), b"v", b"f", b"snapshot")
    rows = table_rows(
        ("a", right), ("a", replace(right, content=b"snapshoT")), ("a", replace(right, content=b""))
    )
    assert rows["events"]["content"].to_pylist() == [b"snapshot", None, b""]
    assert rows["events"]["bytes"].to_pylist() == [8, 0, 0]
    assert len(set(rows["events"]["identity"].to_pylist())) == 1


def test_answers() -> None:
    """A minute of a server: when, how many, how quickly, and what was refused why."""
    record = AnswersRecord("server", START, START + 60 * SECOND, 3, (0, 1, 2), {"busy": 4, "again": 1})
    row = table_rows(("-answers", record))["answers"].to_pylist()[0]
    assert (row["server"], row["acked"], row["refused"], row["latency_us"]) == ("server", 3, 5, [0, 1, 2])
    assert row["reasons"] == [{"reason": "again", "count": 1}, {"reason": "busy", "count": 4}]
    assert row["since"].timestamp() == START / SECOND and row["bucket"] == 0


@pytest.mark.parametrize(
    "value", [msgpack.packb(["s", 1, "x"]), msgpack.packb(["s", 1, 1, 2, 3, 4, 5, 6]), b"\xc1"]
)
def test_answers_that_are_none(value: bytes) -> None:
    """Rows that did not come through our decoding are left out, not believed."""
    row = {"document_id": "-answers", "kind": "answers", "accepted_at": 0, "accepted_ns": 0}
    row |= {"log": "", "log_sequence": 0, "payload": value}
    assert rows_of(pa.RecordBatch.from_pylist([row], schema=RECORDS), 8) == {}


def test_an_identity_is_a_hash_of_what_makes_it() -> None:
    """The identity is of the whole key, as a signed number of 64 bits."""
    assert identity("a", "b") != identity("ab", "") and identity("a") == identity("a")
    assert all(-(1 << 63) <= identity(str(number)) < 1 << 63 for number in range(200))
    assert any(identity(str(number)) < 0 for number in range(50))


def test_every_table_has_what_its_rules_name() -> None:
    """Rules about keys, winners and order name columns that the tables have."""
    for rules in (KEYS, ORDER):
        for name, columns in rules.items():
            assert set(columns) <= set(TABLES[name].names)
    for name, best in BEST.items():
        assert {column for column, _ in best} <= set(TABLES[name].names)
    assert UPDATES.names[-1] == "payload" and EVENTS.names[-1] == "content" and "server" in ANSWERS.names
