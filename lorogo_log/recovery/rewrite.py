"""Rewrites of a sealed segment: without some records, compressed, or without its bad frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from crc32c import crc32c

from lorogo_log.errors import CorruptionError
from lorogo_log.format.batch import Batch, EncodedFrame, encode, frame, pad
from lorogo_log.format.index import IndexBuilder
from lorogo_log.format.layout import KEPT, REWRITTEN, SEGMENT_HEADER_BYTES, ZSTD, padded
from lorogo_log.format.names import TEMPORARY
from lorogo_log.recovery.recovery import create_temporary, remove_temporary
from lorogo_log.storage.disk import Directory, File, write_all
from lorogo_log.storage.segment import FrameStop, NoFrame, Segment, digest_of, find_frame

Choose = Callable[[Batch], Batch | None]


def good_frames(segment: Segment, *, skip_bad: bool = False) -> Iterator[Batch]:
    """Yield every frame of a segment without a writer; at a bad frame raise, or skip to the next good one."""
    frames = segment.frames(end=segment.end)
    while True:
        found = frames.next()
        if isinstance(found, Batch):
            if not skip_bad or _has_columns(found):
                yield found
            continue
        if found.stop is FrameStop.TRAILER or found.position >= segment.end:
            return
        again = find_frame(segment, found.position)
        if again is None and segment.footer is None:
            return  # zeros or a torn tail
        if not skip_bad:
            raise damage_at(segment, found, again)
        if again is None:
            return
        frames.jump(again)


def _has_columns(batch: Batch) -> bool:
    """Return True if a frame with valid checksums has valid columns, too."""
    try:
        assert batch.columns is not None
    except CorruptionError:
        return False
    return True


def damage_at(segment: Segment, found: NoFrame, again: int | None) -> CorruptionError:
    """Return the error for a position where a frame is missing."""
    reason = found.reason or "zeros where a frame should be"
    return CorruptionError(segment.path, found.position, reason, again)


def rewrite(
    directory: Directory,
    segment: Segment,
    choose: Choose,
    *,
    last_sequence: int | None = None,
    compress: bool = False,
    skip_bad: bool = True,
) -> int:
    """Replace a segment by the batches that `choose` returns; return the number of records left.

    The range of sequences and offsets of the segment stays the same.
    """
    name = segment.name + TEMPORARY
    whole = False
    file = create_temporary(directory, name)
    try:
        records = _copy(
            file, name, segment, choose, last_sequence=last_sequence, compress=compress, skip_bad=skip_bad
        )
        whole = True
    finally:
        file.close()
        if not whole:
            remove_temporary(directory, name)
    directory.rename(name, segment.name)
    directory.sync()
    return records


def _copy(
    file: File,
    name: str,
    segment: Segment,
    choose: Choose,
    *,
    last_sequence: int | None,
    compress: bool,
    skip_bad: bool,
) -> int:
    header = replace(segment.header, flags=segment.header.flags | REWRITTEN)
    footer = segment.footer
    index = IndexBuilder(header.first_time)
    write_all(file, [header.pack()], 0, name)
    at, chain = SEGMENT_HEADER_BYTES, header.checksum
    end_offset, chain_out = header.first_offset, header.chain
    last = header.first_sequence - 1
    for batch in good_frames(segment, skip_bad=skip_bad):
        end_offset = batch.header.offset + batch.header.frame_bytes
        chain_out, last = batch.header.checksum, batch.header.last_sequence
        kept = choose(batch)
        if kept is None or (not len(kept) and batch.header.count):
            continue
        encoded = _encoded(batch, kept, chain, compress=compress)
        write_all(file, encoded.parts, at, name)
        rows = kept.columns
        index.add(at, encoded.header, {rows.key(row) for row in kept.chosen})
        at += encoded.header.frame_bytes
        chain = encoded.header.checksum
    file.sync()
    trailer = index.trailer()
    written = index.footer(
        header,
        trailer,
        position=at,
        last_sequence=footer.last_sequence if footer else max(last, last_sequence or 0),
        end_offset=footer.end_offset if footer else end_offset,
        chain_out=footer.chain_out if footer else chain_out,
        digest=digest_of(file, at),
        flags=KEPT,
    )
    if footer is not None:  # dropped records do not lower the log's time or epoch
        written = replace(
            written,
            high_time=max(index.high_time, footer.high_time),
            epoch=max(written.epoch, footer.epoch),
        )
    write_all(file, [trailer, written.pack()], at, name)
    file.sync()
    return index.records


def _encoded(batch: Batch, kept: Batch, chain: int, *, compress: bool) -> EncodedFrame:
    if len(kept) == batch.header.count:
        header, body = batch.header, batch.stored
        if compress and not header.flags & ZSTD and header.count:
            packed = compressed(bytes(body[: header.body_bytes]))
            if padded(len(packed)) < padded(header.body_bytes):
                stored = packed + pad(len(packed))
                header = header._replace(
                    flags=header.flags | ZSTD,
                    body_bytes=len(packed),
                    body_checksum=crc32c(stored),
                )
                return frame(stored, header._replace(chain=chain))
        return frame(body, header._replace(chain=chain))
    columns = kept.columns
    rows = kept.chosen
    return encode(
        [columns.key(row) for row in rows],
        [columns.value(row) for row in rows],
        [columns.times[row] for row in rows],
        first_sequence=columns.sequence(rows[0]),
        last_sequence=columns.sequence(rows[-1]),
        epoch=batch.header.epoch,
        offset=batch.header.offset,
        chain=chain,
        sequences=[columns.sequence(row) for row in rows],
    )


def compressed(body: bytes) -> bytes:
    """Compress a body with zstd, its content size recorded."""
    import zstandard  # noqa: PLC0415 - optional

    return zstandard.ZstdCompressor(level=3).compress(body)
