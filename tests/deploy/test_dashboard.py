"""The dashboard for Grafana: about metrics that there are, whole, and without two panels in one place."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import figures

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads(
    (ROOT / "deploy" / "grafana" / "lorogo.json").read_text(encoding="utf-8")
)
PANELS: list[dict[str, Any]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
VARIABLES = {one["name"]: one for one in DASHBOARD["templating"]["list"]}


def expressions() -> Iterator[tuple[str, str]]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for one in DASHBOARD["annotations"]["list"]:
        yield one["name"], one["expr"]


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_every_expression_asks_for_what_there_is(title: str, expression: str) -> None:
    """It parses, and every metric, label and value is one that lorogo gives."""
    filled = figures.without_variables(expression)
    assert "$" not in filled, title
    assert figures.wrong_with(filled) == []
    assert set(re.findall(r'"\$(\w+)"', expression)) <= VARIABLES.keys()
    assert 'job=~"$job"' in expression, "of one installation among several"


def test_the_variables_use_existing_metrics() -> None:
    """The variables select the data source, the installation and the servers."""
    assert list(VARIABLES) == ["datasource", "job", "server"]
    for name, metric in (("job", "lorogo_gateway_nats_connected"), ("server", "lorogo_server_ready")):
        query = VARIABLES[name]["query"]["query"]
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert found
        assert figures.wrong_with(figures.without_variables(found[1])) == []
        assert found[1].startswith(metric)
        assert found[2] == name


def test_every_panel_is_explained_and_reads_from_the_chosen_source() -> None:
    """Title, description, unit; ids are its own; no panel is tied to one Grafana's data source."""
    ids = [one["id"] for one in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    titles = [one["title"] for one in PANELS]
    assert len(titles) == len(set(titles)) > 30
    for panel in PANELS:
        assert len(panel["description"]) > 8, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        for source in (panel["datasource"], *(one["datasource"] for one in panel["targets"])):
            assert source == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert re.search(rf"\b{label}\b", target["expr"]) or label == "instance", panel["title"]


def test_panels_lie_side_by_side() -> None:
    """Within 24 columns, and none over another."""
    places = [one["gridPos"] for one in DASHBOARD["panels"]]
    for place in places:
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


def test_nearly_every_metric_is_shown() -> None:
    """The list below has the reason for each metric without a panel."""
    shown = {name for _, text in expressions() for name in re.findall(r"\blorogo_\w+", text)}
    exposed = {name for name in figures.exposed() if name.startswith("lorogo_")}
    unshown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exposed - shown}
    assert unshown - {re.sub(r"_bucket$", "", name) for name in shown} == {
        "lorogo_documents_open_snapshot_bytes",  # a part of lorogo_snapshots_size_bytes
        "lorogo_documents_incomplete",  # after a loss of NATS only; `lorogo status` names the documents
        "lorogo_documents_recovering",
        "lorogo_gateway_feed_events_total",  # the feeds themselves are shown
        "lorogo_gateway_feeds_opened_total",
        "lorogo_gateway_sample_timestamp_seconds",  # for alerts of your own
        "lorogo_gateway_websocket_joins_total",
        "lorogo_gateway_websocket_updates_received_total",  # the Acks are shown
        "lorogo_gateway_websocket_updates_sent_total",  # the bytes are
        "lorogo_rejected_replicas",  # one number for all streams
        "lorogo_server_info",
        "lorogo_snapshots_replicas",
    }
