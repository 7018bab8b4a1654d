"""Whole updates from the messages of a range."""

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from lorogo_pipeline.sources.stream_ranges import StreamOptions
from lorogo_pipeline.sources.stream_rows import LookbackAssembler, RangeAssembler, RowMaker
from lorogo_protocol import limits
from lorogo_protocol.messages.chunks import Chunk
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.subjects import wal
from lorogo_transport.ports import StoredMessage
from tests.pipeline.wal import memory_wal, message, messages, pieces, read, store, update

MAKER = RowMaker(epoch=3, payload=True)
HELLO = update("hello " * 20)


def rows_of(found: list[StoredMessage], **limits_: int) -> tuple[list[Mapping[str, object]], RangeAssembler]:
    updates = RangeAssembler(MAKER, **limits_)
    return [row for stored in found if (row := updates.add(stored)) is not None], updates


def test_an_update_in_one_message() -> None:
    """A row has the place and time of the stored update, its id, and the spans of its changes."""
    (row,), updates = rows_of([message(pieces(HELLO, "log1", 1)[0], 7, "d")])
    assert row == {
        "document_id": "d",
        "kind": "update",
        "accepted_at": 7_000_000,
        "accepted_ns": 7_000_000_000,
        "log": "loro-wal",
        "log_sequence": 7,
        "epoch": 3,
        "sequence": 7,
        "log_id": "log1",
        "digest": digest(HELLO),
        "spans": [{"peer": str(2**63 + 5), "first": 0, "end": 120}],
        "bytes": len(HELLO),
        "digest_ok": True,
        "payload": HELLO,
    }
    assert list(updates.unfinished()) == []


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_chunks_in_any_order(order: tuple[int, ...]) -> None:
    """Chunks may come in any order; the row stands at the final chunk."""
    chunks = pieces(HELLO, "log1", 3)
    (row,), updates = rows_of(messages(("d", chunks[index]) for index in order))
    assert row["payload"] == HELLO
    assert row["log_sequence"] == order.index(2) + 1
    assert row["accepted_ns"] == (order.index(2) + 1) * 10**9
    assert list(updates.unfinished()) == []


def test_chunks_of_several_updates_and_documents() -> None:
    """Updates may be interleaved, also under the same log id in several documents."""
    one, two = update("one"), update("two", peer=7)
    mixed = zip(pieces(one, "same", 3), pieces(two, "same", 3), pieces(two, "other", 3), strict=True)
    chunks = [(document, chunk) for trio in mixed for document, chunk in zip("abb", trio, strict=True)]
    rows, _ = rows_of(messages(chunks))
    assert [(row["document_id"], row["log_id"], row["payload"]) for row in rows] == [
        ("a", "same", one),
        ("b", "same", two),
        ("b", "other", two),
    ]


@pytest.mark.parametrize("count", [1, 3])
def test_an_update_that_was_sent_again(count: int) -> None:
    """An update that stands there twice is given once; other bytes under its name are another one."""
    chunks = [("d", chunk) for chunk in pieces(HELLO, "log1", count)]
    other = [("d", chunk) for chunk in pieces(update("other"), "log1", 1)]
    rows, updates = rows_of(messages(chunks + chunks + other + chunks[:-1]))
    assert [row["digest"] for row in rows] == [digest(HELLO), digest(update("other"))]
    assert list(updates.unfinished()) == []


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({}, "no LORO_LOG_ID"),
        ({"LORO_LOG_ID": "a b", "LORO_CHUNK_INDEX": "0"}, "LORO_LOG_ID must be"),
        ({"LORO_LOG_ID": "a", "LORO_CHUNK_INDEX": "x"}, "not a number"),
    ],
)
def test_a_message_that_is_no_chunk(headers: dict[str, str], problem: str) -> None:
    """A message with headers that make no sense is a row of its own, and disturbs no other."""
    chunks = pieces(HELLO, "log1", 2)
    stray = StoredMessage(wal("d"), 2, 5, b"xyz", headers)
    rows, _ = rows_of([message(chunks[0], 1), stray, message(chunks[1], 3)])
    assert [row["kind"] for row in rows] == ["malformed", "update"]
    assert problem in str(rows[0]["problem"])
    assert (rows[0]["document_id"], rows[0]["log_sequence"], rows[0]["bytes"]) == ("d", 2, 3)


def test_bytes_that_are_no_update() -> None:
    """A whole update that Loro cannot read is given, without spans and with the problem in words."""
    (row,), _ = rows_of([message(pieces(b"nonsense", "log1", 1)[0], 1)])
    assert (row["kind"], row["digest_ok"], row["payload"]) == ("update", True, b"nonsense")
    assert row.get("spans") is None
    assert "does not decode" in str(row["problem"])


def test_a_wrong_digest() -> None:
    """Bytes that do not match the digest are no update: every owner refuses them."""
    *begin, final = pieces(HELLO, "log1", 3)
    rows, updates = rows_of(messages(("d", chunk) for chunk in [*begin, replace(final, digest="123")]))
    (row,) = rows
    assert (row["kind"], row["digest_ok"], row["digest"], row["log_id"]) == (
        "malformed",
        False,
        "123",
        "log1",
    )
    assert "digest-mismatch" in str(row["problem"])
    assert list(updates.unfinished()) == []


def test_two_chunks_for_one_place() -> None:
    """Two different chunks with one index make an update that can never be whole."""
    chunks = pieces(HELLO, "log1", 3)
    rows, _ = rows_of(messages([("d", chunks[0]), ("d", replace(chunks[0], data=b"other"))]))
    assert [(row["kind"], row["digest_ok"]) for row in rows] == [("malformed", False)]


def test_too_large() -> None:
    """The limits of the protocol hold: an update above them is a row with that problem."""
    big = Chunk("log1", 0, b"x" * (limits.UPDATE_BYTES_MAX + 1), final=True, count=1, digest="1")
    (row,), _ = rows_of([message(big, 1)])
    assert row["kind"] == "malformed"
    assert "too-large" in str(row["problem"])


def test_without_payload() -> None:
    """Without payloads everything else is there."""
    updates = RangeAssembler(RowMaker(epoch=1, payload=False))
    row = updates.add(message(pieces(HELLO, "log1", 1)[0], 1))
    assert row is not None
    assert "payload" not in row
    assert row["bytes"] == len(HELLO)


def test_cut_at_the_end() -> None:
    """An update whose final chunk lies behind the range is not given, and not complained about."""
    chunks = messages(("d", chunk) for chunk in pieces(HELLO, "log1", 3))[:2]
    rows, updates = rows_of(chunks)
    assert rows == []
    ((document_id, opens),) = updates.unfinished()
    back = LookbackAssembler(MAKER, opens, updates.given, first=1)
    assert [back.add(stored) for stored in chunks] == [None, None]
    assert (document_id, list(opens), back.open_finals, list(back.give_up())) == ("d", ["log1"], {}, [])


def test_little_room() -> None:
    """An update that was dropped for lack of memory is found again by the lookback."""
    chunks = [(f"d{number}", pieces(update(str(number)), "log1", 2)) for number in range(9)]
    first = [(document, pair[0]) for document, pair in chunks]
    stream = messages(first + [(document, pair[1]) for document, pair in chunks])
    rows, updates = rows_of(stream, held_updates_max=2)
    for document_id, opens in updates.unfinished():
        back = LookbackAssembler(MAKER, opens, updates.given, first=1)
        own = [stored for stored in stream if stored.subject == wal(document_id)]
        rows += [row for stored in own if (row := back.add(stored)) is not None]
        assert list(back.give_up()) == []
    assert sorted(str(row["document_id"]) for row in rows) == [f"d{number}" for number in range(9)]


async def test_an_update_that_begins_in_the_range_before() -> None:
    """It belongs to the range in which it becomes whole; its first chunks are fetched from before."""
    _, stream = await memory_wal(("d", chunk) for chunk in pieces(HELLO, "log1", 4))
    for first in (2, 3, 4):
        (row,) = await read(stream, first, 4)
        assert (row["payload"], row["log_sequence"]) == (HELLO, 4)
        assert await read(stream, 1, first - 1) == []


async def test_a_late_chunk_in_the_range_behind() -> None:
    """A late chunk after the final one completes the update in that later range."""
    one, two, final = pieces(HELLO, "log1", 3)
    _, stream = await memory_wal([("d", one), ("d", final), ("d", two)])
    (complaint,) = await read(stream, 1, 2)
    assert (complaint["kind"], complaint["log_sequence"]) == ("malformed", 2)
    assert "2 of its 3 chunks" in str(complaint["problem"])
    (row,) = await read(stream, 3, 3)
    assert (row["kind"], row["payload"], row["log_sequence"]) == ("update", HELLO, 2)


async def test_chunks_that_were_purged() -> None:
    """An update whose first chunks were purged is a row with that problem, and is never dropped silently."""
    _, stream = await memory_wal(("d", chunk) for chunk in pieces(HELLO, "log1", 4))
    await stream.purge(wal("d"), before=3)
    for first in (1, 4):
        (row,) = await read(stream, first, 4)
        assert (row["kind"], row["log_id"], row["log_sequence"]) == ("malformed", "log1", 4)
        assert "2 of its 4 chunks are in the stream" in str(row["problem"])


async def test_a_resend_across_ranges() -> None:
    """A resend is given again in another range, or not at all; it is never a complaint."""
    chunks = [("d", chunk) for chunk in pieces(HELLO, "log1", 3)]
    _, stream = await memory_wal(chunks + chunks)
    assert [row["kind"] for row in await read(stream, 1, 3)] == ["update"]
    assert [row["kind"] for row in await read(stream, 6, 6)] == ["update"]
    assert await read(stream, 4, 5) == []
    _, stream = await memory_wal([*chunks, chunks[-1]])
    assert await read(stream, 4, 4) == []  # the final chunk alone: the range before has it


async def test_wrong_counts() -> None:
    """A final chunk that contradicts itself is a row with that problem."""
    _, stream = await memory_wal(
        [("d", Chunk("log1", 2, b"x", final=True, count=9, digest="1")), ("d", pieces(HELLO, "log2", 1)[0])]
    )
    rows = await read(stream, 1, 2)
    assert sorted(str(row["kind"]) for row in rows) == ["malformed", "update"]
    assert any("the count is 9, the last index 2" in str(row["problem"]) for row in rows)


async def test_some_documents() -> None:
    """With `documents`, only those are read."""
    names = ["a", "b", "c", "b"]
    _, stream = await memory_wal(
        (name, pieces(update(name), f"log{number}", 1)[0]) for number, name in enumerate(names)
    )
    rows = await read(stream, 1, 4, StreamOptions(documents=("c", "b", "nobody")))
    assert [(row["document_id"], row["log_sequence"]) for row in rows] == [("c", 3), ("b", 2), ("b", 4)]


async def test_far_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that are far apart are found, too."""
    monkeypatch.setattr("lorogo_pipeline.sources.stream_reader.NEAR_MESSAGES", 3)
    one, final = pieces(HELLO, "log1", 2)
    _, stream = await memory_wal([("d", one)])
    for number in range(8):
        await store(stream, "d", *pieces(update("x"), f"other{number}", 1))
    await store(stream, "d", final)
    assert [row["log_id"] for row in await read(stream, 10, 10)] == ["log1"]


@pytest.mark.parametrize("seed", range(20))
async def test_however_the_ranges_are_cut(seed: int) -> None:
    """Whatever the order of chunks and wherever the cuts: together the ranges give every update."""
    rng = random.Random(seed)
    queues = [
        [(f"d{rng.randrange(3)}", pieces(update(f"{number}" * 9), f"log{number}", rng.randint(1, 5)))]
        for number in range(12)
    ]
    lines = [[(document, chunk) for chunk in chunks] for ((document, chunks),) in queues]
    for line in lines:
        if rng.random() < 0.3:
            rng.shuffle(line)
        if rng.random() < 0.3:
            line.extend(list(line))  # sent again
    mixed: list[tuple[str, Chunk]] = []
    while any(lines):
        line = rng.choice([line for line in lines if line])
        mixed.append(line.pop(0))
    _, stream = await memory_wal(mixed)
    wanted = {(document, chunks[-1].log_id) for ((document, chunks),) in queues}
    for size in (1, 2, 3, 7, 100):
        rows = [
            row
            for first in range(1, len(mixed) + 1, size)
            for row in await read(stream, first, min(first + size - 1, len(mixed)))
        ]
        whole = {(row["document_id"], row["log_id"]) for row in rows if row["kind"] == "update"}
        assert whole == wanted, size
        assert all(row["digest_ok"] for row in rows if row["kind"] == "update")
