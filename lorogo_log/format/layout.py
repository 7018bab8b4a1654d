"""Headers, frames and footers as bytes.

`docs/LOG_FORMAT.md` has the layout. Decoding returns a value or raises `ValueError` with the reason; the
caller adds the path and the position.
"""

import struct
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from crc32c import crc32c

SEGMENT_MAGIC: Final = b"\x89LRLOG\r\n"
FRAME_MAGIC: Final = b"LGFR"
TRAILER_MAGIC: Final = b"LGTRAIL1"
SEAL_MAGIC: Final = b"LGSEAL\r\n"
VERSION: Final = 1
CRC32C: Final = 1

SEGMENT_HEADER_BYTES: Final = 128
FRAME_HEADER_BYTES: Final = 80
FOOTER_BYTES: Final = 160
LOG_ID: Final = slice(56, 72)  # within a segment's header

REWRITTEN: Final = 1  # segment flag
SPARSE: Final = 1  # frame flags
ZSTD: Final = 2
KEPT: Final = 1  # footer flag
TIME_MIN: Final = -(1 << 63)

_SEGMENT = struct.Struct("<8sHBBIQqQQII16s52x")
_FRAME = struct.Struct("<4sHHQQqqQQIIIII")
_FOOTER = struct.Struct("<8sQQQQqqQIIQQQII16s16xIq8x")
#: Magic, then the fields of `FrameHeader`; the checksum covers the zeros at 6.
FRAME_FIELDS: Final = struct.Struct("<4sH2xQQqqQQIIIIII")
_CRC = struct.Struct("<I")
assert _SEGMENT.size == SEGMENT_HEADER_BYTES - 4
assert _FRAME.size == FRAME_HEADER_BYTES - 4
assert FRAME_FIELDS.size == FRAME_HEADER_BYTES
assert _FOOTER.size == FOOTER_BYTES - 4

Bytes = bytes | bytearray | memoryview


class NewerVersion(ValueError):
    """A newer lorogo wrote this, or the checksum kind is unknown."""


def padded(size: int) -> int:
    """Round up to a multiple of 8."""
    return (size + 7) & ~7


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The first 128 bytes of a segment."""

    first_sequence: int
    first_time: int
    epoch: int
    first_offset: int
    partition: int
    chain: int
    log_id: bytes
    flags: int = 0

    def pack(self) -> bytes:
        head = _SEGMENT.pack(
            SEGMENT_MAGIC,
            VERSION,
            CRC32C,
            self.flags,
            SEGMENT_HEADER_BYTES,
            self.first_sequence,
            self.first_time,
            self.epoch,
            self.first_offset,
            self.partition,
            self.chain,
            self.log_id,
        )
        return head + _CRC.pack(crc32c(head))

    @property
    def checksum(self) -> int:
        """The checksum to which the first frame is chained."""
        return header_checksum(self.pack())


def header_checksum(packed: Bytes) -> int:
    """Return the checksum at the end of a packed header."""
    return int.from_bytes(packed[-4:], "little")


def unpack_segment_header(data: Bytes) -> SegmentHeader:
    """Decode and check a segment header. Raises `NewerVersion` for a header of a newer lorogo."""
    if len(data) < SEGMENT_HEADER_BYTES:
        raise ValueError("the segment header is cut short")
    if data[:8] != SEGMENT_MAGIC:
        raise ValueError("wrong magic: not a segment of a lorogo log")
    version, kind = struct.unpack_from("<HB", data, 8)
    checked = crc32c(data[:124]) == int.from_bytes(data[124:128], "little")
    if version != VERSION and checked:
        raise NewerVersion(f"format version {version}, this program reads version {VERSION}")
    if kind != CRC32C and checked:
        raise NewerVersion(f"checksum kind {kind} is not known to this program")
    if not checked:
        raise ValueError("the segment header does not match its checksum")
    fields = _SEGMENT.unpack_from(data)
    _, _, _, flags, size, first, time, epoch, offset, partition, chain, log_id = fields
    if size != SEGMENT_HEADER_BYTES:
        raise ValueError(f"the segment header has the size {size}")
    return SegmentHeader(first, time, epoch, offset, partition, chain, log_id, flags)


class FrameHeader(NamedTuple):
    """The first 80 bytes of a batch frame."""

    flags: int
    first_sequence: int
    last_sequence: int
    first_time: int
    last_time: int
    epoch: int
    offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    body_bytes: int
    raw_bytes: int
    body_checksum: int
    chain: int
    checksum: int = 0

    @property
    def frame_bytes(self) -> int:
        """Header, body and padding."""
        return FRAME_HEADER_BYTES + ((self.body_bytes + 7) & ~7)

    def pack(self) -> bytes:
        """Encode the header; its `checksum` field is computed."""
        head = _FRAME.pack(FRAME_MAGIC, self.flags, 0, *self[1:12])
        return head + _CRC.pack(crc32c(head))


def unpack_frame_header(data: Bytes, at: int = 0) -> FrameHeader:
    """Decode a frame header and verify its checksum, without which its lengths mean nothing."""
    end = at + FRAME_HEADER_BYTES - 4
    if len(data) < end + 4:
        raise ValueError("the frame header is cut short")
    fields = FRAME_FIELDS.unpack_from(data, at)
    if fields[0] != FRAME_MAGIC:
        raise ValueError("no frame begins here (wrong magic)")
    if crc32c(data[at:end]) != fields[-1]:
        raise ValueError("the frame header does not match its checksum")
    return frame_header(fields)


def frame_header(fields: tuple[Any, ...]) -> FrameHeader:
    """Return a header of `FRAME_FIELDS` (`_make` takes as long as the checksum)."""
    return tuple.__new__(FrameHeader, fields[1:])


@dataclass(frozen=True, slots=True)
class Footer:
    """The last 160 bytes of a sealed segment."""

    trailer_position: int
    trailer_bytes: int
    first_sequence: int
    last_sequence: int
    first_time: int
    last_time: int
    records: int
    frames: int
    blocks: int
    postings: int
    epoch: int
    end_offset: int
    chain_out: int
    flags: int
    digest: bytes
    trailer_checksum: int
    high_time: int

    def pack(self) -> bytes:
        head = _FOOTER.pack(
            SEAL_MAGIC,
            self.trailer_position,
            self.trailer_bytes,
            self.first_sequence,
            self.last_sequence,
            self.first_time,
            self.last_time,
            self.records,
            self.frames,
            self.blocks,
            self.postings,
            self.epoch,
            self.end_offset,
            self.chain_out,
            self.flags,
            self.digest,
            self.trailer_checksum,
            self.high_time,
        )
        return head + _CRC.pack(crc32c(head))


def unpack_footer(data: Bytes, file_bytes: int) -> Footer:
    """Decode and check the footer of a sealed segment of that size."""
    if len(data) != FOOTER_BYTES or data[:8] != SEAL_MAGIC:
        raise ValueError("not sealed")
    if crc32c(data[: FOOTER_BYTES - 4]) != header_checksum(data):
        raise ValueError("the footer does not match its checksum")
    footer = Footer(*_FOOTER.unpack_from(data)[1:])
    if footer.trailer_position + footer.trailer_bytes + FOOTER_BYTES != file_bytes:
        raise ValueError("the footer belongs to a file of another size")
    return footer
