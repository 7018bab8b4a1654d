"""A server's health in `lorogo status` and the dashboard: one line, the worst first."""

from typing import Any

import pytest

from lorogo_gateway.metrics.health import health

NOW = 1_000_000_000_000
WELL = {"journal": "open", "ready": True, "reconcile": "idle", "reconciled_ns": NOW - 12_000_000_000}


@pytest.mark.parametrize(
    ("stats", "said"),
    [
        ({}, []),
        (WELL, ["journal and stream compared 12s ago"]),
        ({**WELL, "reconcile": "running (start)"}, ["comparing journal and stream"]),
        (
            {"journal": "the disk is full", "ready": False},
            ["JOURNAL STOPPED (the disk is full)", "NOT READY"],
        ),
        (
            {"reconciled_documents": 1, "republished": 250, "lost_for_good": 2},
            [
                "2 updates LOST (kept in loro-rejected)",
                "repaired 1 document that the stream had lost parts of (250 updates published again)",
            ],
        ),
        (
            {"tombstones_contradicted": 1, "reconcile_waiting": 3},
            ["1 deleted document ALIVE AGAIN", "3 documents incomplete"],
        ),
        (
            {"journal_replicas": ["b"], "journal_replicas_wanted": 1, "journal_lacking": "", "copies": ["b"]},
            ["journal copied by b"],
        ),
        (
            {"journal_replicas": ["b"], "journal_replicas_wanted": 2, "journal_lacking": ""},
            ["ONLY 1 OF 2 REPLICAS: ACKs would wait", "journal copied by b"],
        ),
        (
            {
                "journal_replicas": [],
                "journal_replicas_wanted": 1,
                "journal_lacking": "0 connected",
                "copies_trouble": {"b/00": "the secret is another"},
            },
            [
                "ACKS WAIT (0 connected)",
                "journal copied by no server",
                "CANNOT COPY b/00 (the secret is another)",
            ],
        ),
        (
            {"journals_damaged": ["worker-0/journal/00"], "journal_damage": 1},
            ["DAMAGE in worker-0/journal/00 (details: `lorogo log verify`)"],
        ),
        ({"journal_damage": 1}, ["DAMAGE in its journal (details: `lorogo log verify`)"]),
        ({"archive": "open", "archive_waiting": 0}, ["archive up to date"]),
        (
            {"archive": "behind: no such bucket", "archive_waiting": 3},
            ["ARCHIVE behind: no such bucket (3 segments waiting)"],
        ),
    ],
    ids=[
        *("of another version", "well", "busy", "stopped", "repaired", "doubtful"),
        *("replicated", "too few", "stuck", "damaged", "own damage", "archived", "not archived"),
    ],
)
def test_health_as_text(stats: dict[str, Any], said: list[str]) -> None:
    """Trouble is in capitals and comes first; a server without a journal has no line about it."""
    assert health(stats, NOW) == said
