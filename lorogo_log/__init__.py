"""A segmented commit log: checksummed, group-committed, readable by anybody at any time.

```python
import asyncio
from lorogo_log import Log


async def main() -> None:
    async with Log.open("journal") as log:
        sequence = await log.append({"text": "hello"}, key=b"doc-1")   # on the disk when this returns
        await log.append_many([(b"doc-1", 1), (b"doc-2", 2)])          # all or none
        async for batch in log.read(from_seq=sequence, key=b"doc-1"):  # or from_time=, from_pos=; follow=True
            for record in batch.records():
                print(record.sequence, record.time, record.key, record.value)
            # batch.to_arrow(): the same bytes as Arrow columns
        await log.rotate()                                             # what was written until now is sealed
        await log.clean(lambda path, record: record.key == b"doc-2")   # True drops, False keeps


asyncio.run(main())
```

`BlockingLog(path, Options(...))` is the same for threads: `append`, `append_many`, `read`, `cursor`,
`lookup`, `rotate`, `flush`, `fence`, `clean`, `expire`, `scrub`; without `append_nowait` and without
following. `Reader.open(path)` reads a log of another process, or one without a writer, and follows it:
`read(follow_seconds=5)` ends when nothing came for 5 s; 0, the default, at the end; `math.inf` never.
Its `arrow()` joins small batches on their way to Arrow, which is about twice as fast as one by one.

**On the disk** a log is a directory of segments, named by their first sequence and first time. A segment is
a header, then frames, then (once sealed) a trailer. A frame is one commit: all records that waited while
the disk was busy, as Arrow columns, with one checksum over the body and one over the header, chained to the
frame before it. The trailer holds an index by sequence and time, the keys of each block, counts, and a hash
of the file. `docs/LOG_FORMAT.md` draws every byte.

**Writing**: appends go into one queue (bounded in records and bytes); one thread takes all that waits,
writes one frame, syncs once and wakes everybody. Two files are always open, so rotation is a swap;
preparing and sealing happen in a second thread. Any error of a write or a sync stops the log:
`LogFailedError` for everybody who waits, and nothing is tried again.

**Opening** reads footers and the unsealed tail. A torn tail is cut, with a `.broken` copy. Bad bytes with
good frames behind them are never cut, and a segment that lost even its first frame stays as it is: the rest
is served, none of the sequences in it is given again, and `install` takes a good copy of the segment from a
replica. All of it is told to `on_damage`. New frames never go into a segment found at open.

**Reading** takes no locks and needs no writer. A cursor gives only what is whole and checked; in the
writer's process, only what is durable. A record that is being written is not there yet. A saved `Position`
(or any sequence, or any time) is a place to go on from: save `str(batch.next)` when a batch was used, and
later `read(from_pos=Position.parse(text))`.

**Keeping it small**: `expire(before=..., keep_bytes=...)` removes old segments (`keep_bytes` of data stay;
zeros prepared ahead do not count), `clean(fn)` rewrites sealed
ones without the records for which `fn(segment_path, record)` says True (`SkipSegment` leaves a segment
alone, an error stops), `compress=True` rewrites them with zstd. Sequences are never given twice, whatever
was removed.

**On other machines**: a `Coordinator` streams the log to `LogReplica`s, which keep the same bytes and connect
again by themselves; `await coordinator.wait(sequence, replicas=2)` returns when two of them have a record,
and all before it, on their disks. A `Repairer` fetches damaged segments from them. With replicas an append
alone is not enough: during a takeover the old coordinator appends until it hears of the new one (then
`StaleEpochError`), and what nobody else has is put aside. Only what `wait` has told of is sure to stay.
"""

from lorogo_log.core import BlockingLog, LogOptions, LogStats
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
from lorogo_log.format.batch import Batch, Position, Record
from lorogo_log.log import Log
from lorogo_log.maintenance.sealed_segments import CleaningResult, SegmentReport
from lorogo_log.read.cursor import Cursor
from lorogo_log.read.reader import Reader, SegmentInfo
from lorogo_log.recovery.recovery import RecoveryMode
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
    "LogReplica",
    "LogStats",
    "MemoryStorage",
    "NotFoundError",
    "Position",
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
