"""Readers beside a writer: a record that is being written is not there yet, however long it takes."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lorogo_log import (
    BlockingLog,
    CorruptionError,
    DamageError,
    End,
    LogOptions,
    MemoryStorage,
    NotFoundError,
    Reader,
    Storage,
    TornError,
    cursor,
    limits,
)
from lorogo_log.format.batch import encode, pack_value


def values(reader: Reader) -> list[Any]:
    return [record.value for batch in reader.read() for record in batch.records()]


def next_frame(log: BlockingLog, value: Any) -> bytes:
    """What the writer would write next."""
    head = log.writer.engine.head
    return bytes(
        encode(
            [b""],
            [pack_value(value)],
            [1],
            first_sequence=head.next_sequence,
            epoch=head.epoch,
            offset=head.end_offset,
            chain=head.chain,
        )
    )


def test_a_record_that_is_being_written_is_not_there_yet(path: str, storage: Storage) -> None:
    """While somebody has the log open, a half-written tail is the end for any reader, not a torn record."""
    log = BlockingLog(path, LogOptions(ahead_bytes=0), storage=storage)
    log.append("a")
    reader = Reader.open(path, storage=storage)
    following = reader.cursor()
    assert len(following.next()) == 1
    active = log.writer.engine.active
    whole = next_frame(log, "b")
    for size in (3, 70, 81, len(whole) - 1):
        active.file.pwrite([whole[:size]], active.position)
        assert values(reader) == ["a"], size
        with pytest.raises(End):
            following.next()
    active.file.pwrite([whole], active.position)
    assert values(reader) == ["a", "b"]
    assert [record.value for record in following.next().records()] == ["b"]
    following.close()
    log.close()


def test_a_half_written_tail_without_a_writer_is_torn(path: str, tmp_path: Path) -> None:
    """When nobody can be writing it is told as torn; to find that out creates and keeps nothing."""
    copy = tmp_path / "copy"
    with BlockingLog(path, LogOptions(ahead_bytes=0)) as log:
        log.append("a")
        shutil.copytree(path, copy)
        (segment,) = copy.glob("*.seg")
        with segment.open("ab") as file:
            file.write(next_frame(log, "b")[:-5])
    for _ in range(2):
        before = sorted(copy.iterdir())
        with pytest.raises(TornError):
            values(Reader.open(copy))
        assert sorted(copy.iterdir()) == before
        (copy / "append.lock").unlink(missing_ok=True)
    with BlockingLog(copy) as log:
        assert len(log.torn) == 1


def test_asking_whether_anybody_writes_keeps_no_appender_out(path: str) -> None:
    """Readers that ask are in nobody's way: a log that nobody has open can be opened at once."""
    with BlockingLog(path) as log:
        log.append(0)
    directory = Reader.open(path).directory
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            directory.locked("append.lock")

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    try:
        for number in range(1, 20):
            with BlockingLog(path, LogOptions(lock_seconds=0)) as log:
                assert directory.locked("append.lock")
                log.append(number)
    finally:
        over.set()
        for thread in asking:
            thread.join(10)
    assert values(Reader.open(path)) == list(range(20))


def test_a_follower_looks_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower in another process looks after 20 ms, then less often, and never later than it was told."""
    storage = MemoryStorage()
    with BlockingLog("m", storage=storage) as log:
        log.append(1)
        pauses: list[float] = []

        def sleep(seconds: float) -> None:
            pauses.append(seconds)

        fake = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=sleep)
        monkeypatch.setattr(cursor, "clock", fake)
        with Reader.open("m", storage=storage).cursor() as follower:
            assert len(follower.follow(wait_seconds=2)) == 1
            assert pauses == []
            with pytest.raises(End):
                follower.follow(wait_seconds=2)
    assert pauses[0] == limits.POLL_SECONDS and sum(pauses) == pytest.approx(2)
    assert pauses[:-1] == sorted(pauses[:-1]) and max(pauses) == limits.POLL_SECONDS_MAX


@pytest.mark.parametrize("how", ["a frame", "the whole segment"])
def test_bytes_are_looked_up_elsewhere_where_the_log_is_damaged(how: str) -> None:
    """`lookup_bytes` asks `forward_bytes` for what is damaged, as `lookup` asks `forward`; and reports it."""
    storage, good = MemoryStorage(), MemoryStorage()
    with BlockingLog("m", storage=storage) as log:
        for number in range(3):
            log.append_many([(b"", [number, row]) for row in range(9)])
            log.rotate()
        end = log.stats().end_offset
        whole = log.lookup_bytes(0, end)
    files = storage.directories["m"].files
    good.directory("m", create=True).files.update({name: bytearray(data) for name, data in files.items()})
    name = sorted(name for name in files if name.endswith(".seg"))[1]
    if how == "a frame":
        files[name][128 + 90] ^= 1
    else:
        files[name][:] = bytes(len(files[name]))
    asked: list[tuple[int, int]] = []
    told: list[DamageError] = []
    elsewhere = Reader.open("m", storage=good)

    def forward(offset: int, size: int) -> bytes | None:
        asked.append((offset, size))
        return elsewhere.lookup_bytes(offset, size) if size < end else None

    with BlockingLog("m", storage=storage, on_damage=told.append, forward_bytes=forward) as log:
        third = end // 3
        assert log.lookup_bytes(0, 80) == whole[:80] and log.lookup_bytes(end - 80, 80) == whole[-80:]
        assert asked == []
        assert log.lookup_bytes(third + 10, 100) == whole[third + 10 : third + 110]
        assert asked == [(third + 10, 100)] and [found.path for found in told] == [f"m/{name}"]
        with pytest.raises(CorruptionError):
            log.lookup_bytes(0, end)
        with pytest.raises(NotFoundError):
            log.lookup_bytes(end + 5, 10)
