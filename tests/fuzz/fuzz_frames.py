"""Frames of the loro-protocol as a browser may send them, and the assembler of fragments behind them."""

from collections.abc import Iterable

from lorogo_gateway.frames import (
    AckFrame,
    Crdt,
    DocUpdate,
    Fragment,
    FragmentAssembler,
    FragmentHeader,
    FragmentRefusal,
    Frame,
    JoinError,
    JoinErrorCode,
    JoinOk,
    JoinRequest,
    Leave,
    MalformedFrame,
    RoomError,
    RoomErrorCode,
    Status,
    decode,
    encode,
    update_frames,
)
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_BYTES_MAX = 300
_UPDATE_BYTES_MAX = 200
_BATCHES = (b"batch-01", b"batch-02")


def _unknown(frame: Frame) -> bool:
    """True for a code without a name in this version: it is encoded as another code."""
    match frame:
        case JoinError(error=JoinErrorCode.UNKNOWN) | RoomError(error=RoomErrorCode.UNKNOWN):
            return True
        case AckFrame(status=Status.UNKNOWN):
            return True
        case _:
            return False


def _one(data: bytes) -> None:
    frame = decode(data)
    again = encode(frame)
    assert decode(again) == frame
    assert len(again) == len(data)
    assert again == data or _unknown(frame), "there is one way to write a frame"


def _assemble(source: Source) -> None:
    assembler = FragmentAssembler(bytes_max=_BYTES_MAX, update_bytes_max=_UPDATE_BYTES_MAX, seconds=5.0)
    now, announced = 0.0, dict[bytes, int]()
    while source.left:
        batch = source.pick(_BATCHES)
        match source.byte() % 6:
            case 0 | 1:
                header = FragmentHeader(Crdt.LORO, "r", batch, source.below(8), source.below(250))
                if assembler.begin(header, now=now) is None:
                    announced[batch] = header.total
            case 2 | 3 | 4:
                whole = assembler.add(Fragment(Crdt.LORO, "r", batch, source.below(8), source.blob()))
                if whole is not None and not isinstance(whole, FragmentRefusal):
                    assert len(whole) == announced[batch]
            case _:
                now += source.below(8)
                assembler.expire(now=now)
                assert assembler.deadline is None or assembler.deadline > now
        reserved = sum(one.total for one in assembler._unfinished.values())
        assert assembler._reserved == reserved <= _BYTES_MAX
        assert all(one.received <= one.total for one in assembler._unfinished.values())


def _there_and_back(source: Source) -> None:
    size = 1 + source.below(64)
    payload = source.rest()
    assembler = FragmentAssembler(bytes_max=1 << 20, update_bytes_max=1 << 20, seconds=5.0)
    came: bytes | FragmentRefusal | None = None
    for data in update_frames(Crdt.LORO, "room", payload, _BATCHES[0], fragment_bytes=size):
        match decode(data):
            case DocUpdate(updates=(came,)):
                pass
            case FragmentHeader() as header:
                if assembler.begin(header, now=0.0) is not None:
                    return  # more small fragments than are taken
            case Fragment() as fragment:
                came = assembler.add(fragment)
            case other:
                raise AssertionError(f"{other} was not sent")
    assert came == payload


def run(data: bytes) -> None:
    """The first byte chooses."""
    source = Source(data)
    match source.byte() % 4:
        case 0 | 1:
            _one(source.rest())
        case 2:
            _assemble(source)
        case _:
            _there_and_back(source)


def seeds() -> Iterable[bytes]:
    room, batch = "room-1", b"12345678"
    frames: list[Frame] = [
        JoinRequest(Crdt.LORO, room, b"token", b"\x01\x02"),
        JoinOk(Crdt.LORO, room, "write", b"\x00", b"extra"),
        JoinError(Crdt.LORO, room, JoinErrorCode.VERSION_UNKNOWN, "no", version=b"\x01"),
        JoinError(Crdt.LORO, room, JoinErrorCode.APP_ERROR, "no", app_code="x"),
        DocUpdate(Crdt.LORO, room, (b"one", b"two" * 50), batch),
        FragmentHeader(Crdt.LORO, room, batch, 3, 300),
        Fragment(Crdt.EPHEMERAL, room, batch, 2, b"data"),
        RoomError(Crdt.PERSISTED, room, RoomErrorCode.EVICTED, "go"),
        Leave(Crdt.YJS, room),
        AckFrame(Crdt.LORO, room, batch, Status.RATE_LIMITED),
    ]
    for frame in frames:
        yield b"\0" + encode(frame)
    # two fragments of four bytes for a batch of eight; the second twice; then time goes by
    add = b"\0\x02%c\x04abcd"
    yield b"\x02\0\0\x02\x08" + add % 0 + add % 1 + add % 1 + b"\0\x05\x07"
    yield b"\x03\x10" + bytes(range(200))


TARGET = Target(run, seeds, (MalformedFrame,))
