"""A writer without threads does its work when its workers say so, and at once for whoever cannot wait."""

import threading
from concurrent.futures import Future

import pytest

from lorogo_log import (
    BlockingLog,
    LogClosedError,
    LogFailedError,
    LogOptions,
    MemoryStorage,
    QueueFullError,
    Reader,
    Sync,
    WriteFailure,
)
from lorogo_log.write.queue import DirectWaker
from tests.log.one_thread import OneThreadStorage
from tests.log.simdisk import SimDisk


def stored(storage: MemoryStorage) -> list[object]:
    return [
        record.value for batch in Reader.open("log", storage=storage).read() for record in batch.records()
    ]


def put(log: BlockingLog, value: bytes) -> "Future[range]":
    """An append that nobody waits for."""
    token: Future[range] = Future()
    log.writer.put([b"k"], [value], [1], DirectWaker(), token)
    return token


def test_no_thread_is_started_whatever_is_asked() -> None:
    """Open, append, rotate, fence, flush, expire and close: all of it in the caller's thread."""
    before = threading.enumerate()
    storage = OneThreadStorage()
    with BlockingLog("log", LogOptions(segment_bytes=4096), storage=storage) as log:
        assert [log.append("x" * 1000) for _ in range(20)] == list(range(1, 21))
        assert log.rotate() is not None
        log.fence(9)
        log.flush()
        log.expire(keep_bytes=5000)
        assert threading.enumerate() == before
    assert log.writer.ended
    assert threading.enumerate() == before
    assert stored(storage)[-1] == "x" * 1000


def test_what_is_queued_is_written_in_a_later_turn() -> None:
    """Until its turn nothing is acknowledged, and a process that ends before it has written nothing."""
    storage = OneThreadStorage()
    log = BlockingLog("log", storage=storage)
    storage.hands.turn()
    first, second = put(log, b"\x01"), put(log, b"\x02")
    assert not first.done()
    assert stored(storage) == []
    storage.hands.turn()
    assert (first.result(0), second.result(0)) == (range(1, 2), range(2, 3))
    assert log.stats().commits == 1
    assert stored(storage) == [1, 2]


def test_an_order_comes_after_what_was_queued_before_it() -> None:
    """An order does the queue's work first, so its place among the records is the same as with threads."""
    storage = OneThreadStorage()
    log = BlockingLog("log", storage=storage)
    queued = put(log, b"\x01")
    assert log.rotate() is not None
    assert queued.result(0) == range(1, 2)
    assert [info.sealed for info in log.segments()] == [True]
    storage.hands.turn()  # the turn that was announced finds nothing to do
    assert log.stats().commits == 1


def test_a_finished_segment_is_sealed_in_a_later_turn() -> None:
    """A batch that does not fit begins a segment; the old one is sealed later, and read meanwhile."""
    storage = OneThreadStorage()
    log = BlockingLog("log", LogOptions(segment_bytes=4096), storage=storage)
    storage.hands.turn()
    log.append("x" * 3000)
    log.append("y" * 3000)
    assert [info.sealed for info in log.segments()] == [False, False]
    assert stored(storage) == ["x" * 3000, "y" * 3000]
    storage.hands.turn()
    assert [info.sealed for info in log.segments()] == [True, False]


def test_closing_writes_seals_and_unlocks_at_once() -> None:
    """After `close` the record is there, the segment is sealed, and the next may open."""
    storage = OneThreadStorage()
    log = BlockingLog("log", storage=storage)
    queued = put(log, b"\x01")
    log.close()
    log.close()
    assert queued.result(0) == range(1, 2)
    assert [info.sealed for info in log.segments()] == [True]
    with pytest.raises(LogClosedError):
        log.append("late")
    with BlockingLog("log", storage=storage) as again:
        assert again.append("next") == 2
    storage.hands.turn()  # what was announced before the end does no harm
    assert stored(storage) == [1, "next"]


def test_a_full_queue_is_refused_until_a_turn_and_a_blocking_append_makes_room_itself() -> None:
    """`put` raises, `append` writes what is queued first: nobody waits for another thread."""
    storage = OneThreadStorage()
    log = BlockingLog("log", LogOptions(queue_items=2), storage=storage)
    put(log, b"\x01")
    put(log, b"\x02")
    with pytest.raises(QueueFullError):
        put(log, b"\x03")
    assert log.append(3) == 3
    assert stored(storage) == [1, 2, 3]


@pytest.mark.parametrize("call", range(5, 10))
def test_a_disk_that_fails_stops_the_log_and_tells_everybody(call: int) -> None:
    """The batch, the caller behind it and the callback get the error; closing ends it and frees the lock."""
    disk = SimDisk()
    told: list[Exception] = []
    disk.workers = OneThreadStorage().hands
    log = BlockingLog("sim", LogOptions(failure=WriteFailure.call(told.append)), storage=disk)
    disk.plan[call] = "eio"
    queued = put(log, b"\x01")

    def go_on() -> None:
        for _ in range(2):
            log.rotate()
            log.append("more")

    with pytest.raises(LogFailedError):
        go_on()
    assert (queued.exception(0) is not None) == (call < 8)
    assert len(told) == 1
    log.close()
    assert log.writer.ended
    assert not disk.locked("append.lock")


def test_an_interval_syncs_when_its_time_is_over() -> None:
    """Without waiting for the sync an append is done; the sync follows in a turn of its own."""
    storage = OneThreadStorage()
    log = BlockingLog("log", LogOptions(sync=Sync.interval(5)), storage=storage)
    put(log, b"\x01")
    storage.hands.turn()
    assert log.stats().syncs == 1
    storage.hands.seconds = 6.0
    log.append(2)
    assert log.stats().syncs == 2


def test_time_and_chance_are_those_of_the_workers() -> None:
    """Two runs with the same workers write the same bytes."""
    files = []
    for _ in range(2):
        storage = OneThreadStorage()
        with BlockingLog("log", storage=storage) as log:
            log.append("a")
            log.append("b")
        files.append(storage.directories["log"].files)
    assert files[0] == files[1]
