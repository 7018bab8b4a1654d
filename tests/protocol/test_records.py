"""What stands in a journal: goes in and comes out the same, and nothing else gets in."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loro import ExportMode, LoroDoc

from lorogo_protocol import crdt, records
from lorogo_protocol.errors import InvalidUpdate
from lorogo_protocol.records import (
    BaseRecord,
    DeletedRecord,
    ErasedRecord,
    MalformedRecord,
    RestoredRecord,
    UpdateRecord,
)

numbers = st.integers(0, 2**63 - 1)
texts = st.text(max_size=40)
blobs = st.binary(max_size=60)
spans = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 1000), st.integers(1001, 2**31 - 1))
any_record = st.one_of(
    st.builds(
        UpdateRecord, numbers, numbers, texts, texts, numbers, numbers, st.lists(spans).map(tuple), blobs
    ),
    st.builds(BaseRecord, numbers, numbers, numbers, numbers, texts, blobs, blobs, blobs),
    st.builds(DeletedRecord, numbers, numbers, numbers),
    st.builds(RestoredRecord, numbers, numbers),
    st.builds(ErasedRecord, numbers, numbers, numbers),
)


@given(any_record)
def test_a_record_comes_back_as_it_went_in(record: records.Record) -> None:
    """Through msgpack and back, every field is what it was."""
    assert records.decode(msgpack.unpackb(msgpack.packb(records.encode(record)))) == record


@given(any_record, st.lists(numbers, max_size=3))
def test_fields_of_a_later_version_are_left_alone(record: records.Record, more: list[int]) -> None:
    """A reader takes the fields that it knows, and no offence at more of them."""
    assert records.decode([*records.encode(record), *more]) == record


def test_an_erasure_of_before_it_named_its_lease() -> None:
    """The first version wrote only when it was erased."""
    assert records.decode(["e", 1, 7]) == ErasedRecord(7, 0, 0)


@pytest.mark.parametrize("value", [["q", 1, 2], ["u", 2, 1], [7, 1], [None, 1]])
def test_an_unknown_kind_or_layout_is_skipped(value: object) -> None:
    """What a newer version wrote is not an error."""
    assert records.decode(value) is None


UPDATE = ["u", 1, 1, 2, "id", "7", 3, 0, [[1, 0, 1]], b"x"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        ["u"],
        ["u", 0],
        ["u", "1"],
        ["u", 1],
        UPDATE[:-1],
        [*UPDATE[:2], -1, *UPDATE[3:]],
        [*UPDATE[:2], True, *UPDATE[3:]],
        [*UPDATE[:4], 5, *UPDATE[5:]],
        [*UPDATE[:-1], "text"],
        [*UPDATE[:8], 5, b""],
        [*UPDATE[:8], [[1, 0]], b""],
        [*UPDATE[:8], [[1, 1, 1]], b""],
        [*UPDATE[:8], [["a", 0, 1]], b""],
        [*UPDATE[:8], [7], b""],
        ["b", 1, 1],
        ["d", 1, 1, 1, "x"],
        ["r", 1, 1],
        ["e", 1, None],
    ],
)
def test_a_malformed_record_is_refused_with_a_sentence(value: object) -> None:
    """Damage that a checksum did not see, or a stranger's file, is never taken for a record."""
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
