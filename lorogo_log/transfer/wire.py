"""Messages between processes about a log, packed and unpacked.

The framing is that of the log: a header with its own checksum, so that a length is used only after
verification, and a checksum over the padded body. `docs/LOG_REPLICATION.md` has the layout. No sockets here.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple

from crc32c import crc32c

from lorogo_log import limits
from lorogo_log.errors import LogError
from lorogo_log.format.batch import Record, pad
from lorogo_log.format.layout import Bytes, padded
from lorogo_log.format.names import segment_name

MAGIC: Final = b"LGWR"
VERSION: Final = 1
HEADER_BYTES: Final = 32
#: Larger frames are not streamed: the replica fetches them with their segment.
STREAM_BYTES_MAX: Final = 16 << 20
#: A larger record is not forwarded: fetch its segment.
RECORD_BYTES_MAX: Final = 64 << 20
#: Entries in one response about segments; further requests get the rest.
ENTRIES_MAX: Final = 4096
#: Upper bound of a peer's segments of one log.
CATALOG_MAX: Final = 1 << 18
#: Higher epochs and sequences are rejected: none is reachable by counting.
EPOCH_MAX: Final = limits.EPOCH_MAX
SEQUENCE_MAX: Final = 1 << 62
NONCE_BYTES: Final = 32
#: Bytes of a segment in one response.
FETCH_BYTES_MAX: Final = 1 << 40
NAME_BYTES_MAX: Final = 128
TEXT_BYTES_MAX: Final = 1024

_HEADER = struct.Struct("<4sBBHQII4x")
_CRC = struct.Struct("<I")
assert _HEADER.size == HEADER_BYTES - 4


class PeerError(LogError):
    """The peer broke the protocol: its connection is closed, and its data discarded."""


class WireRefusal(IntEnum):
    """Reasons of a refused request."""

    WRONG_LOG = 1
    STALE_EPOCH = 2
    NOT_FOUND = 3
    BUSY = 4
    BAD_REQUEST = 5
    STOPPED = 6
    DAMAGED = 7
    CONFLICT = 8
    SECRET = 9


class RefusedError(LogError):
    """The peer refused the request, with a reason."""

    def __init__(self, reason: WireRefusal, text: str) -> None:
        super().__init__(f"refused ({reason.name.lower().replace('_', ' ')}): {text}")
        self.reason = reason


class WireKind(IntEnum):
    """Kinds of messages."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    CATALOG = 4
    SEGMENTS = 5
    FETCH = 6
    DATA = 7
    LOOKUP = 8
    RECORD = 9
    FRAMES = 10
    HEAD = 11
    ACK = 12
    CHALLENGE = 13
    PROOF = 14


class Purpose(IntEnum):
    """Purposes of a connection."""

    FETCH = 1
    FOLLOW = 2


class Header(NamedTuple):
    """The first 32 bytes of a message."""

    kind: WireKind
    number: int
    body_bytes: int
    body_checksum: int

    @property
    def stored_bytes(self) -> int:
        """The size of the body with its padding."""
        return padded(self.body_bytes)


def pack(kind: WireKind, body: Bytes = b"", number: int = 0) -> bytes:
    """Return a whole message."""
    stored = bytes(body) + pad(len(body))
    head = _HEADER.pack(MAGIC, VERSION, kind, 0, number, len(body), crc32c(stored))
    return head + _CRC.pack(crc32c(head)) + stored


def unpack_header(data: Bytes) -> Header:
    """Decode and check a message's header; its length is within the bounds of its kind."""
    if len(data) != HEADER_BYTES:
        raise PeerError("the message header is cut short")
    magic, version, kind, flags, number, size, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise PeerError("wrong magic: the peer does not use lorogo's replication protocol")
    if crc32c(data[: HEADER_BYTES - 4]) != int.from_bytes(data[-4:], "little"):
        raise PeerError("the message header does not match its checksum")
    if version != VERSION:
        raise PeerError(f"protocol version {version}, this program uses {VERSION}")
    if flags:
        raise PeerError(f"unknown flags {flags:#x} in a message")
    try:
        known = WireKind(kind)
    except ValueError:
        raise PeerError(f"unknown message kind {kind}") from None
    least, most = _BODY_BYTES[known]
    if not least <= size <= most:
        raise PeerError(f"a {known.name} message of {size} bytes, not {least} to {most}")
    return Header(known, number, size, checksum)


def check_body(header: Header, stored: Bytes) -> memoryview:
    """Return the body without its padding."""
    if len(stored) != header.stored_bytes or crc32c(stored) != header.body_checksum:
        raise PeerError(f"the body of a {header.kind.name} message does not match its checksum")
    return memoryview(stored)[: header.body_bytes]


def _text(data: Bytes) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise PeerError("text that is not UTF-8") from None


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a client: its identity, its purpose, and the end of its log."""

    purpose: Purpose
    #: zeros: a new replica, which adopts the log's id
    log_id: bytes = bytes(16)
    replica_id: bytes = bytes(16)
    partition: int = 0
    epoch: int = 0
    next_sequence: int = 0
    end_offset: int = 0
    #: port at which this side serves segments; 0: none
    port: int = 0
    name: str = ""
    #: the opening of a log to which that epoch was promised; zeros: none, or unknown
    incarnation: bytes = bytes(16)
    nonce: bytes = bytes(NONCE_BYTES)

    kind: ClassVar = WireKind.HELLO
    layout: ClassVar = struct.Struct("<B3xI16s16sQQQHH4x16s32s")

    def pack(self) -> bytes:
        name = self.name.encode()[:NAME_BYTES_MAX]
        fields = (self.purpose, self.partition, self.log_id, self.replica_id, self.epoch)
        stand = (self.next_sequence, self.end_offset, self.port, len(name))
        return self.layout.pack(*fields, *stand, self.incarnation, self.nonce) + name

    @classmethod
    def unpack(cls, body: Bytes) -> Hello:
        fields = cls.layout.unpack_from(body)
        purpose, partition, log_id, replica_id, epoch, next_sequence, end_offset, port, size, *ids = fields
        name = body[cls.layout.size :]
        if len(name) != size:
            raise PeerError("the HELLO has a wrong length")
        try:
            known = Purpose(purpose)
        except ValueError:
            raise PeerError(f"unknown purpose {purpose}") from None
        stand = (epoch, next_sequence, end_offset, port)
        return cls(known, log_id, replica_id, partition, *stand, _text(name), *ids)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The response to HELLO: the identity of the log and of its writer."""

    log_id: bytes
    partition: int
    epoch: int
    next_sequence: int
    end_offset: int
    segment_bytes: int
    #: epoch and end of the log at its opening
    prior_epoch: int = 0
    prior_offset: int = 0
    #: the id of this opening, and of its directory (the same over restarts)
    incarnation: bytes = bytes(16)
    node: bytes = bytes(16)

    kind: ClassVar = WireKind.WELCOME
    layout: ClassVar = struct.Struct("<16sI4xQQQQQQ16s16s")

    def pack(self) -> bytes:
        rest = (self.epoch, self.next_sequence, self.end_offset, self.segment_bytes)
        prior = (self.prior_epoch, self.prior_offset)
        return self.layout.pack(self.log_id, self.partition, *rest, *prior, self.incarnation, self.node)

    @classmethod
    def unpack(cls, body: Bytes) -> Welcome:
        return cls(*cls.layout.unpack(body))


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A refusal with its reason."""

    reason: WireRefusal
    text: str

    kind: ClassVar = WireKind.REFUSED

    def pack(self) -> bytes:
        return bytes((self.reason,)) + self.text.encode()[: TEXT_BYTES_MAX - 1]

    @classmethod
    def unpack(cls, body: Bytes) -> RefusedMessage:
        try:
            reason = WireRefusal(body[0])
        except ValueError:
            raise PeerError(f"unknown reason {body[0]}") from None
        return cls(reason, bytes(body[1:]).decode(errors="replace"))

    @property
    def error(self) -> RefusedError:
        return RefusedError(self.reason, self.text)


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """One segment of one side, with the facts that show whether both sides have the same history."""

    first_sequence: int
    first_time: int
    first_offset: int
    last_sequence: int
    end_offset: int
    #: position behind the last frame, and file size (0 while it is open)
    position: int
    size: int
    epoch: int
    header_checksum: int
    #: chain value behind the last frame
    chain: int
    sealed: bool
    rewritten: bool
    digest: bytes = bytes(16)
    #: damaged: this side cannot serve it until it is repaired
    damaged: bool = False
    #: chain value before the first frame: that behind the last frame of the previous segment
    chain_before: int = 0
    #: number of its records (0 while it is open)
    records: int = 0

    layout: ClassVar = struct.Struct("<QqQQQQQQIIB3xI16sQ")

    @property
    def name(self) -> str:
        """The file's name."""
        return segment_name(self.first_sequence, self.first_time)

    def pack(self) -> bytes:
        return self.layout.pack(
            self.first_sequence,
            self.first_time,
            self.first_offset,
            self.last_sequence,
            self.end_offset,
            self.position,
            self.size,
            self.epoch,
            self.header_checksum,
            self.chain,
            self.sealed | self.rewritten << 1 | self.damaged << 2,
            self.chain_before,
            self.digest,
            self.records,
        )

    @classmethod
    def unpack(cls, body: Bytes, at: int = 0) -> SegmentEntry:
        first, time, offset, last, end, *rest = cls.layout.unpack_from(body, at)
        position, size, epoch, checksum, chain, flags, before, digest, records = rest
        sealed, rewritten, damaged = bool(flags & 1), bool(flags & 2), bool(flags & 4)
        ends = (first, time, offset, last, end, position, size, epoch, checksum, chain)
        return cls(*ends, sealed, rewritten, digest, damaged, before, records)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Requests the segments that end behind a log offset."""

    from_offset: int = 0

    kind: ClassVar = WireKind.CATALOG
    layout: ClassVar = struct.Struct("<Q")

    def pack(self) -> bytes:
        return self.layout.pack(self.from_offset)

    @classmethod
    def unpack(cls, body: Bytes) -> Catalog:
        return cls(*cls.layout.unpack(body))


@dataclass(frozen=True, slots=True)
class SegmentList:
    """Segments in order; `more` if further ones follow."""

    entries: tuple[SegmentEntry, ...]
    more: bool = False

    kind: ClassVar = WireKind.SEGMENTS
    layout: ClassVar = struct.Struct("<II")

    def pack(self) -> bytes:
        return self.layout.pack(len(self.entries), self.more) + b"".join(e.pack() for e in self.entries)

    @classmethod
    def unpack(cls, body: Bytes) -> SegmentList:
        count, more = cls.layout.unpack_from(body)
        if len(body) != cls.layout.size + count * SegmentEntry.layout.size:
            raise PeerError("the SEGMENTS message has a wrong length")
        at = range(cls.layout.size, len(body), SegmentEntry.layout.size)
        return cls(tuple(SegmentEntry.unpack(body, place) for place in at), bool(more))


@dataclass(frozen=True, slots=True)
class Fetch:
    """Requests bytes of a segment's file."""

    first_sequence: int
    first_time: int
    position: int
    size: int

    kind: ClassVar = WireKind.FETCH
    layout: ClassVar = struct.Struct("<QqQQ")

    def pack(self) -> bytes:
        return self.layout.pack(self.first_sequence, self.first_time, self.position, self.size)

    @classmethod
    def unpack(cls, body: Bytes) -> Fetch:
        return cls(*cls.layout.unpack(body))


@dataclass(frozen=True, slots=True)
class Data:
    """Announces bytes of a file, which follow unframed (they have their own checksums)."""

    position: int
    size: int

    kind: ClassVar = WireKind.DATA
    layout: ClassVar = struct.Struct("<QQ")

    def pack(self) -> bytes:
        return self.layout.pack(self.position, self.size)

    @classmethod
    def unpack(cls, body: Bytes) -> Data:
        return cls(*cls.layout.unpack(body))


@dataclass(frozen=True, slots=True)
class Lookup:
    """Requests one record."""

    sequence: int

    kind: ClassVar = WireKind.LOOKUP
    layout: ClassVar = struct.Struct("<Q")

    def pack(self) -> bytes:
        return self.layout.pack(self.sequence)

    @classmethod
    def unpack(cls, body: Bytes) -> Lookup:
        return cls(*cls.layout.unpack(body))


_RECORD = struct.Struct("<QqI4x")


def pack_record(record: Record) -> bytes:
    """Return the body of a RECORD message."""
    head = _RECORD.pack(record.sequence, record.time, len(record.key))
    return b"".join((head, record.key, record.payload))


def unpack_record(body: Bytes) -> Record:
    """Decode the record of a RECORD message."""
    sequence, time, size = _RECORD.unpack_from(body)
    if _RECORD.size + size > len(body):
        raise PeerError("the RECORD has a wrong length")
    rest = bytes(body[_RECORD.size :])
    return Record(sequence, time, rest[:size], rest[size:])


@dataclass(frozen=True, slots=True)
class HeadMessage:
    """The end of the coordinator's durable log. Sent every second, and in place of skipped frames."""

    next_sequence: int
    end_offset: int
    epoch: int

    kind: ClassVar = WireKind.HEAD
    layout: ClassVar = struct.Struct("<QQQ")

    def pack(self) -> bytes:
        return self.layout.pack(self.next_sequence, self.end_offset, self.epoch)

    @classmethod
    def unpack(cls, body: Bytes) -> HeadMessage:
        return cls(*cls.layout.unpack(body))


@dataclass(frozen=True, slots=True)
class ReplicaAck:
    """The durable end of a replica, verified to be the coordinator's. `caught_up`: frames need no fetch.

    `waiting`: it has a gap that neither side can fill now; `sequence` is before the gap.
    """

    sequence: int
    end_offset: int
    epoch: int
    caught_up: bool
    waiting: bool = False

    kind: ClassVar = WireKind.ACK
    layout: ClassVar = struct.Struct("<QQQQ")

    def pack(self) -> bytes:
        return self.layout.pack(
            self.sequence, self.end_offset, self.epoch, self.caught_up | self.waiting << 1
        )

    @classmethod
    def unpack(cls, body: Bytes) -> ReplicaAck:
        sequence, end_offset, epoch, state = cls.layout.unpack(body)
        return cls(sequence, end_offset, epoch, bool(state & 1), bool(state & 2))


@dataclass(frozen=True, slots=True)
class Challenge:
    """The response to HELLO of a server with a secret: proves the secret, and requests the same."""

    nonce: bytes
    proof: bytes

    kind: ClassVar = WireKind.CHALLENGE
    layout: ClassVar = struct.Struct("<32s32s")

    def pack(self) -> bytes:
        return self.layout.pack(self.nonce, self.proof)

    @classmethod
    def unpack(cls, body: Bytes) -> Challenge:
        return cls(*cls.layout.unpack(body))


@dataclass(frozen=True, slots=True)
class Proof:
    """The response to CHALLENGE."""

    proof: bytes

    kind: ClassVar = WireKind.PROOF
    layout: ClassVar = struct.Struct("<32s")

    def pack(self) -> bytes:
        return self.layout.pack(self.proof)

    @classmethod
    def unpack(cls, body: Bytes) -> Proof:
        return cls(*cls.layout.unpack(body))


def proof_of(secret: bytes, side: bytes, hello: Hello, nonce: bytes) -> bytes:
    """Return the proof of the secret, over both nonces and all of HELLO, distinct for each side."""
    return hmac.digest(secret, side + nonce + hello.pack(), "sha256")


Message = (
    Hello
    | Welcome
    | RefusedMessage
    | Catalog
    | SegmentList
    | Fetch
    | Data
    | Lookup
    | HeadMessage
    | ReplicaAck
    | Challenge
    | Proof
)  # RECORD and FRAMES have variable bodies

_CLASSES: Final[dict[WireKind, type[Message]]] = {
    cls.kind: cls
    for cls in (
        Hello, Welcome, RefusedMessage, Catalog, SegmentList, Fetch, Data, Lookup, HeadMessage, ReplicaAck,
        Challenge, Proof,
    )
}  # fmt: skip


def message(value: Message, number: int = 0) -> bytes:
    """Return a message of one of the fixed kinds, ready to be sent."""
    return pack(value.kind, value.pack(), number)


def unpack(header: Header, body: Bytes) -> Message:
    """Decode a message of one of the fixed kinds from its verified body."""
    return _CLASSES[header.kind].unpack(body)


def _fixed(
    cls: type[Welcome | Catalog | Fetch | Data | Lookup | HeadMessage | ReplicaAck | Challenge | Proof],
) -> tuple[int, int]:
    return cls.layout.size, cls.layout.size


_BODY_BYTES: Final[dict[WireKind, tuple[int, int]]] = {
    WireKind.HELLO: (Hello.layout.size, Hello.layout.size + NAME_BYTES_MAX),
    WireKind.WELCOME: _fixed(Welcome),
    WireKind.REFUSED: (1, TEXT_BYTES_MAX),
    WireKind.CATALOG: _fixed(Catalog),
    WireKind.SEGMENTS: (
        SegmentList.layout.size,
        SegmentList.layout.size + ENTRIES_MAX * SegmentEntry.layout.size,
    ),
    WireKind.FETCH: _fixed(Fetch),
    WireKind.DATA: _fixed(Data),
    WireKind.LOOKUP: _fixed(Lookup),
    WireKind.RECORD: (_RECORD.size, RECORD_BYTES_MAX),
    WireKind.FRAMES: (80, STREAM_BYTES_MAX),
    WireKind.HEAD: _fixed(HeadMessage),
    WireKind.ACK: _fixed(ReplicaAck),
    WireKind.CHALLENGE: _fixed(Challenge),
    WireKind.PROOF: _fixed(Proof),
}
