"""One frame of the loro-protocol, version 1: a binary WebSocket message.

    magic (4) │ room id (varBytes, up to 128) │ type (1) │ fields by type

    | 0 JoinRequest    | auth varBytes, version varBytes
    | 1 JoinOk         | permission varString, version varBytes, extra varBytes
    | 2 JoinError      | code (1), message varString, then the version (code 1) or the app's code (127)
    | 3 DocUpdate      | N uleb128, N varBytes, batch id (8)
    | 4 FragmentHeader | batch id (8), count uleb128, total bytes uleb128
    | 5 Fragment       | batch id (8), index uleb128, varBytes
    | 6 RoomError      | code (1), message varString
    | 7 Leave          |
    | 8 Ack            | batch id (8), status (1)

A uleb128 has at most five bytes and must have its shortest encoding. Nothing follows the last field. A frame
has at most 256 KiB. `decode` raises MalformedFrame and nothing else. Unknown codes decode as UNKNOWN.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final, assert_never

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.limits import KIB

FRAME_BYTES_MAX: Final = 256 * KIB
ROOM_ID_BYTES_MAX: Final = 128
BATCH_ID_BYTES: Final = 8
_ULEB_MAX: Final = (1 << 32) - 1


class MalformedFrame(LorogoError):
    """The bytes are not a frame of the loro-protocol: a fault of the sender."""

    code = "malformed-frame"


class Crdt(StrEnum):
    """The kind of a room: the first four bytes of its frames."""

    LORO = "%LOR"
    EPHEMERAL = "%EPH"
    PERSISTED = "%EPS"
    YJS = "%YJS"
    YJS_AWARENESS = "%YAW"
    ELO = "%ELO"
    FLOCK = "%FLO"


class JoinErrorCode(IntEnum):
    """The reason of a refused join."""

    UNKNOWN = 0
    VERSION_UNKNOWN = 1
    AUTH_FAILED = 2
    APP_ERROR = 127


class RoomErrorCode(IntEnum):
    """The reason of a RoomError."""

    REJOIN_SUGGESTED = 1
    EVICTED = 2
    UNKNOWN = 127


class Status(IntEnum):
    """The result of a batch."""

    OK = 0
    UNKNOWN = 1
    PERMISSION_DENIED = 3
    INVALID_UPDATE = 4
    PAYLOAD_TOO_LARGE = 5
    RATE_LIMITED = 6
    FRAGMENT_TIMEOUT = 7
    APP_ERROR = 127


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A client's request to join a room; `version` is the version that it has."""

    crdt: Crdt
    room: str
    auth: bytes
    version: bytes


@dataclass(frozen=True, slots=True)
class JoinOk:
    """The join succeeded; `version` is the server's version."""

    crdt: Crdt
    room: str
    permission: str  # read or write
    version: bytes
    extra: bytes = b""


@dataclass(frozen=True, slots=True)
class JoinError:
    """The join was refused."""

    crdt: Crdt
    room: str
    error: JoinErrorCode
    message: str
    version: bytes | None = None  # with VERSION_UNKNOWN
    app_code: str | None = None  # with APP_ERROR


@dataclass(frozen=True, slots=True)
class DocUpdate:
    """A batch of updates; one Ack answers it."""

    crdt: Crdt
    room: str
    updates: tuple[bytes, ...]
    batch: bytes


@dataclass(frozen=True, slots=True)
class OversizedBatch:
    """A batch with more updates than the limit; the updates are not decoded."""

    crdt: Crdt
    room: str
    count: int
    batch: bytes


@dataclass(frozen=True, slots=True)
class FragmentHeader:
    """The announcement of a batch of one update in `count` fragments."""

    crdt: Crdt
    room: str
    batch: bytes
    count: int
    total: int


@dataclass(frozen=True, slots=True)
class Fragment:
    """One fragment of an announced batch."""

    crdt: Crdt
    room: str
    batch: bytes
    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class RoomError:
    """The room has ended, or the client must join it again."""

    crdt: Crdt
    room: str
    error: RoomErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Leave:
    """A client leaves a room."""

    crdt: Crdt
    room: str


@dataclass(frozen=True, slots=True)
class AckFrame:
    """The result of the batch `ref`."""

    crdt: Crdt
    room: str
    ref: bytes
    status: Status


Frame = (
    JoinRequest | JoinOk | JoinError | DocUpdate | FragmentHeader | Fragment | RoomError | Leave | AckFrame
)

_MAGICS: Final = {crdt.value.encode(): crdt for crdt in Crdt}
_STATUSES: Final = {int(status): status for status in Status}
_JOIN_ERRORS: Final = {int(code): code for code in JoinErrorCode}
_ROOM_ERRORS: Final = {int(code): code for code in RoomErrorCode}


# ------------------------------------------------------------------------------------------ encode


def uleb128(number: int) -> bytes:
    """Return the shortest ULEB128 encoding of the number."""
    assert 0 <= number <= _ULEB_MAX
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def var_bytes(data: bytes) -> bytes:
    """Return the bytes prefixed with their length."""
    return uleb128(len(data)) + data


def room_prefix(crdt: Crdt, room: str) -> bytes:
    """Return the common prefix of all frames of this room."""
    name = room.encode()
    assert len(name) <= ROOM_ID_BYTES_MAX
    return crdt.value.encode() + var_bytes(name)


def ack_frame(prefix: bytes, ref: bytes, status: Status) -> bytes:
    """Return an encoded Ack for the room with that prefix."""
    return b"%b\x08%b%c" % (prefix, ref, status)


def encode(frame: Frame) -> bytes:
    """Encode a frame. Its parts must be within the limits: larger updates go in fragments."""
    prefix = room_prefix(frame.crdt, frame.room)
    match frame:
        case JoinRequest():
            rest = b"\x00" + var_bytes(frame.auth) + var_bytes(frame.version)
        case JoinOk():
            permission = var_bytes(frame.permission.encode())
            rest = b"\x01" + permission + var_bytes(frame.version) + var_bytes(frame.extra)
        case JoinError():
            rest = b"\x02%c" % frame.error + var_bytes(frame.message.encode())
            if frame.error is JoinErrorCode.VERSION_UNKNOWN and frame.version is not None:
                rest += var_bytes(frame.version)
            if frame.error is JoinErrorCode.APP_ERROR and frame.app_code is not None:
                rest += var_bytes(frame.app_code.encode())
        case DocUpdate():
            updates = b"".join(map(var_bytes, frame.updates))
            rest = b"\x03" + uleb128(len(frame.updates)) + updates + frame.batch
        case FragmentHeader():
            rest = b"\x04" + frame.batch + uleb128(frame.count) + uleb128(frame.total)
        case Fragment():
            rest = b"\x05" + frame.batch + uleb128(frame.index) + var_bytes(frame.data)
        case RoomError():
            rest = b"\x06%c" % frame.error + var_bytes(frame.message.encode())
        case Leave():
            rest = b"\x07"
        case AckFrame():
            return ack_frame(prefix, frame.ref, frame.status)
        case _:
            assert_never(frame)
    data = prefix + rest
    assert len(data) <= FRAME_BYTES_MAX, f"a frame of {len(data)} bytes must go in fragments"
    return data


# ------------------------------------------------------------------------------------------ decode


def decode_few(data: bytes, updates_max: int) -> Frame | OversizedBatch:
    """Decode a frame; a batch above `updates_max` updates is not unpacked. Raises MalformedFrame.

    One frame has room for 260,000 empty updates.
    """
    return _decoded(data, updates_max)


def decode(data: bytes) -> Frame:
    """Decode a frame. Raises MalformedFrame."""
    frame = _decoded(data, FRAME_BYTES_MAX)
    assert not isinstance(frame, OversizedBatch)  # no frame has room for so many
    return frame


def _decoded(data: bytes, updates_max: int) -> Frame | OversizedBatch:
    if len(data) > FRAME_BYTES_MAX:
        raise _bad(f"the frame has {len(data)} bytes, at most {FRAME_BYTES_MAX} are allowed")
    crdt = _MAGICS.get(data[:4])
    if crdt is None:
        raise _bad("the first bytes are not the magic of a room")
    reader = _Reader(data, 4)
    name = reader.var_bytes()
    if len(name) > ROOM_ID_BYTES_MAX:
        raise _bad(f"the room id has {len(name)} bytes, at most {ROOM_ID_BYTES_MAX} are allowed")
    frame = _body(reader, crdt, _text(name), updates_max)
    if reader.at != len(data):
        raise _bad(f"{len(data) - reader.at} bytes follow the last field")
    return frame


def _body(reader: "_Reader", crdt: Crdt, room: str, updates_max: int) -> Frame | OversizedBatch:
    match reader.byte():
        case 3:
            count = reader.uleb128()
            if count > reader.left:
                raise _bad("the frame has fewer updates than announced")
            if count > updates_max:
                reader.take(max(0, reader.left - BATCH_ID_BYTES))
                return OversizedBatch(crdt, room, count, reader.take(BATCH_ID_BYTES))
            updates = tuple([reader.var_bytes() for _ in range(count)])
            return DocUpdate(crdt, room, updates, reader.take(BATCH_ID_BYTES))
        case 0:
            return JoinRequest(crdt, room, reader.var_bytes(), reader.var_bytes())
        case 1:
            permission = reader.text()
            if permission not in ("read", "write"):
                raise _bad("the permission is neither read nor write")
            return JoinOk(crdt, room, permission, reader.var_bytes(), reader.var_bytes())
        case 2:
            return _join_error(reader, crdt, room)
        case 4:
            return FragmentHeader(crdt, room, reader.take(BATCH_ID_BYTES), reader.uleb128(), reader.uleb128())
        case 5:
            return Fragment(crdt, room, reader.take(BATCH_ID_BYTES), reader.uleb128(), reader.var_bytes())
        case 6:
            error = _ROOM_ERRORS.get(reader.byte(), RoomErrorCode.UNKNOWN)
            return RoomError(crdt, room, error, reader.text())
        case 7:
            return Leave(crdt, room)
        case 8:
            ref = reader.take(BATCH_ID_BYTES)
            return AckFrame(crdt, room, ref, _STATUSES.get(reader.byte(), Status.UNKNOWN))
        case other:
            raise _bad(f"unknown message type {other}")


def _join_error(reader: "_Reader", crdt: Crdt, room: str) -> JoinError:
    error = _JOIN_ERRORS.get(reader.byte(), JoinErrorCode.UNKNOWN)
    message = reader.text()
    if reader.left and error is JoinErrorCode.VERSION_UNKNOWN:
        return JoinError(crdt, room, error, message, version=reader.var_bytes())
    if reader.left and error is JoinErrorCode.APP_ERROR:
        return JoinError(crdt, room, error, message, app_code=reader.text())
    return JoinError(crdt, room, error, message)


class _Reader:
    """Reads fields from the front of a frame."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def byte(self) -> int:
        at = self.at
        if at >= len(self.data):
            raise _bad("the frame is truncated")
        self.at = at + 1
        return self.data[at]

    def take(self, size: int) -> bytes:
        at, end = self.at, self.at + size
        if end > len(self.data):
            raise _bad("the frame is truncated")
        self.at = end
        return self.data[at:end]

    def uleb128(self) -> int:
        first = self.byte()
        if first < 0x80:
            return first
        number = first & 0x7F
        for shift in (7, 14, 21, 28):
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 or number > _ULEB_MAX:
                    raise _bad("a number does not have its shortest encoding")
                return number
        raise _bad("a number has more than five bytes")

    def var_bytes(self) -> bytes:
        return self.take(self.uleb128())

    def text(self) -> str:
        return _text(self.var_bytes())


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _bad("a text is not UTF-8") from None


def _bad(problem: str) -> MalformedFrame:
    return MalformedFrame(f"not a frame of the loro-protocol: {problem}")
