"""A replica's disk: frames mirrored as they are, segments put in place, contradictions put aside. May block.

One thread at a time calls what changes it (the door sees to that). Nothing here knows of sockets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

from lorogo_log import limits, names
from lorogo_log.batch import Batch, Encoded, body_matches
from lorogo_log.core import BlockingLog, Options
from lorogo_log.engine import Head
from lorogo_log.errors import CorruptionError, DamageError, FormatError, StaleEpochError
from lorogo_log.format import (
    FRAME_HEADER_BYTES,
    REWRITTEN,
    SEGMENT_HEADER_BYTES,
    Bytes,
    Footer,
    SegmentHeader,
)
from lorogo_log.maintain import cleaning
from lorogo_log.recovery import SegmentName, keep_broken, list_segments
from lorogo_log.replica_catalog import ORDER_SECONDS, catalog
from lorogo_log.replica_rules import Piece
from lorogo_log.replica_state import ReplicaState, ensure_state, save_state
from lorogo_log.segment import Segment, Stop, digest_of
from lorogo_log.storage import Directory, File, Storage, write_all
from lorogo_log.wire import Entry, PeerError


class DivergedError(PeerError):
    """What is here and what came do not belong to the same history: compare the segments again."""


class ReplicaStore:
    """The log of a replica, opened for mirroring."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: Options,
        *,
        storage: Storage | None = None,
        on_damage: Callable[[DamageError], None] | None = None,
        forward: Callable[[int], Any] | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.core = BlockingLog(
            path,
            replace(options, mirror=True, compress=False),
            storage=storage,
            on_damage=on_damage,
            forward=forward,
        )
        with ExitStack() as undo:
            undo.callback(self.core.close)
            self.state: ReplicaState = ensure_state(self.core.directory, random_bytes)
            undo.pop_all()

    @property
    def directory(self) -> Directory:
        return self.core.directory

    @property
    def head(self) -> Head:
        """Where the log ends."""
        return self.core.writer.engine.head

    @property
    def epoch(self) -> int:
        """The newest epoch that was promised or written."""
        return max(self.state.epoch, self.head.epoch)

    @property
    def log_id(self) -> bytes:
        """The log's identity; zeros while there is no log here."""
        return self.core.writer.engine.log_id if self._begun() else bytes(16)

    def _begun(self) -> bool:
        return bool(list_segments(self.directory))

    def close(self) -> None:
        self.core.close()

    def accept(self, log_id: bytes, partition: int, epoch: int) -> None:
        """Follow a coordinator of this log and of no older epoch; promised on the disk when this returns."""
        if epoch < self.epoch:
            raise StaleEpochError(
                f"epoch {epoch} is older than {self.epoch}: a newer coordinator has taken over"
            )
        engine = self.core.writer.engine
        if self._begun():
            if log_id != engine.log_id:
                raise FormatError(f"{self.directory.path} is a replica of another log")
        else:
            engine.log_id, engine.partition = log_id, partition
        if epoch > self.state.epoch:
            state = replace(self.state, epoch=epoch)
            save_state(self.directory, state)
            self.state = state

    def catalog(self) -> list[Entry]:
        """The segments here."""
        return catalog(self.core)

    # -- frames -----------------------------------------------------------------------------------

    def apply(self, pieces: Sequence[Piece]) -> int:
        """Write frames that continue the log, synced once per segment; the last durable sequence.

        Everything is checked before anything is written.
        """
        checked = [self._check(piece) for piece in pieces]
        start = 0
        for end in range(1, len(pieces) + 1):
            if end == len(pieces) or pieces[end].segment is not None:
                self._mirror(pieces[start].segment, checked[start:end])
                start = end
        return self.core.writer.durable

    def _check(self, piece: Piece) -> tuple[Encoded, set[bytes]]:
        frame = piece.frame
        if frame.epoch < self.head.epoch:
            raise StaleEpochError(f"a frame of epoch {frame.epoch} behind one of epoch {self.head.epoch}")
        if not body_matches(frame, piece.raw, 0):
            raise PeerError(f"the frame at log offset {frame.offset} does not match its checksum")
        view = memoryview(piece.raw)
        stored = view[FRAME_HEADER_BYTES:]
        try:
            keys = Batch(frame, stored).columns.distinct_keys() if frame.count else set[bytes]()
        except (ValueError, TypeError) as error:
            raise PeerError(f"the frame at log offset {frame.offset} has bad columns: {error}") from None
        return Encoded((view[:FRAME_HEADER_BYTES], stored), frame), keys

    def _mirror(self, header: SegmentHeader | None, frames: Sequence[tuple[Encoded, set[bytes]]]) -> None:
        head = self.head
        if header is not None and (
            (header.first_offset, header.chain) != (head.end_offset, head.chain)
            or header.first_sequence < head.next_sequence  # a segment without records takes a sequence
        ):
            raise DivergedError("the segment does not continue this log")
        done: Future[Any] = self.core.mirror(header, frames)
        try:
            done.result(limits.CLOSE_SECONDS)
        except ValueError as error:
            raise DivergedError(str(error)) from None

    # -- segments ---------------------------------------------------------------------------------

    def resume(self, entry: Entry, have: Entry | None) -> int:
        """How much of a sealed segment's file is here already, in its `.part` file, which then exists.

        A local segment whose frames are its beginning saves fetching them again; the hash decides.
        """
        name = entry.name + names.PART
        if name in self.directory.list():
            file = self.directory.open(name)
            try:
                if file.size() <= entry.size:
                    return file.size()
            finally:
                file.close()
            self.directory.remove(name)
        part = self.directory.create(name)
        try:
            if have is None:
                return 0
            file = self.directory.open(have.name)
            try:
                return _copy(file, part, min(have.position, entry.position), name)
            finally:
                file.close()
        finally:
            part.close()

    def part(self, entry: Entry) -> File:
        """The `.part` file, to write what is fetched into."""
        return self.directory.open(entry.name + names.PART, write=True)

    def discard(self, entry: Entry) -> None:
        """Forget what was fetched: it was not the segment."""
        with suppress(FileNotFoundError):
            self.directory.remove(entry.name + names.PART)

    def sweep(self, wanted: Sequence[Entry]) -> None:
        """Remove `.part` files of segments that nobody wants any more."""
        keep = {entry.name + names.PART for entry in wanted}
        for name in self.directory.list():
            if name.endswith(names.PART) and name not in keep:
                with suppress(FileNotFoundError):
                    self.directory.remove(name)

    def install(self, entry: Entry) -> None:
        """Check a fetched segment whole, give it its name, and stand behind it."""
        verify_part(self.directory, entry)
        engine = self.core.writer.engine
        with cleaning(self.directory):
            if engine.active.header is not None:
                # what was mirrored of it (if it is the same segment) is in the fetched file too
                self.core.rotate(ORDER_SECONDS)
            self.directory.rename(entry.name + names.PART, entry.name)
            self.directory.sync()
            self._stand(entry.name)

    def adopt(self, entry: Entry) -> None:
        """Go on in a segment that was found at open: its frames go into a new file, which takes its name.

        Both files have the same frames, so a crash in between loses nothing; and the rule holds that nothing
        is written into a segment found at open.
        """
        self.core.writer.order(lambda: self._adopt(entry.name)).result(limits.CLOSE_SECONDS)

    def _adopt(self, name: str) -> None:
        engine = self.core.writer.engine
        active = engine.active
        assert active.header is None
        segment = Segment.open(self.directory, name)
        try:
            if segment.damage is not None or segment.header.flags & REWRITTEN:
                raise DivergedError(f"{name} cannot be continued")
            frames = segment.frames(end=segment.end)
            active.claim(SEGMENT_HEADER_BYTES)
            active.index.high_time = segment.header.first_time
            at = write_all(active.file, [segment.header.pack()], 0, active.name)
            while isinstance(found := frames.next(), Batch):
                raw: list[Bytes] = [found.header.pack(), found.stored]
                active.claim(at + found.header.frame_bytes)
                write_all(active.file, raw, at, active.name)
                keys = found.columns.distinct_keys() if found.header.count else set()
                active.index.add(at, found.header, keys)
                at += found.header.frame_bytes
                active.frame_bytes = found.header.frame_bytes
                active.last_sequence = found.header.last_sequence
                active.end_offset = found.header.offset + found.header.frame_bytes
                active.chain = found.header.checksum
            if found.stop is not Stop.TRAILER or active.end_offset != engine.head.end_offset:
                raise CorruptionError(segment.path, found.position, found.reason or "frames are missing")
            active.file.sync()
            self.directory.rename(active.name, name)
            active.name, active.header, active.position = name, segment.header, at
        finally:
            segment.close()
        self.directory.sync()

    def aside(self, entries: Sequence[Entry]) -> list[str]:
        """Put segments (the newest ones, newest first) aside as `.broken`, and stand before them."""
        kept: list[str] = []
        with cleaning(self.directory):
            if self.core.writer.engine.active.header is not None:
                self.core.rotate(ORDER_SECONDS)
            for entry in entries:
                file = self.directory.open(entry.name)
                try:
                    kept.append(keep_broken(self.directory, entry.name, file, 0))
                finally:
                    file.close()
                self.directory.remove(entry.name)
                self.directory.sync()
                path = f"{self.directory.path}/{entry.name}"
                self.core.damage = [known for known in self.core.damage if known.path != path]
            listing = list_segments(self.directory)
            self._stand(listing[-1].name if listing else None)
        return kept

    def rotate(self) -> None:
        """Finish the segment that is being written, if it has frames."""
        self.core.rotate(ORDER_SECONDS)

    def jump(self, entry: Entry, header: SegmentHeader) -> None:
        """Stand at the beginning of a segment behind a gap: what came before it is kept nowhere any more."""
        head = Head(
            entry.first_sequence, entry.first_offset, header.chain, self.head.epoch, header.first_time
        )
        if head.next_sequence < self.head.next_sequence or self.core.writer.engine.active.header is not None:
            raise DivergedError("the log would go back")
        self._set(head)

    def _stand(self, name: str | None) -> None:
        """Let the writer go on behind this sealed segment."""
        head = Head()
        if name is not None:
            segment = Segment.open(self.directory, name)
            try:
                footer = segment.footer
                if footer is None:
                    raise CorruptionError(segment.path, 0, "the segment is not sealed")
                head = _after(footer)
            finally:
                segment.close()
        self._set(head)

    def _set(self, head: Head) -> None:
        writer = self.core.writer

        def move() -> None:
            writer.engine.head = head
            writer.durable = head.next_sequence - 1
            writer.epoch = head.epoch

        writer.order(move).result(ORDER_SECONDS)


def _after(footer: Footer) -> Head:
    return Head(footer.last_sequence + 1, footer.end_offset, footer.chain_out, footer.epoch, footer.high_time)


def _copy(file: File, into: File, size: int, path: str) -> int:
    at = 0
    while at < size:
        chunk = file.pread(min(limits.READ_BYTES, size - at), at)
        if not chunk:
            break
        at += write_all(into, [chunk], at, path)
    return at


def verify_part(directory: Directory, entry: Entry) -> None:
    """Check a fetched file (header, hash, trailer, footer), and that it is what was asked for. Synced."""
    name = entry.name + names.PART
    file = directory.open(name, write=True)
    try:
        file.sync()
    finally:
        file.close()
    segment = Segment.open(directory, name)
    try:
        footer, header = segment.footer, segment.header
        wrong = ""
        if segment.damage is not None:
            wrong = segment.damage.reason
        elif footer is None or segment.index() is None:
            wrong = "the trailer does not check"
        elif (header.first_sequence, header.first_offset, header.checksum, footer.last_sequence) != (
            entry.first_sequence,
            entry.first_offset,
            entry.header_checksum,
            entry.last_sequence,
        ) or (footer.end_offset, footer.chain_out, footer.digest) != (
            entry.end_offset,
            entry.chain,
            entry.digest,
        ):
            wrong = "it is another segment"
        elif digest_of(segment.file, footer.trailer_position) != footer.digest:
            wrong = "it does not match its hash"
        if wrong:
            raise CorruptionError(segment.path, 0, f"what was fetched is not the segment: {wrong}")
    finally:
        segment.close()


def repair_install(core: BlockingLog, entry: Entry) -> str | None:
    """Put a fetched segment in place of a damaged one; the name of the `.broken` copy of the original."""
    directory = core.directory
    verify_part(directory, entry)
    following = [place for place in list_segments(directory) if place.first_sequence > entry.first_sequence]
    if following and not _joins(directory, entry, following[0]):
        raise DivergedError(f"{entry.name} of the other side does not lead to {following[0].name}")
    broken: str | None = None
    with cleaning(directory):
        with suppress(FileNotFoundError):
            file = directory.open(entry.name)
            try:
                broken = keep_broken(directory, entry.name, file, 0)
            finally:
                file.close()
        directory.rename(entry.name + names.PART, entry.name)
        directory.sync()
    path = f"{directory.path}/{entry.name}"
    core.damage = [known for known in core.damage if known.path != path]
    return broken


def _joins(directory: Directory, entry: Entry, following: SegmentName) -> bool:
    """Whether the next segment here says that it comes after this one."""
    if entry.last_sequence >= following.first_sequence:
        return False
    try:
        segment = Segment.open(directory, following.name)
    except (CorruptionError, FileNotFoundError):
        return True
    try:
        header = segment.header
        if segment.damage is not None or header.first_sequence != entry.last_sequence + 1:
            return True
        if header.first_offset > entry.end_offset:
            return True  # opened while this one was damaged: the place behind the damage was not given away
        return (header.first_offset, header.chain) == (entry.end_offset, entry.chain)
    finally:
        segment.close()
