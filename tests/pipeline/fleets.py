"""A stream with many documents, and helpers that read it, for tests of fleet compaction."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import lorogo_client
from lorogo_pipeline.jobs.fleet_report import FleetOptions
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Down
from lorogo_server import Server, ServerSettings
from lorogo_server.journal.journal_scan import entries, places
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.ports import Message
from lorogo_transport.stores.statuses import Statuses

QUICK = ServerSettings(renew_seconds=0.3, lease_seconds=1.2, stale_seconds=1.8)


class World:
    """A NATS of the test's own, with clients and servers on it."""

    def __init__(self, nats: EmbeddedNats, folder: Path, transport: JetStreamTransport) -> None:
        self.url = nats.url
        self.folder = folder
        self.transport = transport
        self.wal = transport.stream(subjects.WAL_STREAM)
        self.statuses = Statuses(transport)
        self.purges: list[bytes] = []

    def options(self, name: str = "job", **changed: object) -> FleetOptions:
        given = {"data": self.folder / name, "cold_seconds": 0.0, "settings": QUICK, **changed}
        return FleetOptions(**given)  # type: ignore[arg-type]  # the test's own

    @asynccontextmanager
    async def server(self, name: str = "server", settings: ServerSettings = QUICK) -> AsyncIterator[Server]:
        """A server as `lorogo serve` runs it; gone afterwards, every document DOWN."""
        async with (
            await connect(self.url, name=name) as transport,
            Server(transport, settings, data=self.folder / name) as server,
        ):
            yield server

    async def write(self, names: Iterable[str], rounds: int = 5, *, first: int = 0) -> None:
        """Every client types a word into its document, round by round: the stream is well mixed."""
        async with lorogo_client.connect(self.url) as client:
            sessions: list[lorogo_client.Session] = []

            async def open_one(name: str) -> None:
                sessions.append(await client.open(name))

            for name in names:
                await open_one(name)
            for number in range(first, first + rounds):
                for session in sessions:
                    body = session.doc.get_text("body")
                    body.insert(len(body), f"{session.document_id}.{number} ")
                    session.commit()
                await asyncio.gather(*(session.flush(timeout=60) for session in sessions))

    async def texts(self, names: Iterable[str]) -> dict[str, str]:
        """The texts that new clients get."""
        slots = asyncio.Semaphore(32)
        async with lorogo_client.connect(self.url) as client:

            async def read(name: str) -> tuple[str, str]:
                async with slots:
                    found = await client.document(name).get(timeout=60)
                    value = found["value"]
                    assert isinstance(value, dict)
                    return name, str(value["body"])

            return dict(await asyncio.gather(*(read(name) for name in names)))

    async def counts(self) -> dict[str, int]:
        """The number of messages of each document in the WAL."""
        found = await self.wal.subjects(subjects.wal("*"))
        return {subjects.document_of(subject): count for subject, count in found.items()}

    async def all_down(self, names: Iterable[str]) -> bool:
        for name in names:
            entry = await self.statuses.read(name)
            if entry is None or not isinstance(entry.status, Down):
                return False
        return True

    def journalled(self, name: str = "job") -> dict[str, int]:
        """The number of records of each document in the job's journal."""
        found: dict[str, int] = {}
        for place in places(self.folder / name / "worker-compact", 1, None):
            for entry in entries(place):
                found[entry.document_id] = found.get(entry.document_id, 0) + 1
        return found

    def on_purge(self, message: Message) -> None:
        self.purges.append(message.data)


@asynccontextmanager
async def world_of(nats: EmbeddedNats, folder: Path) -> AsyncIterator[World]:
    async with await connect(nats.url, name="eyes") as transport:
        world = World(nats, folder, transport)
        await transport.bus.subscribe(f"$JS.API.STREAM.PURGE.{subjects.WAL_STREAM}", world.on_purge)
        await transport.bus.barrier()
        yield world


def expected(names: Iterable[str], rounds: int = 5) -> dict[str, str]:
    return {name: "".join(f"{name}.{number} " for number in range(rounds)) for name in names}
