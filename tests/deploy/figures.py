"""Every metric of a gateway, with its labels; and the metrics in an expression of PromQL."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import promql_parser as promql
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric

from lorogo_gateway.limits.reasons import LimitCounters
from lorogo_gateway.metrics import prometheus
from lorogo_gateway.metrics.collector import STATES, ClusterSample, DocumentCounts
from lorogo_gateway.metrics.prometheus import GatewayFigures, families
from lorogo_gateway.metrics.rates import StreamStates
from lorogo_gateway.metrics.response_counts import ResponseCounts
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.ports import StreamState
from lorogo_transport.rpc.discovery import ServerStats

#: what Prometheus itself adds to every series
SCRAPED = frozenset({"job", "instance", "namespace"})

#: metrics of kube-state-metrics and the kubelet, which only the rules for Kubernetes may use
OTHERS = {
    "kube_cronjob_created": frozenset({"namespace", "cronjob"}),
    "kube_cronjob_status_last_successful_time": frozenset({"namespace", "cronjob"}),
    "kubelet_volume_stats_available_bytes": frozenset({"namespace", "persistentvolumeclaim"}),
    "kubelet_volume_stats_capacity_bytes": frozenset({"namespace", "persistentvolumeclaim"}),
}

#: labels whose values are a closed set
_CLOSED = frozenset({"state", "status", "queue", "reason"})


@dataclass(slots=True)
class Figure:
    """One name as it is scraped."""

    kind: str
    labels: set[str] = field(default_factory=set)
    values: dict[str, set[str]] = field(default_factory=dict)


def _families() -> Iterator[Metric]:
    """All metrics, from a sample in which every metric has a value."""
    stats = {
        name: 1
        for table in (prometheus._COUNTERS, prometheus._GAUGES, prometheus._GAUGES_OF_SOME)
        for _, name, _ in table
    }
    by_reason = dict.fromkeys((reason.value for reason in Reason), 1)
    server = ServerStats(
        "a", "1", "2026-11-16T10:00:00Z", {**stats, "nacked": by_reason, "calls_refused": by_reason}
    )
    state = StreamState(1, 9, 5, 500, 0, 1_000)
    sockets: dict[str, object] = {
        key: 1 for table in (prometheus._SOCKET_GAUGES, prometheus._SOCKET_COUNTERS) for _, key, _ in table
    }
    sockets |= {key: {"ok": 1} for _, key, _, _ in prometheus._SOCKET_LABELLED}
    own = GatewayFigures(sockets=sockets, refused=LimitCounters().facts(), responses=ResponseCounts().facts())
    census = DocumentCounts(dict.fromkeys(STATES, 1), (), (("doc", 9),))
    yield from families(
        ClusterSample(0.0, 0, True, (server,), StreamStates(state, state, state)), census, own
    )
    process = CollectorRegistry()
    ProcessCollector(registry=process)
    yield from process.collect()


@cache
def exposed() -> dict[str, Figure]:
    """By their names as they are scraped."""
    found: dict[str, Figure] = {}
    for family in _families():
        for sample in family.samples:
            figure = found.setdefault(sample.name, Figure(family.type))
            figure.labels |= sample.labels.keys()
            for label, value in sample.labels.items():
                figure.values.setdefault(label, set()).add(value)
    return found


def wrong_with(expression: str, *, others: bool = False) -> list[str]:
    """The mistakes in an expression: its syntax, and the metrics, labels and values that no gateway gives."""
    try:
        tree = promql.parse(expression)
    except ValueError as error:
        return [f"{expression}: {error}"]
    problems: list[str] = []
    labels: set[str] = set()
    asked: list[promql.VectorSelector] = []
    groups: set[str] = set()
    rates: list[promql.Expr] = []

    def visit(node: promql.Expr) -> bool:
        if isinstance(node, promql.VectorSelector):
            asked.append(node)
        elif isinstance(node, promql.MatrixSelector):
            asked.append(node.vector_selector)
        elif isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            groups.update(node.modifier.labels)
        elif (
            isinstance(node, promql.BinaryExpr)
            and node.modifier is not None
            and node.modifier.matching is not None
        ):
            groups.update(node.modifier.matching.labels)
        elif isinstance(node, promql.Call) and node.func.name in {"rate", "increase"}:
            rates.extend(node.args)
        return True

    promql.walk(tree, visit)
    for selector in asked:
        problems += _unknown(selector, labels, others=others)
    problems += [f"no series has the label {label}" for label in sorted(groups - labels)]
    for one in rates:
        name = one.vector_selector.name if isinstance(one, promql.MatrixSelector) else ""
        if name in exposed() and exposed()[name].kind not in {"counter", "histogram"}:
            problems.append(f"{name} is a {exposed()[name].kind}: it has no rate")
    return problems


def _unknown(selector: promql.VectorSelector, labels: set[str], *, others: bool) -> list[str]:
    name = selector.name or ""
    if others and name in OTHERS:
        known, values = set(OTHERS[name]), {}
    elif name in exposed():
        known, values = exposed()[name].labels | SCRAPED, exposed()[name].values
    else:
        return [f"there is no metric {name}"]
    labels |= known
    problems = []
    for matcher in selector.matchers.matchers:
        if matcher.name not in known:
            problems.append(f"{name} has no label {matcher.name}")
        elif matcher.name in _CLOSED and matcher.name in values:
            given = (
                matcher.value.split("|")
                if matcher.op in (promql.MatchOp.Re, promql.MatchOp.NotRe)
                else [matcher.value]
            )
            problems += [
                f"{name} has no {matcher.name}={one}" for one in given if one not in values[matcher.name]
            ]
    return problems


def without_variables(expression: str) -> str:
    """An expression of a dashboard, with Grafana's variables filled in."""
    filled = expression.replace("$__rate_interval", "5m")
    return re.sub(r'"\$(\w+)"', '".*"', filled)
