"""What callers give is checked at the door: one clear sentence, before anything is done."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lorogo_log
from lorogo_log import (
    BlockingLog,
    FormatError,
    LockedError,
    Log,
    LogOptions,
    MemoryStorage,
    Reader,
    RecoveryMode,
    StaleEpochError,
    Storage,
    Sync,
)

WRONG_OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"sync": "always"}, TypeError, "sync must be a Sync, such as Sync.group(), not str"),
    ({"sync": ""}, TypeError, "sync must be a Sync"),
    ({"recovery": "tail"}, TypeError, "recovery must be a RecoveryMode, such as RecoveryMode.TAIL, not str"),
    ({"failure": print}, TypeError, "failure must be a WriteFailure"),
    ({"ahead_bytes": -1}, ValueError, "ahead_bytes must be at least 0, not -1"),
    ({"segment_bytes": 100}, ValueError, "segment_bytes must be at least 4096, not 100"),
    ({"segment_bytes": 1e6}, TypeError, "segment_bytes must be an int, not float"),
    ({"queue_items": 0}, ValueError, "queue_items must be at least 1, not 0"),
    ({"queue_bytes": "1"}, TypeError, "queue_bytes must be an int, not str"),
    ({"epoch": "5"}, TypeError, "epoch must be an int, not str"),
    ({"epoch": -1}, ValueError, "epoch must be at least 0, not -1"),
    ({"partition": 1 << 32}, ValueError, "partition must be at most 4294967295"),
    ({"lock_seconds": "1"}, TypeError, "lock_seconds must be a number of seconds, not str"),
    ({"log_id": b"short"}, ValueError, "log_id must be 16 bytes"),
]


@pytest.mark.parametrize(("wrong", "error", "sentence"), WRONG_OPTIONS, ids=range(len(WRONG_OPTIONS)))
def test_wrong_options(wrong: dict[str, Any], error: type[Exception], sentence: str, path: str) -> None:
    """An option of the wrong kind or size is refused where it is given, and nothing is created."""
    with pytest.raises(error, match=re.escape(sentence)):
        Log.open(path, **wrong)
    with pytest.raises(error, match=re.escape(sentence)):
        LogOptions(**wrong)
    assert not Path(path).exists()


WRONG_USES: list[tuple[Callable[[BlockingLog], Any], type[Exception], str]] = [
    (lambda log: log.cursor(from_seq="1"), TypeError, "from_seq must be an int, not str"),  # type: ignore[arg-type]
    (lambda log: log.cursor(from_time=1.5), TypeError, "from_time must be an int, not float"),  # type: ignore[arg-type]
    (lambda log: log.cursor(from_pos="1:1:1"), TypeError, "from_pos must be a LogPosition"),  # type: ignore[arg-type]
    (lambda log: log.cursor(key="doc"), TypeError, "key must be bytes, not str"),  # type: ignore[arg-type]
    (lambda log: list(log.read(damaged="no")), ValueError, "damaged must be 'raise' or 'skip'"),  # type: ignore[arg-type]
    (lambda log: log.lookup("a"), TypeError, "sequence must be an int, not str"),  # type: ignore[arg-type]
    (lambda log: log.lookup_bytes(0.0, 1), TypeError, "offset must be an int, not float"),  # type: ignore[arg-type]
    (lambda log: log.lookup_bytes(-1, 1), ValueError, "offset must be at least 0"),
    (lambda log: log.lookup_bytes(0, -1), ValueError, "size must be at least 0"),
    (lambda log: log.expire(before=1.5e18), TypeError, "before must be an int, not float"),  # type: ignore[arg-type]
    (lambda log: log.expire(keep_bytes="1G"), TypeError, "keep_bytes must be an int, not str"),  # type: ignore[arg-type]
    (lambda log: log.fence("9"), TypeError, "epoch must be an int, not str"),  # type: ignore[arg-type]
    (lambda log: log.fence(1 << 64), ValueError, "epoch must be at most"),
    (lambda log: log.append_many([1, 2]), TypeError, "append_many takes pairs of a key and a value"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("use", "error", "sentence"), WRONG_USES, ids=range(len(WRONG_USES)))
def test_wrong_arguments(use: Callable[[BlockingLog], Any], error: type[Exception], sentence: str) -> None:
    """A wrong argument is told to its caller in one sentence, and the log goes on for everybody."""
    with BlockingLog("m", storage=MemoryStorage()) as log:
        log.append(1)
        with pytest.raises(error, match=re.escape(sentence)):
            use(log)
        assert log.append(2) == 2


async def test_an_epoch_of_the_wrong_kind(path: str) -> None:
    """An append with an epoch that is no number is refused; the log goes on."""
    async with Log.open(path) as log:
        with pytest.raises(TypeError, match="epoch must be an int, not str"):
            await log.append(1, epoch="1")  # type: ignore[arg-type]
        assert await log.append(1) == 1


KEYS = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text() | st.binary(),
    lambda inner: st.tuples(inner, inner),
    max_leaves=4,
)


@given(st.dictionaries(KEYS, st.lists(st.dictionaries(KEYS, st.integers(0, 9), max_size=2), max_size=2)))
def test_what_is_taken_can_be_read(value: dict[Any, Any]) -> None:
    """Whatever keys a map has (tuples too), an append that is taken reads back as the same value."""
    storage = MemoryStorage()
    with BlockingLog("m", storage=storage) as log:
        assert log.lookup(log.append(value)).value == value


def test_a_log_keeps_its_partition(path: str, storage: Storage) -> None:
    """A log of one partition is not opened as another; who names none gets the log's own."""
    with BlockingLog(path, LogOptions(partition=3), storage=storage) as log:
        log.append(1)
    for wrong in (9, 0):
        with pytest.raises(FormatError, match=f"is partition 3, not {wrong}"):
            BlockingLog(path, LogOptions(partition=wrong), storage=storage)
    for options in (LogOptions(), LogOptions(partition=3)):
        with BlockingLog(path, options, storage=storage) as log:
            assert log.writer.engine.partition == 3
            assert log.append(2) > 1


def test_a_named_epoch_is_durable_at_open(path: str) -> None:
    """Opened with a newer epoch and gone before the first append: an older epoch is refused all the same."""
    code = (
        "import os, sys; from lorogo_log import BlockingLog, LogOptions;"
        "BlockingLog(sys.argv[1], LogOptions(epoch=7)); os._exit(1)"
    )
    with BlockingLog(path, LogOptions(epoch=3)) as log:
        log.append("a")
    environment = {**os.environ, "PYTHONPATH": str(Path(lorogo_log.__file__).parent.parent)}
    subprocess.run([sys.executable, "-c", code, path], check=False, timeout=60, env=environment)
    with pytest.raises(StaleEpochError, match="epoch 6 is older than 7"):
        BlockingLog(path, LogOptions(epoch=6))
    with BlockingLog(path, LogOptions(epoch=7)) as log:
        log.append("b")
        assert [record.value for batch in log.read() for record in batch.records()] == ["a", "b"]
        assert not [report for report in log.scrub() if report.damage]


def test_whose_lock_it_is(path: str, storage: Storage) -> None:
    """A log that this process has open is not said to be another's, and the other way round."""
    with (
        BlockingLog(path, storage=storage),
        pytest.raises(LockedError, match=r"append\.lock is locked: this process already has it open"),
    ):
        BlockingLog(path, storage=storage)
    with BlockingLog(path, storage=storage):
        pass


def test_a_lock_of_another_process(path: str) -> None:
    """The sentence names another process when one holds the lock."""
    code = (
        "import sys; from lorogo_log import BlockingLog; log = BlockingLog(sys.argv[1]);"
        "print('open', flush=True); sys.stdin.readline(); log.close()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(lorogo_log.__file__).parent.parent)}
    with subprocess.Popen(
        [sys.executable, "-c", code, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as child:
        assert child.stdout is not None and child.stdin is not None
        assert child.stdout.readline() == "open\n"
        with pytest.raises(LockedError, match="another process has it open"):
            BlockingLog(path)
        child.stdin.write("\n")
        child.stdin.close()
        assert child.wait(60) == 0


def test_the_packages_example_runs(tmp_path: Path) -> None:
    """The example in the package's docstring is a whole program, and does what it says."""
    assert lorogo_log.__doc__ is not None
    program = lorogo_log.__doc__.split("```python\n")[1].split("```")[0]
    ast.parse(program)
    environment = {**os.environ, "PYTHONPATH": str(Path(lorogo_log.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        timeout=60,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "b'doc-1' {'text': 'hello'}" in done.stdout


def test_the_blocking_log_reads_flushes_and_fences(path: str) -> None:
    """What the async door can do cheaply, the blocking one can too."""
    with BlockingLog(path, LogOptions(sync=Sync.os(), recovery=RecoveryMode.STRICT)) as log:
        log.append("a", key=b"k")
        log.append("b")
        log.flush()
        assert log.stats().syncs == 1
        assert [record.value for batch in log.read(key=b"k") for record in batch.records()] == ["a"]
        log.fence(9)
        assert log.stats().epoch == 9
    assert len(Reader.open(path).segments()) == 1
