"""One round of catching up: compare the segments, then fetch what is missing. May block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from lorogo_log import limits
from lorogo_log.errors import CorruptionError
from lorogo_log.format.layout import (
    FRAME_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    unpack_frame_header,
)
from lorogo_log.replication.replica_check import ConflictError, DivergedError
from lorogo_log.replication.replica_fetch import Fetcher
from lorogo_log.replication.replica_rules import Piece, WantedSegment, plan
from lorogo_log.replication.replica_store import ReplicaStore
from lorogo_log.transfer.segment_transfer import SegmentClient
from lorogo_log.transfer.wire import PeerError, SegmentEntry
from lorogo_log.transfer.wire_socket import Address

_READ_BYTES = 4 << 20


class Round(Enum):
    """What a round did."""

    ASIDE = "put contradicting segments aside"
    FETCHED = "fetched sealed segments"
    FOLLOWED = "went on in the open segment"
    AGAIN = "found that the other side's segment changed: compare again"
    BLOCKED = "found that the other side's copy of what comes next is damaged"
    NOTHING = "found nothing to fetch"


@dataclass(frozen=True, slots=True)
class Done:
    """How a round ended."""

    round: Round
    #: everything that the other side offers up to here is held; None: to the end
    covered: int | None = None
    trouble: str = ""


def catch_up_round(
    store: ReplicaStore,
    fetcher: Fetcher,
    address: Address,
    *,
    until: Callable[[], int | None],
    progress: Callable[[], None],
) -> Done:
    """Bring the store nearer to the other side's end. `until`: where the buffer begins, if there is one.

    Raises ConflictError if this side holds what the other has not, and nothing says that the other is newer.
    """
    client = fetcher.client(address)
    try:
        remote = client.catalog()
        store.reconcile()
        local = store.catalog()
        todo = plan(local, remote, end=client.welcome.end_offset, epoch=client.welcome.epoch)
        if todo.ahead:
            raise ConflictError(todo.ahead)
        if todo.aside:
            oldest = todo.aside[-1]
            theirs = next((one for one in remote if one.name == oldest.name), None)
            if theirs is not None and theirs.sealed and not theirs.damaged:
                # fetched first: what both have in common is never away from this disk
                fetcher.fetch(store, WantedSegment(theirs))
                store.replace(theirs, todo.aside)
            elif theirs is not None and not (theirs.damaged or theirs.rewritten):
                store.replace_open(theirs, todo.aside, lambda at, size: client.read(theirs, at=at, size=size))
            else:
                store.aside(todo.aside)
            return Done(Round.ASIDE, 0)  # what is left has yet to be compared
        store.sweep([*todo.fill, *(wanted.entry for wanted in todo.fetch)])
        for entry in todo.suspect:
            store.suspect(entry)
        if todo.fill:
            fetcher.fetch_all(store, [WantedSegment(entry) for entry in todo.fill], store.fill)
            return Done(Round.AGAIN, todo.covered)
        trouble = f"{todo.blocked.name} is damaged at the coordinator" if todo.blocked else ""
        if todo.fetch:

            def install(entry: SegmentEntry) -> None:
                store.install(entry)
                if todo.covered is None:
                    progress()

            try:
                fetcher.fetch_all(store, todo.fetch, install)
            except DivergedError:
                # it looked like the beginning of theirs and is not: two of one epoch began it alike
                have = todo.fetch[0].have
                if have is None or client.welcome.epoch <= have.epoch:
                    raise
                store.replace(todo.fetch[0].entry, (have,))
                return Done(Round.ASIDE, 0)
            return Done(Round.FETCHED, todo.covered, trouble)
        if todo.follow is None:
            return Done(Round.BLOCKED if todo.blocked else Round.NOTHING, todo.covered, trouble)
        try:
            _follow(store, client, todo.follow, local, until)
        except DivergedError:
            return Done(_diverged(store, client, todo.follow, local), todo.covered)
        if todo.covered is None:
            progress()
        return Done(Round.FOLLOWED, todo.covered, trouble)
    finally:
        fetcher.release(client)


def _diverged(
    store: ReplicaStore, client: SegmentClient, entry: SegmentEntry, local: list[SegmentEntry]
) -> Round:
    """Frames that do not join: put our part of the segment aside, unless theirs was only rewritten since."""
    now = next((one for one in client.catalog() if one.first_sequence == entry.first_sequence), None)
    mine = [one for one in local if one.first_sequence >= entry.first_sequence]
    if now is not None and now.header_checksum == entry.header_checksum and not now.sealed and mine:
        newest = max(one.epoch for one in mine)
        if client.welcome.epoch <= newest:
            raise ConflictError(
                f"{entry.name} here has other frames than the coordinator's of epoch {newest}"
            )
        store.aside(tuple(reversed(mine)))
        return Round.ASIDE
    return Round.AGAIN


def _follow(
    store: ReplicaStore,
    client: SegmentClient,
    entry: SegmentEntry,
    local: list[SegmentEntry],
    until: Callable[[], int | None],
) -> None:
    """Mirror the frames of an open segment, from where the store stands."""
    header: SegmentHeader | None = None
    active = store.core.writer.engine.active.header
    if active is None or active.first_sequence != entry.first_sequence:
        if local and local[-1].first_sequence == entry.first_sequence:
            store.adopt(local[-1])
        else:
            header = client.segment_header(entry)
            if (header.checksum, header.first_sequence, header.first_offset) != (
                entry.header_checksum,
                entry.first_sequence,
                entry.first_offset,
            ):
                raise PeerError("the segment's header changed")
            if store.head.end_offset != entry.first_offset:
                store.rotate()
                store.jump(entry, header)
    stand = store.head.end_offset
    start = until()
    end = entry.end_offset if start is None else min(start, entry.end_offset)
    buffer = bytearray()
    while stand < end:
        at = stand - entry.first_offset + SEGMENT_HEADER_BYTES + len(buffer)
        # not beyond the frames that were told of: a trailer may have been written behind them meanwhile
        size = min(max(_READ_BYTES, _missing(buffer)), entry.position - at)
        data = client.read(entry, at=at, size=size)
        if not data:
            raise CorruptionError(entry.name, at, "the other side has less than it said")
        buffer += data
        pieces, used = _frames(buffer, stand, header)
        if pieces:
            store.apply(pieces)
            header = None
            stand = pieces[-1].end
            del pieces
            buffer = buffer[used:]


def _missing(buffer: bytearray) -> int:
    """How much of the frame at the beginning is not there yet."""
    if len(buffer) < FRAME_HEADER_BYTES:
        return 0
    return unpack_frame_header(buffer).frame_bytes - len(buffer)


def _frames(buffer: bytearray, stand: int, header: SegmentHeader | None) -> tuple[list[Piece], int]:
    """Whole frames from the beginning of the buffer, and how many bytes they are."""
    view = memoryview(bytes(buffer))
    pieces: list[Piece] = []
    at = 0
    while len(view) - at >= FRAME_HEADER_BYTES:
        try:
            frame = unpack_frame_header(view[at : at + FRAME_HEADER_BYTES])
        except ValueError as error:
            raise PeerError(f"no frame at log offset {stand + at}: {error}") from None
        if frame.offset != stand + at or frame.body_bytes > limits.BODY_BYTES_MAX:
            raise PeerError(f"another frame than that of log offset {stand + at}")
        if at + frame.frame_bytes > len(view):
            break
        pieces.append(Piece(frame, view[at : at + frame.frame_bytes], None if pieces else header))
        at += frame.frame_bytes
    return pieces, at
