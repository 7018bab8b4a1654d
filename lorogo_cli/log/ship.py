"""`lorogo log ship`: copy sealed segments of a server that is stopped or has no archive."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lorogo_cli.errors import CommandError
from lorogo_cli.log.errors import warn
from lorogo_cli.render.output import progress_bar, say, say_json
from lorogo_cli.render.values import show_count, show_size
from lorogo_log import Reader
from lorogo_protocol.ids import is_token
from lorogo_server.journal.archive import ArchiveStorage
from lorogo_server.journal.shipment import PartitionArchive, to_ship
from lorogo_server.recovery.restore_sources import find

_SERVER_ID = "server-id"
_REPLICAS = "replicas"
_LEVELS = 3  # depth of a partition below its server's folder


@dataclass(slots=True)
class _Copied:
    segments: int = 0
    bytes: int = 0
    there: int = 0
    left: int = 0  # open, or damaged


def ship(directory: Path, url: str, *, server: str, as_json: bool) -> bool:
    """Copy segments that the archive does not have; return False if one could not be copied."""
    archive = ArchiveStorage(url)
    copied = _Copied()
    # a replica is shipped by the server that owns the original journal
    inside = [source for source in find(str(directory)) if _REPLICAS not in _below(directory, source.name)]
    with progress_bar() as progress:
        for source in inside:
            folder = Path(source.name)
            shelf = PartitionArchive(archive, server or _server_of(folder), folder.name)
            _ship_one(shelf, source.reader, copied, partial(progress, f"copying {folder}"))
    if as_json:
        say_json(
            {
                "archive": archive.url,
                "copied": copied.segments,
                "bytes": copied.bytes,
                "there": copied.there,
                "left": copied.left,
            },
            pretty=False,
        )
    else:
        say(
            f"{show_count(copied.segments, 'segment')} copied ({show_size(copied.bytes)}) and read back,"
            f" {copied.there} already in the archive"
        )
    if copied.left:
        count = show_count(copied.left, "segment")
        warn(
            f"{count} not copied: open or damaged;"
            " `lorogo log repair --apply` seals open segments that have no writer"
        )
    return not copied.left


def _ship_one(
    shelf: PartitionArchive, reader: Reader, copied: _Copied, show: Callable[[int, int], None]
) -> None:
    segments = reader.segments()
    wanted = {info.name for info in to_ship(shelf, reader)}
    copied.there += sum(info.sealed and info.name not in wanted for info in segments)
    total = sum(info.bytes for info in segments if info.name in wanted)
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        show(done, total)

    for info in segments:
        if not info.sealed:
            copied.left += 1
        elif info.name in wanted:
            if shelf.put(reader.directory, info.name, on_bytes=on_bytes):
                copied.segments += 1
                copied.bytes += info.bytes
            else:
                copied.left += 1


def _below(directory: Path, name: str) -> tuple[str, ...]:
    return Path(name).relative_to(directory).parts


def _server_of(folder: Path) -> str:
    """Return the id of the server that owns this partition."""
    for parent in list(folder.absolute().parents)[:_LEVELS]:
        try:
            server_id = (parent / _SERVER_ID).read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
        if is_token(server_id):
            return server_id
    raise CommandError(f"the server of the journal {folder} is unknown: set it with --server ID")
