"""`lorogo trace`: find the state of one update. Read-only: starts no document."""

import time
from dataclasses import asdict
from typing import Any

from lorogo_cli.commands.update_trace import UpdateTrace, search, verdict
from lorogo_cli.connect.client import beyond, connected
from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.errors import CommandError, brief
from lorogo_cli.render.output import note, say_facts, say_json
from lorogo_cli.render.values import show_count, show_size
from lorogo_client.errors import InvalidMoment
from lorogo_client.versions import parse_time, show_time
from lorogo_protocol.ids import is_token
from lorogo_protocol.messages import tracing


async def trace(
    way: ConnectionOptions, log_id: str, document: str, since: str | None, *, as_json: bool
) -> bool:
    """Print the facts about an update; return whether it is known."""
    beyond(way, "the trace of an update")
    if not is_token(log_id):
        raise CommandError(
            f"{brief(log_id)} is not a log id: a log id has 1 to 64 characters of A-Z a-z 0-9 _ -"
        )
    since_ns = 0 if since is None else _parse_since(since)
    documents = [document] if document else []
    async with connected(way, *documents, serving=False) as client:
        found = await search(
            client.pool.first, log_id, document=document, since_ns=since_ns, on_full_scan=_reading_all
        )
    if as_json:
        say_json(facts(found))
    else:
        say_facts(shown(found))
    return found.known


def _parse_since(text: str) -> int:
    try:
        return parse_time(text, now_ns=time.time_ns())
    except InvalidMoment:
        raise CommandError(
            f"{brief(text)} is not a time: --since takes a time (2026-11-16T10:30) or an age (2h)"
        ) from None


def _reading_all() -> None:
    note("the update's document is unknown: reading the whole WAL; --document makes this faster")


def facts(found: UpdateTrace) -> dict[str, Any]:
    """Return the facts for scripts."""
    shown_facts: dict[str, Any] = {
        "log_id": found.log_id,
        "trace_id": tracing.shown(found.log_id),
        "document": found.document or None,
        "known": found.known,
        "verdict": verdict(found),
        "in_document": found.in_document,
        "wal": [asdict(one) for one in found.wal],
        "journals": [asdict(one) for one in found.journals],
        "rejected": [asdict(one) for one in found.rejected],
        "snapshot": None if found.snapshot is None else asdict(found.snapshot),
        "unasked": list(found.unreadable),
    }
    for one in shown_facts["journals"]:  # peers as text: they exceed the numbers of JSON
        one["spans"] = [[str(peer), first, end] for peer, first, end in one["spans"]]
    return shown_facts


def shown(found: UpdateTrace) -> list[tuple[str, str]]:
    """Return names and values for people."""
    lines = [("update", found.log_id), ("trace id", tracing.shown(found.log_id))]
    if found.document:
        lines.append(("document", found.document))
    lines.append(("verdict", verdict(found)))
    for held in found.wal:
        chunks = "" if len(held.sequences) == 1 else f" in {show_count(len(held.sequences), 'message')}"
        size = show_size(held.bytes)
        lines.append(("WAL", f"{show_time(held.time_ns)}  at {held.sequences[-1]}{chunks}, {size}"))
    for kept in found.journals:
        where = f"at {kept.sequence} in epoch {kept.epoch}, lease {kept.lease}, {show_size(kept.bytes)}"
        lines.append(
            ("journal", f"{show_time(kept.time_ns)}  server {kept.server}, record {kept.place}: {where}")
        )
    lines += [
        ("refused", f"{show_time(no.time_ns)}  {no.reason} (was at {no.sequence}): {no.message}")
        for no in found.rejected
    ]
    if found.snapshot is not None:
        covered = found.snapshot.position
        end = (
            f"the WAL up to {covered.sequence} in epoch {covered.epoch}"
            if covered.sequence
            else "nothing of the WAL yet"
        )
        lines.append(("snapshot", f"{end}; the document is deleted" if found.snapshot.deleted else end))
    if found.in_document is not None:
        lines.append(("in document", "yes" if found.in_document else "NO"))
    lines += [("not asked", why) for why in found.unreadable]
    return lines
