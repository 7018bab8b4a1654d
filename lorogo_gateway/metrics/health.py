"""A server's health as text, shared by `lorogo status` and the dashboard."""

from collections.abc import Mapping
from typing import Any

from lorogo_client.versions import show_age


def health(stats: Mapping[str, Any], now_ns: int) -> list[str]:
    """Return a server's problems, the worst first, then its state; few words for a healthy server."""
    facts: list[str] = []
    journal = str(stats.get("journal", "open"))
    if journal != "open":
        waits = journal.startswith("the journal waits for room")
        facts.append(f"JOURNAL FULL ({journal})" if waits else f"JOURNAL STOPPED ({journal})")
    if not stats.get("ready", True):
        facts.append("NOT READY")
    facts += _replication(stats)
    if damaged := stats.get("journals_damaged") or (["its journal"] if stats.get("journal_damage") else []):
        facts.append(f"DAMAGE in {', '.join(damaged)} (details: `lorogo log verify`)")
    if str(stats.get("archive") or "open") != "open":
        waiting = _count(stats.get("archive_waiting", 0), "segment")
        facts.append(f"ARCHIVE {stats['archive']} ({waiting} waiting)")
    if stats.get("lost_for_good"):
        facts.append(f"{_count(stats['lost_for_good'], 'update')} LOST (kept in loro-rejected)")
    if stats.get("tombstones_contradicted"):
        facts.append(f"{_count(stats['tombstones_contradicted'], 'deleted document')} ALIVE AGAIN")
    if stats.get("documents_incomplete"):
        documents = _count(stats["documents_incomplete"], "document")
        absent = ", ".join(str(name) for name in stats.get("servers_absent", []))
        facts.append(f"{documents} SERVED INCOMPLETE (absent: {absent})")
    if stats.get("recovering"):
        facts.append(f"{_count(stats['recovering'], 'document')} recovering from journals")
    if stats.get("reconcile_waiting"):
        facts.append(f"{_count(stats['reconcile_waiting'], 'document')} incomplete")
    if stats.get("reconciled_documents"):
        documents = _count(stats["reconciled_documents"], "document")
        updates = _count(stats.get("republished", 0), "update")
        facts.append(f"repaired {documents} that the stream had lost parts of ({updates} published again)")
    if str(stats.get("reconcile", "")).startswith("running"):
        facts.append("comparing journal and stream")
    elif stats.get("reconciled_ns"):
        facts.append(f"journal and stream compared {show_age((now_ns - stats['reconciled_ns']) / 1e9)} ago")
    if stats.get("archive") == "open":
        facts.append("archive up to date" if not stats.get("archive_waiting") else "archive open")
    return facts


def _replication(stats: Mapping[str, Any]) -> list[str]:
    """Return the state of replication: waiting ACKs, servers with copies, copies that have stopped."""
    facts: list[str] = []
    if wanted := stats.get("journal_replicas_wanted", 0):
        there = [str(name) for name in stats.get("journal_replicas", [])]
        if lacking := stats.get("journal_lacking"):
            facts.append(f"ACKS WAIT ({lacking})")
        elif len(there) < wanted:
            facts.append(f"ONLY {len(there)} OF {wanted} REPLICAS: ACKs would wait")
        facts.append(f"journal copied by {', '.join(there) or 'no server'}")
    for place, why in sorted(stats.get("copies_trouble", {}).items()):
        facts.append(f"CANNOT COPY {place} ({why})")
    return facts


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
