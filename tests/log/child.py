"""What the process tests run elsewhere: an appender that is killed, a racer for the lock, a reader that
follows.
"""

import asyncio
import sys
import time

from lorogo_log import BlockingLog, LockedError, Log, LogOptions, Reader


def append(path: str) -> None:
    """Append for ever from many tasks; print each sequence once it is acknowledged."""

    async def run() -> None:
        async with Log.open(path, segment_bytes=64 << 10) as log:

            async def one(task: int) -> None:
                number = 0
                while True:
                    value = [task, number, "x" * (number % 300)]
                    sequence = await log.append(value, key=b"t%d" % task)
                    sys.stdout.write(f"{sequence} {task} {number}\n")
                    number += 1

            async def flush() -> None:
                while True:
                    sys.stdout.flush()
                    await asyncio.sleep(0.001)

            await asyncio.gather(flush(), *(one(task) for task in range(8)))

    asyncio.run(run())


def race(path: str, turns: int) -> None:
    """Take the lock, append, let it go; print how often it was refused."""
    refused = 0
    for turn in range(turns):
        while True:
            try:
                with BlockingLog(path, LogOptions(lock_seconds=0)) as log:
                    log.append(turn)
                break
            except LockedError:
                refused += 1
                time.sleep(0.001)
    sys.stdout.write(f"{refused}\n")


def follow(path: str, count: int) -> None:
    """Follow until so many records were seen; print their values."""
    seen = 0
    for batch in Reader.open(path).read(follow_seconds=20):
        for record in batch.records():
            sys.stdout.write(f"{record.sequence} {record.value}\n")
            seen += 1
        sys.stdout.flush()
        if seen >= count:
            return


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["append", path]:
            append(path)
        case ["race", path, turns]:
            race(path, int(turns))
        case ["follow", path, count]:
            follow(path, int(count))
