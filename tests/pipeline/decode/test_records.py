"""Frames of a journal as rows: whatever stands in a record, it costs at most that record."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorogo_log.format.batch import Batch, encode, pack_value
from lorogo_pipeline.decode.records import record_rows, span_column
from lorogo_pipeline.decode.segments import JournalFilter, SegmentReading, find_segments
from lorogo_pipeline.tables.schemas import RECORDS
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import (
    ANSWERS_KEY,
    AnswersRecord,
    BaseRecord,
    DeletedRecord,
    ErasedRecord,
    MalformedRecord,
    Record,
    UpdateRecord,
)
from lorogo_protocol.messages.digest import digest
from tests.journals import restored_record
from tests.pipeline.journals import SECOND, START, Journal, session, with_payload

PAYLOAD = b"bytes of an update"
GOOD = UpdateRecord(3, 17, "log-a", digest(PAYLOAD), 5, 2, ((1 << 63, 4, 9), (7, 0, 1)), PAYLOAD)


def batch_of(values: list[bytes], keys: list[bytes] | None = None, times: list[int] | None = None) -> Batch:
    """A frame with these values, as a log would read it back."""
    made = encode(
        keys or [b"doc"] * len(values),
        values,
        times or [START + number for number in range(len(values))],
        first_sequence=1,
        epoch=1,
        offset=0,
        chain=0,
    )
    return Batch(made.header, memoryview(bytes(made.parts[1])))


def rows_of(
    values: list[bytes], *, keys: list[bytes] | None = None, payload: bool = True
) -> list[dict[str, Any]]:
    found = []
    for batch in record_rows([batch_of(values, keys)], "log/0", JournalFilter(), payload=payload):
        assert batch.schema == RECORDS
        batch.validate(full=True)
        found += batch.to_pylist()
    return found


def row_of(record: Record | list[object] | bytes, **options: Any) -> dict[str, Any]:
    match record:
        case bytes():
            value = record
        case list():
            value = msgpack.packb(record)
        case _:
            value = pack_value(records.encode(record))
    (row,) = rows_of([value], **options)
    return row


# --- every kind -----------------------------------------------------------------------------------


def test_an_update() -> None:
    """An update has every value of its record; a peer is text, since it exceeds the numbers of Spark."""
    row = row_of(GOOD)
    assert row["kind"] == "update" and row["document_id"] == "doc" and row["log"] == "log/0"
    assert (row["epoch"], row["sequence"], row["log_id"], row["lease"], row["generation"]) == (
        3,
        17,
        "log-a",
        5,
        2,
    )
    assert row["payload"] == PAYLOAD and row["bytes"] == len(PAYLOAD) and row["digest_ok"] is True
    assert row["spans"] == [
        {"peer": "9223372036854775808", "first": 4, "end": 9},
        {"peer": "7", "first": 0, "end": 1},
    ]
    assert row["accepted_ns"] == START and row["log_sequence"] == 1 and row["problem"] is None


def test_an_update_of_a_later_writer() -> None:
    """Fields behind those that we know are passed over."""
    row = row_of([*records.encode(GOOD), "something new"])
    assert row["kind"] == "update" and row["payload"] == PAYLOAD


def test_a_base() -> None:
    """A base has its snapshot, if the journal does not cover it, and where it stood."""
    row = row_of(BaseRecord(1, 2, 3, 4, digest(b"snap"), b"vv", b"fr", b"snap"))
    assert row["kind"] == "base" and row["digest_ok"] is True and row["bytes"] == 4
    assert (row["payload"], row["vector"], row["frontiers"]) == (b"snap", b"vv", b"fr")
    empty = row_of(BaseRecord(1, 2, 3, 4, digest(b"snap"), b"vv", b"fr", b""))
    assert empty["digest_ok"] is True and empty["bytes"] == 0
    assert row_of(BaseRecord(1, 2, 3, 4, digest(b"snap"), b"vv", b"fr", b"spam"))["digest_ok"] is False


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (DeletedRecord("tombstone", (), 5, 1, START), "deleted"),
        (restored_record(5, 2), "restored"),
        (ErasedRecord("erasure", (), 5, 2, START), "erased"),
    ],
)
def test_what_befell_a_document(record: Record, kind: str) -> None:
    """Terms, deletions and erasures have a lease and a generation, and their bytes also without payloads."""
    value = pack_value(records.encode(record))
    for payload in (True, False):
        (row,) = rows_of([value], payload=payload)
        assert (row["kind"], row["lease"], row["bytes"], row["payload"]) == (kind, 5, len(value), value)


def test_answers() -> None:
    """A record about a server comes with its bytes, also without payloads, because it is small."""
    record = AnswersRecord("server-1", START, START + SECOND, 3, (0, 1, 2), {"busy": 4})
    value = pack_value(records.encode(record))
    for payload in (True, False):
        (row,) = rows_of([value], keys=[ANSWERS_KEY], payload=payload)
        assert (row["kind"], row["document_id"], row["payload"]) == ("answers", "-answers", value)


# --- what is none ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        b"\x92\xa1u",
        msgpack.packb(records.encode(GOOD))[:-3],
        msgpack.packb(records.encode(GOOD)) + b"\x00",
        b"\xa2\xff\xff",
        msgpack.packb("ux"),
        msgpack.packb(b"u\x01"),
        msgpack.packb(17),
        msgpack.packb(None),
        msgpack.packb({"u": 1}),
        msgpack.packb([]),
        msgpack.packb(["u"]),
        msgpack.packb(["u", 2, 2, 3]),
        msgpack.packb(["u", 0, 2, 3]),
        msgpack.packb(["u", 2.0, *records.encode(GOOD)[2:]]),
        msgpack.packb(["d", 2]),
        msgpack.packb(["d", 2, True, 0, 0]),
        msgpack.packb(["s", 2, "server", 5, 4, 0, [], {}]),
        b"\x91" * 3000 + b"\xc0",
    ],
)
def test_bytes_that_are_no_record(value: bytes) -> None:
    """Bytes that are no record become a row with a short reason."""
    row = row_of(value)
    assert row["kind"] == "malformed" and 0 < len(row["problem"]) <= 200
    assert row["payload"] is None and row["epoch"] is None


@pytest.mark.parametrize("record", [["x", 2, "later"], ["u", 3, "more"], [None, 2], [["u"], 2], [3] * 999])
def test_what_later_versions_write(record: list[object]) -> None:
    """A kind or a layout of a later version is not malformed: the row names it."""
    row = row_of(record)
    assert row["kind"] == "unknown" and repr(record[0]) in row["problem"]


def test_a_wrong_digest() -> None:
    """An update with changed bytes is still an update: its row has the wrong digest marked."""
    row = row_of(replace(GOOD, payload=b"other bytes"))
    assert (row["kind"], row["digest_ok"], row["payload"]) == ("update", False, b"other bytes")


def test_numbers_that_no_table_holds() -> None:
    """A number above 63 bits is malformed, in updates, bases and answers alike."""
    huge = (1 << 64) - 1
    odd: list[Record | list[object]] = [
        replace(GOOD, epoch=huge),
        replace(GOOD, sequence=1 << 63),
        replace(GOOD, generation=huge),
        replace(GOOD, spans=((1, 0, huge),)),
        BaseRecord(huge, 2, 3, 4, "d", b"", b"", b""),
        DeletedRecord("tombstone", (), huge, 0, 0),
        AnswersRecord("server", 0, 1, huge, (huge,), {}),
        AnswersRecord("server", 0, 1, 0, (), {"busy": huge}),
        AnswersRecord("server", 0, huge, 0, (), {}),
    ]
    rows = rows_of([pack_value(records.encode(one)) for one in odd if not isinstance(one, list)])
    assert {row["kind"] for row in rows} == {"malformed"}
    assert {row["problem"] for row in rows} == {"a number exceeds 63 bits"}


def test_a_key_that_is_no_text() -> None:
    """A key that is no UTF-8 becomes text with marks where it is not."""
    rows = rows_of([pack_value(records.encode(GOOD))] * 2, keys=[b"fine", b"a\xffb"])
    assert [row["document_id"] for row in rows] == ["fine", "a\ufffdb"]


def test_without_payload() -> None:
    """Without payloads everything else is the same, the check of the digest too."""
    values = [
        pack_value(records.encode(GOOD)),
        pack_value(records.encode(replace(GOOD, payload=b"x"))),
        pack_value(records.encode(BaseRecord(1, 2, 3, 4, digest(b"s"), b"v", b"f", b"s"))),
    ]
    full, bare = rows_of(values), rows_of(values, payload=False)
    assert [row["payload"] for row in bare] == [None] * 3
    assert [{**row, "payload": None} for row in full] == bare


_WORDS = st.text(max_size=5)
_ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.sampled_from([0.0, 1.0, 2.0]),
    _WORDS,
    st.binary(max_size=5),
    st.lists(
        st.lists(st.integers(-2, 5) | st.sampled_from([1.0, "1", True, 1 << 63]), max_size=4), max_size=2
    ),
)


@given(place=st.integers(1, 9), value=_ANYTHING, beside=st.integers(0, 3))
@settings(max_examples=400, deadline=None)
def test_only_updates_are_updates(place: int, value: object, beside: int) -> None:
    """A record is an update exactly if the journal's own reader calls it one, and a table can hold it."""
    raw: list[Any] = list(records.encode(GOOD))
    raw[place] = value
    packed = pack_value(raw)
    good = pack_value(records.encode(GOOD))
    *others, row = rows_of([good] * beside + [packed])
    try:
        record = records.decode(msgpack.unpackb(packed))
    except MalformedRecord:
        expected = "malformed"
    else:
        expected = "unknown" if record is None else "update"
        if isinstance(record, UpdateRecord):
            numbers = [record.epoch, record.sequence, record.lease, record.generation]
            if max(numbers + [end for *_, end in record.spans]) >= 1 << 63:
                expected = "malformed"
    assert row["kind"] == expected, row["problem"]
    assert [other["kind"] for other in others] == ["update"] * beside


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_bytes(value: bytes) -> None:
    """Whatever the bytes are: one row, and no error."""
    assert row_of(value)["kind"] in {"malformed", "unknown", "update", "deleted", "restored", "erased"}


def test_one_bad_record_among_a_thousand(tmp_path: Path) -> None:
    """One malformed record does not affect the records beside it."""
    updates = session(5, 1000)
    good = [pack_value(records.encode(one.record)) for one in updates]
    huge = pack_value(records.encode(replace(updates[0].record, epoch=1 << 63)))
    with Journal(tmp_path / "log") as made:
        made.add(*updates[:500])
        made.raw(b"doc-bad", huge, START)
        made.add(*updates[500:])
    (facts,) = find_segments([str(tmp_path)])
    batches = list(record_rows(SegmentReading(facts).batches(), facts.log, JournalFilter()))
    table = pa.Table.from_batches(batches)
    kinds = table["kind"].to_pylist()
    assert kinds.count("update") == len(good) and kinds.count("malformed") == 1
    assert table["document_id"].to_pylist()[kinds.index("malformed")] == "doc-bad"
    assert table["log_sequence"].to_pylist() == list(range(1, 1002))


def test_frames_after_cleaning_keep_their_sequences(tmp_path: Path) -> None:
    """Records that stay when others were cleaned away keep their own sequences."""
    updates = session(3, 60)
    path = tmp_path / "log"
    with Journal(path) as made:
        made.add(*updates)
        made.seal()
        made._log.clean(lambda _, record: record.key == b"doc-0001")
    left = [one.record.sequence for one in updates if one.document_id != "doc-0001"]
    found = [
        sequence
        for facts in find_segments([str(path)])
        for rows in record_rows(SegmentReading(facts).batches(), facts.log, JournalFilter())
        for sequence in rows["log_sequence"].to_pylist()
    ]
    assert found == left and 0 < len(left) < 60


def test_a_record_with_other_bytes(tmp_path: Path) -> None:
    """A payload that was changed before it was framed passes the frame's checksum, not its own digest."""
    updates = session(1, 4)
    with Journal(tmp_path / "log") as made:
        made.add(*updates[:3], with_payload(updates[3], b"not Loro's"))
    (facts,) = find_segments([str(tmp_path)])
    (rows,) = record_rows(SegmentReading(facts).batches(), facts.log, JournalFilter())
    assert rows["digest_ok"].to_pylist() == [True, True, True, False]


def test_spans_as_a_column() -> None:
    """Records without spans have none; records with an empty list have an empty one."""
    column = span_column([None, [], [[1, 0, 2]], None])
    assert column.to_pylist() == [None, [], [{"peer": "1", "first": 0, "end": 2}], None]
    with pytest.raises(ValueError, match="a span is empty"):
        span_column([[[1, 5, 5]]])
