"""The writers of a fault run: processes that start, are killed and restart, and the events that they record.

Writers 0, 2, 4, ... have a local store that survives restarts. The others lose unACKed edits with their
process. Each document has two writers, if there are two.
"""

import asyncio
import json
import os
import sys
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from lorogo_chaos.errors import StackNotReady
from lorogo_chaos.fleet.event_log import EventLogReader, WriterEvent, WriterRun
from lorogo_chaos.fleet.traces import RecordedTrace
from lorogo_chaos.fleet.writer import WriterSettings
from lorogo_chaos.processes.stack import ChaosStack

_PATCHES_MAX = 20_000  # of one trace: enough for a run, and every writer reads them
_START_SECONDS = 30.0
_LEAVE_SECONDS = 15.0
_REPLY_SECONDS = 20.0
_POLL_SECONDS = 0.1


class UnackedEdits:
    """The unACKed edits of one incarnation, from its events."""

    def __init__(self) -> None:
        self._numbers: dict[str, list[int]] = {}
        self._times: dict[str, list[float]] = {}
        self.acked = 0
        self.acked_documents: set[str] = set()
        self.acked_at = 0.0  # the newest ACK
        self._acks: list[tuple[float, float]] = []  # time, and the time at which its oldest edit was written

    def add(self, event: WriterEvent) -> None:
        numbers = self._numbers.setdefault(event.document, [])
        times = self._times.setdefault(event.document, [])
        if event.kind == "wrote":
            numbers.append(event.number)
            times.append(event.at)
        elif event.kind in ("acked", "dropped"):
            count = bisect_right(numbers, event.number)
            if event.kind == "acked" and count:
                self.acked += count
                self.acked_documents.add(event.document)
                self.acked_at = event.at
                self._acks.append((event.at, times[0]))
            del numbers[:count], times[:count]

    def ends_wait(self, before: float) -> float:
        """Return the time of the ACK that completed the edits written before, or of the first since."""
        later = [(at, written) for at, written in self._acks if at > before]
        old = [at for at, written in later if written <= before]
        return max([*old, *(at for at, _ in later[:1])], default=before)

    def documents(self, before: float) -> set[str]:
        """Return the documents with an unACKed edit from before that time."""
        return {document for document, times in self._times.items() if times and times[0] <= before}


@dataclass
class _Writer:
    index: int
    documents: tuple[str, ...]
    url: str
    folder: Path
    stored: bool
    incarnations: int = 0
    process: asyncio.subprocess.Process | None = None
    reading: EventLogReader | None = None
    waiting: UnackedEdits = field(default_factory=UnackedEdits)


class ClientFleet:
    """All writers; use with `async with`."""

    def __init__(
        self,
        stack: ChaosStack,
        documents: Sequence[str],
        *,
        writers: int,
        traces: Sequence[RecordedTrace],
        edits_per_second: float,
        seed: int,
        edits_each: int = 0,
    ) -> None:
        self._stack = stack
        self._edits_each = edits_each
        self._documents = tuple(documents)
        self._count = writers
        self._traces = traces
        self._pace = edits_per_second / writers
        self._seed = seed
        self._folder = stack.folder / "writers"
        self._writers: list[_Writer] = []
        self._readings: list[EventLogReader] = []
        self.undrained: list[int] = []

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._prepare)
        for index in range(self._count):
            url = await self._stack.link(f"writer-{index + 1}")
            folder = self._folder / f"writer-{index + 1}"
            mine = documents_of(index, self._count, self._documents)
            self._writers.append(_Writer(index, mine, url, folder, stored=index % 2 == 0))
        async with AsyncExitStack() as undo:  # stop the started ones if another fails
            undo.push_async_callback(self.kill_all)
            for index in range(self._count):
                await self.start(index)
            undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill_all()

    @property
    def pids(self) -> dict[str, list[int]]:
        """The process ids of running writers, by name."""
        return {
            f"writer-{one.index + 1}": [one.process.pid] for one in self._writers if one.process is not None
        }

    @property
    def running(self) -> list[int]:
        """The writers that were started and have not ended."""
        return [one.index for one in self._writers if one.process is not None]

    def has_store(self, index: int) -> bool:
        return self._writers[index].stored

    @property
    def incarnations(self) -> list[WriterRun]:
        """All recorded incarnations; call `read_events()` before."""
        return [reading.incarnation for reading in self._readings if reading.incarnation is not None]

    @property
    def documents(self) -> list[str]:
        """All documents of writers, from the events read so far."""
        noted = {
            event.document
            for incarnation in self.incarnations
            for event in incarnation.events
            if event.document
        }
        return sorted(noted | set(self._documents))

    @property
    def current(self) -> list[str]:
        """The documents that a writer edits now, from the events read so far."""
        return sorted({document for one in self._writers for document in _newest(one)})

    @property
    def acked(self) -> set[str]:
        """The documents of which a running writer has an ACK."""
        return {document for one in self._writers for document in one.waiting.acked_documents}

    # --- start and stop -----------------------------------------------------------------------------

    async def start(self, index: int) -> None:
        """Start a new incarnation of a writer. Raises StackNotReady."""
        writer = self._writers[index]
        assert writer.process is None, "it runs"
        writer.incarnations += 1
        writer.documents = _newest(writer)
        order = writer.folder / f"order-{writer.incarnations}.json"
        events = writer.folder / f"notes-{writer.incarnations}.jsonl"
        await asyncio.to_thread(self._write_order, writer, order, events)
        with (writer.folder / "writer.log").open("ab") as log:
            writer.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "lorogo_chaos.fleet.writer", str(order)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the fault run
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        writer.reading, writer.waiting = EventLogReader(events), UnackedEdits()
        self._readings.append(writer.reading)
        if not await _prints(writer.process, "ready", _START_SECONDS):
            await self.kill(index)
            raise StackNotReady(f"writer-{index + 1} did not start; see {writer.folder / 'writer.log'}")

    async def kill(self, index: int) -> None:
        """Kill a writer with SIGKILL."""
        writer = self._writers[index]
        if writer.process is not None:
            with suppress(ProcessLookupError):
                writer.process.kill()
            await self._ended(writer)

    async def stop_gracefully(self, index: int) -> None:
        """Stop a writer as an app that is closed."""
        writer = self._writers[index]
        if writer.process is not None:
            assert writer.process.stdin is not None
            writer.process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await writer.process.wait()
            await self.kill(index)

    async def kill_all(self) -> None:
        for writer in self._writers:
            await self.kill(writer.index)

    async def restart_ended(self) -> list[int]:
        """Start the writers that exited or did not start, and return them. Raises StackNotReady."""
        dead = [one for one in self._writers if one.process is None or one.process.returncode is not None]
        for writer in dead:
            if writer.process is not None:
                await self._ended(writer)
            await self.start(writer.index)
        return [writer.index for writer in dead]

    # --- events -------------------------------------------------------------------------------------

    def read_events(self) -> None:
        """Read the events recorded since the last call."""
        for writer in self._writers:
            if writer.reading is not None:
                for event in writer.reading.read_new():
                    writer.waiting.add(event)

    def unacked(self, before: float) -> set[str]:
        """Return documents with an unACKed edit from before that time, of a running writer."""
        self.read_events()
        waiting = (one.waiting.documents(before) for one in self._writers if one.process is not None)
        return set().union(*waiting)

    async def recovered(self, before: float, seconds: float) -> float | None:
        """Return the time when every edit from before was ACKed, and each running writer had an ACK since.

        None if that did not happen within the time.
        """
        until = time.monotonic() + seconds
        while self.unacked(before) or self.without_ack(before):
            if time.monotonic() > until:
                return None
            await asyncio.sleep(_POLL_SECONDS)
        return self._acked_since(before)

    def without_ack(self, since: float) -> list[int]:
        """Return the running writers that have a document, and no ACK since that time."""
        return [
            one.index
            for one in self._writers
            if one.process is not None and one.documents and one.waiting.acked_at <= since
        ]

    def _acked_since(self, before: float) -> float:
        """Return the time of the last condition of a recovery, as exactly as the events show."""
        times = [one.waiting.ends_wait(before) for one in self._writers if one.process is not None]
        return max(times, default=before)

    # --- the end ------------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> list[int]:
        """Stop editing, and wait for the ACKs; return the writers that did not get them in time.

        A writer that has ended with a local store counts as one of those.
        """
        running = [one for one in self._writers if one.process is not None]
        for writer in running:
            _send_command(writer.process, "drain")
        drained = await asyncio.gather(*(_prints(one.process, "drained", seconds) for one in running))
        self.read_events()
        undrained = [one.index for one, word in zip(running, drained, strict=True) if not word]
        undrained += [one.index for one in self._writers if one.process is None and one.stored]
        self.undrained = sorted(undrained)
        return self.undrained

    async def record_digests(self) -> list[int]:
        """Let the writers record their replicas' digests; return those that did not in time."""
        running = [one for one in self._writers if one.process is not None]
        for writer in running:
            _send_command(writer.process, "digest")
        digested = await asyncio.gather(
            *(_prints(one.process, "digested", _REPLY_SECONDS) for one in running)
        )
        self.read_events()
        return [one.index for one, word in zip(running, digested, strict=True) if not word]

    # --- inside -------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True)
        for index in range(self._count):
            (self._folder / f"writer-{index + 1}").mkdir()
        patches = [trace.patches[:_PATCHES_MAX] for trace in self._traces]
        (self._folder / "traces.json").write_text(json.dumps(patches))

    def _write_order(self, writer: _Writer, order: Path, events: Path) -> None:
        WriterSettings(
            url=writer.url,
            writer=writer.index,
            incarnation=writer.incarnations,
            documents=writer.documents,
            edits_per_second=self._pace,
            seed=self._seed * 1_000_003 + writer.index * 1_009 + writer.incarnations,
            events=str(events),
            traces=str(self._folder / "traces.json"),
            store=str(writer.folder / "store") if writer.stored else "",
            edits_each=self._edits_each,
        ).save(order)

    async def _ended(self, writer: _Writer) -> None:
        assert writer.process is not None and writer.reading is not None
        await writer.process.wait()
        writer.process = None
        for event in writer.reading.read_new():
            writer.waiting.add(event)
        if writer.reading.incarnation is not None:
            writer.reading.incarnation.ended_at = time.monotonic()


def _newest(writer: _Writer) -> tuple[str, ...]:
    """Return the documents with which a writer continues: the newest of each of its sequences."""
    at = {document.partition("_")[0]: document for document in writer.documents}
    incarnation = None if writer.reading is None else writer.reading.incarnation
    for event in [] if incarnation is None else incarnation.events:
        if event.kind == "wrote":
            at[event.document.partition("_")[0]] = event.document
    return tuple(at.values())


def documents_of(index: int, writers: int, documents: Sequence[str]) -> tuple[str, ...]:
    """Return the documents of a writer: each has two writers, if there are two."""
    return tuple(
        document for at, document in enumerate(documents) if index in (at % writers, (at + 1) % writers)
    )


def _send_command(process: asyncio.subprocess.Process | None, word: str) -> None:
    assert process is not None and process.stdin is not None
    with suppress(ConnectionError):
        process.stdin.write(f"{word}\n".encode())


async def _prints(process: asyncio.subprocess.Process | None, word: str, seconds: float) -> bool:
    """Return True if the process prints the word in time."""
    assert process is not None and process.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            while line := await process.stdout.readline():
                if line.decode().strip() == word:
                    return True
    except TimeoutError:
        pass
    return False
