"""The log against a list, over a disk that loses any subset of what was not synced."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lorogo_log import FormatError, NotFoundError, Reader, Record, RecoveryMode
from lorogo_log.format.batch import pack_value
from lorogo_log.recovery import sealed_segments
from lorogo_log.recovery.recovery import recover
from lorogo_log.write.engine import OpenSegment, SegmentAppender
from tests.log.simdisk import PowerCut, SimDisk

Row = tuple[int, int, bytes, Any]  # sequence, time, key, value


class SimWriter:
    """The writer's steps, one after another in one thread: so that a seed replays any failure."""

    def __init__(self, disk: SimDisk, *, segment_bytes: int, ahead_bytes: int = 0) -> None:
        self.lock = disk.lock("append.lock", exclusive=True, wait_seconds=0)
        self.recovered = recover(disk, RecoveryMode.TAIL)
        head = self.recovered.head
        head.epoch += 1
        self.engine = SegmentAppender(
            disk,
            head,
            log_id=self.recovered.log_id or bytes(16),
            segment_bytes=segment_bytes,
            ahead_bytes=ahead_bytes,
        )
        self.engine.standby = self.engine.prepare()
        self.seals: list[OpenSegment] = []

    def append(self, rows: Sequence[tuple[int, bytes, Any]], *, sync: bool = True) -> list[Row]:
        values = [pack_value(value) for _, _, value in rows]
        if not self.engine.fits(sum(map(len, values)) + 40 * len(rows)):
            self.rotate(synced=sync)
        first = self.engine.head.next_sequence
        self.engine.commit([key for _, key, _ in rows], values, [time for time, _, _ in rows], sync=sync)
        return [(first + number, *row) for number, row in enumerate(rows)]

    def rotate(self, *, synced: bool = True) -> None:
        if self.engine.active.records():
            if self.engine.standby is None:
                self.engine.standby = self.engine.prepare()
            self.seals.append(self.engine.swap(synced=synced))

    def work(self) -> None:
        if self.engine.standby is None:
            self.engine.standby = self.engine.prepare()
        while self.seals:
            self.engine.seal(self.seals.pop(0))

    def close(self) -> None:
        self.rotate()
        self.work()
        if self.engine.active.header is None:
            self.engine.discard(self.engine.active)
        else:  # it carries an epoch, and no record
            self.engine.seal(self.engine.active)
        assert self.engine.standby is not None
        self.engine.discard(self.engine.standby)
        self.lock.release()


def row_of(record: Record) -> Row:
    return record.sequence, record.time, record.key, record.value


def everything(disk: SimDisk, **wishes: Any) -> list[Row]:
    return [row_of(record) for batch in Reader(disk).read(**wishes) for record in batch.records()]


KEYS = st.sampled_from([b"", b"a", b"bb", b"document-7"])
VALUES = st.one_of(st.integers(-5, 1 << 40), st.binary(max_size=700), st.text(max_size=5), st.none())
ROWS = st.lists(st.tuples(st.integers(0, 50), KEYS, VALUES), min_size=1, max_size=6)
CHANCE = st.integers(0, 1 << 32)


class CrashMachine(RuleBasedStateMachine):
    """Everything acknowledged is there, in order and unchanged, whatever happened in between."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.rows: list[Row] = []
        self.highest = 0
        self.maybe: list[Row] = []  # given to the disk, not acknowledged
        self.writer: SimWriter | None = SimWriter(self.disk, segment_bytes=4096)

    def _doomed(self, rows: Sequence[tuple[int, bytes, Any]]) -> list[Row]:
        first = self.highest + 1
        return [(first + number, *row) for number, row in enumerate(rows)]

    @precondition(lambda self: self.writer)
    @rule(rows=ROWS)
    def append(self, rows: list[tuple[int, bytes, Any]]) -> None:
        assert self.writer
        done = self.writer.append(rows)
        assert done[0][0] == self.highest + 1, "sequences are given once and without holes"
        self.rows += done
        self.highest = done[-1][0]

    @precondition(lambda self: self.writer)
    @rule()
    def rotate(self) -> None:
        assert self.writer
        self.writer.rotate()

    @precondition(lambda self: self.writer)
    @rule()
    def background(self) -> None:
        assert self.writer
        self.writer.work()

    @precondition(lambda self: self.writer)
    @rule(ahead=st.sampled_from([0, 1024, 4096]))
    def reopen(self, ahead: int) -> None:
        assert self.writer
        self.writer.close()
        self.writer = SimWriter(self.disk, segment_bytes=4096, ahead_bytes=ahead)
        assert self.writer.recovered.damage == [] and self.writer.recovered.torn == []

    @precondition(lambda self: self.writer)
    @rule(chance=CHANCE, ahead=st.sampled_from([0, 1024]))
    def crash(self, chance: int, ahead: int) -> None:
        self.disk.crash(random.Random(chance))
        self._recover(ahead)

    @precondition(lambda self: self.writer)
    @rule(rows=ROWS, call=st.integers(1, 12), chance=CHANCE, rotate=st.booleans())
    def crash_within(self, rows: list[tuple[int, bytes, Any]], call: int, chance: int, rotate: bool) -> None:
        """The power goes in the middle of appending, rotating, preparing or sealing."""
        assert self.writer
        self.disk.plan = {self.disk.calls + call: "crash"}
        done: list[Row] = []
        try:
            if rotate:
                self.writer.rotate()
            done = self.writer.append(rows)
            self.writer.work()
        except PowerCut:
            pass
        if done:
            self.rows += done
            self.highest = done[-1][0]
        else:
            self.maybe = self._doomed(rows)
        self.disk.crash(random.Random(chance))
        self._recover(0)

    @precondition(lambda self: self.writer)
    @rule(call=st.integers(1, 8), chance=CHANCE, again=st.integers(0, 3))
    def crash_in_recovery(self, call: int, chance: int, again: int) -> None:
        """The power goes again while recovery mends what the first time left."""
        rng = random.Random(chance)
        self.disk.crash(rng)
        for _ in range(again + 1):
            self.disk.plan = {self.disk.calls + call: "crash"}
            with contextlib.suppress(PowerCut):
                SimWriter(self.disk, segment_bytes=4096)
            self.disk.crash(rng)
        self._recover(0)

    def _recover(self, ahead: int) -> None:
        self.writer = SimWriter(self.disk, segment_bytes=4096, ahead_bytes=ahead)
        assert self.writer.recovered.damage == [], "a crash is never mistaken for corruption"
        found = everything(self.disk)
        if found != self.rows:
            assert self.maybe and found == self.rows + self.maybe, "all of the batch or nothing of it"
            self.rows = found
        self.maybe = []
        self.highest = max(self.highest, self.rows[-1][0] if self.rows else 0)
        assert self.writer.engine.head.next_sequence == self.highest + 1

    @precondition(lambda self: self.writer)
    @rule(key=KEYS)
    def clean(self, key: bytes) -> None:
        assert self.writer
        self.writer.work()
        sealed = [info for info in Reader(self.disk).segments() if info.sealed]
        last = max((info.last_sequence or 0 for info in sealed), default=0)
        sealed_segments.clean(self.disk, lambda _, record: record.key == key)
        self.rows = [row for row in self.rows if row[0] > last or row[2] != key]

    @precondition(lambda self: self.writer)
    @rule(before=st.integers(0, 60))
    def expire(self, before: int) -> None:
        segments = Reader(self.disk).segments()
        gone = set(sealed_segments.expire(self.disk, before=before))
        assert all(info.sealed and (info.last_time or 0) < before for info in segments if info.name in gone)
        last = max((info.last_sequence or 0 for info in segments if info.name in gone), default=0)
        self.rows = [row for row in self.rows if row[0] > last]

    @rule(sequence=st.integers(0, 60))
    def read_from_sequence(self, sequence: int) -> None:
        assert everything(self.disk, from_seq=sequence) == [row for row in self.rows if row[0] >= sequence]

    @rule(time=st.integers(-1, 60))
    def read_from_time(self, time: int) -> None:
        start = next((place for place, row in enumerate(self.rows) if row[1] >= time), len(self.rows))
        assert everything(self.disk, from_time=time) == self.rows[start:]

    @rule(key=KEYS)
    def read_key(self, key: bytes) -> None:
        assert everything(self.disk, key=key) == [row for row in self.rows if row[2] == key]

    @rule(sequence=st.integers(0, 60))
    def lookup(self, sequence: int) -> None:
        expected = [row for row in self.rows if row[0] == sequence]
        try:
            assert [row_of(Reader(self.disk).lookup(sequence))] == expected
        except NotFoundError:
            assert expected == []

    @invariant()
    def the_log_is_the_list(self) -> None:
        assert everything(self.disk) == self.rows


TestCrashes = CrashMachine.TestCase
TestCrashes.settings = settings(
    max_examples=250, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("policy", ["os"])
@pytest.mark.parametrize("seed", range(25))
def test_without_syncs_a_crash_loses_records_but_invents_none(policy: str, seed: int) -> None:
    """Under `os`, what is read after a crash is what was written, whole segments before the newest are
    complete.
    """
    rng = random.Random(seed)
    disk = SimDisk()
    writer = SimWriter(disk, segment_bytes=4096)
    rows: list[Row] = []
    for number in range(12):
        batch = [(number, b"k", rng.randbytes(rng.randrange(900))) for _ in range(rng.randrange(1, 4))]
        rows += writer.append(batch, sync=False)
    disk.crash(rng)
    names = sorted(name for name in disk.entries if name.endswith(".seg"))
    SimWriter(disk, segment_bytes=4096)
    found = [row_of(record) for batch in Reader(disk).read(damaged="skip") for record in batch.records()]
    assert [row for row in rows if row in found] == found
    if len(names) > 1:
        newest = int(names[-1].partition("-")[0])
        assert [row for row in found if row[0] < newest] == [row for row in rows if row[0] < newest]


def test_a_path_that_is_not_there_is_one_sentence() -> None:
    """A reader of a directory that does not exist says so."""
    with pytest.raises(FormatError, match="does not exist"):
        Reader.open("elsewhere", storage=SimDisk())
