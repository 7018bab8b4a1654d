"""Readers against the writer, the cleaner and rotation, in threads on a real disk."""

import threading
import time
from contextlib import suppress

from lorogo_log import BlockingLog, End, LogOptions, NotFoundError, Reader, Record, SegmentReport


def test_readers_race_writer_cleaner_and_rotation(path: str) -> None:
    """Whatever goes on, a reader sees sequences rise, values that fit them, and nothing half."""
    log = BlockingLog(path, LogOptions(segment_bytes=64 << 10))
    stop = threading.Event()
    errors: list[BaseException] = []
    kept_seen = [0]

    def guarded(work: object) -> threading.Thread:
        def run() -> None:
            try:
                while not stop.is_set():
                    work()  # type: ignore[operator]
            except Exception as error:  # noqa: BLE001 - handed to the test
                errors.append(error)
                stop.set()

        return threading.Thread(target=run)

    counter = iter(range(1 << 30))
    guard = threading.Lock()

    def write() -> None:
        with guard:
            numbers = [next(counter) for _ in range(20)]
        log.append_many([(b"k%d" % (number % 4), [number, "z" * (number % 200)]) for number in numbers])

    def rotate() -> None:
        log.rotate()
        time.sleep(0.01)

    def clean() -> None:
        log.clean(lambda _, record: record.key == b"k0")
        log.expire(keep_bytes=3 << 20)
        time.sleep(0.005)

    def check(record: Record) -> None:
        number, filling = record.value
        assert len(filling) == number % 200
        assert record.key == b"k%d" % (number % 4)

    def read_here() -> None:
        last = 0
        with log.cursor() as cursor:
            for batch in cursor:
                for record in batch.records():
                    assert record.sequence > last
                    last = record.sequence
                    check(record)
                    kept_seen[0] += 1

    def read_elsewhere() -> None:
        last = 0
        with Reader.open(path).cursor(key=b"k1") as cursor:
            try:
                while not stop.is_set():
                    for record in cursor.next(following=True).records():
                        assert record.sequence > last
                        last = record.sequence
                        check(record)
            except End:
                pass

    def look_up() -> None:
        sequence = log.writer.durable
        if sequence:
            with suppress(NotFoundError):  # cleaned meanwhile
                check(log.lookup(sequence))

    threads = [guarded(work) for work in (write, write, rotate, clean, read_here, read_elsewhere, look_up)]
    for thread in threads:
        thread.start()
    stop.wait(3)
    stop.set()
    for thread in threads:
        thread.join(20)
    log.close()
    assert errors == []
    assert kept_seen[0] > 1000
    assert all(not report.damage for report in scrubbed(path))


def scrubbed(path: str) -> list[SegmentReport]:
    with BlockingLog(path) as log:
        return list(log.scrub())


def test_zeros_ahead_never_overwrite_data(path: str) -> None:
    """While zeros are written ahead of it, the writer runs into them, and every record stays whole."""
    with BlockingLog(path, LogOptions(ahead_bytes=1 << 20, segment_bytes=8 << 20)) as log:
        threads = [
            threading.Thread(
                target=lambda: [log.append_many([(b"", b"x" * 1000)] * size) for size in [1, 40, 3, 25] * 10]
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    with BlockingLog(path) as log:
        assert sum(len(batch) for batch in log.cursor()) == 4 * 690
        assert all(not report.damage for report in log.scrub())
