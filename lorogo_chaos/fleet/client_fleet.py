"""The writers of a drill: processes that come, are killed, and come again, and what they have noted.

Writer 0, 2, 4, ... have a local store, which outlives them. The others lose with their process what was not
ACKed. Each document has two writers, if there are two.
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

_PATCHES_MAX = 20_000  # of one trace: enough for a drill, and read by every writer
_START_SECONDS = 30.0
_LEAVE_SECONDS = 15.0
_TELL_SECONDS = 20.0
_POLL_SECONDS = 0.1


class UnackedEdits:
    """The edits of one life that are not ACKed, by its notes."""

    def __init__(self) -> None:
        self._numbers: dict[str, list[int]] = {}
        self._times: dict[str, list[float]] = {}
        self.acked = 0
        self.acked_documents: set[str] = set()
        self.acked_at = 0.0  # the newest ACK
        self._acks: list[tuple[float, float]] = []  # when, and when the oldest edit of it was written

    def add(self, note: WriterEvent) -> None:
        numbers = self._numbers.setdefault(note.document, [])
        times = self._times.setdefault(note.document, [])
        if note.kind == "wrote":
            numbers.append(note.number)
            times.append(note.at)
        elif note.kind in ("acked", "dropped"):
            count = bisect_right(numbers, note.number)
            if note.kind == "acked" and count:
                self.acked += count
                self.acked_documents.add(note.document)
                self.acked_at = note.at
                self._acks.append((note.at, times[0]))
            del numbers[:count], times[:count]

    def ends_wait(self, before: float) -> float:
        """The ACK that was the last of what was written before that time, or else the first since then."""
        later = [(at, written) for at, written in self._acks if at > before]
        old = [at for at, written in later if written <= before]
        return max([*old, *(at for at, _ in later[:1])], default=before)

    def documents(self, before: float) -> set[str]:
        """Those with an edit from before that time."""
        return {document for document, times in self._times.items() if times and times[0] <= before}


@dataclass
class _Writer:
    index: int
    documents: tuple[str, ...]
    url: str
    folder: Path
    stored: bool
    lives: int = 0
    process: asyncio.subprocess.Process | None = None
    reading: EventLogReader | None = None
    waiting: UnackedEdits = field(default_factory=UnackedEdits)


class ClientFleet:
    """All writers; they end with `async with`."""

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
        self.unrested: list[int] = []

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._prepare)
        for index in range(self._count):
            url = await self._stack.line(f"writer-{index + 1}")
            folder = self._folder / f"writer-{index + 1}"
            mine = documents_of(index, self._count, self._documents)
            self._writers.append(_Writer(index, mine, url, folder, stored=index % 2 == 0))
        async with AsyncExitStack() as undo:  # those that have begun end, should another fail
            undo.push_async_callback(self.kill_all)
            for index in range(self._count):
                await self.start(index)
            undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill_all()

    @property
    def pids(self) -> dict[str, list[int]]:
        """Of the writers that live, by their names."""
        return {
            f"writer-{one.index + 1}": [one.process.pid] for one in self._writers if one.process is not None
        }

    @property
    def living(self) -> list[int]:
        """The writers that were started and not ended."""
        return [one.index for one in self._writers if one.process is not None]

    def has_store(self, index: int) -> bool:
        return self._writers[index].stored

    @property
    def lives(self) -> list[WriterRun]:
        """All that was noted so far; call `listen()` before."""
        return [reading.life for reading in self._readings if reading.life is not None]

    @property
    def documents(self) -> list[str]:
        """All that were edited or were to be, as far as it was read from the notes."""
        noted = {note.document for life in self.lives for note in life.notes if note.document}
        return sorted(noted | set(self._documents))

    @property
    def current(self) -> list[str]:
        """Those that somebody edits now, as far as it was read from the notes."""
        return sorted({document for one in self._writers for document in _newest(one)})

    @property
    def acked(self) -> set[str]:
        """Documents that somebody who lives has an ACK of."""
        return {document for one in self._writers for document in one.waiting.acked_documents}

    # --- coming and going ---------------------------------------------------------------------------

    async def start(self, index: int) -> None:
        """Begin a new life of a writer. Raises NotReady."""
        writer = self._writers[index]
        assert writer.process is None, "it lives"
        writer.lives += 1
        writer.documents = _newest(writer)
        order = writer.folder / f"order-{writer.lives}.json"
        notes = writer.folder / f"notes-{writer.lives}.jsonl"
        await asyncio.to_thread(self._write_order, writer, order, notes)
        with (writer.folder / "writer.log").open("ab") as log:
            writer.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "lorogo_chaos.fleet.writer", str(order)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the drill
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        writer.reading, writer.waiting = EventLogReader(notes), UnackedEdits()
        self._readings.append(writer.reading)
        if not await _says(writer.process, "ready", _START_SECONDS):
            await self.kill(index)
            raise StackNotReady(f"writer-{index + 1} did not start; see {writer.folder / 'writer.log'}")

    async def kill(self, index: int) -> None:
        """End a writer as kill -9 does."""
        writer = self._writers[index]
        if writer.process is not None:
            with suppress(ProcessLookupError):
                writer.process.kill()
            await self._ended(writer)

    async def leave(self, index: int) -> None:
        """A writer goes home, as an app that is closed."""
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

    async def revive(self) -> list[int]:
        """Start those that ended by themselves, or did not start; which they were. Raises NotReady."""
        dead = [one for one in self._writers if one.process is None or one.process.returncode is not None]
        for writer in dead:
            if writer.process is not None:
                await self._ended(writer)
            await self.start(writer.index)
        return [writer.index for writer in dead]

    # --- what they noted ----------------------------------------------------------------------------

    def listen(self) -> None:
        """Read what was noted since the last time."""
        for writer in self._writers:
            if writer.reading is not None:
                for note in writer.reading.more():
                    writer.waiting.add(note)

    def unacked(self, before: float) -> set[str]:
        """Documents with an edit from before that time that is not ACKed; its writer lives and waits."""
        self.listen()
        waiting = (one.waiting.documents(before) for one in self._writers if one.process is not None)
        return set().union(*waiting)

    async def recovered(self, before: float, seconds: float) -> float | None:
        """When everything from before that time was ACKed, and each who lives had an ACK since then.

        None if it was not so within the seconds.
        """
        until = time.monotonic() + seconds
        while self.unacked(before) or self.without_ack(before):
            if time.monotonic() > until:
                return None
            await asyncio.sleep(_POLL_SECONDS)
        return self._acked_since(before)

    def without_ack(self, since: float) -> list[int]:
        """The writers that live, have something to edit, and had no ACK since that time."""
        return [
            one.index
            for one in self._writers
            if one.process is not None and one.documents and one.waiting.acked_at <= since
        ]

    def _acked_since(self, before: float) -> float:
        """When the last of the conditions of a recovery came true, as well as notes tell."""
        times = [one.waiting.ends_wait(before) for one in self._writers if one.process is not None]
        return max(times, default=before)

    # --- the end ------------------------------------------------------------------------------------

    async def rest(self, seconds: float) -> list[int]:
        """Nobody edits any more, and all wait for their ACKs; those that did not get them in time.

        Nor did one that is not there, and whose local store nobody has opened since it ended.
        """
        living = [one for one in self._writers if one.process is not None]
        for writer in living:
            _tell(writer.process, "rest")
        rested = await asyncio.gather(*(_says(one.process, "rests", seconds) for one in living))
        self.listen()
        unrested = [one.index for one, word in zip(living, rested, strict=True) if not word]
        unrested += [one.index for one in self._writers if one.process is None and one.stored]
        self.unrested = sorted(unrested)
        return self.unrested

    async def look(self) -> list[int]:
        """Let all note what their replicas hold; those that did not in time."""
        living = [one for one in self._writers if one.process is not None]
        for writer in living:
            _tell(writer.process, "look")
        looked = await asyncio.gather(*(_says(one.process, "looked", _TELL_SECONDS) for one in living))
        self.listen()
        return [one.index for one, word in zip(living, looked, strict=True) if not word]

    # --- inside -------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True)
        for index in range(self._count):
            (self._folder / f"writer-{index + 1}").mkdir()
        patches = [trace.patches[:_PATCHES_MAX] for trace in self._traces]
        (self._folder / "traces.json").write_text(json.dumps(patches))

    def _write_order(self, writer: _Writer, order: Path, notes: Path) -> None:
        WriterSettings(
            url=writer.url,
            writer=writer.index,
            life=writer.lives,
            documents=writer.documents,
            edits_per_second=self._pace,
            seed=self._seed * 1_000_003 + writer.index * 1_009 + writer.lives,
            notes=str(notes),
            traces=str(self._folder / "traces.json"),
            store=str(writer.folder / "store") if writer.stored else "",
            edits_each=self._edits_each,
        ).save(order)

    async def _ended(self, writer: _Writer) -> None:
        assert writer.process is not None and writer.reading is not None
        await writer.process.wait()
        writer.process = None
        for note in writer.reading.more():
            writer.waiting.add(note)
        if writer.reading.life is not None:
            writer.reading.life.ended_at = time.monotonic()


def _newest(writer: _Writer) -> tuple[str, ...]:
    """Where a writer goes on: at the newest document of each that its life before had come to."""
    at = {document.partition("_")[0]: document for document in writer.documents}
    life = None if writer.reading is None else writer.reading.life
    for note in [] if life is None else life.notes:
        if note.kind == "wrote":
            at[note.document.partition("_")[0]] = note.document
    return tuple(at.values())


def documents_of(index: int, writers: int, documents: Sequence[str]) -> tuple[str, ...]:
    """The documents of a writer: each has two writers, if there are two."""
    return tuple(
        document for at, document in enumerate(documents) if index in (at % writers, (at + 1) % writers)
    )


def _tell(process: asyncio.subprocess.Process | None, word: str) -> None:
    assert process is not None and process.stdin is not None
    with suppress(ConnectionError):
        process.stdin.write(f"{word}\n".encode())


async def _says(process: asyncio.subprocess.Process | None, word: str, seconds: float) -> bool:
    """Whether it says the word in time."""
    assert process is not None and process.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            while line := await process.stdout.readline():
                if line.decode().strip() == word:
                    return True
    except TimeoutError:
        pass
    return False
