"""docs/OBSERVABILITY.md lists the code's events, facts, verdicts, spans and commands."""

import re
from pathlib import Path

import pytest

from lorogo_cli.connect import telemetry
from lorogo_cli.render import logs
from lorogo_protocol.messages.tracing import shown
from tests.cli.commands.test_update_trace import VERDICTS
from tests.pages import commands, table, unknown_options

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "OBSERVABILITY.md").read_text(encoding="utf-8")
CODE = {
    path: path.read_text(encoding="utf-8")
    for package in ("lorogo_client", "lorogo_gateway", "lorogo_server", "lorogo_transport")
    for path in sorted((ROOT / package).rglob("*.py"))
}


@pytest.mark.parametrize("words", commands(PAGE), ids=" ".join)
def test_commands_can_be_typed(words: list[str]) -> None:
    """Each is one of ours, with options that it has."""
    assert unknown_options(words) == set()


def test_spans_and_their_attributes_are_those_of_the_code() -> None:
    """None is left out, none is made up."""
    said = set(re.findall(r"\blorogo\.[a-z_]+", PAGE))
    spans = [text for path, text in CODE.items() if path.name in {"tracing.py", "otel.py"}]
    ours = {name for text in spans for name in re.findall(r'"(lorogo\.[a-z_]+)"', text)}
    assert said == ours


def test_events_are_those_of_the_code() -> None:
    """Every event of the table occurs in the code as a log event."""
    rows = [row for row in table(PAGE, "| where | how to find it |") if "log" in row[0]]
    named = {words for row in rows for words in re.findall(r"`([a-zA-Z ]+)`", row[1])}
    assert named >= {"update sent", "update accepted", "update ACKed", "update refused"}
    for words in named:
        assert any(f'"{words}"' in text for text in CODE.values()), words


def test_every_verdict_is_explained() -> None:
    """Each verdict is a row of the table, and each row is a possible verdict."""
    rows = [re.compile(pattern(row[0])) for row in table(PAGE, "| verdict | meaning |")]
    said = [[row.match(words) is not None for row in rows] for _, words in VERDICTS]
    assert [one.count(True) for one in said] == [1] * len(VERDICTS)
    assert all(any(column) for column in zip(*said, strict=True))


def pattern(cell: str) -> str:
    """The pattern of the verdicts that this cell explains."""
    words = re.escape(cell).replace("REASON", "[a-z-]+").replace("N", r"\d+")
    return words.replace(r"\(s\)", "s?").replace(r"\.\.\.", ".*")


def test_names_of_the_environment_are_ours() -> None:
    """And the trace id in the example is that of the log id in it."""
    assert f"`{logs.ENVIRONMENT}` is `debug`, `info`, `warning` or `error`" in PAGE
    assert f"{telemetry.ENVIRONMENT}=1" in PAGE
    log_id = re.search(r"^    update: +(\S+)$", PAGE, re.MULTILINE)
    assert log_id is not None
    assert f"trace id:     {shown(log_id[1])}" in PAGE
