"""More than one process: killed ones, racing ones, reading ones."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lorogo_log import BlockingLog, LockedError, LogOptions, Reader
from lorogo_log.recovery import sealed_segments

ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = str(Path(__file__).parent / "child.py")
    return subprocess.Popen(
        [sys.executable, child, *arguments], stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


def test_what_was_acknowledged_survives_kill_9(path: str) -> None:
    """A process killed at any moment, again and again: every acknowledged append is there, and unchanged."""
    acknowledged: dict[int, tuple[int, int]] = {}
    found: dict[int, object] = {}
    for turn in range(5):
        process = start("append", path)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(200 + 371 * turn)]
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()  # not communicate(): it forgets what readline() had buffered
        process.wait(20)
        process.stdout.close()
        lines += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        for line in lines:
            sequence, task, number = map(int, line.split())
            assert sequence not in acknowledged, "a sequence is given once"
            acknowledged[sequence] = (task, number)
        found = {
            record.sequence: record.value
            for batch in Reader.open(path).read(damaged="raise")
            for record in batch.records()
        }
        for sequence, (task, number) in acknowledged.items():
            assert found[sequence] == [task, number, "x" * (number % 300)], sequence
        assert sorted(found) == list(range(1, len(found) + 1))
    with BlockingLog(path) as log:
        assert log.damage == []
        assert all(not report.damage for report in log.scrub())
        assert log.append("after") == len(found) + 1


def test_two_processes_race_for_the_lock(path: str) -> None:
    """One appender at a time: of two that try again and again both get through, and no append is lost."""
    racers = [start("race", path, "15") for _ in range(2)]
    outputs = [racer.communicate(timeout=60)[0] for racer in racers]
    assert all(racer.returncode == 0 for racer in racers), outputs
    values = [record.value for batch in Reader.open(path).read() for record in batch.records()]
    assert sorted(values) == sorted([*range(15), *range(15)])


def test_the_lock_says_who_may_append(path: str) -> None:
    """A second appender is refused at once, or after its time; a reader and a cleaner are not."""
    with BlockingLog(path) as log:
        log.append(1)
        for seconds in (0, 0.05):
            with pytest.raises(LockedError):
                BlockingLog(path, LogOptions(lock_seconds=seconds))
        assert [len(batch) for batch in Reader.open(path).read()] == [1]
    with BlockingLog(path) as log:
        cursor = Reader.open(path).cursor()
        cursor.lock()
        with pytest.raises(LockedError):
            sealed_segments.clean(log.directory, lambda _, record: True, wait_seconds=0.05)
        assert log.append(2) == 2, "appenders wait for nobody"
        cursor.unlock()
        assert sealed_segments.clean(log.directory, lambda _, record: True, wait_seconds=1).dropped == 1


def test_another_process_follows(path: str) -> None:
    """A reader in another process sees each record whole, in order, across rotations."""
    with BlockingLog(path) as log:
        log.append(["first", "x" * 100])
        process = start("follow", path, "300")
        assert process.stdout is not None
        process.stdout.readline()
        for number in range(299):
            log.append([number, "y" * (number * 37 % 5000)])
            if number % 60 == 0:
                log.rotate()
        output = process.stdout.read()
        process.wait(20)
        process.stdout.close()
    assert process.returncode == 0
    assert [int(line.split()[0]) for line in output.splitlines()] == list(range(2, 301))
