"""Pages of a journal on the wire: whole and in bounds, or refused."""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.journal import pages
from lorogo_protocol.journal.pages import EVERYTHING, FeedPage, FeedStart, PageEntry, PageRequest
from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    ErasedRecord,
    TermKind,
    TermRecord,
    UpdateRecord,
)
from lorogo_protocol.messages.calls import Refused
from tests.journals import restored_record

NUMBERS = st.integers(0, 2**63)
IDS = st.lists(st.text("abc", min_size=1)).map(tuple)
RECORDS = st.one_of(
    st.builds(
        UpdateRecord,
        NUMBERS,
        NUMBERS,
        st.text(),
        st.text(),
        NUMBERS,
        NUMBERS,
        st.just(((1, 0, 3),)),
        st.binary(),
        st.text(),
    ),
    st.builds(
        BaseRecord,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        st.text(),
        st.binary(),
        st.binary(),
        st.just(b""),
        st.text(),
    ),
    st.builds(DeletedRecord, st.text(), IDS, NUMBERS, NUMBERS, NUMBERS, st.binary()),
    st.builds(TermRecord, st.text(), IDS, st.sampled_from(TermKind), IDS, NUMBERS, NUMBERS),
    st.builds(ErasedRecord, st.text(), IDS, NUMBERS, NUMBERS, NUMBERS, st.binary()),
)
ENTRIES = st.lists(st.builds(PageEntry, NUMBERS, NUMBERS, st.text("abc"), RECORDS)).map(tuple)


@given(st.builds(FeedPage, ENTRIES, st.text(), st.booleans()))
def test_a_page_comes_back(page: FeedPage) -> None:
    """Every kind of record, as it was."""
    assert pages.decode(pages.encode(page)) == page


@given(
    st.builds(
        PageRequest,
        st.text("0123456789abcdef", min_size=1, max_size=32),
        st.text(),
        st.builds(FeedStart, NUMBERS, NUMBERS, NUMBERS),
        st.none() | st.frozensets(st.text("abc", min_size=1)),
        st.integers(1, pages.PAGE_BYTES_MAX),
        st.floats(0, pages.WAIT_SECONDS_MAX),
    )
)
def test_a_question_comes_back(ask: PageRequest) -> None:
    """The parsed request equals the sent one."""
    assert pages.parse_request(msgpack.unpackb(msgpack.packb(ask.body()))) == ask


def test_a_question_is_bounded() -> None:
    """Values above a limit are reduced to the limit."""
    ask = pages.parse_request({"journal": "ab", "bytes_max": 10**12, "wait_seconds": 3600})
    assert ask.bytes_max == pages.PAGE_BYTES_MAX
    assert ask.wait_seconds == pages.WAIT_SECONDS_MAX
    assert pages.parse_request({"journal": "ab"}).start.everything


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"journal": ""},
        {"journal": "../../etc"},
        {"journal": 7},
        {"journal": "ab", "wait_seconds": -1},
        {"journal": "ab", "wait_seconds": float("nan")},
        {"journal": "ab", "wait_seconds": "long"},
        {"journal": "ab", "bytes_max": -1},
        {"journal": "ab", "sequence": "1"},
        {"journal": "ab", "after": 3},
        {"journal": "ab", "documents": "one"},
        {"journal": "ab", "documents": [1]},
        {"journal": "ab", "log_id": "a b"},
        {"journal": "ab", "documents": ["x"] * (pages.DOCUMENTS_MAX + 1)},
    ],
    ids=lambda body: ",".join(body) if len(str(body)) < 60 else "many",
)
def test_a_question_without_sense_is_refused(body: dict[str, Any]) -> None:
    """With a sentence, never a crash."""
    with pytest.raises(Refused):
        pages.parse_request(body)


@pytest.mark.parametrize(
    "records",
    [
        b"",
        b"\xc1",
        msgpack.packb(3),
        msgpack.packb([3]),
        msgpack.packb([[1, 2, "d"]]),
        msgpack.packb([["1", 2, "d", ["r", 1, 1, 1]]]),
        msgpack.packb([[1, 2, 3, ["d", 2, "t", [], 1, 1, 1, b""]]]),
        msgpack.packb([[1, 2, "d", ["d", 2, "t", [], 1, 1]]]),
        "text",
    ],
    ids=str,
)
def test_a_page_that_is_not_one_is_refused(records: object) -> None:
    """A server may be wrong; its readers do not crash."""
    with pytest.raises(MalformedMessage):
        pages.decode({"records": records, "next": "1:0:0", "end": True})
    with pytest.raises(MalformedMessage):
        pages.decode({"records": msgpack.packb([]), "end": True})


def test_kinds_of_tomorrow_are_left_out() -> None:
    """A newer server may journal what this reader does not know."""
    rows = [
        [1, 2, "d", ["z", 2, "?"]],
        [2, 2, "d", ["t", 2, "restored", [], "restored", ["tombstone"], 5, 6]],
    ]
    page = pages.decode({"records": msgpack.packb(rows), "next": "3:0:0", "end": False})
    assert [entry.record for entry in page.entries] == [restored_record(5, 6)]


@pytest.mark.parametrize(
    ("start", "epoch", "sequence", "time_ns", "wanted"),
    [
        (EVERYTHING, 1, 1, 0, True),
        (FeedStart(2, 10, 0), 2, 10, 5, False),
        (FeedStart(2, 10, 0), 2, 11, 5, True),
        (FeedStart(2, 10, 0), 1, 99, 5, False),
        (FeedStart(2, 10, 0), 3, 1, 5, True),
        (FeedStart(2, 10, 50), 3, 1, 49, False),
        (FeedStart(0, 0, 50), 1, 1, 50, True),
        (FeedStart(0, 0, 50), 1, 1, 49, False),
    ],
)
def test_a_start_wants_what_is_behind_it(
    start: FeedStart, epoch: int, sequence: int, time_ns: int, wanted: bool
) -> None:
    """The start compares the place in the WAL and the time; bases always pass, because they define known
    versions.
    """
    assert start.wants(time_ns, UpdateRecord(epoch, sequence, "x", "1", 1, 0, (), b"")) is wanted
    assert start.wants(time_ns, DeletedRecord("tombstone", (), 1, 0, 0)) is (time_ns >= start.time_ns)
    assert start.wants(time_ns, BaseRecord(1, 1, 1, 0, "", b"", b"", b""))
