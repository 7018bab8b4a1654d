"""The alerts: written right, about metrics that there are, each with a runbook and a story."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from tests.deploy import figures
from tests.pages import table

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
GROUPS: list[dict[str, Any]] = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text(encoding="utf-8"))[
    "groups"
]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
STORIES: list[dict[str, Any]] = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text(encoding="utf-8"))[
    "tests"
]
KUBERNETES = "lorogo-kubernetes"
RUNBOOKS = ROOT / "docs" / "runbooks"
WORDS_MAX = 150
each = pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])


def test_there_are_alerts_and_each_has_a_name_of_its_own() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) > 25
    assert all(name.startswith("Lorogo") for name in names)
    assert [group["name"] for group in GROUPS].count(KUBERNETES) == 1


@each
def test_an_alert_uses_existing_metrics(rule: dict[str, Any]) -> None:
    """Its expression parses, and lorogo gives every metric, label and value in it.

    Only the group for Kubernetes may use metrics of kube-state-metrics and the kubelet.
    """
    others = any(rule in group["rules"] for group in GROUPS if group["name"] == KUBERNETES)
    assert figures.wrong_with(rule["expr"], others=others) == []


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("lorogo_servrs == 0", "no metric lorogo_servrs"),
        ("sum by (srver) (lorogo_servers)", "no series has the label srver"),
        ('lorogo_documents{stat="ERROR"}', "no label stat"),
        ('lorogo_documents{state="BROKEN"}', "no state=BROKEN"),
        ('lorogo_queue_depth{queue=~"journal|disk"}', "no queue=disk"),
        ('lorogo_nacks_total{reason="because"}', "no reason=because"),
        ("rate(lorogo_wal_messages[5m])", "has no rate"),
        ("lorogo_updates_accepted", "no metric lorogo_updates_accepted"),
        ("kube_cronjob_created", "no metric kube_cronjob_created"),
        ("sum(lorogo_servers", "sum(lorogo_servers"),
        ("max by (server) lorogo_server_ready ==", ""),
        ("a < max by (b) (c) on (nowhere) d", ""),
    ],
)
def test_a_wrong_expression_is_noticed(expression: str, words: str) -> None:
    """The check has teeth."""
    problems = figures.wrong_with(expression)
    assert problems
    assert words in "\n".join(problems)


@each
def test_an_alert_says_what_it_is_and_where_to_look(rule: dict[str, Any]) -> None:
    """Severity, two sentences, and a runbook of its own: meaning, commands, repair, in few words."""
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    if "for" in rule:
        assert promql.parse_duration(rule["for"]).total_seconds() >= 60
    notes = rule["annotations"]
    assert notes.keys() == {"summary", "description", "runbook_url"}
    assert all(len(words) > 20 for words in notes.values())
    for label in re.findall(r"\$labels\.(\w+)", notes["summary"]):
        assert label in rule["expr"] or label == "instance", label
    assert notes["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
    page = (ROOT / notes["runbook_url"]).read_text(encoding="utf-8")
    assert page.startswith(f"# {rule['alert']}\n\n**Meaning.** ")
    assert "\n**Check.**" in page
    assert "\n**Do.**" in page or "| do |\n" in page
    assert len(page) > 300
    assert len(page.split()) <= WORDS_MAX


def test_every_runbook_is_some_alerts() -> None:
    """Each runbook is of an alert, the index lists it with its severity, and pages name no other alerts."""
    alerts = [rule["alert"] for rule in RULES]
    pages = {path.stem: path.read_text(encoding="utf-8") for path in RUNBOOKS.glob("*.md")}
    index = pages.pop("index")
    assert pages.keys() == set(alerts)
    listed = [
        (name, severity)
        for row in table(index, "| | critical | warning |")
        for severity, links in zip(("critical", "warning"), row[1:], strict=True)
        for name in re.findall(r"\[(\w+)\]\(\1\.md\)", links)
    ]
    assert sorted(listed) == sorted((rule["alert"], rule["labels"]["severity"]) for rule in RULES)
    operations = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
    assert set(re.findall(r"Lorogo[A-Z]\w+", "".join((operations, *pages.values())))) == set(alerts)


def test_every_alert_has_a_story() -> None:
    """`alerts_test.yml` has a story in which each alert fires; in the first story none does."""
    first, *others = STORIES
    assert [one["exp_samples"] for one in first["promql_expr_test"]] == [[]]
    fires = {
        name
        for story in others
        for test in story.get("promql_expr_test", [])
        for sample in test["exp_samples"]
        for name in re.findall(r'alertname="(\w+)"', sample["labels"])
    }
    assert fires == {rule["alert"] for rule in RULES}
    asked = {name for rule in RULES for name in re.findall(r"\b(?:lorogo|kube|kubelet)_\w+", rule["expr"])}
    given = {one["series"].partition("{")[0] for one in first["input_series"]}
    assert asked == given, "the story without alerts has a series for every metric of the rules"


def test_stories_have_existing_series() -> None:
    """A story with a metric that no gateway gives proves nothing."""
    for story in STORIES:
        for one in story["input_series"]:
            assert figures.wrong_with(one["series"], others=True) == [], story["name"]


def test_promtool_agrees() -> None:
    """Prometheus' own tool takes the rules, and they fire in the stories when they should, and not before."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(
            "there is no promtool on the PATH: it comes with Prometheus (https://prometheus.io/download)"
        )
    for command in (
        ["check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ):
        done = subprocess.run(
            [promtool, *command], cwd=PROMETHEUS, capture_output=True, text=True, timeout=110, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
