"""Recovery time after NATS lost its files, and documents that are served before they are complete.

python bench/recovery.py [--dir DIR] [--documents 200] [--updates 20000] [--servers 1] [--readers 200]

`lorogo serve` ACKs the updates. Then every process is killed, the files of NATS are removed, and NATS and the
servers start again, while readers open documents at once; the other documents are read at the end.

Prints updates restored per second, from the first server that answers until the servers have published all
of them again and NATS has confirmed it. Also the CPU of servers and nats-server, the number of documents
served without ACKed content, and the waiting time of a reader.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import nanoid
import uvloop
from loro import LoroDoc

from lorogo_bench.stack.usage import usage
from lorogo_client import Client, connect
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages import chunks, subjects
from lorogo_transport.nats.connection import JetStreamTransport
from lorogo_transport.nats.connection import connect as dial
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.ports import Message
from lorogo_transport.rpc.discovery import server_stats

_START_SECONDS = 20.0
_WAIT_SECONDS = 180.0
_IN_FLIGHT = 64
_GOAL_PER_SECOND = 5_000


class Typist:
    """Sends keystrokes to some documents, and counts the ACKs."""

    def __init__(self, transport: JetStreamTransport) -> None:
        self._transport = transport
        self._inbox = transport.bus.new_inbox()
        self._waiting: dict[str, asyncio.Future[None]] = {}

    async def start(self) -> None:
        await self._transport.bus.subscribe(f"{self._inbox}.*", self._on_reply)
        await self._transport.bus.barrier()

    def _on_reply(self, message: Message) -> None:
        future = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if future is not None and not future.done() and message.data == b"ACK":
            future.set_result(None)

    async def type(self, name: str, count: int, slots: asyncio.Semaphore) -> None:
        """Type keystrokes into one document, each after the ACK of the previous one."""
        made: list[bytes] = []
        doc = LoroDoc()

        def keep(update: bytes) -> bool:
            made.append(bytes(update))
            return True

        kept = doc.subscribe_local_update(keep)
        text, subject = doc.get_text("t"), subjects.wal(name)
        async with slots:
            for _ in range(count):
                text.insert(text.len_unicode, "x")
                doc.commit()
                log_id = str(nanoid.generate())
                (chunk,) = chunks.split(
                    made.pop(), log_id, chunk_bytes_max=100_000, inbox=f"{self._inbox}.{log_id}"
                )
                done = self._waiting[log_id] = asyncio.get_running_loop().create_future()
                await self._transport.bus.publish(subject, chunk.data, headers=chunk.headers())
                async with asyncio.timeout(_START_SECONDS):
                    await done
        del kept


def serve(url: str, folder: Path) -> "subprocess.Popen[bytes]":
    with folder.with_suffix(".log").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "lorogo_cli", "serve", "--nats", url, "--data", str(folder)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "LOROGO_OPEN": "1"},
            stdout=output,
            stderr=output,
        )


def end(processes: list["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        process.kill()
        process.wait(30)


async def read(client: Client, name: str, began: float) -> tuple[str, int, float]:
    """Return the number of letters that a reader gets, and when."""
    while True:
        with suppress(LorogoError):
            value = (await client.document(name).get(timeout=5.0))["value"]
            letters = len(str(value.get("t", ""))) if isinstance(value, dict) else 0
            return name, letters, time.perf_counter() - began
        if time.perf_counter() - began > _WAIT_SECONDS:
            return name, -1, time.perf_counter() - began


async def watch(transport: JetStreamTransport, wanted: int, pids: Sequence[int]) -> "Watched":
    """Wait until the servers have published all updates again."""
    seen, ends = Watched(), time.perf_counter() + _WAIT_SECONDS
    while seen.updates < wanted and time.perf_counter() < ends:
        with suppress(LorogoError):
            answers = await server_stats(transport.bus, first_seconds=0.2, gather_seconds=0.02)
            now, cpu = time.perf_counter(), sum(usage(pid).cpu_seconds or 0.0 for pid in pids)
            if answers and not seen.first:
                seen.first, seen.cpu_first = now, cpu
            updates = sum(int(one.stats["republished"]) for one in answers)
            if updates > seen.updates:
                seen.updates, seen.last, seen.cpu_last = updates, now, cpu
        await asyncio.sleep(0.02)
    return seen


@dataclass(slots=True)
class Watched:
    """The times of the first answer and the last restored update, and the CPU seconds at both times."""

    first: float = 0.0
    last: float = 0.0
    updates: int = 0
    cpu_first: float = 0.0
    cpu_last: float = 0.0


async def start(client: Client, name: str) -> None:
    """Start the document."""
    async with client.open(name, timeout=_START_SECONDS):
        pass


async def run(folder: Path, documents: int, updates: int, servers: int, readers: int) -> int:
    names = [f"doc-{number}" for number in range(documents)]
    each = updates // documents
    async with AsyncExitStack() as stack:
        nats = EmbeddedNats(folder / "nats")
        await nats.start()
        stack.push_async_callback(nats.stop)
        homes = [folder / f"server-{number}" for number in range(servers)]
        running = [serve(nats.url, home) for home in homes]
        stack.callback(lambda: end(running))
        async with await dial(nats.url, name="bench") as transport, connect(transport) as client:
            slots = asyncio.Semaphore(_IN_FLIGHT)
            await asyncio.gather(*(start(client, name) for name in names))
            typist = Typist(transport)
            await typist.start()
            began = time.perf_counter()
            await asyncio.gather(*(typist.type(name, each, slots) for name in names))
            spent = time.perf_counter() - began
            print(f"{documents * each:,} updates of {documents} documents ACKed in {spent:.1f} s")
        end(running)
        await nats.kill()
        shutil.rmtree(folder / "nats" / "jetstream")
        await nats.start()
        running[:] = [serve(nats.url, home) for home in homes]
        async with await dial(nats.url, name="bench") as transport, connect(transport) as client:
            began = time.perf_counter()
            pids = [nats.pid, *(process.pid for process in running)]
            watching = asyncio.create_task(watch(transport, documents * each, pids))
            found = await asyncio.gather(*(read(client, name, began) for name in names[:readers]))
            seen = await watching
            waits = sorted(wait for *_, wait in found)
            found += await asyncio.gather(*(read(client, name, began) for name in names[readers:]))
    missing = [(name, letters) for name, letters, _ in found if letters < each]
    seconds, have = seen.last - seen.first, max(seen.updates, 1)
    rate, cpu = have / max(seconds, 1e-9), (seen.cpu_last - seen.cpu_first) / have
    print(f"{seen.updates:,} updates brought back in {seconds:.2f} s: {rate:,.0f} a second")
    print(f"CPU of servers and nats-server: {1e6 * cpu:.0f} microseconds for each")
    print(f"served without ACKed content: {len(missing)} of {len(found)} documents")
    if waits:
        print(f"a reader waited {waits[len(waits) // 2]:.1f} s (median), {waits[-1]:.1f} s (max)")
    good = rate >= _GOAL_PER_SECOND and not missing and seen.updates >= documents * each
    print(f"goal: {_GOAL_PER_SECOND:,} a second, none incomplete: {'met' if good else 'MISSED'}")
    print(f"load average: {os.getloadavg()[0]:.1f}")
    return int(not good)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", default=None, help="where the files lie; default: a temporary folder")
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--readers", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        return uvloop.run(run(Path(folder), given.documents, given.updates, given.servers, given.readers))


if __name__ == "__main__":
    sys.exit(main())
