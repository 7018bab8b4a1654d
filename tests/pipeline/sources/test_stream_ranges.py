"""Options of the stream's source, ranges, offsets, epochs."""

import pytest

from lorogo_pipeline.sources.errors import BadSourceOption, StreamChanged
from lorogo_pipeline.sources.stream_ranges import (
    SequenceRange,
    StreamOffset,
    StreamOptions,
    WalBounds,
    batch_ranges,
    check_unchanged,
    initial,
    latest,
    stream_ranges,
)
from lorogo_protocol.errors import InvalidDocumentId

RECREATED = WalBounds(epoch=1, first=1, last=4, created=200)


def test_no_options() -> None:
    """Without options the whole WAL of the local NATS is read, with payloads."""
    options = StreamOptions.parse({})
    assert options == StreamOptions()
    assert options.nats == "nats://127.0.0.1:4222"
    assert options.payload
    assert options.partition_messages == 50_000
    assert options.for_batch() is options.for_stream() is options


def test_all_options() -> None:
    """Options come as text, under names in small letters."""
    options = StreamOptions.parse(
        {
            "nats": "tls://n:1",
            "first": "3",
            "last": " 3 ",
            "payload": "False",
            "partition_messages": "7",
            "documents": "a, b,,a",
        }
    )
    assert options == StreamOptions("tls://n:1", 3, 3, False, 7, ("a", "b"))
    follow = StreamOptions.parse({"startingoffset": "Latest", "maxmessagespertrigger": "9"})
    assert (follow.starting, follow.messages_per_trigger) == ("latest", 9)
    assert StreamOptions.parse({"startingoffset": "12"}).starting == 12


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"frist": "1"}, "no option 'frist'; it has documents, first"),
        ({"path": "x"}, "no option 'path'"),
        ({"first": "x"}, "option first is 'x'; it must be a whole number from 1 on"),
        ({"first": "0"}, "option first is '0'"),
        ({"last": "-1"}, "option last is '-1'"),
        ({"last": "9" * 30}, "option last is"),
        ({"last": ""}, "option last is ''"),
        ({"first": "5", "last": "4"}, "first is 5 and last is 4"),
        ({"payload": "no"}, "option payload is 'no'; it must be true or false"),
        ({"partition_messages": "0"}, "option partition_messages is '0'"),
        ({"documents": " ,"}, "option documents is empty"),
        ({"startingoffset": "newest"}, "startingOffset is 'newest'; it must be earliest, latest or"),
        ({"startingoffset": "0"}, "startingOffset is '0'"),
        ({"maxmessagespertrigger": "0"}, "maxMessagesPerTrigger is '0'"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], words: str) -> None:
    """A wrong or unknown option is refused with a sentence that names it."""
    with pytest.raises(BadSourceOption, match="option") as caught:
        StreamOptions.parse(options)
    assert words in str(caught.value)


def test_a_document_that_cannot_be() -> None:
    """A name that cannot be a document id is refused, not looked for."""
    with pytest.raises(InvalidDocumentId):
        StreamOptions.parse({"documents": "good,loro.wal.*"})


def test_options_of_the_other_reader() -> None:
    """`first` and `last` belong to read, `startingOffset` to readStream: each error names the
    other option.
    """
    with pytest.raises(BadSourceOption, match="use startingOffset"):
        StreamOptions.parse({"first": "1"}).for_stream()
    with pytest.raises(BadSourceOption, match="use first and last"):
        StreamOptions.parse({"startingoffset": "latest"}).for_batch()


def spans(ranges: list[SequenceRange] | None) -> list[tuple[int, int]] | None:
    return None if ranges is None else [(each.first, each.last) for each in ranges]


@pytest.mark.parametrize(
    ("options", "first", "last", "expected"),
    [
        ({}, 1, 0, []),  # nothing was ever stored
        ({}, 11, 10, []),  # everything is purged
        ({}, 1, 4, [(1, 4)]),
        ({}, 1, 10, [(1, 4), (5, 8), (9, 10)]),
        ({}, 6, 10, [(6, 9), (10, 10)]),
        ({"first": "3", "last": "5"}, 1, 10, [(3, 5)]),
        ({"first": "3"}, 6, 7, [(6, 7)]),
        ({"last": "99"}, 6, 7, [(6, 7)]),
        ({"first": "20"}, 1, 10, []),
        ({"last": "3"}, 6, 10, []),
    ],
)
def test_ranges_of_a_batch(
    options: dict[str, str], first: int, last: int, expected: list[tuple[int, int]]
) -> None:
    """The WAL is cut into ranges of so many sequences; what is not there is not read."""
    parsed = StreamOptions.parse({"partition_messages": "4", **options})
    found = batch_ranges(parsed, WalBounds(2, first, last, 77))
    assert spans(found) == expected
    assert all((each.epoch, each.created) == (2, 77) for each in found)


@pytest.mark.parametrize(
    ("starting", "sequence"),
    [("earliest", 4), ("latest", 10), ("7", 6), ("11", 10), ("1", 0)],
)
def test_where_a_query_begins(starting: str, sequence: int) -> None:
    """At the first message, at the next one to come, or at the sequence named."""
    options = StreamOptions.parse({"startingoffset": starting})
    assert initial(options, WalBounds(3, 5, 10, 77)) == StreamOffset(3, sequence, 77)


def test_a_query_cannot_begin_in_the_future() -> None:
    """A first sequence that is far from existing would look like a stream that lost messages."""
    with pytest.raises(BadSourceOption, match="the WAL ends at 10"):
        initial(StreamOptions.parse({"startingoffset": "12"}), WalBounds(3, 5, 10, 77))


SEEN = WalBounds(epoch=2, first=5, last=30, created=100)


@pytest.mark.parametrize(
    ("start", "seen", "most", "end", "ranges"),
    [
        # the same epoch
        (StreamOffset(2, 30, 100), SEEN, None, StreamOffset(2, 30, 100), []),
        (StreamOffset(2, 20, 100), SEEN, None, StreamOffset(2, 30, 100), [(21, 30)]),
        (StreamOffset(2, 20, 100), SEEN, 4, StreamOffset(2, 24, 100), [(21, 24)]),
        (StreamOffset(2, 28, 100), SEEN, 4, StreamOffset(2, 30, 100), [(29, 30)]),
        (
            StreamOffset(2, 0, 100),
            SEEN,
            4,
            StreamOffset(2, 8, 100),
            [(5, 8)],
        ),  # purged: it begins at what is there
        (StreamOffset(2, 20, 0), SEEN, None, StreamOffset(2, 30, 100), [(21, 30)]),
        # servers recorded a new epoch
        (StreamOffset(1, 20, 100), SEEN, None, StreamOffset(2, 30, 100), [(5, 30)]),
        (StreamOffset(1, 20, 100), SEEN, 10, StreamOffset(2, 14, 100), [(5, 14)]),
        (StreamOffset(1, 99, 100), SEEN, None, StreamOffset(2, 30, 100), [(5, 30)]),
        # no server has recorded it yet: the stream ends before the offset, or was recreated
        (StreamOffset(2, 40, 100), SEEN, None, StreamOffset(3, 30, 100), [(5, 30)]),
        (StreamOffset(1, 2, 100), RECREATED, None, StreamOffset(2, 4, 200), [(1, 4)]),
        (StreamOffset(1, 9, 100), RECREATED, 3, StreamOffset(2, 3, 200), [(1, 3)]),
        (StreamOffset(1, 9, 100), WalBounds(1, 1, 0, 200), None, StreamOffset(2, 0, 200), []),
        # and when they do, nothing is read twice
        (StreamOffset(2, 4, 200), WalBounds(2, 1, 6, 200), None, StreamOffset(2, 6, 200), [(5, 6)]),
        # a record that was lost, or is behind us, does not take us back
        (StreamOffset(2, 4, 200), WalBounds(1, 1, 6, 200), None, StreamOffset(2, 6, 200), [(5, 6)]),
    ],
)
def test_the_next_batch(
    start: StreamOffset, seen: WalBounds, most: int | None, end: StreamOffset, ranges: list[tuple[int, int]]
) -> None:
    """A batch goes on where the last one ended; a new epoch is read from its first sequence on."""
    assert latest(start, seen, messages_max=most) == end
    assert spans(stream_ranges(StreamOptions(), start, end, seen)) == ranges


def test_the_end_is_stable() -> None:
    """Without new messages, the end of a batch stays the same, so that a query over the present messages
    ends.
    """
    end = latest(StreamOffset(1, 9, 100), RECREATED, messages_max=None)
    assert latest(end, RECREATED, messages_max=None) == end
    assert latest(end, RECREATED, messages_max=1) == end


@pytest.mark.parametrize("seen", [RECREATED, WalBounds(1, 1, 20, 200), WalBounds(1, 1, 8, 100)])
def test_a_batch_that_was_planned_before_the_stream_was_recreated(seen: WalBounds) -> None:
    """It gives nothing: its sequences are other messages now, and the next batch begins with all of them."""
    start, end = StreamOffset(1, 5, 100), StreamOffset(1, 9, 100)
    assert stream_ranges(StreamOptions(), start, end, seen) is None
    following = latest(end, seen, messages_max=None)
    assert spans(stream_ranges(StreamOptions(), end, following, seen)) == [(1, seen.last)]


@pytest.mark.parametrize(("last", "created", "changed"), [(9, 100, False), (8, 100, True), (20, 200, True)])
def test_a_stream_that_changes_under_a_reader(last: int, created: int, changed: bool) -> None:
    """Rows of a stream that was recreated, or lost its end, during the read do not count."""
    given = SequenceRange(5, 9, epoch=1, created=100)
    if not changed:
        check_unchanged(given, last, created)
        return
    with pytest.raises(StreamChanged, match="while 5 to 9 was read"):
        check_unchanged(given, last, created)


def test_offsets_as_json() -> None:
    """An offset is a small object of numbers; one that is not ours is refused."""
    offset = StreamOffset(2, 30, 100)
    assert offset.as_json() == {"epoch": 2, "sequence": 30, "created": 100}
    assert StreamOffset.parse(offset.as_json()) == offset
    assert StreamOffset.parse({"epoch": 1, "sequence": 5}) == StreamOffset(1, 5, 0)
    with pytest.raises(BadSourceOption, match="belong to another query"):
        StreamOffset.parse({"index": 3})
