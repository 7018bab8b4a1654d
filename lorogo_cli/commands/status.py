"""`lorogo status`: documents, owners, leases and sizes. Read-only: starts no document."""

import time
from dataclasses import asdict

from lorogo_cli.connect.client import beyond, connected, unknown
from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.render.output import note, say, say_facts, say_json, say_table
from lorogo_cli.render.values import show_count, show_size
from lorogo_client.versions import show_age, show_time
from lorogo_gateway.metrics.health import health
from lorogo_protocol.messages import subjects
from lorogo_transport.rpc.discovery import ServerStats, server_stats
from lorogo_transport.stores import catalogue
from lorogo_transport.stores.catalogue import Row

_NEARLY_FULL = 0.7


async def of_all(way: ConnectionOptions, *, as_json: bool) -> None:
    """Print every document, the WAL stream and the servers."""
    beyond(way, "a list of all documents")
    async with connected(way, serving=False) as client:
        rows = await catalogue.rows(client.transport, now_ns=time.time_ns())
        wal = client.transport.stream(subjects.WAL_STREAM)
        stream = asdict(await wal.state())
        found = [_server(answer) for answer in await server_stats(client.transport.bus)]
    if as_json:
        say_json({"documents": rows, "stream": stream, "servers": found})
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
        problems = "".join(f", {fact}" for fact in health(server["stats"], time.time_ns()))
        say(f"server {server['server']}: lorogo {server['version']}, {documents} open{problems}")
    if any(row.get("stale") for row in rows):
        say(
            "UP?: lease not renewed for more than 5 s, the server may be gone;"
            " the next edit starts the document on another server"
        )
    if not found:
        say("no server is running: start one with `lorogo serve`")


async def of_one(way: ConnectionOptions, document_id: str, *, as_json: bool) -> None:
    """Print one document, with the status that its owner reports."""
    if way.guarded:
        await _by_token(way, document_id, as_json=as_json)
        return
    async with connected(way, document_id, serving=False) as client:
        transport = client.transport
        sight = await catalogue.read_summary(transport, document_id)
        if not sight.known:
            raise unknown(document_id)
        row = await catalogue.of_one(transport, sight, now_ns=time.time_ns())
        owner = (
            await catalogue.ask_owner(transport, document_id, way.token or "")
            if row["state"] == "UP"
            else None
        )
    if as_json:
        say_json({**row, "owner": owner})
        return
    say_facts({**_shown(row), **_owner_shown(owner, row["state"])})


async def _by_token(way: ConnectionOptions, document_id: str, *, as_json: bool) -> None:
    """Print the owner's status: a token allows no more."""
    async with connected(way, document_id) as client:
        owner = await client.document(document_id).status()
        access = client.access(document_id)
    if as_json:
        say_json({"document": document_id, "access": access.word, "owner": owner})
        return
    say_facts({"document": document_id, "access": access.word, **_owner_shown(owner, "UP")})


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
    shown = {"document": row["document"]}
    if row["erased"]:  # a state would suggest content: the owner of a tombstone is UP
        shown["erased"] = "permanently; only its tombstone is left"
    else:
        shown["state"] = row["state"] + ("?" if row.get("stale") else "")
    if row["deleted"] and not row["erased"]:
        shown["deleted"] = f"yes; `lorogo doc restore {row['document']}` restores it"
    if row["state"] == "ERROR":
        shown["trace"] = f"{row['trace']}; remove the cause, then run `lorogo reset {row['document']}`"
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


def _server(answer: ServerStats) -> Row:
    return {
        "server": answer.server_id,
        "version": answer.version,
        "started": answer.started,
        "documents": answer.stats.get("documents", 0),
        "stats": answer.stats,
    }
