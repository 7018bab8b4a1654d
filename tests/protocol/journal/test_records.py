"""Journal records: a decoded record equals the encoded one, and malformed values are refused."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loro import ExportMode, LoroDoc

from lorogo_protocol.errors import InvalidDocumentId, InvalidUpdate
from lorogo_protocol.ids import check_document_id
from lorogo_protocol.journal import records
from lorogo_protocol.journal.latency import COUNTS_MAX
from lorogo_protocol.journal.records import (
    AnswersRecord,
    BaseRecord,
    DeletedRecord,
    ErasedRecord,
    MalformedRecord,
    TermKind,
    TermRecord,
    UnsupportedRecord,
    UpdateRecord,
)
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.reasons import Reason

numbers = st.integers(0, 2**63 - 1)
texts = st.text(max_size=40)
blobs = st.binary(max_size=60)
spans = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 1000), st.integers(1001, 2**31 - 1))
ids = st.lists(st.text(min_size=1, max_size=10), max_size=3).map(tuple)
latencies = st.lists(st.integers(0, 2**40), max_size=COUNTS_MAX).map(tuple)


def answers(server: str, times: list[int], counts: tuple[int, ...], reasons: dict[str, int]) -> AnswersRecord:
    return AnswersRecord(server, min(times), max(times), sum(counts), counts, reasons)


any_document_record = st.one_of(
    st.builds(
        UpdateRecord,
        numbers,
        numbers,
        texts,
        texts,
        numbers,
        numbers,
        st.lists(spans).map(tuple),
        blobs,
        texts,
    ),
    st.builds(BaseRecord, numbers, numbers, numbers, numbers, texts, blobs, blobs, blobs, texts),
    st.builds(TermRecord, texts, ids, st.sampled_from(TermKind), ids, numbers, numbers),
    st.builds(DeletedRecord, texts, ids, numbers, numbers, numbers, blobs),
    st.builds(ErasedRecord, texts, ids, numbers, numbers, numbers, blobs),
)
any_answers = st.builds(
    answers,
    st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True),
    st.lists(numbers, min_size=2, max_size=2),
    latencies,
    st.dictionaries(st.sampled_from([*map(str, Reason), "of-a-later-version"]), st.integers(1, 2**40)),
)
any_record = st.one_of(any_document_record, any_answers)


@given(any_record)
def test_a_record_comes_back_as_it_went_in(record: records.Record) -> None:
    """Through msgpack and back, every field is what it was."""
    assert records.decode(msgpack.unpackb(msgpack.packb(records.encode(record)))) == record


@given(any_record, st.lists(numbers, max_size=3))
def test_fields_of_a_later_version_are_left_alone(record: records.Record, more: list[int]) -> None:
    """A reader takes the fields that it knows, and no offence at more of them."""
    assert records.decode([*records.encode(record), *more]) == record


@given(any_record)
def test_a_reader_of_documents_gets_document_records_only(record: records.Record) -> None:
    """A record about a server counts as an unknown kind for readers of documents."""
    found = records.decode_document(records.encode(record))
    assert found == (None if isinstance(record, AnswersRecord) else record)


def test_the_key_of_answers_is_no_document_id() -> None:
    """No document can have an id whose records could be taken for server records."""
    with pytest.raises(InvalidDocumentId, match="must not begin with '-'"):
        check_document_id(records.ANSWERS_KEY.decode())


def test_a_record_of_an_unreleased_version_is_refused_with_the_way_out() -> None:
    """The error names both layouts and how to keep the documents."""
    with pytest.raises(UnsupportedRecord, match=r"layout 1.*layout 2.*`lorogo doc export`"):
        records.decode(["e", 1, 7])


@pytest.mark.parametrize("value", [["q", 2, 2], ["u", 3, 1], [7, 2], [None, 2]])
def test_an_unknown_kind_or_layout_is_skipped(value: object) -> None:
    """A record of a newer version is no error."""
    assert records.decode(value) is None


UPDATE = ["u", 2, 1, 2, "id", "7", 3, 0, [[1, 0, 1]], b"x", "term"]
ANSWERS = ["s", 2, "server", 10, 20, 3, [0, 1, 2], {"deleted": 4}]


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        ["u"],
        ["u", 0],
        ["u", "1"],
        ["u", 2],
        UPDATE[:-1],
        [*UPDATE[:2], -1, *UPDATE[3:]],
        [*UPDATE[:2], True, *UPDATE[3:]],
        [*UPDATE[:4], 5, *UPDATE[5:]],
        [*UPDATE[:-1], b"bytes"],
        [*UPDATE[:8], 5, b"", ""],
        [*UPDATE[:8], [[1, 0]], b"", ""],
        [*UPDATE[:8], [[1, 1, 1]], b"", ""],
        [*UPDATE[:8], [["a", 0, 1]], b"", ""],
        [*UPDATE[:8], [7], b"", ""],
        ["b", 2, 1],
        ["d", 2, "tombstone", [], 1, 1, "x", b""],
        ["d", 2, "tombstone", [7], 1, 1, 1, b""],
        ["t", 2, "term", [], "opened", [], 1, 1],
        ["t", 2, "term", [""], "acquired", [], 1, 1],
        ["e", 2, None],
        ANSWERS[:-1],
        [*ANSWERS[:2], "no token", *ANSWERS[3:]],
        [*ANSWERS[:2], 7, *ANSWERS[3:]],
        [*ANSWERS[:3], 21, *ANSWERS[4:]],
        [*ANSWERS[:3], -1, *ANSWERS[4:]],
        [*ANSWERS[:5], 4, *ANSWERS[6:]],
        [*ANSWERS[:6], {}, {}],
        [*ANSWERS[:6], [3, "0"], {}],
        [*ANSWERS[:6], [2, True], {}],
        [*ANSWERS[:6], [4, -1], {}],
        [*ANSWERS[:6], [3, *[0] * 32], {}],
        [*ANSWERS[:7], []],
        [*ANSWERS[:7], {"": 1}],
        [*ANSWERS[:7], {b"deleted": 1}],
        [*ANSWERS[:7], {"deleted": 0}],
        [*ANSWERS[:7], {"deleted": "1"}],
        [*ANSWERS[:7], {str(number): 1 for number in range(257)}],
    ],
)
def test_a_malformed_record_is_refused_with_a_sentence(value: object) -> None:
    """Damage that the checksum missed, or a foreign file, is never taken for a record."""
    with pytest.raises(MalformedRecord, match=r"\w+ "):
        records.decode(value)


def test_spans_name_the_changes_of_each_peer() -> None:
    """An update's spans are its peers with their counters, from and to."""
    doc = LoroDoc()
    doc.peer_id = 5
    doc.get_text("t").insert(0, "abc")
    doc.commit()
    before = doc.oplog_vv
    doc.get_text("t").insert(0, "de")
    doc.commit()
    assert crdt.spans(doc.export(ExportMode.Updates(before))) == ((5, 3, 5),)
    with pytest.raises(InvalidUpdate):
        crdt.spans(b"not an update")
