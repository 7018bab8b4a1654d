"""A segment that goes on: its frames copied whole into a new file, which then takes its name. May block.

Nothing is written into a segment that was found at open, and nobody sees a copy that is not whole: it has a
temporary name until it is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress

from lorogo_log import limits
from lorogo_log.core import BlockingLog
from lorogo_log.errors import CorruptionError, LogError
from lorogo_log.format import names
from lorogo_log.format.batch import Batch
from lorogo_log.format.layout import SEGMENT_HEADER_BYTES, Bytes
from lorogo_log.recovery.broken import create_temporary, remove_temporary
from lorogo_log.replication.replica_check import check_frame
from lorogo_log.replication.replica_rules import Piece
from lorogo_log.storage.disk import Directory, write_all
from lorogo_log.storage.segment import FrameStop, Segment
from lorogo_log.transfer.wire import PeerError, SegmentEntry
from lorogo_log.write.engine import LogHead, OpenSegment

#: Bytes of a segment there: (position, how many at most).
Read = Callable[[int, int], bytes]


def staged(directory: Directory, entry: SegmentEntry, read: Read) -> None:
    """The frames of another side's open segment, as many as it told of, in a `.part` file."""
    name = entry.name + names.PART
    with suppress(FileNotFoundError):
        directory.remove(name)
    file = directory.create(name)
    try:
        at = 0
        while at < entry.position:
            data = read(at, min(limits.READ_BYTES, entry.position - at))
            if not data:
                raise PeerError(f"{entry.name} is shorter there than was said")
            at += write_all(file, [data], at, name)
    finally:
        file.close()


def copied(
    directory: Directory, segment: Segment, name: str, end_offset: int, *, foreign: bool
) -> OpenSegment:
    """All frames of a segment in a temporary file, synced. Raises CorruptionError if they end elsewhere.

    Frames that came from elsewhere (`foreign`) must be such as a coordinator writes.
    """
    temporary = name + names.TEMPORARY
    header = segment.header
    with ExitStack() as undo:
        file = create_temporary(directory, temporary)
        undo.callback(remove_temporary, directory, temporary)
        undo.callback(file.close)
        copy = OpenSegment(file, temporary, 0)
        copy.header = header
        copy.index.high_time = header.first_time
        copy.last_sequence, epoch = header.first_sequence - 1, header.epoch
        frames = segment.frames(end=segment.end)
        at = write_all(file, [header.pack()], 0, temporary)
        while isinstance(found := frames.next(), Batch):
            frame = found.header
            raw: list[Bytes] = [frame.pack(), found.stored]
            if foreign:
                check_frame(Piece(frame, b"".join(raw)), copy.last_sequence + 1, epoch)
            at += write_all(file, raw, at, temporary)
            keys = found.columns.distinct_keys() if frame.count else set()
            copy.index.add(at - frame.frame_bytes, frame, keys)
            copy.frame_bytes = frame.frame_bytes
            copy.last_sequence, epoch = frame.last_sequence, frame.epoch
            copy.end_offset, copy.chain = frame.offset + frame.frame_bytes, frame.checksum
        if found.stop is FrameStop.BAD or copy.end_offset != end_offset or at == SEGMENT_HEADER_BYTES:
            raise CorruptionError(segment.path, found.position, found.reason or "frames are missing")
        copy.position = at
        copy.claim(at)
        file.sync()
        undo.pop_all()
    return copy


def go_on_in(core: BlockingLog, copy: OpenSegment, name: str) -> None:
    """The copy takes the name, and is what the writer writes to from now on. The head moves behind it."""
    try:
        done = core.writer.command(lambda: _go_on(core, copy, name))
    except LogError:
        unused(core.directory, copy)
        raise
    refused: OSError | None = done.result(limits.CLOSE_SECONDS)
    if refused is not None:
        unused(core.directory, copy)
        raise refused


def unused(directory: Directory, copy: OpenSegment) -> None:
    """A copy that nobody wants."""
    copy.file.close()
    remove_temporary(directory, copy.name)


def _go_on(core: BlockingLog, copy: OpenSegment, name: str) -> OSError | None:
    """On the writer's thread."""
    writer, engine = core.writer, core.writer.engine
    before = engine.active
    assert before.header is None
    try:
        core.directory.rename(copy.name, name)
    except OSError as error:
        return error  # nothing has changed
    copy.name = name
    engine.active = copy
    core.directory.sync()  # before a frame in it is acknowledged
    epoch = max(copy.index.epoch, engine.head.epoch)
    engine.head = LogHead(copy.last_sequence + 1, copy.end_offset, copy.chain, epoch, copy.index.high_time)
    writer.durable, writer.epoch = copy.last_sequence, epoch
    with suppress(OSError):  # zeros: the next open removes them
        engine.discard(before)
    return None
