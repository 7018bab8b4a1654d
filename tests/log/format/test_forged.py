"""Bytes whose checksums fit and which make no sense all the same: a forger's, or a bug's."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from lorogo_log import (
    BlockingLog,
    CorruptionError,
    FormatError,
    LogOptions,
    MemoryStorage,
    Reader,
    RecoveryMode,
    limits,
)
from lorogo_log.format.layout import FOOTER_BYTES, FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, padded
from lorogo_log.format.names import is_ours, parse_segment
from lorogo_log.recovery import sealed_segments
from lorogo_log.storage.memory import MemoryDirectory

COUNT, BODY_BYTES, FLAGS, OFFSET = (56, "<I"), (60, "<I"), (4, "<H"), (48, "<Q")
ZSTD = 2


@pytest.fixture(autouse=True)
def nobody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader gives a half-written tail a moment to become whole; here nobody would finish it."""
    monkeypatch.setattr(limits, "POLL_SECONDS", 1e-5)


def written(*, sealed: bool = True, compress: bool = False) -> tuple[MemoryStorage, MemoryDirectory, str]:
    """A log of three frames in one segment."""
    storage = MemoryStorage()
    log = BlockingLog(
        "log", LogOptions(ahead_bytes=512), storage=storage, now=lambda: 1000, random_bytes=bytes
    )
    for key, value in ((b"a", "one " * 30), (b"b", "two"), (b"a", "three")):
        log.append(value, key=key)
    directory = storage.directories["log"]
    name = next(name for name in directory.files if name.endswith(".seg"))
    data = bytes(directory.files[name])
    log.close()
    if compress:
        assert sealed_segments.compress(directory, name)
    if not sealed:
        directory.files[name] = bytearray(data)
    return storage, directory, name


def frames_of(data: bytearray) -> list[int]:
    places, at = [], SEGMENT_HEADER_BYTES
    while data[at : at + 4] == b"LGFR":
        places.append(at)
        at += FRAME_HEADER_BYTES + padded(int.from_bytes(data[at + 60 : at + 64], "little"))
    return places


def forge(data: bytearray, frame: int, field: tuple[int, str], value: int) -> None:
    """Another number in a frame's header; then the whole chain of checksums is made to fit."""
    struct.pack_into(field[1], data, frames_of(data)[frame] + field[0], value)
    fit(data)


def fit(data: bytearray) -> None:
    chain = crc32c(bytes(data[:124]))
    struct.pack_into("<I", data, 124, chain)
    for at in frames_of(data):
        size = padded(int.from_bytes(data[at + 60 : at + 64], "little"))
        struct.pack_into("<I", data, at + 68, crc32c(bytes(data[at + 80 : at + 80 + size])))
        struct.pack_into("<I", data, at + 72, chain)
        chain = crc32c(bytes(data[at : at + 76]))
        struct.pack_into("<I", data, at + 76, chain)


def values(storage: MemoryStorage) -> list[str]:
    return [
        record.value for batch in Reader.open("log", storage=storage).read() for record in batch.records()
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [(COUNT, 1 << 20), (COUNT, 7), (FLAGS, ZSTD)],
    ids=["more records than bytes", "other columns", "said to be compressed"],
)
def test_columns_that_do_not_fit_are_corruption_with_a_place(field: tuple[int, str], value: int) -> None:
    """Not a ValueError of struct or an error of zstd: who reads a log catches one tree of errors."""
    storage, directory, name = written()
    data = directory.files[name]
    place = frames_of(data)[1]
    forge(data, 1, field, value)
    reader = Reader.open("log", storage=storage)
    with pytest.raises(CorruptionError, match=f"record 1 at byte {place}"):
        values(storage)
    with pytest.raises(CorruptionError):
        list(reader.read(key=b"b"))
    with pytest.raises(CorruptionError):
        reader.lookup(2)


def test_a_compressed_body_that_does_not_unpack_is_corruption() -> None:
    """The same for what was compressed and is something else now."""
    storage, directory, name = written(compress=True)
    data = directory.files[name]
    at = frames_of(data)[0] + FRAME_HEADER_BYTES
    data[at : at + 8] = bytes(8)
    fit(data)
    with pytest.raises(CorruptionError, match="cannot be unpacked"):
        values(storage)


def test_salvaging_leaves_out_a_frame_without_columns_and_keeps_the_rest() -> None:
    """A forged frame must not keep a log from being opened."""
    storage, directory, name = written(sealed=False)
    forge(directory.files[name], 1, COUNT, 1 << 20)
    with BlockingLog("log", LogOptions(recovery=RecoveryMode.SALVAGE), storage=storage) as log:
        assert [damage.reason for damage in log.damage] == ["the columns do not fit into the body"]
        assert log.append("new", key=b"new") == 4
    assert values(storage) == ["one " * 30, "three", "new"]
    assert any(one.endswith(".broken") for one in directory.files), "the original is kept"


def test_a_header_is_not_guessed_from_a_frame_that_cannot_stand_there() -> None:
    """A frame from before the segment's own beginning tells nothing: the damage is told, no struct.error."""
    storage, directory, name = written(sealed=False)
    data = directory.files[name]
    forge(data, 1, OFFSET, 0)
    data[: SEGMENT_HEADER_BYTES + 8] = bytes(SEGMENT_HEADER_BYTES + 8)  # header and first frame are lost
    with pytest.raises(CorruptionError):
        values(storage)
    with BlockingLog("log", storage=storage) as log:
        assert log.damage
        assert log.append("new") > 3


@pytest.mark.parametrize(
    "value", [1 << 63, 8, 1 << 40], ids=["beyond every file", "in the header", "behind the trailer"]
)
def test_an_index_that_leads_nowhere_is_not_believed(value: int) -> None:
    """Its checksum fits: then frames are read one after another, as where there is none."""
    storage, directory, name = written()
    data = directory.files[name]
    foot = len(data) - FOOTER_BYTES
    position, size = struct.unpack_from("<QQ", data, foot + 8)
    struct.pack_into("<Q", data, position + 8, value)
    _fit_footer(data, foot, position, size)
    reader = Reader.open("log", storage=storage)
    assert reader.lookup(2).value == "two"
    assert [record.value for batch in reader.read(key=b"b") for record in batch.records()] == ["two"]


@pytest.mark.parametrize(
    ("place", "value"), [(68, 0), (68, 1 << 20), (72, 1 << 20)], ids=["no blocks", "many blocks", "many keys"]
)
def test_a_footer_that_says_another_number_than_its_trailer_is_not_used(place: int, value: int) -> None:
    """Blocks and postings are counted before they are looked into."""
    storage, directory, name = written()
    data = directory.files[name]
    foot = len(data) - FOOTER_BYTES
    assert struct.unpack_from("<II", data, foot + 64) == (3, 1), "frames and blocks stand where the page says"
    position, size = struct.unpack_from("<QQ", data, foot + 8)
    struct.pack_into("<I", data, foot + place, value)
    _fit_footer(data, foot, position, size)
    reader = Reader.open("log", storage=storage)
    assert [record.value for batch in reader.read(key=b"b") for record in batch.records()] == ["two"]
    assert reader.lookup(3).value == "three"


def _fit_footer(data: bytearray, foot: int, position: int, size: int) -> None:
    struct.pack_into("<I", data, foot + 136, crc32c(bytes(data[position : position + size])))
    struct.pack_into("<I", data, len(data) - 4, crc32c(bytes(data[foot:-4])))


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("00000000000000000001-00000000000000001000.seg", True),
        (f"{(1 << 64) - 1:020d}-{(1 << 63) - 1:020d}.seg", True),
        (f"{1 << 64:020d}-{0:020d}.seg", False),
        (f"{1:020d}-{1 << 63:020d}.seg", False),
    ],
)
def test_a_name_with_numbers_that_no_header_can_hold_is_not_ours(name: str, ours: bool) -> None:
    """Sequences have 64 bits and times 63: such a file is a stranger's, and left alone."""
    assert (parse_segment(name) is not None) is ours
    assert is_ours(name) is ours


def test_numbers_that_no_log_reaches_are_refused_in_a_sentence() -> None:
    """A header that begins at the end of all offsets leaves no place for a stand-in: told in a sentence."""
    storage, directory, name = written(sealed=False)
    data = directory.files[name]
    struct.pack_into("<Q", data, 40, (1 << 64) - 1)  # the first offset
    del data[SEGMENT_HEADER_BYTES:]
    fit(data)
    with pytest.raises(FormatError, match="beyond the limits of a log"):
        BlockingLog("log", LogOptions(recovery=RecoveryMode.SALVAGE), storage=storage)


@pytest.mark.parametrize("mode", [RecoveryMode.TAIL, RecoveryMode.SALVAGE])
def test_a_damaged_footer_of_a_cleaned_segment_hides_nothing_that_follows(mode: RecoveryMode) -> None:
    """Where it says that it ends is damaged, too: beyond the next segment nobody believes it."""
    storage = MemoryStorage()
    with BlockingLog("log", LogOptions(), storage=storage, now=lambda: 1000, random_bytes=bytes) as log:
        for part in ("first", "second"):
            log.append_many([(b"a", f"{part} a"), (b"b", f"{part} b")])
            log.rotate()
        log.clean(lambda _, record: record.value == "first b")
    directory = storage.directories["log"]
    data = directory.files[min(name for name in directory.files if name.endswith(".seg"))]
    struct.pack_into("<Q", data, len(data) - FOOTER_BYTES + 32, 1_000_000)  # its last sequence
    with BlockingLog("log", LogOptions(recovery=mode), storage=storage) as log:
        assert log.damage
        log.append("new")
    reader = Reader.open("log", storage=storage)
    kept = [record.value for batch in reader.read(damaged="skip") for record in batch.records()]
    assert kept == ["first a", "second a", "second b", "new"]
