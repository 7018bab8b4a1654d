"""The operator's facts over HTTP."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

import pytest

from lorogo_gateway.http.schema_check import wrong
from lorogo_gateway.metrics.operator_schemas import COLUMNS
from lorogo_gateway.metrics.operator_views import operations, server_facts
from lorogo_gateway.metrics.rejected_updates import RejectedMessage, together
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Failed
from lorogo_transport.rpc.discovery import ServerStats
from lorogo_transport.stores.statuses import Statuses
from tests.gateway.operator_support import Gate, eventually, gate_of
from tests.server.support import until


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    async with gate_of() as made:
        yield made


async def get(gate: Gate, path: str) -> Any:
    """Return the response of that path, after checking it against its description."""
    body = await gate.get(path)
    for one in operations(gate.client, gate.collector):
        if one.path == path.partition("?")[0].replace("/doc/", "/{id}/"):
            schema = one.answers[200].content["application/json"]
            assert wrong(schema, body, "the answer") is None
            return body
    raise AssertionError(f"{path} is not described")


async def test_servers_say_how_they_are(gate: Gate) -> None:
    """In figures and in words, each by its id."""
    second = await gate.serve()
    servers = (await get(gate, "/v1/servers"))["servers"]
    assert [one["server"] for one in servers] == sorted(one["server"] for one in servers)
    assert second.server_id in {one["server"] for one in servers}
    for one in servers:
        assert one["ready"] is True
        assert one["stats"]["durability"] == "journal"
        assert datetime.fromisoformat(one["started"]).tzinfo is not None
        assert isinstance(one["health"], list)


@pytest.mark.parametrize(
    "stats",
    [
        {"journals_damaged": 7},
        {"reconciled_ns": "yesterday"},
        {"journal_replicas_wanted": 1, "journal_replicas": 5},
        {"copies_trouble": []},
        {"documents": float("inf")},
    ],
)
def test_figures_that_make_no_sense_do_not_break_the_page(stats: Mapping[str, Any]) -> None:
    """The server is shown, with a word about it or without its figures."""
    facts = server_facts(ServerStats("s", "1", "", stats), 0)
    assert facts["server"] == "s"
    assert facts["health"] == ["ITS FIGURES CANNOT BE READ"] or facts["stats"] == {}


async def test_the_overview_says_how_it_stands(gate: Gate) -> None:
    """States, sizes, throughput and latency, waiting, sockets."""
    gate.collector.start()
    await get(gate, "/v1/overview")
    for number in range(3):
        await gate.type(f"doc-{number}")

    async def counted() -> Any:
        body = await get(gate, "/v1/overview")
        return body if (body["documents"]["UP"], body["wal"]["messages"]) == (3, 3) else None

    shown = await until(counted)
    await eventually(lambda: any(one.updates_per_second for one in gate.collector.samples))
    assert shown["connected"] is True
    assert shown["documents"] == {"UP": 3, "STARTING": 0, "DOWN": 0, "ERROR": 0}
    assert shown["servers"] == {"total": 1, "ready": 1}
    assert shown["sockets"] == {"connections": 2, "rooms": 1}
    assert (shown["errors"], shown["takeovers"]) == ([], [])
    assert set(shown["waiting"]) == {"journal", "intake", "acks", "loads"}
    samples = list(gate.collector.samples)
    assert any(one.ack_p99_us for one in samples)


async def test_documents_in_error_and_takeovers_are_listed(gate: Gate) -> None:
    """With trace and time; with from whom and to whom."""
    statuses = Statuses(gate.world.connect())
    await statuses.write("broken", Failed("trace-7", 5_000_000_000), expected_revision=0)
    shown = await get(gate, "/v1/overview")
    assert shown["errors"] == [
        {"document": "broken", "trace": "trace-7", "time": "1970-01-01T00:00:05.000+00:00"}
    ]
    assert shown["documents"]["ERROR"] == 1


async def test_samples_are_columns_of_equal_length(gate: Gate) -> None:
    """Oldest first, one list per figure."""
    gate.collector.start()
    await get(gate, "/v1/overview/samples")
    await eventually(lambda: len(gate.collector.samples) >= 3)
    shown = await get(gate, "/v1/overview/samples")
    assert set(shown) == {"time", *COLUMNS}
    assert {len(column) for column in shown.values()} == {len(shown["time"])}
    assert shown["time"] == sorted(shown["time"])
    assert shown["updates_per_second"][0] is None
    assert shown["updates_per_second"][1] == 0.0


async def test_without_nats_the_overview_says_what_it_does_not_know(gate: Gate) -> None:
    """Null, not zero, and no error."""
    gate.transport.cut()
    shown = await get(gate, "/v1/overview")
    assert shown["connected"] is False
    assert (shown["wal"], shown["snapshot_bytes"], shown["ack"]["p50_us"]) == (None, None, None)
    gate.transport.heal()


# --- refused updates ------------------------------------------------------------------------------


def kept(sequence: int, headers: Mapping[str, str], document: str = "doc", size: int = 10) -> RejectedMessage:
    return RejectedMessage(sequence, document, sequence, headers, size)


def test_the_messages_of_one_update_are_one_row() -> None:
    """Chunks together; bytes without headers belong to the headers before them; the newest is first."""
    said = {h.REASON: "invalid-update", h.MESSAGE: "it does not decode", h.SEQUENCE: "77"}
    rows = together(
        [
            kept(1, {}, size=5),  # its headers are further back than was read
            kept(2, {**said, h.LOG_ID: "a"}),
            kept(3, {**said, h.LOG_ID: "b"}, "other", size=0),
            kept(4, {**said, h.LOG_ID: "a"}, size=20),
            kept(5, {}, "other", size=30),
            kept(6, said),
            kept(7, {**said, h.SEQUENCE: "no number"}),
        ]
    )
    assert [(row.sequence, row.document, row.log_id, row.bytes, row.wal_sequence) for row in rows] == [
        (7, "doc", "", 10, 0),
        (6, "doc", "", 10, 77),
        (3, "other", "b", 30, 77),
        (2, "doc", "a", 30, 77),
    ]
    assert (rows[0].reason, rows[0].message) == ("invalid-update", "it does not decode")


async def test_refused_updates_are_listed_newest_first(gate: Gate) -> None:
    """The list has the document, reason, time, bytes and log id of each update, up to `limit` rows."""
    rejected = gate.world.connect().stream(subjects.REJECTED_STREAM)
    for number in range(100):
        rejection = {
            h.REASON: "invalid-update",
            h.MESSAGE: "why",
            h.SEQUENCE: str(number),
            h.LOG_ID: f"log-{number}",
        }
        await rejected.append(subjects.rejected(f"doc-{number % 3}"), b"12345", headers=rejection)
    rows = (await get(gate, "/v1/rejected"))["rejected"]
    assert [row["log_id"] for row in rows] == [f"log-{number}" for number in range(99, 49, -1)]
    assert rows[0] == {
        "sequence": 100,
        "document": "doc-0",
        "time": rows[0]["time"],
        "reason": "invalid-update",
        "message": "why",
        "log_id": "log-99",
        "wal_sequence": 99,
        "bytes": 5,
    }
    assert len((await get(gate, "/v1/rejected?limit=3"))["rejected"]) == 3
    assert len((await get(gate, "/v1/rejected?limit=200"))["rejected"]) == 100


async def test_what_a_server_refused_is_there(gate: Gate) -> None:
    """From the WAL, through the owner, to the page."""
    await gate.type("doc")
    said = {h.LOG_ID: "bad-1", h.CHUNK_INDEX: "nonsense"}
    await gate.client.transport.stream(subjects.WAL_STREAM).append(
        subjects.wal("doc"), b"nonsense", headers=said
    )

    async def moved() -> Any:
        return (await get(gate, "/v1/rejected"))["rejected"]

    rows = await until(moved)
    assert (rows[0]["document"], rows[0]["reason"], rows[0]["bytes"]) == ("doc", "invalid-update", 8)


async def test_nothing_refused_is_an_empty_list(gate: Gate) -> None:
    """Also where no stream is."""
    assert await get(gate, "/v1/rejected") == {"rejected": []}
    del gate.world.stores[subjects.REJECTED_STREAM]
    assert await get(gate, "/v1/rejected") == {"rejected": []}


@pytest.mark.parametrize("limit", ["0", "-1", "201", "many", "", "9" * 30])
async def test_a_limit_is_a_number_within_bounds(gate: Gate, limit: str) -> None:
    """Else a problem."""
    response = await gate.http.get(f"/v1/rejected?limit={limit}")
    assert (response.status_code, response.json()["code"]) == (400, "invalid-parameter")


# --- one document's size --------------------------------------------------------------------------


async def test_a_documents_size_over_time(gate: Gate) -> None:
    """Points of time with sequence and operations, and what is stored now."""
    await gate.type("doc", "12345")
    shown = await get(gate, "/v1/documents/doc/sizes")
    assert shown["document"] == "doc"
    assert shown["operations"] == [5]
    assert shown["sequence"] == [1]
    assert len(shown["time"]) == 1
    assert shown["operations_now"] == 5
    assert shown["wal_messages"] == 1
    assert shown["wal_bytes"] > 0
    await gate.client.document("doc").compact()
    assert (await get(gate, "/v1/documents/doc/sizes"))["snapshot_bytes"] > 0


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/documents/never/sizes", 404, "not-found"),
        ("/v1/documents/a.b/sizes", 400, "invalid-parameter"),
        ("/v1/documents/never/sizes?limit=1001", 400, "invalid-parameter"),
    ],
)
async def test_a_document_that_never_was_is_not_made(gate: Gate, path: str, status: int, code: str) -> None:
    """Looking creates nothing."""
    response = await gate.http.get(path)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert await Statuses(gate.world.connect()).read("never") is None


async def test_a_deleted_document_has_no_size(gate: Gate) -> None:
    """410, as everywhere."""
    await gate.type("doc")
    await gate.client.document("doc").delete()
    response = await gate.http.get("/v1/documents/doc/sizes")
    assert (response.status_code, response.json()["code"]) == (410, "deleted")
