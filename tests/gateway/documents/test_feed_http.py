"""The feed over HTTP: what a reader is given, how it resumes, and how it ends."""

import asyncio
import base64
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime

import pytest

from lorogo_client.feed import Deleted, Erased, FeedItem, FeedPosition, Gap, Restored, Update
from lorogo_client.feed.memory import FeedMemory
from lorogo_client.feed.position import FeedState
from lorogo_gateway.documents import feed as feed_module
from lorogo_gateway.documents.feed import event_data
from lorogo_protocol.journal.pages import EVERYTHING
from tests.gateway.operator_support import SETTINGS, Gate, Reader, eventually, gate_of


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    async with gate_of() as made:
        yield made


def update(**other: object) -> Update:
    return replace(
        Update("doc", 7, 1, 1_000_000_000, "log", "digest", 3, 0, ((2**64 - 1, 5, 9), (8, 0, 1)), b"12345"),
        **other,  # type: ignore[arg-type]  # any of its fields
    )


@pytest.mark.parametrize(
    ("item", "name", "data"),
    [
        (
            update(),
            "update",
            {
                "sequence": 7,
                "epoch": 1,
                "log_id": "log",
                "generation": 0,
                "peers": ["18446744073709551615", "8"],
                "bytes": 5,
                "operations": 5,
                "summary": {"18446744073709551615": 4, "8": 1},
            },
        ),
        (Deleted("doc", 3, 1, 1_000_000_000), "deleted", {"generation": 1}),
        (Restored("doc", 3, 2, 1_000_000_000), "restored", {"generation": 2}),
        (Erased("doc", 1_000_000_000), "erased", {}),
    ],
)
def test_an_item_as_an_event(item: FeedItem, name: str, data: dict[str, object]) -> None:
    """Document and time are in all; peers are text, because JSON's numbers end before theirs."""
    event_name, facts = event_data(item)
    assert event_name == name
    assert facts == {"document": "doc", "time": "1970-01-01T00:00:01.000+00:00", **data}


def test_a_gap_says_how_much_is_missing_and_why() -> None:
    """The gap event counts the missing operations, so that a reader does not take the feed for complete."""
    name, facts = event_data(Gap("doc", 1, 0, ((5, 2, 4), (6, 0, 7))))
    assert name == "gap"
    assert (facts["operations"], facts["missing"]) == (9, [["5", 2, 4], ["6", 0, 7]])
    assert facts["why"]


async def test_accepted_updates_come_as_events(gate: Gate) -> None:
    """From now on, of all documents, with what changed and when."""
    async with Reader(gate) as reader:
        assert "id: lf1-" in await reader.block()
        assert reader.status == 200
        await gate.type("one", "abc")
        await gate.type("two", "d")
        first, second = await reader.event(), await reader.event()
    assert (first.name, first.data["document"], first.data["operations"]) == ("update", "one", 3)
    assert (second.name, second.data["document"], second.data["operations"]) == ("update", "two", 1)
    assert first.data["peers"] == list(first.data["summary"])
    assert datetime.fromisoformat(first.data["time"]).tzinfo is not None


async def test_documents_can_be_named(gate: Gate) -> None:
    """Several; nothing else is given."""
    async with Reader(gate, query="document=a&document=b&since=0") as reader:
        await reader.block()
        for name in ("a", "x", "b"):
            await gate.type(name)
        assert [(await reader.event()).data["document"] for _ in range(2)] == ["a", "b"]


@pytest.mark.parametrize("since", ["0", "1h", "2020-01-01T00:00:00Z"])
async def test_what_was_before_is_replayed_from_where_the_reader_says(gate: Gate, since: str) -> None:
    """Everything, an age, a time."""
    await gate.type("doc", "early")
    async with Reader(gate, query=f"since={since}") as reader:
        assert (await reader.event()).data["operations"] == 5


async def test_the_last_event_id_goes_on_exactly_there_and_wins_over_since(gate: Gate) -> None:
    """Last-Event-ID takes precedence over `since`: the feed repeats no event and omits none."""
    for number in range(3):
        await gate.type("doc", "x" * (number + 1))
    async with Reader(gate, query="since=0") as reader:
        seen = [await reader.event(), await reader.event()]
    await gate.type("doc", "while away")
    async with Reader(gate, query="since=0", last_event_id=seen[-1].id) as reader:
        seen += [await reader.event(), await reader.event()]
    assert [event.data["operations"] for event in seen] == [1, 2, 3, 10]


async def test_a_reader_without_events_resumes_from_its_start(gate: Gate) -> None:
    """The first block of a feed has the resume position, before the first event."""
    async with Reader(gate) as reader:
        begun = (await reader.block()).split("id: ")[1]
    await gate.type("doc", "missed")
    async with Reader(gate, last_event_id=begun) as reader:
        assert (await reader.event()).data["operations"] == 6


async def test_a_place_that_does_not_fit_a_header_becomes_a_time(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute back: what is then given again has the same epoch and sequence, and nothing is missing."""
    monkeypatch.setattr(feed_module, "_ID_CHARS_MAX", 150)
    async with Reader(gate, query="since=0") as reader:
        for number in range(4):
            await gate.type(f"doc-{number}-{'x' * 60}")
        events = [await reader.event() for _ in range(4)]
    assert events[-1].id.startswith("20")
    async with Reader(gate, last_event_id=events[-1].id) as reader:
        again = {(await reader.event()).data["sequence"] for _ in range(4)}
    assert again == {event.data["sequence"] for event in events}


async def test_deletion_and_restoring_are_events(gate: Gate) -> None:
    """In the order in which they happened."""
    await gate.type("doc")
    async with Reader(gate, query="since=0") as reader:
        await reader.event()
        await gate.client.document("doc").delete()
        await gate.client.document("doc").restore()
        names = [(await reader.event()).name, (await reader.event()).name]
        await gate.client.document("doc").delete(purge=True)
        while names[-1] != "erased":
            names.append((await reader.event()).name)
    assert names[:2] == ["deleted", "restored"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("since=yesterday", "invalid-moment"),
        ("since=", "invalid-moment"),
        ("since=-1", "invalid-moment"),
        ("since=1969-01-01T00:00:00Z", "invalid-moment"),
        ("since=9999-12-31T23:59:59-13:59", "invalid-moment"),
        ("since=lf1-nonsense", "invalid-position"),
        ("document=a.b", "invalid-parameter"),
        ("document=", "invalid-parameter"),
        ("since=0&since=1", "invalid-parameter"),
        ("until=now", "unknown-parameter"),
    ],
)
async def test_what_makes_no_sense_is_a_problem(gate: Gate, query: str, code: str) -> None:
    """Before anything is streamed, and no feed stays open."""
    response = await gate.http.get(f"/v1/feed?{query}")
    assert (response.status_code, response.json()["code"]) == (400, code)
    assert gate.feeds.open == 0


async def test_a_position_of_other_documents_is_a_problem(gate: Gate) -> None:
    """A position goes on with the documents that it began with."""
    async with Reader(gate, query="document=a") as reader:
        place = (await reader.block()).split("id: ")[1]
    response = await gate.http.get("/v1/feed?document=b", headers={"last-event-id": place})
    assert (response.status_code, response.json()["code"]) == (400, "invalid-parameter")
    assert gate.feeds.open == 0


async def test_a_position_that_unpacks_to_very_much_is_refused(gate: Gate) -> None:
    """A small text may be a bomb, and a large one is refused unread."""
    bomb = "lf1-" + base64.urlsafe_b64encode(zlib.compress(bytes(4 << 20))).decode()
    response = await gate.http.get("/v1/feed", headers={"last-event-id": bomb})
    assert (response.status_code, response.json()["code"]) == (400, "invalid-position")
    response = await gate.http.get("/v1/feed", headers={"last-event-id": "lf1-" + "A" * 5_997})
    assert (response.status_code, response.json()["code"]) == (400, "invalid-parameter")


async def test_a_position_with_journals_that_no_feed_of_ours_has_is_refused(gate: Gate) -> None:
    """A name costs two characters there, and each would be looked for."""
    places = {f"{number}": "" for number in range(1_001)}
    forged = str(FeedPosition.of(FeedState(EVERYTHING, None, places, FeedMemory())))
    assert len(forged) < 6_000
    response = await gate.http.get("/v1/feed", headers={"last-event-id": forged})
    assert (response.status_code, response.json()["code"]) == (400, "invalid-position")
    assert gate.feeds.open == 0


async def test_a_quiet_feed_is_kept_open_with_comments() -> None:
    """The gateway sends comments on an idle feed, because proxies close idle connections."""
    async with (
        gate_of(replace(SETTINGS, feed_comment_seconds=0.02)) as gate,
        Reader(gate) as reader,
    ):
        await reader.block()
        assert (await reader.block()).startswith(":")
        assert (await reader.block()).startswith(":")
        await gate.type("doc")
        assert (await reader.event()).data["document"] == "doc"


async def test_a_reader_that_leaves_leaves_nothing_behind(gate: Gate) -> None:
    """The feed is closed, its place is free, the client has forgotten it."""
    async with Reader(gate) as reader:
        await reader.block()
        assert gate.feeds.open == 1
        reader.leave()
        assert reader.task is not None
        await reader.task
    assert gate.feeds.open == 0
    assert not gate.client._feeds


async def test_more_feeds_than_allowed_are_sent_away_for_a_while() -> None:
    """With when to try again; a place that becomes free is given."""
    async with gate_of(replace(SETTINGS, feeds_max=1)) as gate:
        async with Reader(gate) as reader:
            await reader.block()
            response = await gate.http.get("/v1/feed")
            assert (response.status_code, response.json()["code"]) == (503, "too-many-feeds")
            assert int(response.headers["retry-after"]) > 0
        async with Reader(gate) as reader:
            await reader.block()
            assert reader.status == 200


async def test_a_stalled_reader_is_ended_and_blocks_no_other_reader() -> None:
    """It may resume; others are given everything meanwhile."""
    async with (
        gate_of(replace(SETTINGS, feed_stall_seconds=0.1)) as gate,
        Reader(gate) as slow,
        Reader(gate) as quick,
    ):
        await slow.block()
        await quick.block()
        slow.takes.clear()
        await gate.type("doc")
        assert (await quick.event()).data["document"] == "doc"
        assert slow.task is not None
        async with asyncio.timeout(10):
            await slow.task
        assert not slow.whole
        await gate.type("doc", "more")
        assert (await quick.event()).data["operations"] == 4
        assert gate.feeds.open == 1


async def test_closing_the_gateway_ends_its_feeds(gate: Gate) -> None:
    """The gateway ends each open feed completely, so that readers resume elsewhere, and refuses new feeds
    with 503.
    """
    async with Reader(gate) as reader:
        await reader.block()
        await gate.feeds.close()
        assert reader.whole
        response = await gate.http.get("/v1/feed")
        assert (response.status_code, response.json()["code"]) == (503, "closing")
    assert gate.feeds.open == 0


async def test_a_client_that_is_closed_ends_its_feeds(gate: Gate) -> None:
    """The reader receives the end of the response, and does not wait."""
    async with Reader(gate) as reader:
        await reader.block()
        await gate.client.close()
        await eventually(lambda: reader.whole)


async def test_without_nats_there_is_no_feed(gate: Gate) -> None:
    """A problem, with when to try again."""
    gate.transport.cut()
    response = await gate.http.get("/v1/feed")
    assert response.status_code == 503
    assert response.headers["retry-after"]
    assert gate.feeds.open == 0


async def test_a_feed_survives_a_lost_connection(gate: Gate) -> None:
    """The feed continues after the reconnect with the updates that were accepted during the outage."""
    async with Reader(gate) as reader:
        await reader.block()
        gate.transport.cut()
        gate.transport.heal()
        await gate.type("doc")
        assert (await reader.event()).data["document"] == "doc"


async def test_the_feed_counts(gate: Gate) -> None:
    """For `/metrics`."""
    async with Reader(gate) as reader:
        await reader.block()
        await gate.type("doc")
        await reader.event()
    await eventually(lambda: gate.feeds.events_sent == 1)
    assert (gate.feeds.opened, gate.feeds.open) == (1, 0)
