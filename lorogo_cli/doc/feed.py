"""`lorogo feed`: every accepted update as a line, from any point, and exactly on from there."""

import asyncio
import contextlib
import os
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lorogo_cli.connect.client import beyond, connected
from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.doc.versions import parse_time, show_time
from lorogo_cli.errors import CommandError, brief
from lorogo_cli.render.output import note, say
from lorogo_cli.render.values import show_json, show_size
from lorogo_client import Deleted, Erased, FeedItem, FeedPosition, Gap, Restored, Update
from lorogo_protocol.errors import LorogoError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def follow(
    way: ConnectionOptions, since: str | None, documents: list[str], place: Path | None, *, as_json: bool
) -> None:
    """Print updates until Ctrl-C; with a place, keep the position there after each, and begin with it."""
    beyond(way, "the feed of all updates")
    kept = None if place is None else await asyncio.to_thread(_read, place)
    if kept is not None and since is not None:
        raise CommandError(
            f"{place} says where to go on: leave --since out, or remove the file to begin anew"
        )
    begin = kept or parse_since(since or "now", now_ns=time.time_ns())
    async with (
        connected(way, *documents) as client,
        client.feed(since=begin, documents=documents or None) as feed,
    ):
        if place is not None:  # "now" is a place, too, if we are stopped before anything comes
            await asyncio.to_thread(_write, place, str(feed.position))
        note("following every accepted update; Ctrl-C ends")
        async for item in feed:
            say(show_json(facts(item)) if as_json else line(item))
            if place is not None:
                await asyncio.to_thread(_write, place, str(feed.position))


def parse_since(text: str, *, now_ns: int) -> int | datetime | str:
    """now, a sequence of the WAL (0: everything), a time or an age. Raises Problem."""
    if text == "now":
        return text
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    try:
        return _EPOCH + timedelta(microseconds=parse_time(text, now_ns=now_ns) // 1000)
    except CommandError:
        raise CommandError(
            f"{brief(text)} is no place in the feed: --since takes now, 0 (everything), a sequence,"
            " a time (2026-11-16T10:30) or an age (10m)"
        ) from None


def line(item: FeedItem) -> str:
    """For people: time, document, what."""
    what = "erased"
    match item:
        case Update():
            what = f"{show_size(len(item.payload))}  at {item.sequence}  {item.log_id}"
        case Gap():
            count = sum(end - first for _, first, end in item.missing)
            what = f"GAP: {count} changes before this are in no journal that answers"
        case Deleted():
            what = "deleted"
        case Restored():
            what = f"restored, generation {item.generation}"
        case Erased():
            pass
    return f"{show_time(item.time_ns)}  {item.document}  {what}"


def facts(item: FeedItem) -> dict[str, Any]:
    """For scripts; the bytes of an update stay out, their size is told."""
    told: dict[str, Any] = {
        "kind": type(item).__name__.lower(),
        "document": item.document,
        "time": show_time(item.time_ns),
        "time_ns": item.time_ns,
    }
    match item:
        case Update():
            told |= {
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
            told |= {"lease": item.lease, "missing": _spans(item.missing)}
        case Deleted() | Restored():
            told |= {"lease": item.lease, "generation": item.generation}
        case Erased():
            pass
    return told


def _spans(spans: tuple[tuple[int, int, int], ...]) -> list[list[object]]:
    """Peers as text: JSON's numbers end before theirs."""
    return [[str(peer), first, end] for peer, first, end in spans]


def _read(place: Path) -> FeedPosition | None:
    try:
        text = place.read_text(encoding="ascii").strip()
        return FeedPosition.parse(text) if text else None  # made, and nothing kept yet
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"{place} cannot be read: {error.strerror}") from None
    except (ValueError, LorogoError):
        raise CommandError(
            f"{place} does not hold a position of a feed: remove it, and say with --since where to begin"
        ) from None


def _write(place: Path, text: str) -> None:
    """The new position under its name, or the old one."""
    name = ""
    try:
        number, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
        with os.fdopen(number, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(place)
    except OSError as error:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise CommandError(f"{place} cannot be written: {error.strerror}") from None
