"""The records of the store: what is written is read back, and what is not a record is refused."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_client.store.records import (
    AckedUpdate,
    AssignedLogId,
    DeletionMark,
    ForgottenMark,
    LocalCommit,
    PendingUpdate,
    Record,
    RemoteUpdate,
    StoreSnapshot,
    UnreadableRecord,
    decode,
    encode,
    size_of,
)

NUMBERS = st.integers(0, 2**60)
BYTES = st.binary(max_size=64)
IDS = st.text("abcXYZ019_-", max_size=21)
PENDING = st.builds(PendingUpdate, NUMBERS, NUMBERS, IDS, BYTES)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        StoreSnapshot,
        NUMBERS,
        st.none() | NUMBERS,
        BYTES,
        st.lists(PENDING, max_size=4).map(tuple),
        NUMBERS,
    ),
    st.builds(LocalCommit, NUMBERS, NUMBERS, IDS, BYTES),
    st.builds(AssignedLogId, NUMBERS, IDS, NUMBERS, NUMBERS, st.none() | BYTES),
    st.builds(RemoteUpdate, NUMBERS, BYTES),
    st.builds(AckedUpdate, NUMBERS, IDS),
    st.builds(DeletionMark, NUMBERS),
    st.builds(ForgottenMark, NUMBERS),
)


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    """Through msgpack and back nothing changes, and the size is about right."""
    packed = msgpack.packb(encode(record), use_bin_type=True)
    assert decode(msgpack.unpackb(packed)) == record
    assert len(packed) <= size_of(record) + 64


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        [],
        "local",
        [1, "local", 0],
        [1, "local", 0, 1, "id", "text for bytes"],
        [1, "local", "0", 1, "id", b""],
        [1, "unheard-of", 0],
        [1, "snapshot", 0, None, b"", [[1, 2, "id"]], 0],
        [1, "snapshot", 0, None, b"", [b""], 0],
        {"kind": "local"},
    ],
)
def test_what_is_not_a_record_is_refused(value: object) -> None:
    """A store is read by what it says, never by guessing."""
    with pytest.raises(UnreadableRecord):
        decode(value)


def test_a_record_of_a_newer_version_says_so() -> None:
    """An old program on a new store tells what is wrong."""
    with pytest.raises(UnreadableRecord, match="version 2"):
        decode([2, "local", 0, 1, "id", b""])
