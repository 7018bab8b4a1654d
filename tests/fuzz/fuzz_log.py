"""Segments of a log with any bytes in them, read, looked up, recovered and written to again.

Nothing but LogError comes out, no cursor goes in circles, and no record is given whose frame does not check.
Half of the inputs get checksums that fit again: what a bit flip cannot do, a forger can.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from crc32c import crc32c

from lorogo_log import BlockingLog, LogError, LogOptions, MemoryStorage, Reader, RecoveryMode, limits
from lorogo_log.format.batch import Batch
from lorogo_log.format.layout import (
    FOOTER_BYTES,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    SEGMENT_HEADER_BYTES,
    padded,
)
from lorogo_log.recovery import sealed_segments
from lorogo_log.recovery.recovery import recover
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_BATCHES_MAX = 1000  # of logs that hold some ten: more is a circle
_SEGMENT_BYTES = 4096
_MODES = (RecoveryMode.TAIL, RecoveryMode.STRICT, RecoveryMode.SALVAGE)
_NAMES = (
    "00000000000000000001-00000000000000001000.seg",
    "prepared-1.new",
    "99999999999999999999-99999999999999999999.seg",
    "00000000000000000001-00000000000000001000.seg.tmp",
    "replica.state",
)
Files = dict[str, bytes]


def _rows(log: BlockingLog) -> None:
    log.append_many([(b"a", "one"), (b"b", "two")])
    log.append_many([(b"a", "three")])
    log.append_many([(b"c", {"x": [1, None]}), (b"", b"bytes")])


@cache
def _bases() -> tuple[Files, ...]:
    made: list[Files] = []

    def keep(work: Callable[[BlockingLog], None], *, close: bool) -> None:
        storage = MemoryStorage()
        options = LogOptions(ahead_bytes=512)
        log = BlockingLog("log", options, storage=storage, now=lambda: 1000, random_bytes=bytes)
        work(log)
        if close:
            log.close()
        files = storage.directories["log"].files
        made.append({name: bytes(data) for name, data in sorted(files.items()) if not name.endswith(".lock")})
        log.close()

    def twice(log: BlockingLog) -> None:
        _rows(log)
        log.rotate()
        _rows(log)

    def cleaned(log: BlockingLog) -> None:
        twice(log)
        log.rotate()
        log.clean(lambda _, record: record.key == b"a")

    def compressed(log: BlockingLog) -> None:
        log.append_many([(b"a", "text " * 40)] * 4)
        log.rotate()
        sealed = next(info.name for info in log.reader.segments() if info.sealed)
        assert sealed_segments.compress(log.directory, sealed)

    for work, close in ((_rows, False), (_rows, True), (twice, True), (cleaned, True), (compressed, True)):
        keep(work, close=close)
    return tuple({name: data for name, data in files.items() if len(data) > 0} for files in made)


def _with_checksums(data: bytearray) -> None:
    """Make every checksum fit what stands there: of the header, of each frame, of the footer."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return
    struct.pack_into("<I", data, 124, crc32c(bytes(data[:124])))
    chain, at = crc32c(bytes(data[:124])), SEGMENT_HEADER_BYTES
    while (at := data.find(FRAME_MAGIC, at)) >= 0 and at + FRAME_HEADER_BYTES <= len(data):
        size = padded(int.from_bytes(data[at + 60 : at + 64], "little"))
        body = bytes(data[at + FRAME_HEADER_BYTES : at + FRAME_HEADER_BYTES + size])
        struct.pack_into("<II", data, at + 68, crc32c(body), chain)
        chain = crc32c(bytes(data[at : at + FRAME_HEADER_BYTES - 4]))
        struct.pack_into("<I", data, at + FRAME_HEADER_BYTES - 4, chain)
        at += FRAME_HEADER_BYTES
    foot = len(data) - FOOTER_BYTES
    if foot >= SEGMENT_HEADER_BYTES:
        position, size = struct.unpack_from("<QQ", data, foot + 8)
        if position + size + FOOTER_BYTES == len(data):
            struct.pack_into("<I", data, foot + 136, crc32c(bytes(data[position : position + size])))
        struct.pack_into("<I", data, len(data) - 4, crc32c(bytes(data[foot:-4])))


def _edited(source: Source, *, fit: bool) -> Files:
    files = dict(source.pick(_bases()))
    segments = sorted(files)
    for _ in range(1 + source.below(6)):
        name = source.pick(segments)
        data = bytearray(files[name])
        at = source.below(1 << 16) % (len(data) + 1)
        match source.byte() % 5:
            case 0 | 1:
                new = source.take(1 + source.below(8))
                data[at : at + len(new)] = new
            case 2:
                del data[at : at + 8 * source.below(16)]
            case 3:
                data[at:at] = bytes(data[at : at + 8 * source.below(16)])
            case _:
                struct.pack_into("<q", data, min(at & ~7, max(0, len(data) - 8)), _clamped(source.number()))
        if fit:
            _with_checksums(data)
        files[name] = bytes(data[:_SEGMENT_BYTES])
    return files


def _clamped(number: int) -> int:
    return max(-(1 << 63), min(number, (1 << 63) - 1))


def _storage(files: Files) -> MemoryStorage:
    storage = MemoryStorage()
    directory = storage.directory("log", create=True)
    directory.files.update({name: bytearray(data) for name, data in files.items()})
    return storage


def _stands_in(data: bytes, batch: Batch) -> bool:
    """True if the file has this frame at the position of the batch, and its header checks."""
    head = data[batch.position : batch.position + FRAME_HEADER_BYTES]
    body = data[batch.position + FRAME_HEADER_BYTES :]
    checksum = int.from_bytes(head[-4:], "little")
    return crc32c(head[:-4]) == checksum == batch.header.checksum and body.startswith(bytes(batch.stored))


def _checked(storage: MemoryStorage, batches: Iterator[Batch]) -> None:
    directory = storage.directories["log"]
    for number, batch in enumerate(batches):
        assert number < _BATCHES_MAX, "the cursor goes round in circles"
        assert crc32c(batch.stored) == batch.header.body_checksum
        assert any(_stands_in(bytes(data), batch) for data in directory.files.values())
        records = list(batch.records())
        assert len(records) == len(batch)
        assert batch.next.sequence == batch.header.last_sequence + 1


def _read(storage: MemoryStorage) -> None:
    damage: list[LogError] = []
    reader = Reader.open("log", storage=storage, on_damage=damage.append)
    reader.segments()
    for ask in (
        lambda: _checked(storage, reader.read(damaged="skip")),
        lambda: _checked(storage, reader.read(damaged="raise", from_seq=2)),
        lambda: _checked(storage, reader.read(damaged="skip", from_time=1000, key=b"a")),
        lambda: reader.lookup(3),
        lambda: reader.lookup_bytes(8, 64),
    ):
        try:
            ask()
        except LogError:
            continue


def _recover(storage: MemoryStorage, mode: RecoveryMode, *, fit: bool) -> None:
    directory = storage.directories["log"]
    found = recover(directory, mode, segment_bytes=_SEGMENT_BYTES)
    assert found.head.next_sequence >= 1
    again = recover(directory, RecoveryMode.TAIL, segment_bytes=_SEGMENT_BYTES)
    # a forged footer may have any number, which salvaging does not believe again
    assert fit or again.head.next_sequence >= found.head.next_sequence, "no sequence is given twice"


def _write(storage: MemoryStorage, mode: RecoveryMode, *, fit: bool) -> None:
    with BlockingLog("log", LogOptions(recovery=mode), storage=storage, now=lambda: 2000) as log:
        first = log.append("new", key=b"new")
        assert log.append("newer", key=b"new") == first + 1
        list(log.scrub())
    if not fit:  # a forged footer can hide the records behind it
        news = Reader.open("log", storage=storage).read(damaged="skip", key=b"new")
        kept = [record.value for batch in news for record in batch.records()]
        assert kept == ["new", "newer"], kept


@contextmanager
def _without_writer() -> Iterator[None]:
    """A reader gives a half-written tail a moment to become complete; here no writer would complete it."""
    before, limits.POLL_SECONDS = limits.POLL_SECONDS, 1e-6
    try:
        yield
    finally:
        limits.POLL_SECONDS = before


def run(data: bytes) -> None:
    """The first byte chooses what is done, the second whether there are edits or plain bytes."""
    source = Source(data)
    choice, mode = source.byte(), source.pick(_MODES)
    kind = source.byte()
    fit = bool(kind % 2)
    files = {source.pick(_NAMES): source.rest()} if kind % 8 == 0 else _edited(source, fit=fit)
    with _without_writer():
        storage = _storage(files)
        match choice % 8:
            case 0 | 1 | 2:
                _read(storage)
            case 3:
                _write(storage, mode, fit=fit)
            case _:
                _recover(storage, mode, fit=fit)
                _read(storage)


def seeds() -> Iterable[bytes]:
    for base, files in enumerate(_bases()):
        for data in files.values():
            yield bytes([0, 0, 0, 0]) + data[: _SEGMENT_BYTES - 8]
        for choice in (0, 3, 4):
            yield bytes([choice, base % 3, 1, base, 1, 0, *(200).to_bytes(4, "little"), 0, 1, 7, 8])
            yield bytes([choice, base % 3, 2, base, 2, 0, *(140).to_bytes(4, "little"), 4, 1, 3, 0, 0, 0])


TARGET = Target(run, seeds, (LogError,))
