"""Frames: what the npm package encodes, what comes back, and what bad bytes do."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_gateway import frames as wire
from lorogo_gateway.frames import Crdt, JoinErrorCode, MalformedFrame, RoomErrorCode, Status

VECTORS = json.loads((Path(__file__).parents[1] / "frames.json").read_text())
BATCH = bytes.fromhex("0123456789abcdef")


def from_vector(message: dict[str, Any]) -> wire.Frame:
    def raw(name: str) -> bytes:
        return bytes.fromhex(message[name]["hex"])

    crdt, room = Crdt(message["crdt"]), message["roomId"]
    batch = bytes.fromhex(message.get("batchId", message.get("refId", "0x"))[2:])
    match message["type"]:
        case 0:
            return wire.JoinRequest(crdt, room, raw("auth"), raw("version"))
        case 1:
            extra = raw("extra") if "extra" in message else b""
            return wire.JoinOk(crdt, room, message["permission"], raw("version"), extra)
        case 2:
            version = raw("receiverVersion") if "receiverVersion" in message else None
            code = JoinErrorCode(message["code"])
            return wire.JoinError(crdt, room, code, message["message"], version, message.get("appCode"))
        case 3:
            updates = tuple(bytes.fromhex(update["hex"]) for update in message["updates"])
            return wire.DocUpdate(crdt, room, updates, batch)
        case 4:
            return wire.FragmentHeader(crdt, room, batch, message["fragmentCount"], message["totalSizeBytes"])
        case 5:
            return wire.Fragment(crdt, room, batch, message["index"], raw("fragment"))
        case 6:
            return wire.RoomError(crdt, room, RoomErrorCode(message["code"]), message["message"])
        case 7:
            return wire.Leave(crdt, room)
        case _:
            return wire.AckFrame(crdt, room, batch, Status(message["status"]))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"type {v['message']['type']}")
def test_frames_are_those_of_the_npm_package(vector: dict[str, Any]) -> None:
    """Both ways, for every message type, every magic and every code."""
    frame, data = from_vector(vector["message"]), bytes.fromhex(vector["frame"])
    assert wire.encode(frame) == data
    assert wire.decode(data) == frame


def test_the_vectors_have_every_type_magic_and_status() -> None:
    messages = [vector["message"] for vector in VECTORS]
    assert {message["type"] for message in messages} == set(range(9))
    assert {message["crdt"] for message in messages} == {crdt.value for crdt in Crdt}
    assert {message["status"] for message in messages if message["type"] == 8} == set(map(int, Status))


crdts = st.sampled_from(Crdt)
rooms = st.text(max_size=32)
blobs = st.binary(max_size=300)
batches = st.binary(min_size=8, max_size=8)
numbers = st.integers(0, 2**32 - 1)
join_errors = st.one_of(
    st.builds(wire.JoinError, crdts, rooms, st.sampled_from(JoinErrorCode), st.text(max_size=99)),
    st.builds(
        wire.JoinError, crdts, rooms, st.just(JoinErrorCode.VERSION_UNKNOWN), st.text(max_size=9), blobs
    ),
    st.builds(
        wire.JoinError,
        crdts,
        rooms,
        st.just(JoinErrorCode.APP_ERROR),
        st.text(max_size=9),
        st.none(),
        st.text(max_size=99),
    ),
)
frames = st.one_of(
    st.builds(wire.JoinRequest, crdts, rooms, blobs, blobs),
    st.builds(wire.JoinOk, crdts, rooms, st.sampled_from(("read", "write")), blobs, blobs),
    join_errors,
    st.builds(wire.DocUpdate, crdts, rooms, st.lists(blobs, max_size=5).map(tuple), batches),
    st.builds(wire.FragmentHeader, crdts, rooms, batches, numbers, numbers),
    st.builds(wire.Fragment, crdts, rooms, batches, numbers, blobs),
    st.builds(wire.RoomError, crdts, rooms, st.sampled_from(RoomErrorCode), st.text(max_size=99)),
    st.builds(wire.Leave, crdts, rooms),
    st.builds(wire.AckFrame, crdts, rooms, batches, st.sampled_from(Status)),
)


@given(frames)
def test_what_was_encoded_is_decoded(frame: wire.Frame) -> None:
    assert wire.decode(wire.encode(frame)) == frame


@given(frames, st.data())
def test_a_frame_that_is_cut_or_longer_is_malformed_or_another_frame(
    frame: wire.Frame, data: st.DataObject
) -> None:
    """Cut anywhere it raises MalformedFrame, or is a JoinError without its last, optional field."""
    whole = wire.encode(frame)
    cut = data.draw(st.integers(0, len(whole) - 1))
    try:
        rest = wire.decode(whole[:cut])
    except MalformedFrame:
        pass
    else:
        assert isinstance(rest, wire.JoinError)
    if not isinstance(frame, wire.JoinError):
        with pytest.raises(MalformedFrame, match="follow the last field"):
            wire.decode(whole + b"\x00")


def test_random_bytes_raise_malformed_frame_and_nothing_else() -> None:
    """Thousands of them: pure noise, noise behind a good beginning, and good frames with a flipped byte."""
    rng = random.Random(6)
    good = [bytes.fromhex(vector["frame"]) for vector in VECTORS]
    seen = 0
    for turn in range(15_000):
        noise = rng.randbytes(rng.randrange(60))
        match turn % 3:
            case 0:
                data = noise
            case 1:
                data = rng.choice(list(Crdt)).encode() + b"\x01a" + bytes((rng.randrange(10),)) + noise
            case _:
                flipped = bytearray(rng.choice(good))
                flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
                data = bytes(flipped)
        try:
            frame = wire.decode(data)
        except MalformedFrame:
            continue
        seen += 1
        assert wire.decode(wire.encode(frame)) == frame
    assert 0 < seen < 15_000


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "magic"),
        (b"%LO", "magic"),
        (b"%XXX\x01a\x07", "magic"),
        (b"%lor\x01a\x07", "magic"),
        (b"%LOR", "is truncated"),
        (b"%LOR\x01", "is truncated"),
        (b"%LOR\x01a", "is truncated"),
        (b"%LOR\x81\x01" + b"a" * 129 + b"\x07", "room id has 129 bytes"),
        (b"%LOR\x02\xff\xfe\x07", "UTF-8"),
        (b"%LOR\x01a\x09", "message type 9"),
        (b"%LOR\x01a\x07\x00", "1 bytes follow"),
        (b"%LOR\x81\x00a\x07", "not have its shortest encoding"),
        (b"%LOR\x01a\x04" + BATCH + b"\xff\xff\xff\xff\x1f\x01", "not have its shortest encoding"),
        (b"%LOR\x01a\x04" + BATCH + b"\x80\x80\x80\x80\x80\x01\x01", "more than five bytes"),
        (b"%LOR\x01a\x03\xff\xff\xff\xff\x0f" + BATCH, "fewer updates"),
        (b"%LOR\x01a\x03\x01\x05abc" + BATCH, "is truncated"),
        (b"%LOR\x01a\x03\x00" + BATCH[:7], "is truncated"),
        (b"%LOR\x01a\x01\x05admin\x00\x00", "neither read nor write"),
        (b"%LOR\x01a\x08" + BATCH, "is truncated"),
        (bytes(wire.FRAME_BYTES_MAX + 1), "at most 262144"),
    ],
)
def test_malformed_frames_say_what_is_wrong(data: bytes, problem: str) -> None:
    with pytest.raises(MalformedFrame, match=problem):
        wire.decode(data)


def test_codes_of_a_later_version_read_as_unknown() -> None:
    ack = wire.decode(b"%LOR\x01a\x08" + BATCH + b"\x63")
    room = wire.decode(b"%LOR\x01a\x06\x63\x00")
    join = wire.decode(b"%LOR\x01a\x02\x63\x00")
    assert isinstance(ack, wire.AckFrame)
    assert isinstance(room, wire.RoomError)
    assert isinstance(join, wire.JoinError)
    assert (ack.status, room.error, join.error) == (
        Status.UNKNOWN,
        RoomErrorCode.UNKNOWN,
        JoinErrorCode.UNKNOWN,
    )


def test_a_batch_of_more_updates_than_may_be_is_not_unpacked() -> None:
    """One frame has room for 260,000 empty ones; what is refused for their number is not read."""
    data = wire.encode(wire.DocUpdate(Crdt.LORO, "doc", (b"",) * 260_000, b"batch-01"))
    assert wire.decode_few(data, 256) == wire.OversizedBatch(Crdt.LORO, "doc", 260_000, b"batch-01")
    few = wire.DocUpdate(Crdt.LORO, "doc", (b"x",) * 256, b"batch-01")
    assert wire.decode_few(wire.encode(few), 256) == few
    assert wire.decode_few(wire.encode(few), 255) == wire.OversizedBatch(Crdt.LORO, "doc", 256, b"batch-01")
    with pytest.raises(MalformedFrame, match="is truncated"):
        wire.decode_few(b"%LOR\x03doc\x03\x05abcdef", 4)
