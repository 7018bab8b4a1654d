"""What the door promises, over files and over memory."""

import asyncio
import threading
from typing import Any

import pytest

from lorogo_log import (
    BlockingLog,
    Log,
    LogClosedError,
    LogOptions,
    LogPosition,
    NotFoundError,
    QueueFullError,
    Reader,
    Record,
    SkipSegment,
    StaleEpochError,
    Storage,
    Sync,
    WriteFailure,
)
from lorogo_log.format.batch import Batch, EncodedFrame
from lorogo_log.storage.segment import Segment

POLICIES = [Sync.group(), Sync.always(), Sync.interval(0.01), Sync.os()]


def values(batches: list[Batch]) -> list[Any]:
    return [record.value for batch in batches for record in batch.records()]


async def collect(log: Log, **wishes: Any) -> list[Any]:
    return values([batch async for batch in log.read(**wishes)])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.kind)
async def test_what_is_appended_is_read_back_in_order(storage: Storage, path: str, policy: Sync) -> None:
    """Singles and batches of many tasks get sequences of their own, and come back unchanged, now and after
    reopening.
    """
    async with Log.open(path, sync=policy, storage=storage, segment_bytes=16 << 10) as log:

        async def one(number: int) -> None:
            sequence = await log.append({"n": number}, key=b"k%d" % (number % 3), ts=number)
            assert log.lookup(sequence).value == {"n": number}

        await asyncio.gather(*(one(number) for number in range(200)))
        sequences = await log.append_many([(b"many", number) for number in range(300)])
        assert sequences == range(201, 501)
        before = await collect(log)
        assert sorted(value["n"] for value in before[:200]) == list(range(200))
        assert before[200:] == list(range(300))
    async with Log.open(path, storage=storage) as log:
        assert await collect(log) == before
        assert await log.append("next") == 501
    assert values(list(Reader.open(path, storage=storage).read())) == [*before, "next"]


@pytest.mark.parametrize(
    "value", [None, True, -7, 1.5, "ü", b"\x00\xff", [1, [2]], {"a": {b"b": 1}}, {1: 2}, "x" * 70_000]
)
async def test_any_msgpack_value_comes_back(storage: Storage, path: str, value: Any) -> None:
    """A payload is any value that msgpack knows."""
    async with Log.open(path, storage=storage) as log:
        sequence = await log.append(value, key=b"k", ts=5)
        record = log.lookup(sequence)
        assert (record.value, record.key, record.time) == (value, b"k", 5)


async def test_a_reader_starts_at_a_sequence_a_time_or_a_position(storage: Storage, path: str) -> None:
    """All three name a place; a saved position goes on exactly where it was taken, across segments."""
    async with Log.open(path, storage=storage, segment_bytes=4096) as log:
        for number in range(100):
            await log.append(number, ts=number * 10)
            if number % 20 == 19:
                await log.rotate()
        assert len(log.segments()) == 5
        assert await collect(log, from_seq=51) == list(range(50, 100))
        assert await collect(log, from_time=495) == list(range(50, 100))
        assert await collect(log, from_time=500) == list(range(50, 100))
        with log.core.cursor() as cursor:
            for _ in range(30):
                cursor.next()
            saved = LogPosition.parse(str(cursor.position))
        assert await collect(log, from_pos=saved) == list(range(30, 100))
        assert await collect(log, from_seq=1000) == []
        assert await collect(log, from_time=10_000) == []


async def test_one_key_is_a_seek(storage: Storage, path: str) -> None:
    """Reading one key gives exactly its records, in sealed and open segments."""
    async with Log.open(path, storage=storage, segment_bytes=256 << 10) as log:
        for turn in range(6):
            await log.append_many([(b"doc-%d" % (number % 50), [turn, number]) for number in range(2000)])
        expected = [[turn, number] for turn in range(6) for number in range(7, 2000, 50)]
        assert await collect(log, key=b"doc-7") == expected
        assert await collect(log, key=b"doc-7", from_seq=10_001) == expected[200:]
        assert await collect(log, key=b"doc-") == []
        await settled(log, 1)


async def test_a_follower_gets_what_comes_later(storage: Storage, path: str) -> None:
    """With follow, reading goes on across rotations until the log is closed."""
    async with Log.open(path, storage=storage, segment_bytes=4096) as log:
        seen: list[int] = []

        async def follow() -> None:
            async for batch in log.read(follow=True):
                seen.extend(record.value for record in batch.records())

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(follow())
            for number in range(300):
                await log.append(number)
                if number % 50 == 0:
                    await log.rotate()
            await log.close()
        assert seen == list(range(300))


async def test_a_slow_reader_slows_nobody(storage: Storage, path: str) -> None:
    """A reader that stopped in the middle keeps its place while others append, rotate and read."""
    async with Log.open(path, storage=storage, segment_bytes=4096) as log:
        await log.append_many([(b"", number) for number in range(10)])
        slow = log.read()
        first = await anext(slow)
        for number in range(10, 200):
            await log.append(number)
        assert await collect(log) == list(range(200))
        rest = [batch async for batch in slow]
        assert values([first, *rest]) == list(range(200))


async def test_the_queue_is_bounded(storage: Storage, path: str) -> None:
    """`append_nowait` refuses when the queue is full; `append` waits for room and comes first."""
    async with Log.open(path, storage=storage, queue_items=4, queue_bytes=1 << 20) as log:
        release = stall(log)
        futures = [log.append_nowait(number) for number in range(4)]
        with pytest.raises(QueueFullError):
            log.append_nowait("too many")
        waiting = asyncio.create_task(log.append("waits"))
        await asyncio.sleep(0)
        assert log.queue_length() == 4 and not waiting.done()
        release()
        assert await asyncio.gather(*futures) == [1, 2, 3, 4]
        assert await waiting == 5
    async with Log.open(path, storage=storage, queue_bytes=1000) as log:
        release = stall(log)
        large = log.append_nowait(b"x" * 5000)  # larger than the queue: alone it may pass
        with pytest.raises(QueueFullError):
            log.append_nowait(b"x" * 10)
        release()
        assert await large == 6


def stall(log: Log) -> Any:
    """Keep the writer's thread busy until the function that is given back is called."""
    if not log.core.writer.threads:
        return lambda: None  # what one turn of the loop appends waits for the next anyway
    gate, entered = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        gate.wait(10)

    log.core.writer.command(hold)
    assert entered.wait(10)
    return gate.set


async def test_waiting_appends_share_one_sync(storage: Storage, path: str) -> None:
    """Whatever waited while the disk was busy becomes one frame and one sync; under `always` it does not."""
    async with Log.open(path, storage=storage) as log:
        release = stall(log)
        tasks = [asyncio.create_task(log.append(number)) for number in range(64)]
        await asyncio.sleep(0)
        release()
        assert await asyncio.gather(*tasks) == list(range(1, 65))
        assert (log.stats().commits, log.stats().syncs) == (1, 1)
    async with Log.open(path, storage=storage, sync=Sync.always()) as log:
        release = stall(log)
        tasks = [asyncio.create_task(log.append(number)) for number in range(10)]
        await asyncio.sleep(0)
        release()
        await asyncio.gather(*tasks)
        assert (log.stats().commits, log.stats().syncs) == (10, 10)


async def test_closing_drains_and_may_be_repeated(storage: Storage, path: str) -> None:
    """Closing writes what is queued, twice is once, and afterwards an append is refused."""
    async with Log.open(path, storage=storage) as log:
        release = stall(log)
        futures = [log.append_nowait(number) for number in range(50)]
        closing = asyncio.create_task(log.close())
        await asyncio.sleep(0)
        release()
        await closing
        await log.close()
        assert await asyncio.gather(*futures) == list(range(1, 51))
        with pytest.raises(LogClosedError):
            await log.append("late")
    assert len(values(list(Reader.open(path, storage=storage).read()))) == 50


async def test_cancelling_an_append_disturbs_nobody(storage: Storage, path: str) -> None:
    """A cancelled append may be written; the others of its batch get their answers."""
    async with Log.open(path, storage=storage) as log:
        release = stall(log)
        tasks = [asyncio.create_task(log.append(number)) for number in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        release()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert (done[0], done[2]) == (1, 3)
        assert isinstance(done[1], asyncio.CancelledError)


async def test_two_segments_are_always_open(storage: Storage, path: str) -> None:
    """One is written, the next is prepared; rotating swaps them and empty ones are not rotated."""
    async with Log.open(path, storage=storage) as log:
        assert await log.rotate() is None
        await log.append(1)
        first = log.segments()[0].name
        assert log.active_segments()[0] == first
        assert await log.rotate() == first
        await log.append(2)
        assert log.active_segments()[0] == log.segments()[1].name != first
    assert all(info.sealed for info in Reader.open(path, storage=storage).segments())


async def test_cleaning_drops_keeps_and_skips(storage: Storage, path: str) -> None:
    """True drops, False keeps, SkipSegment skips, an error stops; only sealed segments are touched."""
    async with Log.open(path, storage=storage) as log:
        for segment in range(4):
            await log.append_many([(b"k%d" % (n % 2), [segment, n]) for n in range(6)])
            if segment < 3:
                await log.rotate()
        await settled(log, 3)
        infos = log.segments()

        def judge(where: str, record: Record) -> bool:
            segment, number = record.value
            if segment == 1:
                raise SkipSegment
            return bool(segment == 0 or number % 2 == 0)

        done = await log.clean(judge)
        assert done.removed == (infos[0].name,)
        assert done.skipped == (infos[1].name,)
        assert done.rewritten == (infos[2].name,)
        assert done.dropped == 9
        left = await collect(log)
        assert left == [[1, n] for n in range(6)] + [[2, n] for n in (1, 3, 5)] + [[3, n] for n in range(6)]
        assert log.lookup(14).value == [2, 1]
        with pytest.raises(NotFoundError):
            log.lookup(13)
        assert await collect(log, key=b"k1", from_seq=13) == [[2, n] for n in (1, 3, 5)] + [
            [3, n] for n in (1, 3, 5)
        ]
        again = await log.clean(lambda _, record: record.value[0] == 99)
        assert (again.rewritten, again.removed, again.dropped) == ((), (), 0), (
            "an unchanged one is not rewritten"
        )

        def fails(where: str, record: Record) -> bool:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await log.clean(fails)
        assert await collect(log) == left
        assert [report.damage for report in await log.scrub()] == [(), ()]


async def settled(log: Log, sealed: int) -> None:
    """Wait until so many segments are sealed."""
    async with asyncio.timeout(10):
        while sum(info.sealed for info in log.segments()) < sealed:  # noqa: ASYNC110 - files tell nobody
            await asyncio.sleep(0.005)


async def test_sequences_are_never_given_twice(storage: Storage, path: str) -> None:
    """Even when everything was cleaned or expired and the log reopened, the next sequence is new."""
    async with Log.open(path, storage=storage) as log:
        await log.append_many([(b"", n) for n in range(10)])
    async with Log.open(path, storage=storage) as log:
        await log.clean(lambda _, record: True)
        await log.expire(before=1 << 62)
        assert await collect(log) == []
    async with Log.open(path, storage=storage) as log:
        assert await log.append("new") == 11
        assert await collect(log) == ["new"]


async def test_expiry_removes_the_oldest(storage: Storage, path: str) -> None:
    """By time or by bytes, whole sealed segments from the beginning, never the open one."""
    async with Log.open(path, storage=storage) as log:
        for segment in range(5):
            await log.append_many([(b"", b"x" * 100)] * 10, ts=segment * 100)
            await log.rotate()
        await log.append("open", ts=0)
        await settled(log, 5)
        names = [info.name for info in log.segments()]
        assert await log.expire(before=200) == names[:2]
        sealed = sum(info.bytes for info in log.segments() if info.sealed)
        size = sealed + log.core.writer.engine.active.position  # zeros prepared ahead do not count
        assert await log.expire(keep_bytes=size) == []
        assert await log.expire(keep_bytes=size - 1) == names[2:3]
        assert await log.expire(before=1 << 62, keep_bytes=0) == names[3:5]
        assert await collect(log) == ["open"]


async def test_bytes_are_looked_up_by_log_offset(storage: Storage, path: str) -> None:
    """`lookup_bytes` gives the frames' bytes, verified, across segments; what is not there is not found."""
    async with Log.open(path, storage=storage) as log:
        for number in range(30):
            await log.append(number)
            if number in {10, 20}:
                await log.rotate()
        end = log.stats().end_offset
        whole = log.lookup_bytes(0, end)
        assert len(whole) == end and whole[:4] == b"LGFR"
        assert log.lookup_bytes(100, 999) == whole[100:1099]
        for offset, size in [(end, 1), (end - 1, 2), (1 << 40, 1)]:
            with pytest.raises(NotFoundError):
                log.lookup_bytes(offset, size)


async def test_an_older_epoch_is_fenced(storage: Storage, path: str) -> None:
    """A writer that takes over with a newer epoch makes the older one's appends fail, and its restart."""
    async with Log.open(path, storage=storage, epoch=5) as log:
        assert await log.append(1, epoch=5) == 1
        await log.fence(7)
        with pytest.raises(StaleEpochError):
            await log.append(2, epoch=5)
        with pytest.raises(StaleEpochError):
            await log.fence(6)
        assert await log.append(3, epoch=7) == 2
        assert await collect(log) == [1, 3]
    with pytest.raises(StaleEpochError):
        BlockingLog(path, LogOptions(epoch=6), storage=storage)
    async with Log.open(path, storage=storage) as log:
        assert log.stats().epoch == 8


async def test_compressed_segments_read_the_same(storage: Storage, path: str) -> None:
    """With compress, sealed segments get smaller and give the same records, keys, times and Arrow columns."""
    text = [(b"k%d" % (n % 5), "the same words again and again " * 8) for n in range(500)]
    async with Log.open(path, storage=storage, compress=True) as log:
        await log.append_many(text)
        before = [(r.sequence, r.time, r.key, r.value) async for b in log.read() for r in b.records()]
        await log.rotate()
        await log.append("more")
    reader = Reader.open(path, storage=storage)
    info = reader.segments()[0]
    assert info.rewritten and info.bytes < 30_000
    after = [(r.sequence, r.time, r.key, r.value) for b in reader.read() for r in b.records()]
    assert after[:-1] == before
    assert reader.lookup(77).value == text[76][1]
    assert next(iter(reader.read())).to_arrow().num_rows == 500


async def test_arrow_columns_are_the_records(storage: Storage, path: str) -> None:
    """`to_arrow` gives sequence, time, key and value of every record, also of slices, keys and cleaned
    batches.
    """
    async with Log.open(path, storage=storage) as log:
        await log.append_many([(b"k%d" % (n % 3), n) for n in range(100)], ts=1_000)
        await log.rotate()
        await settled(log, 1)
        for turn in range(2):
            for wishes in ({}, {"from_seq": 40}, {"key": b"k1"}):
                async for batch in log.read(**wishes):
                    table = batch.to_arrow()
                    table.validate(full=True)
                    rows = list(batch.records())
                    assert table["sequence"].to_pylist() == [row.sequence for row in rows]
                    assert table["key"].to_pylist() == [row.key for row in rows]
                    assert table["value"].to_pylist() == [row.payload for row in rows]
                    assert table["time"].cast("int64").to_pylist() == [row.time for row in rows]
            if not turn:
                await log.clean(lambda _, record: record.sequence % 7 == 0)


async def test_memory_and_failure_policies_are_values(storage: Storage, path: str) -> None:
    """A failure callback is told once, from the log's thread, and the log has stopped."""
    told: list[str] = []
    async with Log.open(
        path, storage=storage, failure=WriteFailure.call(lambda e: told.append(str(e)))
    ) as log:
        await log.append(1)
        log.core.writer._fail(OSError("disk on fire"))
        with pytest.raises(Exception, match="disk on fire"):
            await log.append(2)
        assert log.stats().failed is not None
    assert len(told) == 1


async def test_a_replica_that_mirrors_becomes_the_same_bytes(storage: Storage, path: str) -> None:
    """Frames written as they are, under the coordinator's segment headers, give byte-identical segments."""
    async with Log.open(path, storage=storage) as log:
        for number in range(9):
            await log.append_many([(b"k%d" % number, number)] * 3)
            if number % 3 == 2:
                await log.rotate()
    source = Reader.open(path, storage=storage)
    header = Segment.open(source.directory, source.segments()[0].name).header
    with BlockingLog(path + "2", LogOptions(log_id=header.log_id, epoch=0), storage=storage) as replica:
        for info in source.segments():
            segment = Segment.open(source.directory, info.name)
            frames = segment.frames(end=segment.end)
            first = True
            while isinstance(batch := frames.next(), Batch):
                encoded = EncodedFrame((batch.header.pack(), batch.stored), batch.header)
                new = segment.header if first else None
                replica.mirror(new, [(encoded, batch.columns.distinct_keys())]).result(10)
                first = False
            segment.close()
        assert replica.stats().durable_sequence == 27
    copy = Reader.open(path + "2", storage=storage)
    assert [(i.name, i.bytes, i.digest) for i in copy.segments()] == [
        (i.name, i.bytes, i.digest) for i in source.segments()
    ]
