"""`lorogo feed`: print every accepted update as a line, from any position on."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lorogo_cli.connect.client import beyond, connected
from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.errors import CommandError, brief
from lorogo_cli.render import result_file
from lorogo_cli.render.output import note, say
from lorogo_cli.render.values import show_json, show_size
from lorogo_client import Deleted, Erased, FeedItem, FeedPosition, Gap, Restored, Update
from lorogo_client.errors import InvalidMoment
from lorogo_client.versions import parse_time, show_time
from lorogo_protocol.errors import LorogoError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def follow(
    way: ConnectionOptions, since: str | None, documents: list[str], place: Path | None, *, as_json: bool
) -> None:
    """Print updates until Ctrl-C; with `place`, start from the position in that file and update it."""
    beyond(way, "the feed of all updates")
    kept = None if place is None else await asyncio.to_thread(_read, place)
    if kept is not None and since is not None:
        raise CommandError(
            f"{place} already has a position: leave out --since, or remove the file to start again"
        )
    begin = kept or parse_since(since or "now", now_ns=time.time_ns())
    async with (
        connected(way, *documents) as client,
        client.feed(since=begin, documents=documents or None) as feed,
    ):
        if place is not None:  # keeps "now" too, in case the command stops before the first update
            await asyncio.to_thread(_keep, place, feed.position)
        note("following every accepted update; Ctrl-C stops")
        async for item in feed:
            say(show_json(facts(item)) if as_json else line(item))
            if place is not None:
                await asyncio.to_thread(_keep, place, feed.position)


def parse_since(text: str, *, now_ns: int) -> int | datetime | str:
    """Parse now, a sequence of the WAL (0: everything), a time or an age. Raises CommandError."""
    if text == "now":
        return text
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    try:
        return _EPOCH + timedelta(microseconds=parse_time(text, now_ns=now_ns) // 1000)
    except InvalidMoment:
        raise CommandError(
            f"{brief(text)} is not a position in the feed: --since takes now, 0 (everything), a sequence,"
            " a time (2026-11-16T10:30) or an age (10m)"
        ) from None


def line(item: FeedItem) -> str:
    """Return the item as a line: time, document, event."""
    what = "erased"
    match item:
        case Update():
            what = f"{show_size(len(item.payload))}  at {item.sequence}  {item.log_id}"
        case Gap():
            count = sum(end - first for _, first, end in item.missing)
            what = f"GAP: no journal that answers has {count} changes before this"
        case Deleted():
            what = "deleted"
        case Restored():
            what = f"restored, generation {item.generation}"
        case Erased():
            pass
    return f"{show_time(item.time_ns)}  {item.document}  {what}"


def facts(item: FeedItem) -> dict[str, Any]:
    """Return the item for scripts; an update has its size instead of its bytes."""
    result: dict[str, Any] = {
        "kind": type(item).__name__.lower(),
        "document": item.document,
        "time": show_time(item.time_ns),
        "time_ns": item.time_ns,
    }
    match item:
        case Update():
            result |= {
                "sequence": item.sequence,
                "epoch": item.epoch,
                "bytes": len(item.payload),
                "log_id": item.log_id,
                "digest": item.digest,
                "lease": item.lease,
                "generation": item.generation,
                "spans": _spans(item.spans),
            }
        case Gap():
            result |= {"lease": item.lease, "missing": _spans(item.missing)}
        case Deleted() | Restored():
            result |= {"lease": item.lease, "generation": item.generation}
        case Erased():
            pass
    return result


def _spans(spans: tuple[tuple[int, int, int], ...]) -> list[list[object]]:
    """Return spans with peers as text: they exceed the numbers of JSON."""
    return [[str(peer), first, end] for peer, first, end in spans]


def _read(place: Path) -> FeedPosition | None:
    try:
        text = place.read_text(encoding="ascii").strip()
        return FeedPosition.parse(text) if text else None  # an empty file: no position yet
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"cannot read {place}: {error.strerror}") from None
    except (ValueError, LorogoError):
        raise CommandError(
            f"{place} does not contain a feed position: remove it, and set the start with --since"
        ) from None


def _keep(place: Path, position: FeedPosition) -> None:
    result_file.replace(place, f"{position}\n".encode())
