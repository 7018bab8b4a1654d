"""Prometheus metrics of servers, NATS streams and this gateway. Pure.

Names end in Prometheus' base units, seconds and bytes. Metrics of servers have the label `server`.
docs/METRICS.md has the table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from lorogo_gateway.metrics.collector import ClusterSample, DocumentCounts
from lorogo_gateway.metrics.rates import counts, number, reasons
from lorogo_protocol.ids import is_document_id
from lorogo_protocol.journal import latency
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.ports import StreamState
from lorogo_transport.rpc.discovery import ServerStats, is_ready

_REASONS: Final = frozenset(reason.value for reason in Reason)
_BUCKETS: Final = range(4, 25)  # 16 us to 16.8 s; other values are in the first bucket or in +Inf
_LABEL_CHARS_MAX = 100

#: counters of servers: name, key in `stats()`, help
_COUNTERS: Final = (
    ("lorogo_updates_accepted", "accepted", "Updates accepted"),
    ("lorogo_updates_accepted_bytes", "accepted_bytes", "Bytes of updates accepted"),
    ("lorogo_updates_refused", "refused", "Updates refused, with or without a NACK sent"),
    ("lorogo_unanswerable", "unanswerable", "Messages with a reply subject that is not allowed"),
    ("lorogo_presence_dropped", "presence_dropped", "Presence messages dropped because of limits"),
    ("lorogo_pings_dropped", "pings_dropped", "Pings dropped because of limits"),
    ("lorogo_loads", "loads", "Documents acquired"),
    ("lorogo_load_failures", "load_failures", "Documents acquired that could not be loaded or kept open"),
    ("lorogo_takeovers", "takeovers", "Documents taken over from a server that stopped renewing its lease"),
    ("lorogo_step_downs", "step_downs", "Documents no longer served after losing the lease"),
    ("lorogo_compactions", "compactions", "Snapshots written"),
    ("lorogo_updates_republished", "republished", "Updates lost by NATS and republished from a journal"),
    ("lorogo_updates_lost", "lost_for_good", "ACKed updates lost by NATS that no journal can restore"),
    (
        "lorogo_tombstones_contradicted",
        "tombstones_contradicted",
        "Documents in use whose deletion is in a journal",
    ),
)

#: gauges of servers
_GAUGES: Final = (
    ("lorogo_documents_open", "documents", "Open documents"),
    ("lorogo_documents_open_snapshot_bytes", "snapshot_bytes", "Bytes of stored snapshots of open documents"),
    ("lorogo_journal_size_bytes", "journal_disk_bytes", "Bytes of the journal on disk"),
    ("lorogo_journal_damage", "journal_damage", "Damaged places found in the journal since the start"),
    ("lorogo_archive_waiting", "archive_waiting", "Journal segments waiting to be archived"),
    (
        "lorogo_documents_incomplete",
        "documents_incomplete",
        "Open documents served without an absent journal",
    ),
    ("lorogo_documents_recovering", "recovering", "Documents waiting for journals before they are served"),
    ("lorogo_reconcile_waiting", "reconcile_waiting", "Documents known to be incomplete in the WAL"),
)

#: gauges of servers that report the value: absent rather than a wrong zero
_GAUGES_OF_SOME: Final = (
    ("lorogo_journal_disk_free_bytes", "disk_free_bytes", "Free bytes on the journal's disk"),
    ("lorogo_journal_disk_size_bytes", "disk_size_bytes", "Size of the journal's disk"),
    ("lorogo_journal_replicas", "journal_replicas", "Replicas that are up to date with the journal"),
    ("lorogo_journal_replicas_wanted", "journal_replicas_wanted", "Replicas required for an ACK"),
)

#: queues of servers: label, items, bytes
_QUEUES: Final = (
    ("journal", "journal_waiting", "journal_waiting_bytes"),
    ("intake", "intake_waiting", "intake_waiting_bytes"),
    ("acks", "acks_waiting", None),
    ("loads", "loads_waiting", None),
)

#: metrics of WebSockets: name, key in their statistics, help
_SOCKET_GAUGES: Final = (
    ("lorogo_gateway_websocket_connections", "connections", "Open WebSocket connections"),
    ("lorogo_gateway_websocket_rooms", "rooms", "Rooms with at least one member"),
    ("lorogo_gateway_websocket_members", "members", "Memberships in rooms"),
    ("lorogo_gateway_websocket_unread_bytes", "unread_bytes", "Bytes in send buffers"),
    ("lorogo_gateway_websocket_unacked_updates", "unacked", "Updates of members without an ACK"),
)
_SOCKET_COUNTERS: Final = (
    ("lorogo_gateway_websocket_opened", "opened", "WebSocket connections opened"),
    ("lorogo_gateway_websocket_joins", "joins", "Rooms joined"),
    ("lorogo_gateway_websocket_joins_refused", "joins_refused", "Joins refused because of the token"),
    ("lorogo_gateway_websocket_rejoins", "rejoins", "Rejoins suggested"),
    ("lorogo_gateway_websocket_updates_received", "updates_in", "Updates received from members"),
    ("lorogo_gateway_websocket_updates_sent", "updates_out", "Updates sent to members"),
    ("lorogo_gateway_websocket_received_bytes", "bytes_in", "Bytes received"),
    ("lorogo_gateway_websocket_sent_bytes", "bytes_out", "Bytes sent"),
    ("lorogo_gateway_websocket_slow_readers", "slow_readers_dropped", "Slow consumers disconnected"),
)
_SOCKET_LABELLED: Final = (
    ("lorogo_gateway_websocket_acks", "acks", "status", "Acks sent, by status"),
    ("lorogo_gateway_websocket_closed", "closed", "reason", "WebSocket connections closed, by reason"),
)


@dataclass(frozen=True, slots=True)
class GatewayFigures:
    """The counters of this gateway."""

    feeds_open: int = 0
    feeds_opened: int = 0
    feed_events: int = 0
    sockets: Mapping[str, Any] | None = None
    refused: Mapping[str, int] = field(default_factory=dict)  # by reason (limits.reasons)
    responses: Mapping[str, int] = field(default_factory=dict)  # by status class, as in 5xx


def families(look: ClusterSample, census: DocumentCounts | None, own: GatewayFigures) -> Iterator[Metric]:
    """Yield all metrics."""
    yield from _of_servers(look)
    yield from _of_streams(look)
    if census is not None:
        yield from _of_documents(census)
    yield from _of_gateway(look, own)


def _of_servers(look: ClusterSample) -> Iterator[Metric]:
    servers = look.servers
    yield GaugeMetricFamily("lorogo_servers", "Servers that answer", len(servers))
    label = ["server"]
    info = InfoMetricFamily("lorogo_server", "Version and durability of ACKs", labels=label)
    ready = GaugeMetricFamily(
        "lorogo_server_ready", "1 if the server acquires documents and ACKs", labels=label
    )
    started = GaugeMetricFamily("lorogo_server_start_time_seconds", "Start time, Unix time", labels=label)
    for server in servers:
        about = {"version": _label(server.version), "durability": _label(server.stats.get("durability", ""))}
        info.add_metric([server.server_id], about)
        ready.add_metric([server.server_id], is_ready(server.stats))
        if (moment := _unix_seconds(server.started)) is not None:
            started.add_metric([server.server_id], moment)
    yield from (info, ready, started)
    for name, key, about_it in _COUNTERS:
        counter = CounterMetricFamily(name, about_it, labels=["server"])
        for server in servers:
            counter.add_metric([server.server_id], number(server.stats, key))
        yield counter
    for name, key, about_it in _GAUGES:
        gauge = GaugeMetricFamily(name, about_it, labels=["server"])
        for server in servers:
            gauge.add_metric([server.server_id], number(server.stats, key))
        yield gauge
    for name, key, about_it in _GAUGES_OF_SOME:
        gauge = GaugeMetricFamily(name, about_it, labels=["server"])
        for server in servers:
            if (size := _size(server.stats, key)) is not None:
                gauge.add_metric([server.server_id], size)
        yield gauge
    yield _by_reason("lorogo_nacks", "NACKs sent, by reason", servers, "nacked")
    yield _by_reason("lorogo_calls_refused", "Calls refused, by reason", servers, "calls_refused")
    yield from _queues(servers)
    yield _histogram(
        "lorogo_ack_latency_seconds",
        "Time from receiving an update to sending its ACK",
        servers,
        "ack_us",
    )
    yield _histogram(
        "lorogo_journal_fdatasync_seconds",
        "Duration of the journal's fdatasync, per commit",
        servers,
        "journal_sync_us",
    )


def _by_reason(name: str, about: str, servers: tuple[ServerStats, ...], key: str) -> Metric:
    family = CounterMetricFamily(name, about, labels=["server", "reason"])
    for server in servers:
        known: dict[str, int] = {}
        for reason, count in reasons(server.stats, key).items():
            label = reason if reason in _REASONS else "other"
            known[label] = known.get(label, 0) + count
        for label, count in sorted(known.items()):
            family.add_metric([server.server_id, label], count)
    return family


def _queues(servers: tuple[ServerStats, ...]) -> Iterator[Metric]:
    labels = ["server", "queue"]
    depth = GaugeMetricFamily("lorogo_queue_depth", "Items waiting in a server, by queue", labels=labels)
    size = GaugeMetricFamily("lorogo_queue_size_bytes", "Bytes waiting in a server, by queue", labels=labels)
    for server in servers:
        for queue, items, queued_bytes in _QUEUES:
            depth.add_metric([server.server_id, queue], number(server.stats, items))
            if queued_bytes is not None:
                size.add_metric([server.server_id, queue], number(server.stats, queued_bytes))
    yield from (depth, size)


def _histogram(name: str, about: str, servers: tuple[ServerStats, ...], key: str) -> Metric:
    family = HistogramMetricFamily(name, about, labels=["server"])
    for server in servers:
        found = counts(server.stats, f"{key}_counts")
        ends = list(accumulate(found + [0] * (latency.COUNTS_MAX - len(found))))
        buckets = [(repr((1 << at) / 1e6), ends[at]) for at in _BUCKETS]
        family.add_metric(
            [server.server_id],
            [*buckets, ("+Inf", ends[-1])],
            number(server.stats, f"{key}_sum") / 1e6,
        )
    return family


def _of_streams(look: ClusterSample) -> Iterator[Metric]:
    streams = look.streams
    for name, about, state in (
        ("lorogo_wal", "the WAL", streams.wal),
        ("lorogo_rejected", "the stream loro-rejected", streams.rejected),
        ("lorogo_snapshots", "the bucket of snapshots", streams.snapshots),
    ):
        if state is not None:
            yield from _of_stream(name, about, state)


def _of_stream(name: str, about: str, state: StreamState) -> Iterator[Metric]:
    yield GaugeMetricFamily(f"{name}_size_bytes", f"Bytes in {about}", state.bytes)
    yield GaugeMetricFamily(f"{name}_messages", f"Messages in {about}", state.messages)
    yield GaugeMetricFamily(f"{name}_replicas", f"NATS replicas of {about}", state.replicas)
    yield GaugeMetricFamily(
        f"{name}_replicas_current", f"NATS replicas of {about} that are up to date", state.replicas_current
    )
    if state.bytes_max > 0:
        yield GaugeMetricFamily(f"{name}_limit_bytes", f"Size limit of {about}", state.bytes_max)


def _of_documents(census: DocumentCounts) -> Iterator[Metric]:
    states = GaugeMetricFamily("lorogo_documents", "Documents by state", labels=["state"])
    for state, count in census.states.items():
        states.add_metric([state], count)
    top = GaugeMetricFamily(
        "lorogo_document_wal_messages", "Messages in the WAL of the top documents", labels=["document"]
    )
    for document, messages in census.top:
        if is_document_id(document):
            top.add_metric([document], messages)
    yield from (states, top)


def _of_gateway(look: ClusterSample, own: GatewayFigures) -> Iterator[Metric]:
    yield GaugeMetricFamily("lorogo_gateway_nats_connected", "1 if NATS is connected", look.connected)
    yield GaugeMetricFamily(
        "lorogo_gateway_sample_timestamp_seconds", "Time of the last sample, Unix time", look.time_ns / 1e9
    )
    yield GaugeMetricFamily("lorogo_gateway_feeds", "Open feeds", own.feeds_open)
    yield CounterMetricFamily("lorogo_gateway_feeds_opened", "Feeds opened", own.feeds_opened)
    yield CounterMetricFamily("lorogo_gateway_feed_events", "Feed events sent", own.feed_events)
    refused = CounterMetricFamily(
        "lorogo_gateway_refused",
        "Requests refused and connections closed because of a limit, by reason",
        labels=["reason"],
    )
    for reason, count in own.refused.items():
        refused.add_metric([reason], count)
    yield refused
    responses = CounterMetricFamily(
        "lorogo_gateway_http_responses", "HTTP responses except to probes, by status class", labels=["status"]
    )
    for status, count in own.responses.items():
        responses.add_metric([status], count)
    yield responses
    sockets = own.sockets
    if sockets is None:
        return
    for name, key, about in _SOCKET_GAUGES:
        if key in sockets:
            yield GaugeMetricFamily(name, about, number(sockets, key))
    for name, key, about in _SOCKET_COUNTERS:
        if key in sockets:
            yield CounterMetricFamily(name, about, number(sockets, key))
    for name, key, label, about in _SOCKET_LABELLED:
        if isinstance(by_label := sockets.get(key), Mapping):
            family = CounterMetricFamily(name, about, labels=[label])
            for value in sorted(by_label):
                family.add_metric([_label(value)], number(by_label, value))
            yield family


def _size(stats: Mapping[str, Any], key: str) -> int | None:
    """Return a value, or the length of a list; None if the server does not report it."""
    if isinstance(names := stats.get(key), list):
        return len(names)
    return None if stats.get(key) is None else number(stats, key)


def _label(value: object) -> str:
    return str(value)[:_LABEL_CHARS_MAX].encode("ascii", "replace").decode()


def _unix_seconds(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
