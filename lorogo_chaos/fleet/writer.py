"""A writer process: `python -m lorogo_chaos.fleet.writer ORDER`, a client that edits documents.

The order is a JSON file (`WriterSettings`). The fault run sends commands as lines on stdin: `drain` (edit no
more, and wait for all ACKs), `digest` (record the digest of every replica). The writer ends when stdin ends,
so that none outlives the run. It records every edit before the commit, and every ACK on arrival.
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
_FOR_GOOD = (DocumentDeleted, DocumentFailed, SessionClosed, UpdateRefused)  # these end the session
_TEXT_MAX = 20_000  # characters of a document: size is not the subject of a fault run


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """The settings of a writer."""

    url: str
    writer: int
    incarnation: int
    documents: tuple[str, ...]
    edits_per_second: float
    seed: int
    events: str  # the event log
    traces: str  # the file with the edits (`write_patches`)
    store: str = ""  # the directory of its local store; "": none
    edits_each: int = 0  # in one document before it opens the next; 0: it stays

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def load(path: Path) -> "WriterSettings":
        body = json.loads(path.read_text())
        return WriterSettings(**{**body, "documents": tuple(body["documents"])})


def digest(doc: LoroDoc) -> str:
    """Return a short digest of a replica's content; an empty text equals none."""
    doc.get_text(BODY)
    doc.get_list(MARKS)
    value = json.dumps(doc.get_deep_value(), sort_keys=True, default=str)
    return hashlib.blake2b(value.encode(), digest_size=8).hexdigest()


def following(document: str) -> str:
    """Return the next document's name: `chaos-7`, `chaos-7_2`, `chaos-7_3`."""
    name, _, number = document.partition("_")
    return f"{name}_{int(number or 1) + 1}"


class DocumentWriter:
    """Edits one document at a time."""

    def __init__(
        self, order: WriterSettings, document: str, patches: Iterator[Patch], event_log: EventLog
    ) -> None:
        self._order = order
        self._patches = patches
        self._event_log = event_log
        self._news = asyncio.Event()
        self._wrote = 0
        self._acked = 0
        self._edits = 0  # in the current document
        self.document = document
        self.session: Session | None = None
        self.stays = False  # keep the current document, for the digest
        self._last_problem = ""  # the last recorded error

    @property
    def unacked(self) -> bool:
        """True if an edit is not ACKed, or that is unknown."""
        return self.session is None or self._wrote > self._acked or self.session.unsaved > 0

    @property
    def edited(self) -> bool:
        return self._edits > 0

    @property
    def full(self) -> bool:
        """True if it has made its edits in this document, and moves on to the next."""
        return not self.stays and 0 < self._order.edits_each <= self._edits

    @property
    def busy(self) -> bool:
        """True if it is not open, has too many unACKed edits, or moves on to the next document."""
        return self.session is None or self.full or self.session.unsaved >= _UNACKED_MAX

    def edit(self, number: int) -> None:
        """Apply one patch and one mark, in one commit."""
        session = self.session
        assert session is not None
        doc = session.doc
        self._event_log.record("wrote", self.document, number)
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
        doc.get_list(MARKS).push(mark(self._order.writer, self._order.incarnation, number))
        with suppress(LorogoError):  # the task that waits for ACKs records the error
            session.commit()
        self._news.set()

    async def run(self, client: Client) -> None:
        """Keep the document open, and record stored and ACKed edits, until cancelled."""
        while True:
            try:
                async with client.open(self.document, create=bool(self._order.store)) as session:
                    self._begin(session)
                    await self._follow(session)
                    self.session = None  # the session is closed: no digest of it
                self.document, self._edits = following(self.document), 0
                continue
            except (LorogoError, TimeoutError) as error:
                self._record_problem(error)
            finally:
                self.session = None
            await asyncio.sleep(_AGAIN_SECONDS)

    def _begin(self, session: Session) -> None:
        """Record that unACKed edits of an earlier session may be lost: no later ACK covers them."""
        if self._wrote > self._acked:
            self._event_log.record("dropped", self.document, self._wrote)
            self._acked = self._wrote
        self.session = session
        self._news.set()  # a store may have restored unACKed edits

    async def _follow(self, session: Session) -> None:
        """Wait for each ACK until the document is full. Raises errors that end a session."""
        while not self.full or self.unacked:
            await self._news.wait()
            self._news.clear()
            through = self._wrote
            if self._order.store:
                await session.stored(_FLUSH_SECONDS)
                self._event_log.record("stored", self.document, through)
            await self._acked_by_owner(session)
            self._acked = max(self._acked, through)
            self._event_log.record("acked", self.document, through)

    async def _acked_by_owner(self, session: Session) -> None:
        while True:
            try:
                await session.flush(_FLUSH_SECONDS)
            except _FOR_GOOD:
                raise
            except LorogoError as error:
                self._record_problem(error)
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self._last_problem = ""
                return

    def _record_problem(self, error: Exception) -> None:
        words = f"{type(error).__name__}: {error}"[:300]
        if words != self._last_problem:
            self._last_problem = words
            self._event_log.record("trouble", self.document, 0, words)


class WriterProcess:
    """All documents of one process."""

    def __init__(self, order: WriterSettings, event_log: EventLog) -> None:
        self._order = order
        self._event_log = event_log
        self._rng = random.Random(order.seed)
        some: list[list[Patch]] = json.loads(Path(order.traces).read_text())
        self._editors = [
            DocumentWriter(order, document, self._patches(some), event_log) for document in order.documents
        ]
        self._draining = False

    def _patches(self, some: list[list[Patch]]) -> Iterator[Patch]:
        patches = self._rng.choice(some)
        return traces.around(patches, self._rng.randrange(len(patches)))

    async def run(self) -> None:
        """Edit until stdin ends."""
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._work())
            await self._execute(group)
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
        """Connect, with retries while NATS is away."""
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
                self._event_log.record("trouble", "", 0, words)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _type(self) -> None:
        """Edit one document after the other, at most at the configured rate."""
        pause = 1.0 / self._order.edits_per_second
        due = time.monotonic()
        number = 0
        while not self._draining:
            due = max(due + self._rng.uniform(0.5, 1.5) * pause, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            ready = [editor for editor in self._editors if not editor.busy]
            if ready and not self._draining:
                number += 1
                new = [editor for editor in ready if not editor.edited]
                self._rng.choice(new or ready).edit(number)

    async def _execute(self, group: asyncio.TaskGroup) -> None:
        """Execute commands from stdin, until it ends."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        self._reply("ready")
        draining: asyncio.Task[None] | None = None
        while line := (await reader.readline()).decode().strip():
            if line == "drain" and draining is None:
                draining = group.create_task(self._drain())
            elif line == "digest":
                self._record_digests()
        if draining is not None:
            draining.cancel()

    async def _drain(self) -> None:
        """Stop editing; reply once all edits are ACKed, however long that takes."""
        self._draining = True
        for editor in self._editors:
            editor.stays = True
        while any(editor.unacked for editor in self._editors):  # noqa: ASYNC110 - of many, and seldom
            await asyncio.sleep(0.05)
        self._reply("drained")

    def _record_digests(self) -> None:
        for editor in self._editors:
            if editor.session is not None:
                self._event_log.record("seen", editor.document, 0, digest(editor.session.doc))
        self._reply("digested")

    def _reply(self, word: str) -> None:
        sys.stdout.write(word + "\n")
        sys.stdout.flush()


async def main(path: Path) -> None:
    order = WriterSettings.load(path)
    stored = bool(order.store)
    with EventLog(
        Path(order.events), writer=order.writer, incarnation=order.incarnation, stored=stored
    ) as event_log:
        await WriterProcess(order, event_log).run()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:  # Windows
        asyncio.run(main(Path(sys.argv[1])))
    else:
        uvloop.run(main(Path(sys.argv[1])))
