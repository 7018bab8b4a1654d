"""What comes from a peer is proven before it is kept: frames, whole segments, and their place among ours."""

from __future__ import annotations

from lorogo_log.core import BlockingLog
from lorogo_log.errors import CorruptionError, LogError, StaleEpochError
from lorogo_log.format import names
from lorogo_log.format.batch import Batch, EncodedFrame, body_matches
from lorogo_log.format.layout import FRAME_HEADER_BYTES, REWRITTEN, Footer, SegmentHeader
from lorogo_log.recovery.recovery import keep_broken, list_segments
from lorogo_log.recovery.sealed_segments import cleaning
from lorogo_log.replication.replica_rules import Piece
from lorogo_log.storage.disk import Directory
from lorogo_log.storage.segment import FrameStop, Segment, digest_of, find_frame, read_footer
from lorogo_log.transfer.wire import EPOCH_MAX, SEQUENCE_MAX, PeerError, SegmentEntry

#: The reason when a segment is good and holds less than the coordinator's.
HOLDS_LESS = "the coordinator has more of it"


class DivergedError(PeerError):
    """What is here and what came do not belong to the same history: compare the segments again."""


class ConflictError(LogError):
    """This replica holds to another coordinator, or to more than this one has: nothing is thrown away."""


def check_frame(piece: Piece, expected: int, epoch: int) -> tuple[EncodedFrame, set[bytes]]:
    """A coordinator's frame, proven to be one that it can have written next. Raises PeerError."""
    frame = piece.frame
    if frame.epoch < epoch:
        raise StaleEpochError(f"a frame of epoch {frame.epoch} behind one of epoch {epoch}")
    if frame.first_sequence != expected:
        raise DivergedError(f"a frame that begins with sequence {frame.first_sequence}, not {expected}")
    if frame.flags or frame.raw_bytes != frame.body_bytes or frame.epoch > EPOCH_MAX:
        raise PeerError(f"the frame at log offset {frame.offset} is none that a coordinator writes")
    if frame.last_sequence != frame.first_sequence + frame.count - 1 or frame.last_sequence > SEQUENCE_MAX:
        raise PeerError(
            f"the frame at log offset {frame.offset} says that its {frame.count} records end with sequence"
            f" {frame.last_sequence}"
        )
    if not body_matches(frame, piece.raw, 0):
        raise PeerError(f"the frame at log offset {frame.offset} does not match its checksum")
    view = memoryview(piece.raw)
    stored = view[FRAME_HEADER_BYTES:]
    return EncodedFrame((view[:FRAME_HEADER_BYTES], stored), frame), _keys(Batch(frame, stored))


def _keys(batch: Batch) -> set[bytes]:
    """The keys of a frame whose columns are all there. Raises PeerError."""
    count, where = batch.header.count, batch.header.offset
    if not count:
        if batch.header.body_bytes:
            raise PeerError(f"the frame at log offset {where} has a body and no records")
        return set()
    try:
        columns = batch.columns
        offsets = (columns.key_offsets.tolist(), columns.value_offsets.tolist())
        whole = len(columns.times) == count and all(
            len(one) == count + 1 and one[0] == 0 and one == sorted(one) for one in offsets
        )
        keys = columns.distinct_keys()
    except Exception as error:  # noqa: BLE001 - whatever a forged body breaks, it is the peer's fault
        raise PeerError(f"the frame at log offset {where} has bad columns: {error}") from None
    if not whole:
        raise PeerError(f"the frame at log offset {where} has bad columns")
    return keys


def verify_part(directory: Directory, entry: SegmentEntry, core: BlockingLog | None = None) -> SegmentHeader:
    """Check a fetched file (header, hash, trailer, footer, every frame): it is what was asked for. Synced."""
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
        elif core is not None and header.log_id != core.writer.engine.log_id:
            wrong = "it belongs to another log"
        elif digest_of(segment.file, footer.trailer_position) != footer.digest:
            wrong = "it does not match its hash"
        elif core is not None:
            wrong = _walk(segment, footer)
        if wrong:
            raise CorruptionError(segment.path, 0, f"what was fetched is not the segment: {wrong}")
        return header
    finally:
        segment.close()


def _walk(segment: Segment, footer: Footer) -> str:
    """Read every frame of a sealed segment; what is wrong with them."""
    header = segment.header
    rewritten = bool(header.flags & REWRITTEN)
    expected, records, end, chain = header.first_sequence, 0, header.first_offset, header.checksum
    frames = segment.frames(end=footer.trailer_position)
    while isinstance(batch := frames.next(), Batch):
        frame = batch.header
        dense = frame.last_sequence == frame.first_sequence + frame.count - 1
        if frame.first_sequence < expected or not (rewritten or (dense and frame.first_sequence == expected)):
            return (
                f"a frame with sequences {frame.first_sequence} to {frame.last_sequence}, not {expected} on"
            )
        try:
            _keys(batch)
        except PeerError as error:
            return str(error)
        expected, records = frame.last_sequence + 1, records + frame.count
        end, chain = frame.offset + frame.frame_bytes, frame.checksum
    if batch.position != footer.trailer_position or records != footer.records:
        return batch.reason or "frames are missing"
    if not rewritten and (
        (end, chain) != (footer.end_offset, footer.chain_out)
        or max(expected - 1, header.first_sequence) != footer.last_sequence
    ):
        return "its footer says something else than its frames"
    return "" if expected - 1 <= footer.last_sequence else "its footer names a sequence before its last"


def repair_install(core: BlockingLog, entry: SegmentEntry) -> str | None:
    """Put a fetched segment in place of a damaged or missing one; the `.broken` copy of the original.

    Never a shorter one, and never other records than those that are known to be good here.
    """
    directory = core.directory
    header = verify_part(directory, entry, core)
    _require_place(core, entry, header)
    broken = keep_replaced(core, entry, always=True)
    with cleaning(directory):
        directory.rename(entry.name + names.PART, entry.name)
        directory.sync()
    core.forget_damage(entry.name)
    return broken


def _require_place(core: BlockingLog, entry: SegmentEntry, header: SegmentHeader) -> None:
    """The copy fits between its neighbours and reaches as far as the original did. Raises DivergedError."""
    directory = core.directory
    listing = list_segments(directory)
    before = [place for place in listing if place.first_sequence < entry.first_sequence]
    after = [place for place in listing if place.first_sequence > entry.first_sequence]
    proven = False
    footer = footer_of(directory, before[-1].name) if before else None
    if footer is not None and (
        footer.last_sequence >= header.first_sequence
        or (footer.end_offset == header.first_offset and footer.chain_out != header.chain)
    ):
        raise DivergedError(f"{entry.name} of the other side does not follow {before[-1].name}")
    if after:
        if entry.last_sequence >= after[0].first_sequence:
            raise DivergedError(f"{entry.name} of the other side overlaps {after[0].name}")
        following = _header(directory, after[0].name)
        if following is not None and following.first_sequence == entry.last_sequence + 1:
            # (one begun while this one was damaged may leave room for what stood there)
            if following.first_offset < entry.end_offset or following.chain != entry.chain:
                raise DivergedError(f"{entry.name} of the other side does not lead to {after[0].name}")
            proven = True
    elif entry.last_sequence + 1 > core.writer.engine.head.next_sequence:
        raise DivergedError(f"{entry.name} of the other side has sequences that may be given again here")
    else:
        proven = entry.last_sequence + 1 == core.writer.engine.head.next_sequence
    original = footer_of(directory, entry.name)
    if original is not None:
        same = (original.end_offset, original.chain_out) == (entry.end_offset, entry.chain)
        shorter = original.end_offset < entry.end_offset and original.last_sequence <= entry.last_sequence
        if not same and not shorter:
            raise DivergedError(f"{entry.name} of the other side ends elsewhere than the one here did")
        proven |= same  # one that was sealed too early here: the segment after it must vouch for the copy
    missing = entry.name not in directory.list()
    if not proven and not missing:
        raise DivergedError(f"{entry.name} of the other side cannot be shown to be whole")


def footer_of(directory: Directory, name: str) -> Footer | None:
    """A segment's footer, if it has one that checks."""
    try:
        file = directory.open(name)
    except FileNotFoundError:
        return None
    try:
        return read_footer(file)
    finally:
        file.close()


def _header(directory: Directory, name: str) -> SegmentHeader | None:
    """A segment's header, if it checks."""
    try:
        segment = Segment.open(directory, name)
    except (CorruptionError, FileNotFoundError):
        return None
    segment.close()
    return segment.header if segment.damage is None else None


def keep_replaced(core: BlockingLog, entry: SegmentEntry, *, always: bool = False) -> str | None:
    """Before a fetched segment takes its name: what stands there is its beginning, or gets a `.broken` copy.

    Raises DivergedError if a good frame here is another one there: those are not replaced silently.
    """
    directory = core.directory
    try:
        old = Segment.open(directory, entry.name)
    except FileNotFoundError:
        return None
    except CorruptionError:
        file = directory.open(entry.name)
        try:
            return keep_broken(directory, entry.name, file, 0)
        finally:
            file.close()
    new = Segment.open(directory, entry.name + names.PART)
    try:
        damaged = old.damage is not None
        if not (old.header.flags | new.header.flags) & REWRITTEN:
            damaged |= _differs(old, new)
        if always or damaged or (old.header.flags ^ new.header.flags) & REWRITTEN:
            return keep_broken(directory, entry.name, old.file, 0)
        return None
    finally:
        old.close()
        new.close()


def _differs(old: Segment, new: Segment) -> bool:
    """Whether the old file has damage; raises DivergedError if a good frame of it is not in the new one."""
    frames = old.frames(end=old.end)
    damaged = False
    while True:
        found = frames.next()
        if isinstance(found, Batch):
            packed = found.header.pack()
            if new.file.pread(len(packed), found.position) != packed:
                raise DivergedError(f"{old.name} of the other side has another frame at {found.position}")
            continue
        if found.stop is not FrameStop.BAD:
            return damaged
        damaged = True
        again = find_frame(old, found.position)
        if again is None:
            return damaged
        frames.jump(again)
