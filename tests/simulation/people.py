"""The people of a run: they open documents, edit, leave, come back, delete; one of them sends garbage."""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import lorogo_client
from lorogo_client import Client, ClientSettings, DocumentDeleted, Session, State
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages import chunks, subjects
from lorogo_testing.memory_nats import MemoryTransport
from lorogo_testing.process import SimulatedProcess
from lorogo_transport.errors import TransportError
from tests.simulation import chance
from tests.simulation.disk import SimStorage
from tests.simulation.machine import SimClock

if TYPE_CHECKING:
    from tests.simulation.world import World

_SETTINGS = ClientSettings(close_seconds=3.0, open_seconds=20.0, call_seconds=10.0)
_LETTERS = "abcdefghijklmnopqrstuvwxyz "
_STORE = "/store"


class Person:
    """One client process and its user."""

    def __init__(self, world: "World", number: int, rng: random.Random, *, kept: bool) -> None:
        self.name = f"client-{number}"
        self.sessions: dict[str, Session] = {}
        self.gone: set[str] = set()  # documents that it knows to be deleted
        self.process: SimulatedProcess | None = None
        self.line: MemoryTransport | None = None
        self.disk = SimStorage(random.Random(rng.getrandbits(64))) if kept else None
        self.clock = SimClock(world.loop, rng)
        self._world = world
        self._rng = rng
        self._typed = 0
        self._editing = rng.choice((_text, _text, _anything))

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.running

    def start(self) -> None:
        """Another life of the client."""
        if self.running:
            return
        self.sessions = {}
        rng = random.Random(self._rng.getrandbits(64))
        self.process = process = SimulatedProcess(self.name, self._world.loop, rng)
        self._world.processes.append(process)
        process.run(self._live(rng), self._ended)

    def kill(self) -> None:
        """The app is gone without a word; its store, if it has one, is not."""
        if self.process is None or not self.process.alive:
            return
        self.process.kill()
        if self.line is not None:
            self.line.kill()
        self.sessions = {}
        if self.disk is not None:
            self.disk.let_go()
        self._world.loop.call_later(self._rng.uniform(0.1, 4.0), self.start)

    def _ended(self, process: SimulatedProcess) -> None:
        if self.disk is not None:
            self.disk.let_go()
        if process.failed is not None and not isinstance(process.failed, LorogoError):
            self._world.crashed(process.name, process.failed)
        self._world.loop.call_later(self._rng.uniform(0.1, 4.0), self.start)

    async def _live(self, rng: random.Random) -> None:
        world = self._world
        line = self.line = world.nats.connect(self.name)
        connecting = lorogo_client.connect(
            line,
            settings=_SETTINGS,
            clock=self.clock,
            rng=rng,
            new_id=chance.new_id(rng),
            store=None if self.disk is None else _STORE,
            storage=self.disk,
        )
        client = await connecting
        world.trace.note("here", store=self.disk is not None)
        while True:
            await asyncio.sleep(rng.expovariate(1 / world.plan.think_seconds))
            try:
                await (self._settle(client) if world.resting else self._act(client, rng))
            except LorogoError as error:
                world.trace.note("refused", code=error.code, problem=str(error))
            world.sample(self)

    async def _act(self, client: Client, rng: random.Random) -> None:
        world = self._world
        document_id = rng.choice(world.documents)
        session = self.sessions.get(document_id)
        if session is None:
            await self._open(client, document_id)
            if document_id in self.gone and rng.random() < 0.3:
                await self._restore(client, document_id)
            return
        if session.problem is not None:
            await self._give_up(client, session)
            return
        roll = rng.random()
        if roll < 0.70:
            self._edit(session, rng)
        elif roll < 0.80:
            self._edit(session, rng)
            await session.flush(timeout=rng.choice((0.5, 3.0, 10.0)))
            world.flushed(self, session)
        elif roll < 0.86:
            del self.sessions[document_id]
            await client.close_session(session, raise_unsaved=False)
        else:
            await self._call(client, document_id, rng)

    async def _settle(self, client: Client) -> None:
        """At rest: have every document open that is not deleted, and do nothing more."""
        for document_id in self._world.documents:
            session = self.sessions.get(document_id)
            if session is not None and session.problem is not None:
                await self._give_up(client, session)
                session = None
            if session is None:
                await self._open(client, document_id)

    async def _open(self, client: Client, document_id: str) -> None:
        self.gone.discard(document_id)
        try:
            self.sessions[document_id] = await client.open(document_id, timeout=15.0)
        except DocumentDeleted:
            self.gone.add(document_id)

    async def _give_up(self, client: Client, session: Session) -> None:
        """Something is wrong with it for good: leave it, as an app would."""
        self._world.trace.note("gives up", document=session.document_id, problem=str(session.problem))
        del self.sessions[session.document_id]
        await client.close_session(session, raise_unsaved=False)

    def _edit(self, session: Session, rng: random.Random) -> None:
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            self._typed += 1
            self._editing(session.doc, rng, f"{self.name}-{self._typed} ")
            session.commit()
            self._world.committed(self, session)

    async def _call(self, client: Client, document_id: str, rng: random.Random) -> None:
        world = self._world
        api = client.document(document_id)
        roll = rng.random()
        if roll < 0.3:
            await api.compact(timeout=8.0)
        elif roll < 0.5:
            path = f"/{rng.choice('xyz')}"
            await api.patch(
                [{"op": "add", "path": f"/facts{path}", "value": rng.randrange(100)}], timeout=8.0
            )
        elif roll < 0.6:
            await api.get(timeout=8.0)
        elif roll < 0.7:
            versions = await api.history(timeout=8.0)
            if versions:
                await api.revert(rng.choice(versions)["frontiers"], timeout=8.0)  # type: ignore[arg-type]  # bytes
        elif world.plan.deletes and roll < 0.8:
            world.trace.note("deletes", document=document_id)
            await api.delete(timeout=8.0)
            world.trace.note("deleted", document=document_id)
        elif world.plan.deletes:
            await self._restore(client, document_id)

    async def _restore(self, client: Client, document_id: str) -> None:
        await client.document(document_id).restore(timeout=8.0)
        self._world.trace.note("restored", document=document_id)

    @property
    def unrest(self) -> list[str]:
        """Reasons why this client is not at rest."""
        if not self.running or not self.process or self.process.paused:
            return [f"{self.name} is not running"]
        words = [
            f"{self.name} shows {session.state} for {name}: {session.problem}"
            for name, session in self.sessions.items()
            if session.state is not State.SAVED
        ]
        missing = set(self._world.documents) - set(self.sessions) - self.gone
        return words + [f"{self.name} has not opened {name}" for name in sorted(missing)]


def _text(doc: Any, rng: random.Random, mark: str) -> None:
    body = doc.get_text("body")
    size = len(body)
    if size > 20 and rng.random() < 0.3:
        at = rng.randrange(size - 5)
        body.delete(at, rng.randrange(1, 5))
    elif rng.random() < 0.03:
        body.insert(rng.randint(0, size), mark * 400)  # more than one chunk
    else:
        body.insert(rng.randint(0, size), mark)


def _anything(doc: Any, rng: random.Random, mark: str) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        doc.get_map("facts").insert(rng.choice("xyz"), mark)
    elif kind == 1:
        items = doc.get_list("items")
        if len(items) > 3 and rng.random() < 0.4:
            items.delete(rng.randrange(len(items)), 1)
        else:
            items.insert(rng.randint(0, len(items)), mark)
    elif kind == 2:
        order = doc.get_movable_list("order")
        if len(order) > 1 and rng.random() < 0.5:
            order.mov(rng.randrange(len(order)), rng.randrange(len(order)))
        else:
            order.insert(rng.randint(0, len(order)), mark)
    elif kind == 3:
        tree = doc.get_tree("tree")
        roots = tree.roots
        tree.create(rng.choice(roots) if roots and rng.random() < 0.5 else None)
    else:
        _text(doc, rng, mark)


class Rogue:
    """Writes into the WAL what no client of ours would: garbage, halves, old messages again."""

    def __init__(self, world: "World", rng: random.Random) -> None:
        self.name = "rogue"
        self._world = world
        self._rng = rng
        self.process = SimulatedProcess(self.name, world.loop, rng)
        world.processes.append(self.process)

    def start(self) -> None:
        self.process.run(self._live())

    async def _live(self) -> None:
        world, rng = self._world, self._rng
        line = world.nats.connect(self.name)
        wal = line.stream(subjects.WAL_STREAM)
        new_id = chance.new_id(rng)
        inbox = line.bus.new_inbox()
        while True:
            await asyncio.sleep(rng.expovariate(1 / 4.0))
            if world.resting:
                continue
            document_id = rng.choice(world.documents)
            choose: Callable[..., list[chunks.Chunk]] = rng.choice((_garbage, _half, _reversed))
            parts = choose(rng, new_id(), inbox)
            world.trace.note("sends garbage", document=document_id, how=choose.__name__)
            try:
                for chunk in parts:
                    await wal.append_unconfirmed(
                        subjects.wal(document_id), chunk.data, headers=chunk.headers()
                    )
                if rng.random() < 0.3 and (
                    old := await wal.next(subjects.wal(document_id), rng.randrange(1, 200))
                ):
                    await wal.append_unconfirmed(old.subject, old.data, headers=old.headers)
            except TransportError:
                pass


def _garbage(rng: random.Random, log_id: str, inbox: str) -> list[chunks.Chunk]:
    return list(chunks.split(rng.randbytes(rng.randrange(1, 200)), log_id, chunk_bytes_max=64, inbox=inbox))


def _half(rng: random.Random, log_id: str, inbox: str) -> list[chunks.Chunk]:
    parts = _garbage(rng, log_id, inbox)
    return parts[: len(parts) // 2 + 1]


def _reversed(rng: random.Random, log_id: str, inbox: str) -> list[chunks.Chunk]:
    return _garbage(rng, log_id, inbox)[::-1]
