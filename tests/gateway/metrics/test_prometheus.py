"""The metrics page: well formed, named by the rules of Prometheus, true, and bounded."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from lorogo_gateway.metrics.collector import STATES, ClusterSample, DocumentCounts
from lorogo_gateway.metrics.prometheus import GatewayFigures, families
from lorogo_gateway.metrics.rates import StreamStates
from lorogo_protocol.journal.latency import COUNTS_MAX
from lorogo_transport.ports import StreamState
from lorogo_transport.rpc.discovery import ServerStats
from tests.gateway.operator_support import gate_of

STATS = {
    "ready": True,
    "journal": "open",
    "durability": "journal",
    "documents": 3,
    "accepted": 100,
    "accepted_bytes": 5_000,
    "nacked": {"deleted": 2, "invalid-update": 1, "made up": 4, "also\nmade\ud800up": 1},
    "ack_us_counts": [1, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4, *[0] * 20, 2],
    "ack_us_sum": 2_500_000,
    "journal_sync_us_counts": [],
    "journal_waiting": 4,
    "journal_waiting_bytes": 400,
    "takeovers": 2,
    "disk_free_bytes": 300,
    "disk_size_bytes": 1_000,
    "journal_replicas": ["b", "c"],
    "journal_replicas_wanted": 1,
}
SOCKETS = {
    "connections": 7,
    "rooms": 3,
    "opened": 20,
    "acks": {"ok": 5, "rate_limited": 1},
    "closed": {"slow": 2},
    "unknown": 1,
}


def look(*servers: ServerStats, streams: StreamStates | None = None) -> ClusterSample:
    state = StreamState(1, 9, 5, 500, 0, 1_000)
    return ClusterSample(0.0, 5_000_000_000, True, servers, streams or StreamStates(state, state, state))


def server(name: str = "s", **stats: Any) -> ServerStats:
    return ServerStats(name, "1.2.3", "2026-11-16T10:00:00.000Z", {**STATS, **stats})


CENSUS = DocumentCounts(dict.fromkeys(STATES, 1), (), (("doc", 9), ("other", 2)))


def everything(
    seen: ClusterSample | None = None,
    census: DocumentCounts | None = CENSUS,
    own: GatewayFigures | None = None,
) -> dict[str, Metric]:
    made = families(seen or look(server()), census, own or GatewayFigures(1, 2, 3, SOCKETS))
    return {family.name: family for family in made}


def values(family: Metric) -> dict[tuple[str, ...], float]:
    """By suffix and labels."""
    return {
        (sample.name.removeprefix(family.name), *sample.labels.values()): sample.value
        for sample in family.samples
    }


def test_counters_and_gauges_of_servers_carry_their_name() -> None:
    """One line per server and figure; what a server does not tell is nothing."""
    made = everything(look(server("a"), server("b", accepted=7, documents="many")))
    assert values(made["lorogo_updates_accepted"]) == {("_total", "a"): 100, ("_total", "b"): 7}
    assert values(made["lorogo_documents_open"]) == {("", "a"): 3, ("", "b"): 0}
    assert values(made["lorogo_takeovers"])["_total", "a"] == 2
    assert values(made["lorogo_server_ready"])["", "a"] == 1
    assert values(made["lorogo_servers"]) == {("",): 2}
    assert values(made["lorogo_server_start_time_seconds"])["", "a"] == 1794823200
    assert values(made["lorogo_queue_depth"])["", "a", "journal"] == 4
    assert values(made["lorogo_queue_size_bytes"])["", "a", "journal"] == 400


def test_nacks_are_counted_by_reason_and_strange_reasons_together() -> None:
    """Invented reasons create no new series."""
    assert values(everything()["lorogo_nacks"]) == {
        ("_total", "s", "deleted"): 2,
        ("_total", "s", "invalid-update"): 1,
        ("_total", "s", "other"): 5,
    }


def test_power_of_two_counts_become_a_histogram_in_seconds() -> None:
    """Buckets add up, the last holds all, and the sum is the server's."""
    made = values(everything()["lorogo_ack_latency_seconds"])
    buckets = {float(key[2]): value for key, value in made.items() if key[0] == "_bucket"}
    ordered = [buckets[bound] for bound in sorted(buckets)]
    assert ordered == sorted(ordered)
    assert buckets[0.000016] == 1
    assert buckets[0.000032] == 4
    assert buckets[0.001024] == 8
    assert buckets[16.777216] == 8
    assert buckets[math.inf] == made["_count", "s"] == 10
    assert made["_sum", "s"] == 2.5


def test_a_histogram_has_the_same_buckets_before_anything_was_counted() -> None:
    """A series must not appear and vanish."""
    made = everything()
    syncs = {key[2] for key in values(made["lorogo_journal_fdatasync_seconds"]) if key[0] == "_bucket"}
    acks = {key[2] for key in values(made["lorogo_ack_latency_seconds"]) if key[0] == "_bucket"}
    assert syncs == acks
    assert len(acks) == 22 < COUNTS_MAX


def test_streams_that_are_not_there_have_no_figures() -> None:
    """Nothing is better than a false zero; a stream without a limit has none."""
    state = StreamState(1, 9, 5, 500, 0, -1)
    made = everything(look(streams=StreamStates(wal=state)))
    assert values(made["lorogo_wal_size_bytes"]) == {("",): 500}
    assert "lorogo_wal_limit_bytes" not in made
    assert "lorogo_snapshots_size_bytes" not in made


def test_a_server_that_does_not_tell_has_no_false_zero() -> None:
    """An empty disk and no replicas are alarms; a server that has neither journal nor replicas has none."""
    lacks = dict.fromkeys(("disk_free_bytes", "disk_size_bytes", "journal_replicas_wanted"), None)
    made = everything(look(server("a"), server("b", **lacks, journal_replicas=None)))
    assert values(made["lorogo_journal_disk_free_bytes"]) == {("", "a"): 300}
    assert values(made["lorogo_journal_disk_size_bytes"]) == {("", "a"): 1_000}
    assert values(made["lorogo_journal_replicas"]) == {("", "a"): 2}
    assert values(made["lorogo_journal_replicas_wanted"]) == {("", "a"): 1}


def test_a_stream_tells_how_many_nodes_keep_it() -> None:
    """Those that should, and those that do now."""
    lost = StreamState(1, 9, 5, 500, 0, -1, replicas=3, replicas_current=2)
    made = everything(look(streams=StreamStates(wal=lost)))
    assert values(made["lorogo_wal_replicas"]) == {("",): 3}
    assert values(made["lorogo_wal_replicas_current"]) == {("",): 2}


def test_only_the_top_documents_have_figures_of_their_own() -> None:
    """And only ids that are ids."""
    odd = DocumentCounts(dict.fromkeys(STATES, 1), (), (("doc", 9), ('x"} 1\nevil', 7)))
    made = everything(census=odd)
    assert values(made["lorogo_document_wal_messages"]) == {("", "doc"): 9}
    assert values(made["lorogo_documents"])["", "ERROR"] == 1
    assert "lorogo_documents" not in everything(census=None)


def test_the_gateway_tells_of_itself() -> None:
    """Feeds, and what the WebSockets count; what is not known is left out."""
    made = everything()
    assert values(made["lorogo_gateway_feeds"]) == {("",): 1}
    assert values(made["lorogo_gateway_feed_events"]) == {("_total",): 3}
    assert values(made["lorogo_gateway_websocket_connections"]) == {("",): 7}
    assert values(made["lorogo_gateway_websocket_acks"]) == {
        ("_total", "ok"): 5,
        ("_total", "rate_limited"): 1,
    }
    assert values(made["lorogo_gateway_websocket_closed"]) == {("_total", "slow"): 2}
    assert not any("unknown" in name for name in made)
    assert not any("websocket" in name for name in everything(own=GatewayFigures()))


def test_names_say_what_is_measured_and_in_what() -> None:
    """Ours first; base units only, at the end of the name; counters are named for what they count."""
    for name, family in everything().items():
        assert re.fullmatch(r"lorogo_[a-z0-9_]+", name), name
        assert family.documentation, name
        assert not family.documentation.endswith("."), name
        for unit in ("milliseconds", "microseconds", "_us", "_ms", "_ns", "kilobytes", "_mb", "_total"):
            assert not name.endswith(unit), name
        words = name.split("_")
        for unit in ("bytes", "seconds"):
            assert unit not in words[:-1], name
        if "latency" in words or "fdatasync" in words:
            assert family.type == "histogram"
            assert words[-1] == "seconds"
        if family.type == "counter":
            assert all(sample.name == f"{name}_total" for sample in family.samples)


def test_every_metric_stands_in_the_operators_table() -> None:
    """docs/METRICS.md names each of them, as it is scraped, and no other."""
    page = (Path(__file__).parents[3] / "docs" / "METRICS.md").read_text()
    cells = re.findall(r"^\| (`lorogo_[^|]+) \|", page, re.MULTILINE)
    listed = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    named = set(listed)
    assert len(listed) == len(named)
    sockets = dict.fromkeys(
        (
            *(*SOCKETS, "members", "unread_bytes", "unacked"),
            *("joins", "joins_refused", "rejoins", "updates_in", "updates_out"),
        ),
        1,
    ) | {"bytes_in": 1, "bytes_out": 1, "slow_readers_dropped": 1, "acks": {"ok": 1}, "closed": {"x": 1}}
    made = everything(own=GatewayFigures(sockets=sockets, responses={"5xx": 1}))
    suffix: Mapping[str, str] = {"counter": "_total", "info": "_info"}
    assert named == {name + suffix.get(family.type, "") for name, family in made.items()}


async def test_a_scrape_shows_all_servers_and_parses() -> None:
    """Through any one gateway, with the figures that the servers have now."""
    async with gate_of(servers=2) as gate:
        for number in range(4):
            await gate.type(f"doc-{number}")
        response = await gate.http.get("/metrics")
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/plain")
        found = {family.name: family for family in parse(response.text)}
    names = {sample.labels["server"] for sample in found["lorogo_server_ready"].samples}
    assert len(names) == 2
    accepted = sum(sample.value for sample in found["lorogo_updates_accepted"].samples)
    assert accepted == 4
    counts = [one.value for one in found["lorogo_ack_latency_seconds"].samples if one.name.endswith("_count")]
    assert sum(counts) == 4
    syncs = found["lorogo_journal_fdatasync_seconds"].samples
    assert sum(one.value for one in syncs if one.name.endswith("_count")) >= 1
    top = {one.labels["document"]: one.value for one in found["lorogo_document_wal_messages"].samples}
    assert top == dict.fromkeys((f"doc-{number}" for number in range(4)), 1)
    assert found["lorogo_wal_messages"].samples[0].value == 4
    assert "process_resident_memory_bytes" in found


async def test_a_scraper_that_prefers_openmetrics_is_given_it() -> None:
    """The stricter format accepts every name and unit of ours."""
    async with gate_of() as gate:
        await gate.type("doc")
        accept = {"accept": "application/openmetrics-text; version=1.0.0"}
        response = await gate.http.get("/metrics", headers=accept)
    assert "openmetrics" in response.headers["content-type"]
    found = {family.name for family in parse_openmetrics(response.text)}  # type: ignore[no-untyped-call]  # theirs
    assert {"lorogo_updates_accepted", "lorogo_ack_latency_seconds", "lorogo_server"} <= found


@pytest.mark.parametrize("accept", ["", "*/*", "text/html", "nonsense;;;q=", "application/json"])
async def test_whatever_else_is_accepted_gets_text(accept: str) -> None:
    """A person with a browser may look, too."""
    async with gate_of(servers=0) as gate:
        response = await gate.http.get("/metrics", headers={"accept": accept})
    assert response.headers["content-type"].startswith("text/plain")
    assert list(parse(response.text))


async def test_without_nats_there_are_still_metrics() -> None:
    """The metrics report that NATS is disconnected."""
    async with gate_of(servers=0) as gate:
        gate.transport.cut()
        response = await gate.http.get("/metrics")
        gate.transport.heal()
    found = {family.name: family for family in parse(response.text)}
    assert found["lorogo_gateway_nats_connected"].samples[0].value == 0
    assert found["lorogo_servers"].samples[0].value == 0
