"""A segmented commit log: checksummed, group-committed, readable by other processes while it is written.

```python
import asyncio
from lorogo_log import Log


async def main() -> None:
    async with Log.open("journal") as log:
        sequence = await log.append({"text": "hello"}, key=b"doc-1")   # durable when this returns
        await log.append_many([(b"doc-1", 1), (b"doc-2", 2)])          # all or none
        async for batch in log.read(from_seq=sequence, key=b"doc-1"):  # or from_time=, from_pos=; follow=True
            for record in batch.records():
                print(record.sequence, record.time, record.key, record.value)
            # batch.to_arrow(): the same bytes as Arrow columns
        await log.rotate()                                             # seals the records written so far
        await log.clean(lambda path, record: record.key == b"doc-2")   # True drops, False keeps


asyncio.run(main())
```

`BlockingLog(path, Options(...))` is the same for threads: `append`, `append_many`, `read`, `cursor`,
`lookup`, `rotate`, `flush`, `fence`, `clean`, `expire`, `scrub`; without `append_nowait` and without
following. `Reader.open(path)` reads a log of another process, or one without a writer, and follows it:
`read(follow_seconds=5)` ends after 5 s without a record; 0, the default, ends at the last record; `math.inf`
never ends. Its `arrow()` joins small batches on their way to Arrow, about twice as fast as one by one.

**On the disk** a log is a directory of segments, named by their first sequence and first time. A segment is
a header, then frames, then (once sealed) a trailer. A frame is one commit: all records that waited while
the disk was busy, as Arrow columns, with one checksum over the body and one over the header, chained to the
previous frame. The trailer holds an index by sequence and time, the keys of each block, counts, and a hash
of the file. `docs/LOG_FORMAT.md` has every byte.

**Writing**: appends go into one queue (bounded in records and bytes). One thread takes all queued records,
writes one frame, syncs once and wakes the callers. Two files are always open, so rotation is a swap;
a second thread prepares and seals segments. Any error of a write or a sync stops the log: every waiting
caller gets `LogFailedError`, and no write is repeated.

**Opening** reads footers and the unsealed tail. A torn tail is cut, with a `.broken` copy. Bad bytes with
good frames behind them are never cut, and a segment that lost even its first frame stays as it is: the rest
is served, none of its sequences is used again, and `install` replaces the segment by a good copy from a
replica. `on_damage` gets each finding. New frames never go into a segment found at open.

**Reading** takes no locks and needs no writer. A cursor returns complete and checked frames only; in the
writer's process, durable ones only. Save `str(batch.next)` after processing a batch, and continue later with
`read(from_pos=LogPosition.parse(text))`; a sequence or a time works as well.

**Keeping it small**: `expire(before=..., keep_bytes=...)` removes old segments (`keep_bytes` of data stay;
prepared zeros do not count). `clean(fn)` rewrites sealed segments without the records for which
`fn(segment_path, record)` returns True (`SkipSegment` leaves a segment alone, an error stops).
`compress=True` rewrites them with zstd. No sequence is used twice, whatever was removed.

**On other machines**: a `Coordinator` streams the log to `LogReplica`s, which keep the same bytes and
reconnect on their own. `await coordinator.wait(sequence, replicas=2)` returns when two of them have a
record, and all before it, on their disks. A `Repairer` fetches damaged segments from them. With replicas an
append alone is not enough: during a takeover the old coordinator appends until it learns of the new one
(then `StaleEpochError`), and records that only it has are set aside. Only `wait` confirms that a record
stays.
"""

from lorogo_log.core import BlockingLog, LogOptions, LogStats
from lorogo_log.cursor import Cursor
from lorogo_log.errors import (
    CorruptionError,
    DamageError,
    DiskFullError,
    End,
    FormatError,
    LockedError,
    LogClosedError,
    LogError,
    LogFailedError,
    NotFoundError,
    QueueFullError,
    ReplicaError,
    SkipSegment,
    StaleEpochError,
    TooLargeError,
    TornError,
)
from lorogo_log.format.batch import Batch, LogPosition, Record
from lorogo_log.log import Log
from lorogo_log.reader import Reader, SegmentInfo
from lorogo_log.recovery.recovery import RecoveryMode
from lorogo_log.recovery.sealed_segments import CleaningResult, SegmentReport
from lorogo_log.replication.coordinator import Coordinator, CoordinatorStats
from lorogo_log.replication.replica import LogReplica, ReplicaStats
from lorogo_log.replication.replica_follower import ReplicaInfo
from lorogo_log.replication.replica_repair import Repairer
from lorogo_log.storage.disk import Directory, File, FileStorage, Lock, Storage
from lorogo_log.storage.memory import MemoryStorage
from lorogo_log.storage.small_files import read_file, replace_file
from lorogo_log.storage.workers import Workers
from lorogo_log.transfer.segment_transfer import SegmentServer
from lorogo_log.write.policy import Sync, WriteFailure

__all__ = [
    "Batch",
    "BlockingLog",
    "CleaningResult",
    "Coordinator",
    "CoordinatorStats",
    "CorruptionError",
    "Cursor",
    "DamageError",
    "Directory",
    "DiskFullError",
    "End",
    "File",
    "FileStorage",
    "FormatError",
    "Lock",
    "LockedError",
    "Log",
    "LogClosedError",
    "LogError",
    "LogFailedError",
    "LogOptions",
    "LogPosition",
    "LogReplica",
    "LogStats",
    "MemoryStorage",
    "NotFoundError",
    "QueueFullError",
    "Reader",
    "Record",
    "RecoveryMode",
    "Repairer",
    "ReplicaError",
    "ReplicaInfo",
    "ReplicaStats",
    "SegmentInfo",
    "SegmentReport",
    "SegmentServer",
    "SkipSegment",
    "StaleEpochError",
    "Storage",
    "Sync",
    "TooLargeError",
    "TornError",
    "Workers",
    "WriteFailure",
    "read_file",
    "replace_file",
]
