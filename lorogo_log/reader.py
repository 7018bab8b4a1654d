"""A log opened for reading only, in any process, with or without its writer."""

from __future__ import annotations

import builtins
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from lorogo_log import limits
from lorogo_log.checks import seconds, whole
from lorogo_log.cursor import Cursor
from lorogo_log.errors import CorruptionError, DamageError, End, FormatError, NotFoundError, TornError
from lorogo_log.format import names
from lorogo_log.format.batch import Batch, LogPosition, Record
from lorogo_log.format.index import Index
from lorogo_log.format.layout import REWRITTEN, SEGMENT_HEADER_BYTES, Footer
from lorogo_log.recovery.lost import NOT_THERE
from lorogo_log.recovery.recovery import SegmentName, list_segments
from lorogo_log.recovery.rewrite import damage_at
from lorogo_log.storage.disk import Directory, FileStorage, Storage
from lorogo_log.storage.segment import Segment, find_frame

if TYPE_CHECKING:
    import pyarrow as pa

#: At damage: "raise", or "skip": call `on_damage` and continue with the rest.
OnDamage = Literal["raise", "skip"]
_INDEXES_MAX = 64


def check_damaged(damaged: OnDamage) -> None:
    """Raise ValueError for an unknown value."""
    if damaged not in {"raise", "skip"}:
        raise ValueError(f"damaged must be 'raise' or 'skip', not {damaged!r}")


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """Facts about a segment, from its name, header and footer."""

    name: str
    first_sequence: int
    #: None while the segment is open
    last_sequence: int | None
    first_time: int
    last_time: int | None
    bytes: int
    records: int | None
    sealed: bool
    rewritten: bool
    digest: builtins.bytes | None


class Reader:
    """Lookups and cursors over one directory. Takes no lock and changes nothing."""

    def __init__(
        self,
        directory: Directory,
        *,
        durable: Callable[[], int] | None = None,
        hint: Callable[[int, int], int] | None = None,
        on_damage: Callable[[DamageError], None] | None = None,
        forward: Callable[[int], Record | None] | None = None,
        forward_bytes: Callable[[int, int], bytes | None] | None = None,
    ) -> None:
        self.directory = directory
        self._durable = durable
        self._hint = hint
        self._on_damage = on_damage
        self._forward = forward
        self._forward_bytes = forward_bytes
        self._indexes: dict[str, tuple[Footer, Index]] = {}

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        storage: Storage | None = None,
        on_damage: Callable[[DamageError], None] | None = None,
    ) -> Reader:
        """Open a log's directory, which must exist and may be empty. Raises FormatError."""
        directory = (storage or FileStorage()).directory(path, create=False)
        present = [name for name in directory.list() if not name.startswith(".")]
        if present and not any(map(names.is_ours, present)):
            raise FormatError(f"{directory.path} is not a log: it holds only other files")
        return cls(directory, on_damage=on_damage)

    def report(self, damage: DamageError) -> None:
        """Pass damage to `on_damage`."""
        if self._on_damage is not None:
            self._on_damage(damage)

    def cursor(
        self,
        *,
        from_seq: int | None = None,
        from_time: int | None = None,
        from_pos: LogPosition | None = None,
        key: bytes | None = None,
    ) -> Cursor:
        """Return a new cursor; close it when done."""
        return Cursor(
            self.directory,
            from_seq=from_seq,
            from_time=from_time,
            from_pos=from_pos,
            key=key,
            durable=self._durable,
        )

    def read(
        self,
        *,
        from_seq: int | None = None,
        from_time: int | None = None,
        from_pos: LogPosition | None = None,
        key: bytes | None = None,
        follow_seconds: float = 0.0,
        damaged: OnDamage = "raise",
    ) -> Iterator[Batch]:
        """Yield batches to the end; with `follow_seconds`, until none arrives for that long (`inf`: always).

        `batch.next` is the position from which to continue (`from_pos`) after processing a batch. At damage:
        raise, or ("skip") call `on_damage` and continue with the rest; behind a torn tail there is none.
        """
        check_damaged(damaged)
        seconds("follow_seconds", follow_seconds)
        cursor = self.cursor(from_seq=from_seq, from_time=from_time, from_pos=from_pos, key=key)
        return self._read(cursor, follow_seconds, damaged)

    def _read(self, cursor: Cursor, follow_seconds: float, damaged: OnDamage) -> Iterator[Batch]:
        with cursor:
            step = partial(cursor.follow, wait_seconds=follow_seconds) if follow_seconds else cursor.next
            while True:
                try:
                    yield step()
                except End:
                    return
                except CorruptionError as damage:
                    self.report(damage)
                    if damaged == "raise":
                        raise
                except TornError as torn:
                    self.report(torn)
                    if damaged == "raise":
                        raise
                    return

    def arrow(
        self,
        *,
        from_seq: int | None = None,
        from_time: int | None = None,
        from_pos: LogPosition | None = None,
        key: bytes | None = None,
        damaged: OnDamage = "raise",
    ) -> Iterator[pa.RecordBatch]:
        """As `read`, in Arrow columns; small frames are joined into fewer, larger batches."""
        from lorogo_log.format.arrow import record_batches  # noqa: PLC0415 - pyarrow is optional and heavy

        return record_batches(
            self.read(from_seq=from_seq, from_time=from_time, from_pos=from_pos, key=key, damaged=damaged)
        )

    def lookup(self, sequence: int) -> Record:
        """Return one record, verified. At damage: the result of `forward`, or the error."""
        sequence = whole("sequence", sequence)
        try:
            return self._lookup(sequence)
        except CorruptionError as damage:
            self.report(damage)
            if self._forward is not None and (record := self._forward(sequence)) is not None:
                return record
            raise

    def _lookup(self, sequence: int) -> Record:
        missing = NotFoundError(f"there is no record {sequence}")
        if self._durable is not None and sequence > self._durable():
            raise missing
        name = ""
        for _ in range(3):
            listing = list_segments(self.directory, prepared=self._durable is None)
            place = bisect_right(listing, sequence, key=lambda entry: entry.first_sequence) - 1
            if place < 0:
                raise missing
            name = listing[place].name
            try:
                segment = Segment.open(self.directory, name)
            except FileNotFoundError:
                continue  # renamed or removed since the listing
            try:
                row = self._find(segment, sequence)
            finally:
                segment.close()
            if row is not None:
                return row
            if segment.footer is None and place + 1 < len(listing):
                reason = f"record {sequence} is missing before the next segment"
                raise CorruptionError(segment.path, SEGMENT_HEADER_BYTES, reason)
            raise missing
        if name not in self.directory.list():
            raise missing
        raise CorruptionError(f"{self.directory.path}/{name}", 0, NOT_THERE)

    def _find(self, segment: Segment, sequence: int) -> Record | None:
        footer = segment.footer
        start = SEGMENT_HEADER_BYTES
        if footer is not None:
            if sequence > footer.last_sequence:
                return None
            if (index := self._index(segment)) is not None:
                start = index.at_sequence(sequence)
        elif self._hint is not None:
            start = self._hint(segment.header.first_sequence, sequence)
        end = footer.trailer_position if footer else None
        frames = segment.frames(start, end, read_bytes=limits.LOOKUP_BYTES)
        while True:
            found = frames.next()
            if isinstance(found, Batch):
                if found.header.last_sequence >= sequence:
                    row = found.columns.row_of(sequence)
                    return None if row is None else found.record(row)
                continue
            if footer is not None and found.position >= footer.trailer_position:
                return None
            again = find_frame(segment, found.position)
            if footer is None and again is None:
                return None  # not written, or incomplete
            error = damage_at(segment, found, again)
            if again is None:
                raise error
            frames.jump(again)
            good = frames.next()
            if not isinstance(good, Batch) or sequence < good.header.first_sequence:
                raise error
            frames.jump(again)

    def _index(self, segment: Segment) -> Index | None:
        """Return the trailer, cached by its footer: a rewritten segment has another footer."""
        footer = segment.footer
        known = self._indexes.get(segment.name)
        if known is not None and known[0] == footer:
            return known[1]
        index = segment.index()
        if index is not None and footer is not None:
            while len(self._indexes) >= _INDEXES_MAX:
                self._indexes.pop(next(iter(self._indexes)), None)
            self._indexes[segment.name] = (footer, index)
        return index

    def lookup_bytes(self, offset: int, size: int) -> bytes:
        """Return bytes of the log by log offset, after verifying the frames around them.

        NotFoundError if they are expired, cleaned, or not written yet.
        At damage: the result of `forward_bytes`, or the error.
        """
        offset = whole("offset", offset, least=0)
        size = whole("size", size, least=0, most=limits.BODY_BYTES_MAX)
        try:
            return self._lookup_bytes(offset, size)
        except CorruptionError as damage:
            self.report(damage)
            if self._forward_bytes is not None and (data := self._forward_bytes(offset, size)) is not None:
                return data
            raise

    def _lookup_bytes(self, offset: int, size: int) -> bytes:
        parts: list[bytes] = []
        at, end = offset, offset + size
        while at < end:
            piece = self._piece(at, end)
            parts.append(piece)
            at += len(piece)
        return b"".join(parts)

    def _piece(self, at: int, end: int) -> bytes:
        """Return the bytes that one segment has of a range of log offsets, from its beginning."""
        missing = NotFoundError(f"there are no bytes at log offset {at}")
        segment = self._at_offset(at)
        if segment is None:
            raise missing
        try:
            header, footer = segment.header, segment.footer
            if header.flags & REWRITTEN:
                raise NotFoundError(f"log offset {at} is in a segment that was cleaned or compressed")
            if footer is not None and at >= footer.end_offset:
                raise missing
            position = at - header.first_offset + SEGMENT_HEADER_BYTES
            start = SEGMENT_HEADER_BYTES
            index = self._index(segment) if footer is not None else None
            if index is not None:
                start = index.positions[max(0, bisect_right(index.positions, position) - 1)]
            frames = segment.frames(start, footer.trailer_position if footer else None)
            parts: list[bytes] = []
            have = at
            while have < end:
                found = frames.next()
                if not isinstance(found, Batch):
                    if footer is not None and found.position >= footer.trailer_position:
                        break
                    again = find_frame(segment, found.position)
                    if footer is None and again is None:
                        break
                    damage = damage_at(segment, found, again)
                    if again is None or again > position:
                        raise damage
                    frames.jump(again)
                    continue
                if self._durable is not None and found.header.last_sequence > self._durable():
                    break
                low = found.header.offset
                if low + found.header.frame_bytes <= have:
                    continue
                raw = found.header.pack() + found.stored
                piece = raw[have - low : end - low]
                parts.append(piece)
                have += len(piece)
            if not parts:
                raise missing
            return b"".join(parts)
        finally:
            segment.close()

    def _at_offset(self, offset: int) -> Segment | None:
        """Return the segment that holds a log offset, found by bisecting the listing.

        A segment without a header does not reveal its offsets: its damage is raised if no other has it.
        """
        listing = list_segments(self.directory, prepared=self._durable is None)
        low, high = 0, len(listing)
        found: Segment | None = None
        headless: dict[str, CorruptionError] = {}
        gone: set[str] = set()
        while low < high:
            middle = (low + high) // 2
            try:
                segment = Segment.open(self.directory, listing[middle].name)
            except (FileNotFoundError, CorruptionError) as error:
                name = listing[middle].name
                if isinstance(error, CorruptionError):
                    headless[name] = error
                elif name in gone:  # still listed: it was not renamed or removed
                    headless[name] = CorruptionError(f"{self.directory.path}/{name}", 0, NOT_THERE)
                gone.add(name)
                listing = list_segments(self.directory, prepared=self._durable is None)
                listing = [entry for entry in listing if entry.name not in headless]
                low, high = 0, len(listing)
                continue
            if segment.header.first_offset <= offset:
                if found is not None:
                    found.close()
                found = segment
                low = middle + 1
            else:
                segment.close()
                high = middle
        if found is None or (found.footer is not None and offset >= found.footer.end_offset):
            # names are in order: an offset behind this segment is in one of the later names
            behind = [name for name in headless if found is None or name > found.name]
            if behind:
                if found is not None:
                    found.close()
                raise headless[min(behind)]
        return found

    def segments(self) -> list[SegmentInfo]:
        """Return every segment in order, from names, headers and footers alone."""
        result = []
        for entry in list_segments(self.directory, prepared=self._durable is None):
            info = self._info(entry)
            if info is not None:
                result.append(info)
        return result

    def _info(self, entry: SegmentName) -> SegmentInfo | None:
        try:
            segment = Segment.open(self.directory, entry.name)
        except FileNotFoundError:
            return None
        except CorruptionError:
            file = self.directory.open(entry.name)
            size = file.size()
            file.close()
            return SegmentInfo(
                entry.name, entry.first_sequence, None, entry.first_time, None, size, None, False, False, None
            )
        footer = segment.footer
        try:
            return SegmentInfo(
                name=entry.name,
                first_sequence=entry.first_sequence,
                last_sequence=footer.last_sequence if footer else None,
                first_time=entry.first_time,
                last_time=footer.last_time if footer else None,
                bytes=segment.file.size(),
                records=footer.records if footer else None,
                sealed=footer is not None,
                rewritten=bool(segment.header.flags & REWRITTEN),
                digest=footer.digest if footer else None,
            )
        finally:
            segment.close()
