"""Work on sealed segments: clean, expire, compress, scrub, and install a replacement.

Each holds the clean lock: cursors with a consistent view wait for it, appenders never do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from inspect import iscoroutine, iscoroutinefunction

from lorogo_log import limits
from lorogo_log.errors import CorruptionError, DamageError, FormatError, SkipSegment, TornError
from lorogo_log.format import names
from lorogo_log.format.batch import Batch, Record
from lorogo_log.format.layout import REWRITTEN, ZSTD, Bytes
from lorogo_log.recovery.lost import FIRST_LOST, NOT_THERE
from lorogo_log.recovery.recovery import (
    FOOTER_DAMAGED,
    SegmentName,
    create_temporary,
    damage_of,
    damaged_footer,
    keep_broken,
    list_segments,
    missing_before,
    remove_temporary,
)
from lorogo_log.recovery.replacement_check import require_place
from lorogo_log.recovery.rewrite import good_frames, rewrite
from lorogo_log.storage.disk import Directory, write_all
from lorogo_log.storage.listing import twin_damage
from lorogo_log.storage.segment import Scan, Segment, digest_of, scan
from lorogo_log.write.engine import LogHead

#: Called with the segment's path and a record: True drops it, False keeps it, SkipSegment leaves the segment
#: alone.
CleanFunction = Callable[[str, Record], bool]


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """The result of cleaning."""

    dropped: int = 0
    rewritten: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    #: segments that could not be read completely: reported, and left as they are
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The findings of a scrub in one segment."""

    name: str
    bytes: int
    records: int
    frames: int
    sealed: bool
    damage: tuple[DamageError, ...] = ()
    #: the previous segment ends before this one begins: records were expired, cleaned or lost
    gap_before: int = 0


@dataclass(slots=True)
class _Left:
    dropped: int = 0
    rows: dict[int, list[int]] = field(default_factory=dict)


@contextmanager
def cleaning(directory: Directory, wait_seconds: float = limits.LOCK_SECONDS) -> Iterator[None]:
    """Hold the clean lock: exclude other cleaners and cursors with a consistent view."""
    lock = directory.lock(names.CLEAN_LOCK, exclusive=True, wait_seconds=wait_seconds)
    try:
        yield
    finally:
        lock.release()


def _sealed(
    directory: Directory, report: Callable[[CorruptionError], None] = lambda _: None
) -> Iterator[tuple[Segment, bool]]:
    """Yield each sealed segment, and True if it is the newest (which stays: it has the last sequence)."""
    listing = list_segments(directory)
    for entry in listing:
        try:
            segment = Segment.open(directory, entry.name)
        except FileNotFoundError:
            if entry.name in directory.list():
                report(CorruptionError(f"{directory.path}/{entry.name}", 0, NOT_THERE))
            continue
        except CorruptionError as damage:
            report(damage)
            continue
        try:
            if segment.damage is not None:
                report(segment.damage)
            elif segment.footer is not None:
                yield segment, entry is listing[-1]
        finally:
            segment.close()


class _Unreadable(Exception):
    """A segment cannot be read; distinct from an error of the cleaning function."""

    def __init__(self, damage: CorruptionError) -> None:
        self.damage = damage


def clean(
    directory: Directory,
    function: CleanFunction,
    *,
    wait_seconds: float = limits.LOCK_SECONDS,
    on_damage: Callable[[DamageError], None] | None = None,
) -> CleaningResult:
    """Drop records for which the function returns True. An error of the function stops the work.

    A result other than True or False is an error, too: no record is dropped without a decision.
    A damaged segment is reported and left as it is: unreadable records are not dropped.
    """
    if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        raise TypeError("clean takes a plain function, not an async function: it runs in a thread")
    dropped = 0
    rewritten: list[str] = []
    removed: list[str] = []
    skipped: list[str] = []
    damaged: list[str] = []

    def report(damage: CorruptionError) -> None:
        damaged.append(damage.path.rpartition("/")[2])
        if on_damage is not None:
            on_damage(damage)

    with cleaning(directory, wait_seconds):
        for segment, newest in _sealed(directory, report):
            try:
                left = _judge(segment, function)
            except SkipSegment:
                skipped.append(segment.name)
                continue
            except _Unreadable as unreadable:
                report(unreadable.damage)
                continue
            if not left.dropped:
                continue
            if any(left.rows.values()) or newest:
                try:
                    rewrite(directory, segment, lambda batch, left=left: _choose(batch, left), skip_bad=False)  # type: ignore[misc]
                except CorruptionError as damage:  # damaged since it was judged
                    report(damage)
                    continue
                rewritten.append(segment.name)
            else:
                directory.remove(segment.name)
                directory.sync()
                removed.append(segment.name)
            dropped += left.dropped
    return CleaningResult(dropped, tuple(rewritten), tuple(removed), tuple(skipped), tuple(damaged))


def _judge(segment: Segment, function: CleanFunction) -> _Left:
    """Call the function for every record before any change."""
    left = _Left()
    for batch in _readable(segment):
        rows = range(batch.header.count)
        kept = [row for row in rows if not _verdict(function(segment.path, batch.record(row)))]
        left.rows[batch.position] = kept
        left.dropped += batch.header.count - len(kept)
    return left


def _verdict(answer: object) -> bool:
    """Return the function's result if it is a bool; a coroutine or a missing `return` is an error."""
    if isinstance(answer, bool):
        return answer
    if iscoroutine(answer):
        answer.close()  # no task awaits it
    raise TypeError(f"the cleaning function must return True or False, not {type(answer).__name__}")


def _readable(segment: Segment) -> Iterator[Batch]:
    """Yield every frame with its columns decoded, or raise `_Unreadable`."""
    frames = good_frames(segment)
    while True:
        try:
            batch = next(frames, None)
            if batch is None:
                return
            try:
                assert batch.columns is not None
            except CorruptionError as damage:
                raise CorruptionError(segment.path, batch.position, damage.reason) from None
        except CorruptionError as damage:
            raise _Unreadable(damage) from None
        yield batch


def _choose(batch: Batch, left: _Left) -> Batch:
    rows = left.rows[batch.position]
    return batch if len(rows) == batch.header.count else batch.select(rows)


def expire(
    directory: Directory,
    *,
    before: int | None = None,
    keep_bytes: int | None = None,
    written: Mapping[str, int] | None = None,
    wait_seconds: float = limits.LOCK_SECONDS,
) -> list[str]:
    """Remove the oldest sealed segments: those wholly before a time, and those beyond `keep_bytes`.

    Never removes an open segment, the newest, or one with an older segment left. Zeros prepared behind the
    last frame do not count; `written` has the end of the frames for segments that their writer knows.
    """
    removed: list[str] = []
    with cleaning(directory, wait_seconds):
        total = 0
        if keep_bytes is not None:
            for entry in list_segments(directory):
                with suppress(FileNotFoundError):  # a broken link takes no space
                    known = (written or {}).get(entry.name)
                    total += _data_bytes(directory, entry.name) if known is None else known
        in_order = iter(list_segments(directory))
        for segment, newest in _sealed(directory):
            footer = segment.footer
            assert footer is not None
            oldest = next(in_order, None)
            old = before is not None and footer.last_time < before
            large = keep_bytes is not None and total > keep_bytes
            if newest or oldest is None or oldest.name != segment.name or not (old or large):
                break
            total -= segment.file.size()
            directory.remove(segment.name)
            removed.append(segment.name)
        if removed:
            directory.sync()
    return removed


def _data_bytes(directory: Directory, name: str) -> int:
    """Return a segment's size, without the zeros prepared in an unsealed one."""
    try:
        segment = Segment.open(directory, name)
    except FileNotFoundError:
        return 0
    except CorruptionError:
        file = directory.open(name)
        try:
            return file.size()
        finally:
            file.close()
    try:
        return segment.file.size() if segment.footer is not None else scan(segment, keys=False).end
    finally:
        segment.close()


def compress(directory: Directory, name: str, *, wait_seconds: float = limits.LOCK_SECONDS) -> bool:
    """Rewrite one sealed segment with zstd; False if it is compressed already, or gone."""
    with cleaning(directory, wait_seconds):
        try:
            segment = Segment.open(directory, name)
        except FileNotFoundError:
            return False
        try:
            first = next(iter(good_frames(segment)), None)
            if segment.footer is None or first is None or first.header.flags & ZSTD:
                return False
            rewrite(directory, segment, lambda batch: batch, compress=True, skip_bad=False)
        finally:
            segment.close()
    return True


def verify(
    directory: Directory, entry: SegmentName, *, newest: bool, after: SegmentName | None = None
) -> SegmentReport:
    """Read one segment completely and check it; with `after`, also that it reaches the next segment."""
    path = f"{directory.path}/{entry.name}"
    try:
        segment = Segment.open(directory, entry.name)
    except CorruptionError as unreadable:
        return SegmentReport(entry.name, 0, 0, 0, sealed=False, damage=(unreadable,))
    try:
        found = scan(segment, keys=False)  # the trailer has its own checksum
        damage: list[DamageError] = [segment.damage] if segment.damage else []
        footer = segment.footer
        if footer is None:
            damage += _open_damage(segment, found, newest=newest, after=after)
        else:
            damage += damage_of(segment, found)
        if footer is not None and not damage:
            if segment.index() is None:
                damage.append(CorruptionError(path, footer.trailer_position, "the trailer does not check"))
            elif digest_of(segment.file, footer.trailer_position) != footer.digest:
                damage.append(CorruptionError(path, 0, "the file does not match its digest"))
        return SegmentReport(
            entry.name,
            segment.file.size(),
            found.index.records,
            found.index.frames,
            sealed=footer is not None,
            damage=tuple(damage),
        )
    finally:
        segment.close()


def _open_damage(
    segment: Segment, found: Scan, *, newest: bool, after: SegmentName | None
) -> Iterator[DamageError]:
    """Yield the damage of a segment that is not sealed, or whose seal is damaged."""
    path = segment.path
    for where in found.bad:
        yield CorruptionError(path, *where)
    rewritten = segment.header.flags & REWRITTEN
    if after is not None and after.first_sequence > found.reach and not rewritten:
        yield CorruptionError(path, found.end, missing_before(found, after))
    elif not (found.index.frames or rewritten) and names.parse_segment(segment.name):
        yield CorruptionError(path, found.end, found.torn or FIRST_LOST)
    elif found.torn:
        yield (TornError if newest else CorruptionError)(path, found.end, found.torn)
    elif (rewritten or damaged_footer(segment.file, found.end)) and not segment.sealed():
        # (sealed: the writer sealed it meanwhile)
        yield CorruptionError(path, found.end, FOOTER_DAMAGED)


def scrub(directory: Directory, *, open_name: str | None = None) -> Iterator[SegmentReport]:
    """Yield a report for each segment, except the one being written (`open_name`)."""
    listing = list_segments(directory, prepared=open_name is None)
    expected: int | None = None
    for number, entry in enumerate(listing):
        if entry.name == open_name and not entry.hidden:
            continue
        after = listing[number + 1] if number + 1 < len(listing) else None
        for twin in twin_damage(directory, entry):
            yield SegmentReport(twin.path.rpartition("/")[2], 0, 0, 0, sealed=False, damage=(twin,))
        if entry.name == open_name:
            continue
        try:
            report = verify(directory, entry, newest=after is None, after=after)
        except FileNotFoundError:
            if entry.name in directory.list():  # otherwise it was removed meanwhile
                lost = CorruptionError(f"{directory.path}/{entry.name}", 0, NOT_THERE)
                yield SegmentReport(entry.name, 0, 0, 0, sealed=False, damage=(lost,))
            continue
        gap = entry.first_sequence - expected if expected is not None else 0
        expected = after.first_sequence if after else None
        try:
            segment = Segment.open(directory, entry.name)
            if segment.footer is not None:
                expected = segment.footer.last_sequence + 1
            segment.close()
        except (FileNotFoundError, CorruptionError):
            pass
        yield SegmentReport(
            report.name,
            report.bytes,
            report.records,
            report.frames,
            report.sealed,
            report.damage,
            max(0, gap),
        )


def install(
    directory: Directory,
    name: str,
    pieces: Iterable[Bytes],
    *,
    head: Callable[[], LogHead] | None = None,
    wait_seconds: float = limits.LOCK_SECONDS,
) -> SegmentReport:
    """Replace a damaged or missing segment by one fetched from a replica.

    The new segment is checked completely, and against its neighbours and the stored file, before it replaces
    it; the original is kept as `.broken`. `head` returns the end of an open log, and no segment is installed
    behind it. Without `head`, the caller holds the append lock, and the log continues behind the new segment.
    """
    parsed = names.parse_segment(name)
    if parsed is None:
        raise FormatError(f"{name} is not the name of a segment")
    with cleaning(directory, wait_seconds):
        temporary = name + names.TEMPORARY
        installed = False
        try:
            file = create_temporary(directory, temporary)
            try:
                at = 0
                for piece in pieces:
                    at += write_all(file, [piece], at, temporary)
                file.sync()
            finally:
                file.close()
            report = verify(directory, SegmentName(*parsed, temporary), newest=False)
            if report.damage:
                raise report.damage[0]
            if not report.sealed:
                raise FormatError(f"{name}: the received segment is not sealed")
            segment = Segment.open(directory, temporary)
            try:
                header = segment.header
                if names.segment_name(header.first_sequence, header.first_time) != name:
                    what = f"another segment, from sequence {header.first_sequence} on"
                    raise FormatError(f"{name}: the received segment is {what}")
                require_place(directory, SegmentName(*parsed, name), segment, head() if head else None)
            finally:
                segment.close()
            try:
                old = directory.open(name)
            except FileNotFoundError:
                pass
            else:
                try:
                    keep_broken(directory, name, old, 0)
                finally:
                    old.close()
            directory.rename(temporary, name)
            installed = True
        finally:
            if not installed:
                remove_temporary(directory, temporary)
        directory.sync()
    return replace(report, name=name)
