"""A rolling upgrade and the way back: the release before this one beside it, on one NATS, in one folder.

Real processes: servers as `lorogo serve` starts them, clients as apps have them. Nothing ACKed is lost,
whichever version accepted it and whichever reads it; and no log has an error.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest
from loro import LoroDoc

import lorogo_client
from lorogo_client import Client
from lorogo_log import Reader
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import BaseRecord, UpdateRecord
from lorogo_protocol.status import Up
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.rpc.discovery import server_stats
from tests.e2e.support import eventually
from tests.upgrade import previous

pytestmark = [pytest.mark.nats, pytest.mark.slow]

ROOT = previous.ROOT
DOCUMENT = "minutes"
SECONDS = 60.0
WORDS = 5  # of each person, between two changes of the owner


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the release before."""
    try:
        revision = previous.commit()
    except previous.NotHere as why:
        pytest.skip(str(why))
    layout = previous.journal_layout(revision)
    if layout != records.LAYOUT:
        pytest.skip(
            f"{revision[:12]} has journal layout {layout}, which this unreleased version does not read: move"
            f" tests/upgrade/PREVIOUS to a commit of main with layout {records.LAYOUT}"
        )
    return previous.unpacked(revision, tmp_path_factory.mktemp("previous"))


def environment(code: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOROGO_", "PYTHON"))}
    if "LOROGO_NATS_SERVER" in os.environ:
        kept["LOROGO_NATS_SERVER"] = os.environ["LOROGO_NATS_SERVER"]
    return kept | {"PYTHONPATH": str(code), "LOROGO_OPEN": "1"}


class Process:
    """A process of one version; what it logs is in a file."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self.process = process
        self.errors = errors

    @classmethod
    async def start(cls, arguments: list[str], code: Path, place: Path, name: str) -> Self:
        errors = place / f"{name}.err"
        with errors.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                cwd=place,
                env=environment(code),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=file,
            )
        return cls(process, errors)

    async def end(self) -> None:
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


class Served(Process):
    """A server."""

    @property
    def log(self) -> list[dict[str, Any]]:
        whole = [line for line in self.errors.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [json.loads(line) for line in whole]

    def said(self, message: str) -> list[dict[str, Any]]:
        """The log lines with this message."""
        assert self.process.returncode in {None, 0}, self.errors.read_text()
        return [line for line in self.log if line["message"] == message]

    async def stop(self) -> None:
        """As an operator does: SIGTERM. Every document is DOWN afterwards."""
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            assert await self.process.wait() == 0, self.errors.read_text()


class Person(Process):
    """A user who edits."""

    async def hears(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            line = await self.process.stdout.readline()
        assert line, self.errors.read_text()
        return dict(json.loads(line))

    async def does(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        return await self.hears()

    async def text(self) -> str:
        return str((await self.does("text"))["text"])


class Crew:
    """All processes of a test, and a client that reads their state."""

    def __init__(self, client: Client, url: str, place: Path, old: Path, stack: AsyncExitStack) -> None:
        self.client = client
        self.acked: list[str] = []
        self.servers: list[Served] = []
        self.people: list[Person] = []
        self._url = url
        self._place = place
        self._code = {"old": old, "new": ROOT}
        self._stack = stack

    async def serve(self, version: str, data: str) -> Served:
        """`lorogo serve` of that version on that folder, when it has compared its journal with NATS."""
        arguments = ["-m", "lorogo_cli", "serve", "--nats", self._url, "--data", str(self._place / data)]
        name = f"{len(self.servers)}-{version}-{data}"
        server = await Served.start(arguments, self._code[version], self._place, name)
        self._stack.push_async_callback(server.end)
        self.servers.append(server)
        await eventually(lambda: bool(server.said("serving")), SECONDS)

        async def reconciled() -> bool:
            found = await server_stats(self.client.transport.bus)
            return any(one.server_id == self.id_of(data) and one.stats["reconcile_passes"] for one in found)

        await eventually(reconciled, SECONDS)
        return server

    async def person(self, version: str, name: str) -> Person:
        script = Path(__file__).with_name("person.py")
        code = self._code[version]
        person = await Person.start([str(script), self._url, DOCUMENT, name], code, self._place, name)
        self._stack.push_async_callback(person.end)
        self.people.append(person)
        assert Path((await person.hears())["code"]).is_relative_to(code)
        return person

    async def type(self) -> None:
        """All users type at once, and have every word ACKed."""
        for answer in await asyncio.gather(*(person.does(f"type {WORDS}") for person in self.people)):
            self.acked += answer["acked"]

    def id_of(self, data: str) -> str:
        """The server id that is kept in that folder."""
        (path,) = (self._place / data).glob("**/server-id")
        return path.read_text().strip()

    async def owner(self) -> str:
        """The server id of the document's owner; empty without an owner."""
        async for found, entry in self.client.statuses():
            if found == DOCUMENT and isinstance(entry.status, Up):
                return entry.status.server_id
        return ""

    async def text(self) -> str:
        """The text that a newcomer of this version gets."""
        async with self.client.open(DOCUMENT, read_only=True) as session:
            return session.doc.get_text("body").to_string()

    def missing(self, text: str) -> list[str]:
        return [word for word in self.acked if text.count(word) != 1]


@asynccontextmanager
async def crew(nats: EmbeddedNats, place: Path, old: Path) -> AsyncIterator[Crew]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(lorogo_client.connect(nats.url))
        yield Crew(client, nats.url, place, old, stack)


def replayed(data: Path) -> str:
    """The text that a server's journal alone makes of the document."""
    doc = LoroDoc()
    for log in sorted(data.glob("**/journal/[0-9]*")):
        for batch in Reader.open(log).read():
            for record in batch.records():
                if record.key != DOCUMENT.encode():
                    continue
                match records.decode_document(record.value):
                    case UpdateRecord(payload=payload) | BaseRecord(content=payload) if payload:
                        doc.import_(payload)
                    case _:
                        pass
    return doc.get_text("body").to_string()


@pytest.mark.timeout(300)
async def test_old_and_new_take_over_from_each_other(
    fresh_nats: EmbeddedNats, tmp_path: Path, old: Path
) -> None:
    """One folder is upgraded, another taken back, while people of both versions type."""
    async with crew(fresh_nats, tmp_path, old) as here:
        first = await here.serve("old", "a")
        ana, ben = await here.person("old", "ana"), await here.person("new", "ben")
        second = await here.serve("new", "b")
        await here.type()
        assert await here.owner() == here.id_of("a")
        await first.stop()  # from old to new
        await here.type()
        assert await here.owner() == here.id_of("b")
        third = await here.serve("new", "a")  # the folder of the old one is upgraded
        await second.stop()
        await here.type()
        assert await here.owner() == here.id_of("a")
        last = await here.serve("old", "b")  # and that of the new one taken back
        await third.stop()  # from new to old
        await here.type()
        assert await here.owner() == here.id_of("b")

        async def equal() -> bool:
            return await ana.text() == await ben.text()

        await eventually(equal, SECONDS)
        text = await here.text()
        assert len(here.acked) == 4 * 2 * WORDS
        assert here.missing(text) == []
        assert await ana.text() == text
        # Each journal was written by both versions; `a` ended before the last words.
        assert here.missing(replayed(tmp_path / "b")) == []
        assert here.missing(replayed(tmp_path / "a")) == here.acked[-2 * WORDS :]
        for server in here.servers:
            assert [line for line in server.log if line["level"] in {"error", "critical"}] == []
            assert server.said("published again") == []
        for person in here.people:
            assert [line for line in person.errors.read_text().splitlines() if line.startswith("ERROR")] == []
            await person.end()

        # What the new version wrote brings everything back, read by the old one, if NATS loses it all.
        await fresh_nats.kill()
        await asyncio.to_thread(shutil.rmtree, fresh_nats.store_dir / "jetstream")
        await fresh_nats.start()

        async def back() -> bool:
            return here.missing(await here.text()) == []

        await eventually(back, SECONDS)
        await last.stop()
