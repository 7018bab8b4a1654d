"""Tables of damage: every byte flipped, every length cut, sectors zeroed, headers and lengths forged."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from lorogo_log import (
    BlockingLog,
    CorruptionError,
    DamageError,
    FormatError,
    LogError,
    LogOptions,
    MemoryStorage,
    NotFoundError,
    Reader,
    RecoveryMode,
    TornError,
    limits,
)
from lorogo_log.format.layout import SEGMENT_HEADER_BYTES
from lorogo_log.storage.memory import MemoryDirectory
from lorogo_log.storage.segment import Segment

ROWS = [[(b"a", "one"), (b"b", "two")], [(b"a", "three")], [(b"c", "four"), (b"a", "five")]]
FLAT = [value for batch in ROWS for _, value in batch]
OF_BATCH = [["one", "two"], ["three"], ["four", "five"]]


def three_batches(*, sealed: bool) -> tuple[str, bytes, list[int]]:
    """(segment name, its bytes, where its frames begin and end)."""
    storage = MemoryStorage()
    log = BlockingLog(
        "log", LogOptions(ahead_bytes=512), storage=storage, now=lambda: 1000, random_bytes=bytes
    )
    for rows in ROWS:
        log.append_many(rows)
    directory = storage.directories["log"]
    name = next(name for name in directory.files if name.endswith(".seg"))
    data = bytes(directory.files[name])
    log.close()
    if sealed:
        data = bytes(directory.files[name])
    segment = Segment.open(directory, name)
    frames = segment.frames()
    places = [SEGMENT_HEADER_BYTES]
    for _ in ROWS:
        frames.next()
        places.append(frames.position)
    return name, data, places


NAME, OPEN, PLACES = three_batches(sealed=False)
SEALED = three_batches(sealed=True)[1]


def storage_with(data: bytes | bytearray, name: str = NAME) -> tuple[MemoryStorage, MemoryDirectory]:
    storage = MemoryStorage()
    directory = storage.directory("log", create=True)
    directory.files[name] = bytearray(data)
    return storage, directory


def served(storage: MemoryStorage) -> tuple[list[str], list[DamageError]]:
    """What a reader gets of the rest, and what it is told."""
    damage: list[DamageError] = []
    values: list[str] = []
    try:
        reader = Reader.open("log", storage=storage, on_damage=damage.append)
        for batch in reader.read(damaged="skip"):
            values += [record.value for record in batch.records()]
    except TornError as torn:
        damage.append(torn)
    return values, damage


@pytest.fixture(autouse=True)
def nobody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader gives a half-written tail a moment to become whole; here nobody would finish it."""
    monkeypatch.setattr(limits, "POLL_SECONDS", 1e-5)


def hit(position: int) -> int | None:
    """The batch that a byte belongs to; None for the header and what follows the frames."""
    for number in range(3):
        if PLACES[number] <= position < PLACES[number + 1]:
            return number
    return None


def test_every_flipped_byte_of_a_sealed_file() -> None:
    """A flip costs at most the batch that it hits, is reported with its place, and is never read as data."""
    for position in range(len(SEALED)):
        data = bytearray(SEALED)
        data[position] ^= 1 << position % 8
        storage, directory = storage_with(data)
        values, damage = served(storage)
        batch = hit(position)
        expected = [value for number, rows in enumerate(OF_BATCH) if number != batch for value in rows]
        assert values == expected, position
        if batch is not None:
            assert [type(error) for error in damage] == [CorruptionError], position
            assert damage[0].offset == PLACES[batch]
        elif position < SEGMENT_HEADER_BYTES:
            assert damage and damage[0].offset == 0, position
        with BlockingLog("log", storage=storage) as log:
            reports = list(log.scrub())
            found = bool(log.damage) or any(report.damage for report in reports)
            # a flip in the trailer is mended at open (the frames tell what it must be) or found by scrub
            assert found or (position >= PLACES[3] and log.recovered.torn == []), position
            assert log.append("new") == 6
            for sequence, value in enumerate(FLAT, 1):
                if value in expected:
                    assert log.lookup(sequence).value == value
                else:
                    with pytest.raises(CorruptionError):
                        log.lookup(sequence)
        assert list(served(storage)[0]) == [*expected, "new"]
        assert bytes(directory.files[NAME])[PLACES[0] : PLACES[3]] == data[PLACES[0] : PLACES[3]], "never cut"


def test_every_flipped_byte_of_an_open_file() -> None:
    """In the last frame a flip is a torn tail and is cut, with a copy; before it, corruption, which never
    is.
    """
    for position in range(PLACES[3]):
        data = bytearray(OPEN)
        data[position] ^= 0x10
        batch = hit(position)
        storage, directory = storage_with(data)
        values, damage = served(storage)
        assert values == [value for n, rows in enumerate(OF_BATCH) if n != batch for value in rows], position
        assert damage, position
        with BlockingLog("log", storage=storage) as log:
            torn, corrupt = log.recovered.torn, log.recovered.damage
            broken = [name for name in directory.files if name.endswith(".broken")]
            if batch == 2:
                assert [error.offset for error in torn] == [PLACES[2]] and not corrupt, position
                assert bytes(directory.files[broken[0]]) == data[PLACES[2] :]
                assert log.append("new") == 4
            else:
                assert corrupt and not torn and not broken, position
                assert corrupt[0].offset == (0 if batch is None else PLACES[batch])
                assert directory.files[NAME] == data, "not a byte is changed"
                assert log.append("new") == 6
        assert served(storage)[0] == [*values, "new"], position


def test_every_truncation() -> None:
    """Cut at any byte behind the first batch, the whole batches before the cut are there; the log goes on.

    Cut before that it is corruption: the name says that the first batch was on the disk.
    """
    for data, sizes in ((OPEN, range(PLACES[3])), (SEALED, range(PLACES[3], len(SEALED)))):
        for size in sizes:
            storage, directory = storage_with(data[:size])
            whole = sum(PLACES[number + 1] <= size for number in range(3))
            expected = [value for rows in OF_BATCH[:whole] for value in rows]
            assert served(storage)[0] == expected, size
            if not whole:
                lost_as_a_whole(storage, directory, data[:size])
                continue
            with BlockingLog("log", storage=storage) as log:
                assert not log.damage, size
                if not PLACES[3] < size < PLACES[3] + 8:  # a piece of a magic could be anything
                    clean = size in PLACES or size >= PLACES[3]
                    assert bool(log.recovered.torn) == (not clean), size
                assert log.append("new") == len(expected) + 1
                assert [r.value for b in log.cursor() for r in b.records()] == [*expected, "new"], size
            if size not in PLACES and PLACES[0] < size < PLACES[3]:
                assert any(name.endswith(".broken") for name in directory.files), size


def lost_as_a_whole(storage: MemoryStorage, directory: MemoryDirectory, data: bytes) -> None:
    """Reported at every open, never changed, and no sequence or offset of it is given again."""
    assert [type(error) for error in served(storage)[1]] == [CorruptionError], len(data)
    for number in range(2):
        with BlockingLog("log", storage=storage) as log:
            assert [error.path for error in log.damage] == [f"log/{NAME}"], len(data)
            assert bytes(directory.files[NAME]) == data
            assert log.stats().next_sequence > len(FLAT) and log.stats().end_offset >= PLACES[3] - PLACES[0]
            if number:
                assert log.append("new") >= 1 << 26
    assert served(storage)[0] == ["new"]


@pytest.mark.parametrize("position", range(0, len(OPEN) - 64, 64))
def test_zeroed_sectors(position: int) -> None:
    """Zeros where bytes were cost the batches they touch, and nothing else is taken for data."""
    data = bytearray(OPEN)
    data[position : position + 64] = bytes(64)
    storage, _ = storage_with(data)
    lost = {hit(byte) for byte in range(position, position + 64) if OPEN[byte]}
    values, damage = served(storage)
    assert values == [value for n, rows in enumerate(OF_BATCH) if n not in lost for value in rows]
    assert bool(damage) == bool(lost), "told, whether torn or corrupt"
    with BlockingLog("log", storage=storage) as log:
        corrupt = 2 not in lost and bool(lost)  # something good stands behind it
        assert (bool(log.damage), bool(log.recovered.torn)) == (corrupt, 2 in lost)


@pytest.mark.parametrize("mode", list(RecoveryMode))
@pytest.mark.parametrize("place", [1, 2])
def test_recovery_modes(mode: RecoveryMode, place: int) -> None:
    """`strict` refuses, `tail` cuts only what was never acknowledged, `salvage` rewrites and keeps the
    original.
    """
    data = bytearray(OPEN)
    data[PLACES[place] + 90] ^= 1
    storage, directory = storage_with(data)
    if mode is RecoveryMode.STRICT:
        with pytest.raises(CorruptionError if place == 1 else TornError):
            BlockingLog("log", LogOptions(recovery=mode), storage=storage)
        assert directory.files[NAME] == data
        return
    with BlockingLog("log", LogOptions(recovery=mode), storage=storage) as log:
        values = [r.value for b in log.reader.read(damaged="skip") for r in b.records()]
        assert values == [value for n, rows in enumerate(OF_BATCH) if n != place for value in rows]
        log.append("new")
    broken = [bytes(content) for name, content in directory.files.items() if name.endswith(".broken")]
    if mode is RecoveryMode.SALVAGE and place == 1:
        assert broken == [bytes(data)]
        assert all(info.sealed for info in Reader.open("log", storage=storage).segments())
        assert served(storage) == (["one", "two", "four", "five", "new"], [])
    else:
        assert len(broken) == (place == 2)


def forged(data: bytearray, at: int, **fields: int) -> bytearray:
    """A frame header with other numbers and a checksum that fits them."""
    places = {
        "body_bytes": (60, "<I"),
        "offset": (48, "<Q"),
        "chain": (72, "<I"),
        "first_sequence": (8, "<Q"),
    }
    for name, value in fields.items():
        offset, kind = places[name]
        struct.pack_into(kind, data, at + offset, value)
    struct.pack_into("<I", data, at + 76, crc32c(bytes(data[at : at + 76])))
    return data


@pytest.mark.parametrize(
    "fields",
    [{"body_bytes": 0xFFFFFFFF}, {"body_bytes": 1 << 29}, {"offset": 8}, {"chain": 7}, {"first_sequence": 0}],
)
def test_forged_headers(fields: dict[str, int]) -> None:
    """A length beyond the file, a frame from elsewhere, a broken chain, a sequence from before: none is
    believed.
    """
    storage, _ = storage_with(bytes(forged(bytearray(OPEN), PLACES[1], **fields)))
    values, damage = served(storage)
    assert "three" not in values and "one" in values
    assert damage


def test_damage_in_a_segment_before_the_last_is_never_a_torn_tail() -> None:
    """If the next segment goes on further, what is missing was acknowledged: corruption, never cut."""
    storage = MemoryStorage()
    with BlockingLog("log", storage=storage) as log:
        for number in range(4):
            log.append(number)
            log.rotate()
    directory = storage.directories["log"]
    names = sorted(name for name in directory.files if name.endswith(".seg"))
    del directory.files[names[1]][200:]
    before = bytes(directory.files[names[1]])
    asked: list[DamageError] = []
    with BlockingLog("log", storage=storage, on_damage=asked.append) as log:
        assert [error.path for error in asked] == [f"log/{names[1]}"]
        assert [r.value for b in log.reader.read(damaged="skip") for r in b.records()] == [0, 2, 3]
        with pytest.raises(CorruptionError):
            log.lookup(2)
    assert bytes(directory.files[names[1]]) == before


def test_a_corrupt_segment_is_replaced_by_a_replicas() -> None:
    """`install` checks what came, puts it in place, keeps the damaged one, and everything is served again."""
    good = MemoryStorage()
    with BlockingLog("log", storage=good) as log:
        for number in range(3):
            log.append_many([(b"k", [number, n]) for n in range(50)])
            log.rotate()
    files = good.directories["log"].files
    name = sorted(name for name in files if name.endswith(".seg"))[1]
    bad = MemoryStorage()
    directory = bad.directory("log", create=True)
    directory.files.update({key: bytearray(value) for key, value in files.items()})
    directory.files[name][500] ^= 1
    asked: list[DamageError] = []
    source = Reader.open("log", storage=good)
    with BlockingLog("log", storage=bad, on_damage=asked.append, forward=source.lookup) as log:
        assert log.lookup(60).value == [1, 9], "forwarded while it is damaged"
        assert len(asked) == 1 and asked[0].path == f"log/{name}"
        half = bytearray(files[name])
        half[300] ^= 1
        with pytest.raises(CorruptionError):
            log.install(name, [half])
        with pytest.raises(FormatError):
            log.install("x.seg", [])
        log.install(name, [bytes(files[name])])
        assert log.damage == [] and [report.damage for report in log.scrub()] == [(), (), ()]
        assert log.reader._lookup(60).value == [1, 9]
    assert any(key.endswith(".broken") for key in directory.files)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda data: newer(data, 8, 2), "format version 2"),
        (lambda data: newer(data, 10, 9), "checksum kind 9"),
    ],
)
def test_what_is_not_ours_is_refused_in_a_sentence(change: object, sentence: str) -> None:
    """A newer version and an unknown checksum: one clear sentence, and nothing is changed."""
    assert callable(change)
    data = change(bytearray(SEALED))
    storage, directory = storage_with(data)
    with pytest.raises(LogError, match=sentence):
        BlockingLog("log", storage=storage)
    assert bytes(directory.files[NAME]) == bytes(data)


def newer(data: bytearray, at: int, value: int) -> bytearray:
    data[at] = value
    struct.pack_into("<I", data, 124, crc32c(bytes(data[:124])))
    return data


def test_foreign_files_are_left_alone() -> None:
    """Files that are not ours stay, and are named."""
    storage, directory = storage_with(SEALED)
    directory.files["notes.txt"] = bytearray(b"mine")
    with BlockingLog("log", storage=storage) as log:
        assert log.recovered.foreign == ["notes.txt"]
        assert log.lookup(1).value == "one"
    assert directory.files["notes.txt"] == b"mine"


def test_a_segment_of_another_log_is_refused() -> None:
    """A file copied in from another log is noticed by its log id."""
    storage = MemoryStorage()
    for path in ("one", "two"):
        with BlockingLog(path, storage=storage) as log:
            for number in range(3):
                log.append(number)
                log.rotate()
    files, others = storage.directories["one"].files, storage.directories["two"].files
    theirs = max(name for name in others if name.endswith(".seg"))
    ours = max(name for name in files if name.endswith(".seg"))
    del files[ours]
    files[theirs] = others[theirs]
    with pytest.raises(FormatError, match="another log"):
        BlockingLog("one", storage=storage)


def test_not_found_is_told_from_damaged() -> None:
    """A sequence that never was is NotFound, whatever else is broken."""
    storage, _ = storage_with(SEALED)
    with pytest.raises(NotFoundError):
        Reader.open("log", storage=storage).lookup(99)
