"""Somebody who edits: `python -m lorogo_chaos.fleet.writer ORDER`, a client in a process of its own.

The order is a JSON file (`WriterSettings`). Words of the drill come as lines on stdin: `rest` (edit no more, and wait
until all is ACKed), `look` (note what every replica holds). When stdin ends, so does the writer: nobody is
left behind. Every edit is noted before it is committed, and every ACK when it has come.
"""

import asyncio
import dataclasses
import hashlib
import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loro import LoroDoc

import lorogo_client
from lorogo_chaos.fleet import traces
from lorogo_chaos.fleet.event_log import BODY, MARKS, EventLog, mark
from lorogo_chaos.fleet.traces import Patch
from lorogo_client import (
    Client,
    ClientSettings,
    DocumentDeleted,
    DocumentFailed,
    Session,
    SessionClosed,
    UpdateRefused,
)
from lorogo_protocol.errors import LorogoError

_UNACKED_MAX = 100  # edits of one document; then its writer waits
_AGAIN_SECONDS = 0.5
_FLUSH_SECONDS = 5.0
_FOR_GOOD = (DocumentDeleted, DocumentFailed, SessionClosed, UpdateRefused)  # the session is over
_TEXT_MAX = 20_000  # characters of a document: a drill is about faults, not about size


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What a writer is to do."""

    url: str
    writer: int
    life: int
    documents: tuple[str, ...]
    edits_per_second: float
    seed: int
    notes: str  # the file that it notes in
    traces: str  # the file with the edits (`write_patches`)
    store: str = ""  # the directory of its local store; "": none
    edits_each: int = 0  # in one document; then it leaves it, and begins the next. 0: it stays

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def load(path: Path) -> "WriterSettings":
        body = json.loads(path.read_text())
        return WriterSettings(**{**body, "documents": tuple(body["documents"])})


def digest(doc: LoroDoc) -> str:
    """What a replica holds, in few letters; an empty text is as good as none."""
    doc.get_text(BODY)
    doc.get_list(MARKS)
    value = json.dumps(doc.get_deep_value(), sort_keys=True, default=str)
    return hashlib.blake2b(value.encode(), digest_size=8).hexdigest()


def following(document: str) -> str:
    """The document after that: `chaos-7`, `chaos-7_2`, `chaos-7_3`."""
    name, _, number = document.partition("_")
    return f"{name}_{int(number or 1) + 1}"


class DocumentWriter:
    """One document in a writer's hands."""

    def __init__(
        self, order: WriterSettings, document: str, patches: Iterator[Patch], notebook: EventLog
    ) -> None:
        self._order = order
        self._patches = patches
        self._notebook = notebook
        self._news = asyncio.Event()
        self._wrote = 0
        self._acked = 0
        self._edits = 0  # in the document that it is at
        self.document = document
        self.session: Session | None = None
        self.stays = False  # where it is: it will be looked at
        self._told = ""  # the trouble that was noted last

    @property
    def unacked(self) -> bool:
        """Whether something of it is not ACKed, or nobody can know."""
        return self.session is None or self._wrote > self._acked or self.session.unsaved > 0

    @property
    def edited(self) -> bool:
        return self._edits > 0

    @property
    def full(self) -> bool:
        """Whether it has edited enough in this document, and is to go on to the next."""
        return not self.stays and 0 < self._order.edits_each <= self._edits

    @property
    def busy(self) -> bool:
        """Whether it is not open, has so much unACKed that it waits, or is on its way to the next."""
        return self.session is None or self.full or self.session.unsaved >= _UNACKED_MAX

    def edit(self, number: int) -> None:
        """One patch and one mark, in one commit."""
        session = self.session
        assert session is not None
        doc = session.doc
        self._notebook.note("wrote", self.document, number)
        self._wrote = number
        self._edits += 1
        text = doc.get_text(BODY)
        length = text.len_unicode
        position, deleted, inserted = traces.fitted(next(self._patches), length)
        if length > _TEXT_MAX:
            deleted = min(length - position, len(inserted) + 50)
        if deleted:
            text.delete(position, deleted)
        if inserted:
            text.insert(position, inserted)
        doc.get_list(MARKS).push(mark(self._order.writer, self._order.life, number))
        with suppress(LorogoError):  # the one who waits for its ACKs tells what is wrong
            session.commit()
        self._news.set()

    async def run(self, client: Client) -> None:
        """Keep it open, and note what is stored and ACKed, until cancelled."""
        while True:
            try:
                async with client.open(self.document, create=bool(self._order.store)) as session:
                    self._begin(session)
                    await self._follow(session)
                    self.session = None  # it hears nothing more: nobody must look at it
                self.document, self._edits = following(self.document), 0
                continue
            except (LorogoError, TimeoutError) as error:
                self._trouble(error)
            finally:
                self.session = None
            await asyncio.sleep(_AGAIN_SECONDS)

    def _begin(self, session: Session) -> None:
        """What an earlier session did not get ACKed may be gone with it: no later ACK speaks of it."""
        if self._wrote > self._acked:
            self._notebook.note("dropped", self.document, self._wrote)
            self._acked = self._wrote
        self.session = session
        self._news.set()  # a store may have brought what is not ACKed

    async def _follow(self, session: Session) -> None:
        """Wait for each ACK, one after the other, until it is full. Raises what ends a session for good."""
        while not self.full or self.unacked:
            await self._news.wait()
            self._news.clear()
            through = self._wrote
            if self._order.store:
                await session.stored(_FLUSH_SECONDS)
                self._notebook.note("stored", self.document, through)
            await self._acked_by_owner(session)
            self._acked = max(self._acked, through)
            self._notebook.note("acked", self.document, through)

    async def _acked_by_owner(self, session: Session) -> None:
        while True:
            try:
                await session.flush(_FLUSH_SECONDS)
            except _FOR_GOOD:
                raise
            except LorogoError as error:
                self._trouble(error)
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self._told = ""
                return

    def _trouble(self, error: Exception) -> None:
        words = f"{type(error).__name__}: {error}"[:300]
        if words != self._told:
            self._told = words
            self._notebook.note("trouble", self.document, 0, words)


class WriterProcess:
    """All documents of one process."""

    def __init__(self, order: WriterSettings, notebook: EventLog) -> None:
        self._order = order
        self._notebook = notebook
        self._rng = random.Random(order.seed)
        some: list[list[Patch]] = json.loads(Path(order.traces).read_text())
        self._editors = [
            DocumentWriter(order, document, self._patches(some), notebook) for document in order.documents
        ]
        self._resting = False

    def _patches(self, some: list[list[Patch]]) -> Iterator[Patch]:
        patches = self._rng.choice(some)
        return traces.around(patches, self._rng.randrange(len(patches)))

    async def run(self) -> None:
        """Edit until stdin ends."""
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._work())
            await self._obey(group)
            work.cancel()

    async def _work(self) -> None:
        client = await self._connected()
        try:
            async with asyncio.TaskGroup() as group:
                for editor in self._editors:
                    group.create_task(editor.run(client))
                group.create_task(self._type())
        finally:
            with suppress(LorogoError, TimeoutError):
                async with asyncio.timeout(5):
                    await client.close()

    async def _connected(self) -> Client:
        """NATS may be away just now: a writer goes on trying."""
        settings = ClientSettings(close_seconds=0.5)
        order = self._order
        while True:
            try:
                return await lorogo_client.connect(
                    order.url,
                    store=order.store or None,
                    settings=settings,
                    name=f"chaos-writer-{order.writer}",
                )
            except (LorogoError, OSError) as error:
                words = f"{type(error).__name__}: {error}"[:300]
                self._notebook.note("trouble", "", 0, words)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _type(self) -> None:
        """Edit one document after the other, never faster than ordered."""
        pause = 1.0 / self._order.edits_per_second
        due = time.monotonic()
        number = 0
        while not self._resting:
            due = max(due + self._rng.uniform(0.5, 1.5) * pause, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            ready = [editor for editor in self._editors if not editor.busy]
            if ready and not self._resting:
                number += 1
                new = [editor for editor in ready if not editor.edited]
                self._rng.choice(new or ready).edit(number)

    async def _obey(self, group: asyncio.TaskGroup) -> None:
        """Do what comes on stdin, until it ends."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        self._tell("ready")
        resting: asyncio.Task[None] | None = None
        while line := (await reader.readline()).decode().strip():
            if line == "rest" and resting is None:
                resting = group.create_task(self._rest())
            elif line == "look":
                self._look()
        if resting is not None:
            resting.cancel()

    async def _rest(self) -> None:
        """No more edits; tell when all are ACKed, however long that takes."""
        self._resting = True
        for editor in self._editors:
            editor.stays = True
        while any(editor.unacked for editor in self._editors):  # noqa: ASYNC110 - of many, and seldom
            await asyncio.sleep(0.05)
        self._tell("rests")

    def _look(self) -> None:
        for editor in self._editors:
            if editor.session is not None:
                self._notebook.note("seen", editor.document, 0, digest(editor.session.doc))
        self._tell("looked")

    def _tell(self, word: str) -> None:
        sys.stdout.write(word + "\n")
        sys.stdout.flush()


async def main(path: Path) -> None:
    order = WriterSettings.load(path)
    stored = bool(order.store)
    with EventLog(Path(order.notes), writer=order.writer, life=order.life, stored=stored) as notebook:
        await WriterProcess(order, notebook).run()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:  # Windows
        asyncio.run(main(Path(sys.argv[1])))
    else:
        uvloop.run(main(Path(sys.argv[1])))
