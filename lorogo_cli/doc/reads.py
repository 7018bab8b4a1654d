"""Read-only doc commands: get, history, watch, export."""

import asyncio
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from lorogo_cli.connect.client import connected, require_known
from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.doc import changes
from lorogo_cli.doc.paths import is_one_place, json_path
from lorogo_cli.doc.versions import parse_at
from lorogo_cli.errors import CommandError, brief
from lorogo_cli.render import result_file
from lorogo_cli.render.output import note, say, say_json, say_result, say_table, working
from lorogo_cli.render.values import show_size
from lorogo_client import Change, Lagged, Rebased
from lorogo_client.versions import show_time, show_version

_BIG_SECONDS = 600.0


def moment(at: str | None) -> int | bytes | None:
    """Return the version or time that `--at` stands for; None for the present."""
    return None if at is None else parse_at(at, now_ns=time.time_ns())


async def get(
    way: ConnectionOptions, document_id: str, paths: list[str], at: str | None, *, raw: bool, as_json: bool
) -> None:
    """Print the document, or the values at the paths."""
    expressions = [json_path(path) for path in paths]
    wanted = moment(at)
    async with connected(way, document_id) as client:
        await require_known(client, document_id)
        answer = await client.document(document_id).get(expressions or None, at=wanted)
    frontiers = answer["frontiers"]
    assert isinstance(frontiers, bytes)
    if as_json:
        what = {"matches": answer["matches"]} if expressions else {"value": answer["value"]}
        say_json({"document": document_id, **what, "version": show_version(frontiers)})
        return
    if not expressions:
        _say_value(answer["value"], raw=raw)
        return
    matches = answer["matches"]
    assert isinstance(matches, list)
    for path, found in zip(paths, matches, strict=True):
        if not is_one_place(path):
            _say_value(found, raw=raw)
        elif found:
            _say_value(found[0], raw=raw)
        else:
            raise CommandError(f"{document_id} has no value at {brief(path)}")


def _say_value(value: object, *, raw: bool) -> None:
    if raw and isinstance(value, str):
        say(value)
    else:
        say_json(value, pretty=True)


async def history(way: ConnectionOptions, document_id: str, limit: int, *, as_json: bool) -> None:
    """Print the dated versions, newest first."""
    async with connected(way, document_id) as client:
        await require_known(client, document_id)
        versions: list[dict[str, Any]] = await client.document(document_id).history(limit=limit)
    rows = [
        {
            "time": show_time(version["time_ns"]),
            "version": show_version(version["frontiers"]),
            "sequence": version["sequence"],
            "time_ns": version["time_ns"],
        }
        for version in versions
    ]
    if as_json:
        say_json(rows)
    elif not rows:
        note(f"{document_id} has no versions yet")
    else:
        table = [(row["time"], row["version"], row["sequence"]) for row in rows]
        say_table(("TIME", "VERSION", "SEQUENCE"), table)


async def watch(way: ConnectionOptions, document_id: str, *, as_json: bool) -> None:
    """Print remote edits as they arrive, until Ctrl-C."""
    async with connected(way, document_id) as client:
        await require_known(client, document_id)
        async with client.open(document_id, read_only=True) as session:
            feed = session.changes()
            if as_json:
                say_json({"watching": document_id})
            else:
                note(f"watching {document_id}; Ctrl-C stops")
            async for item in feed:
                _say_change(item, as_json=as_json)


def _say_change(item: Change | Lagged | Rebased, *, as_json: bool) -> None:
    now = datetime.now().astimezone()
    stamp = now.isoformat(timespec="milliseconds")
    match item:
        case Change():
            parts = changes.facts(item.events)
            if as_json:
                say_json({"time": stamp, "sequence": item.sequence, "changes": parts})
                return
            for line in changes.lines(parts):
                say(f"{now:%H:%M:%S} {line}")
        case Lagged():
            words = f"{now:%H:%M:%S} {item.missed} changes not shown: they arrived too fast"
            say_result({"time": stamp, "lagged": item.missed}, words, as_json=as_json)
        case Rebased():
            words = f"{now:%H:%M:%S} the document was replaced by its current state"
            say_result({"time": stamp, "rebased": True}, words, as_json=as_json)


async def export(
    way: ConnectionOptions, document_id: str, target: str, at: str | None, *, force: bool
) -> None:
    """Write a Loro snapshot of the document to a file, or to stdout."""
    wanted = moment(at)
    if target == "-":
        if sys.stdout.isatty():
            raise CommandError("a snapshot is binary and stdout is a terminal: name a file, or use a pipe")
    elif not force and await asyncio.to_thread(Path(target).exists):
        raise CommandError(f"{target} already exists: --force overwrites it")
    async with connected(way, document_id) as client:
        await require_known(client, document_id)
        with working(f"exporting {document_id}"):
            payload = await client.document(document_id).export(at=wanted, timeout=_BIG_SECONDS)
    if target == "-":
        sys.stdout.buffer.write(payload)
        sys.stdout.buffer.flush()
        return
    await asyncio.to_thread(result_file.replace, Path(target), payload)
    say(f"{document_id} exported to {target}: {show_size(len(payload))}")
