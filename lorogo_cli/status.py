"""`lorogo status`: who owns what, since when, how big. Looks only: no document is started."""

import time
from dataclasses import asdict
from typing import Any

from lorogo_cli.connection import connected, is_erased, look, snapshots, unknown
from lorogo_cli.output import note, say, say_json, say_table
from lorogo_cli.values import show_count, show_size
from lorogo_cli.versions import show_age, show_time
from lorogo_client import Client
from lorogo_protocol import calls, subjects
from lorogo_protocol.lease import Entry
from lorogo_protocol.limits import STALE_SECONDS
from lorogo_protocol.status import Down, Failed, Starting, Up
from lorogo_transport.discovery import ServerStats, server_stats
from lorogo_transport.errors import NoResponders, RequestTimeout
from lorogo_transport.snapshots import SnapshotHead

Row = dict[str, Any]

_OWNER_SECONDS = 3.0
_NEARLY_FULL = 0.7


async def of_all(url: str, *, as_json: bool) -> None:
    """Every document, the stream and the servers."""
    async with connected(url, serving=False) as client:
        rows = await _rows(client)
        wal = client.transport.stream(subjects.WAL_STREAM)
        stream = asdict(await wal.state())
        found = [_server(answer) for answer in await server_stats(client.transport.bus)]
    if as_json:
        say_json({"documents": rows, "stream": stream, "servers": found}, pretty=False)
        return
    if rows:
        table = [_cells(row) for row in rows]
        say_table(("DOCUMENT", "STATE", "SERVER", "RENEWED", "LEASE", "SNAPSHOT", "WAL"), table, state=1)
    else:
        note("no documents yet")
    say("")
    limit = f" of {show_size(stream['bytes_max'])}" if stream["bytes_max"] > 0 else ""
    if stream["bytes_max"] > 0 and stream["bytes"] >= _NEARLY_FULL * stream["bytes_max"]:
        limit += f" ({stream['bytes'] * 100 // stream['bytes_max']} %: NEARLY FULL)"
    say(
        f"stream {subjects.WAL_STREAM}: {show_count(stream['messages'], 'message')},"
        f" {show_size(stream['bytes'])}{limit},"
        f" {show_count(stream['consumers'], 'consumer')}"
    )
    for server in found:
        documents = show_count(server["documents"], "document")
        health = "".join(f", {fact}" for fact in _health(server["stats"], time.time_ns()))
        say(f"server {server['server']}: lorogo {server['version']}, {documents} open{health}")
    if any(row.get("stale") for row in rows):
        say("UP?: not renewed for more than 5 s; its server may be gone. The next edit starts it elsewhere.")
    if not found:
        say("no server is running: start one with `lorogo serve`")


async def of_one(url: str, document_id: str, *, as_json: bool) -> None:
    """One document, with what its owner says of it."""
    async with connected(url, document_id, serving=False) as client:
        transport = client.transport
        sight = await look(transport, document_id)
        if not sight.known:
            raise unknown(document_id)
        messages = await transport.stream(subjects.WAL_STREAM).count(subjects.wal(document_id))
        row = _row(document_id, sight.status, sight.snapshot, messages)
        owner = await _ask_owner(client, document_id) if row["state"] == "UP" else None
    if as_json:
        say_json({**row, "owner": owner}, pretty=False)
        return
    for name, value in {**_shown(row), **_owner_shown(owner, row["state"])}.items():
        say(f"{name + ':':<14}{value}")


async def _rows(client: Client) -> list[Row]:
    entries: dict[str, Entry] = {document: entry async for document, entry in client.statuses()}
    heads = {head.document_id: head async for head in snapshots(client.transport).list()}
    counts = await client.transport.stream(subjects.WAL_STREAM).subjects(subjects.wal("*"))
    messages = {subjects.document_of(subject): count for subject, count in counts.items()}
    names = sorted({*entries, *heads, *messages})
    return [_row(name, entries.get(name), heads.get(name), messages.get(name, 0)) for name in names]


def _row(document_id: str, entry: Entry | None, head: SnapshotHead | None, messages: int) -> Row:
    row: Row = {
        "document": document_id,
        "state": "DOWN",
        "server": "",
        "changed_ns": None,
        "lease": 0,
        "deleted": head is not None and bool(head.facts.get("deleted_ns")),
        "erased": is_erased(head),
        "snapshot_bytes": 0 if head is None else head.size,
        "wal_messages": messages,
    }
    if entry is None:
        return row
    row |= {"changed_ns": entry.status.time_ns, "server": entry.server, "lease": entry.token}
    match entry.status:
        case Down():
            row |= {"lease": 0, "server": ""}
        case Up(server_id):
            row |= {"state": "UP", "server": server_id}
            row["stale"] = time.time_ns() - entry.status.time_ns > STALE_SECONDS * 1e9
        case Starting(_, retries):
            row |= {"state": "STARTING", "retries": retries}
        case Failed(trace_id):
            row |= {"state": "ERROR", "trace": trace_id}
    return row


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row["document"] + (" (erased)" if row["erased"] else " (deleted)" if row["deleted"] else ""),
        row["state"] + ("?" if row.get("stale") else ""),
        row["server"] or row.get("trace", "") or "-",
        _age(row["changed_ns"]),
        str(row["lease"] or "-"),
        show_size(row["snapshot_bytes"]) if row["snapshot_bytes"] else "-",
        str(row["wal_messages"]),
    )


def _age(time_ns: int | None) -> str:
    return "-" if time_ns is None else show_age((time.time_ns() - time_ns) / 1e9)


def _shown(row: Row) -> dict[str, str]:
    shown = {"document": row["document"], "state": row["state"] + ("?" if row.get("stale") else "")}
    if row["erased"]:
        shown["erased"] = "for good; only its tombstone is left"
    elif row["deleted"]:
        shown["deleted"] = f"yes; `lorogo doc restore {row['document']}` brings it back"
    if row["state"] == "ERROR":
        shown["trace"] = f"{row['trace']}; when the cause is gone: lorogo reset {row['document']}"
    if row["server"]:
        shown["server"] = row["server"]
    if row["changed_ns"] is not None:
        shown["renewed" if row["state"] == "UP" else "changed"] = f"{_age(row['changed_ns'])} ago"
    if row["lease"]:
        shown["lease"] = str(row["lease"])
    return shown | {
        "snapshot": show_size(row["snapshot_bytes"]) if row["snapshot_bytes"] else "none",
        "wal": show_count(row["wal_messages"], "message"),
    }


def _owner_shown(owner: Row | None, state: str) -> dict[str, str]:
    if owner is None:
        return {"owner": "does not answer"} if state == "UP" else {}
    return {
        "up since": show_time(owner["since_ns"]),
        "sequence": str(owner["sequence"]),
        "wal bytes": show_size(owner["wal_bytes"]),
        "operations": str(owner["operations"]),
        "changes": str(owner["changes"]),
        "present": str(owner["present"]),
        "durability": str(owner["durability"]),
    }


async def _ask_owner(client: Client, document_id: str) -> Row | None:
    """What the owner says; None if it does not answer. A plain request, which starts nothing."""
    subject = subjects.call("status", document_id)
    try:
        answer = await client.transport.bus.request(subject, timeout=_OWNER_SECONDS)
    except (NoResponders, RequestTimeout):
        return None
    facts = calls.decode(answer.data)
    return facts if "since_ns" in facts else None


def _health(stats: Row, now_ns: int) -> list[str]:
    """What an operator must know of a server, the worst first; of one that is well, one word."""
    facts: list[str] = []
    journal = str(stats.get("journal", "open"))
    if journal != "open":
        facts.append(f"JOURNAL STOPPED ({journal})")
    if not stats.get("ready", True):
        facts.append("NOT READY")
    facts += _replication(stats)
    if damaged := stats.get("journals_damaged") or (["its journal"] if stats.get("journal_damage") else []):
        facts.append(f"DAMAGE in {', '.join(damaged)} (`lorogo log verify` tells more)")
    if str(stats.get("archive") or "open") != "open":
        waiting = show_count(stats.get("archive_waiting", 0), "segment")
        facts.append(f"ARCHIVE {stats['archive']} ({waiting} waiting)")
    if stats.get("lost_for_good"):
        facts.append(f"{show_count(stats['lost_for_good'], 'update')} LOST (kept in loro-rejected)")
    if stats.get("tombstones_contradicted"):
        facts.append(f"{show_count(stats['tombstones_contradicted'], 'deleted document')} ALIVE AGAIN")
    if stats.get("reconcile_waiting"):
        facts.append(f"{show_count(stats['reconcile_waiting'], 'document')} incomplete")
    if stats.get("reconciled_documents"):
        documents = show_count(stats["reconciled_documents"], "document")
        updates = show_count(stats.get("republished", 0), "update")
        facts.append(f"repaired {documents} that the stream had lost parts of ({updates} published again)")
    if str(stats.get("reconcile", "")).startswith("running"):
        facts.append("comparing journal and stream")
    elif stats.get("reconciled_ns"):
        facts.append(f"journal and stream compared {show_age((now_ns - stats['reconciled_ns']) / 1e9)} ago")
    if stats.get("archive") == "open":
        facts.append("archive up to date" if not stats.get("archive_waiting") else "archive open")
    return facts


def _replication(stats: Row) -> list[str]:
    """Whether ACKs wait for other servers and why, who has copies, and which ones do not go on."""
    facts: list[str] = []
    if wanted := stats.get("journal_replicas_wanted", 0):
        there = [str(name) for name in stats.get("journal_replicas", [])]
        if lacking := stats.get("journal_lacking"):
            facts.append(f"ACKS WAIT ({lacking})")
        elif len(there) < wanted:
            facts.append(f"ONLY {len(there)} OF {wanted} REPLICAS: ACKs would wait")
        facts.append(f"journal copied by {', '.join(there) or 'nobody'}")
    for place, why in sorted(stats.get("copies_trouble", {}).items()):
        facts.append(f"CANNOT COPY {place} ({why})")
    return facts


def _server(answer: ServerStats) -> Row:
    return {
        "server": answer.server_id,
        "version": answer.version,
        "started": answer.started,
        "documents": answer.stats.get("documents", 0),
        "stats": answer.stats,
    }
