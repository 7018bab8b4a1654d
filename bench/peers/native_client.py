"""lorogo_client for the driver of the harness, a Node program that sends commands as lines of JSON on stdin.

overlay/clients/lorogo-native.mjs is the other side. Each group of the driver has its own connection, each
document a session with a replica, and all are in this process, as the other clients are in the driver.

Commands: connect, open, append, batch, track, text, times, close. Events on stdout: ready, done, opened,
failed, length, acked. `text` and `times` are answered with a file: the driver does not read stdout meanwhile.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import uvloop

import lorogo_client
from lorogo_client import Client, ClientSettings, Session
from lorogo_protocol.errors import LorogoError
from lorogo_transport.nats import connection

TEXT = "t"
_OPEN_SECONDS = 60.0
_CLOSE_SECONDS = 0.05  # no update may arrive after the driver closed: W6 checks the server's content
_CONNECT_SECONDS = 10.0
_TIMES_KEPT = 1000  # the newest: earlier ones are the driver's warm-up


class Watched:
    """Times of each character of a document: the writer's commit, and the last reader's receipt."""

    def __init__(self) -> None:
        self.readers = 0
        self._committed: dict[int, float] = {}
        self._seen: dict[int, int] = defaultdict(int)
        self.seconds: list[float] = []

    def commit(self, length: int) -> None:
        """Now, right before the commit after which it has so many characters."""
        self._committed[length] = time.perf_counter()

    def has(self, before: int, length: int) -> None:
        """A reader that had so many characters has so many now."""
        now = time.perf_counter()
        for place in range(before + 1, length + 1):
            self._seen[place] += 1
            if place in self._committed and self._seen[place] == self.readers:
                self.seconds.append(now - self._committed.pop(place))
                del self._seen[place]


class Document:
    """A session, with the facts that the driver reads."""

    def __init__(self, number: int, session: Session, watched: Watched) -> None:
        self.number = number
        self.session = session
        self.watched = watched
        self.commits = 0
        self.length = session.doc.get_text(TEXT).len_unicode
        self.tracked = False
        self._acking = False
        watched.readers += 1

    def commit(self, bridge: "Bridge") -> None:
        """Commit the edits, and report ACKs if the driver tracks them."""
        if self.commits == 0:
            self.watched.readers -= 1  # it writes
        self.commits += 1
        self.session.commit()
        self.ack(bridge)

    def ack(self, bridge: "Bridge") -> None:
        """Start to report ACKs to the driver."""
        if self.tracked and not self._acking:
            self._acking = True
            bridge.spawn(self._acks(bridge))

    async def _acks(self, bridge: "Bridge") -> None:
        reported = 0
        while reported < self.commits:
            reported = self.commits
            await self.session.flush()
            bridge.send("acked", self.number, reported)
        self._acking = False

    async def follow(self, bridge: "Bridge") -> None:
        """Report remote edits to the driver."""
        async for _ in self.session.changes():
            before, self.length = self.length, self.session.doc.get_text(TEXT).len_unicode
            self.watched.has(before, self.length)
            bridge.send("length", self.number, self.length)


class Bridge(asyncio.Protocol):
    """Runs the commands in order; long ones continue in a task."""

    def __init__(self, ended: asyncio.Event, out: asyncio.WriteTransport) -> None:
        """`out`: the pipe to the driver, which does not read while it waits for a file: never wait for it."""
        self._ended = ended
        self._out = out
        self._rest = b""
        self._done_bytes = 0
        self._outgoing: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._groups: dict[int, asyncio.Task[tuple[Client, connection.JetStreamTransport]]] = {}
        self._documents: dict[int, Document] = {}
        self._watched: dict[str, Watched] = defaultdict(Watched)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            verb, *facts = json.loads(line)
            getattr(self, f"do_{verb}")(*facts)
            self._done_bytes += len(line) + 1
        self.send("done", self._done_bytes)

    def send(self, *message: object) -> None:
        """Send a message with all others of this turn of the loop."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(json.dumps(message))

    def spawn(self, what: Coroutine[Any, Any, None]) -> None:
        """Run it in a task; errors are reported and do not end the process."""
        task = asyncio.create_task(_quietly(what))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def do_connect(self, group: int, url: str) -> None:
        self._groups[group] = asyncio.create_task(_connected(url))

    def do_open(self, group: int, number: int, name: str) -> None:
        self.spawn(self._open(group, number, name))

    def do_append(self, number: int, text: str) -> None:
        document = self._documents[number]
        body = document.session.doc.get_text(TEXT)
        end = body.len_unicode
        document.watched.commit(end + len(text))
        body.insert(end, text)
        document.commit(self)

    def do_batch(self, number: int, edits: list[tuple[int, int, str]]) -> None:
        document = self._documents[number]
        body = document.session.doc.get_text(TEXT)
        for place, deleted, inserted in edits:
            if deleted:
                body.delete(place, deleted)
            if inserted:
                body.insert(place, inserted)
        document.commit(self)

    def do_track(self, number: int) -> None:
        document = self._documents[number]
        document.tracked = True
        document.ack(self)

    def do_text(self, number: int, file: str) -> None:
        _answer(file, self._documents[number].session.doc.get_text(TEXT).to_string())

    def do_times(self, file: str) -> None:
        (watched,) = list(self._watched.values())[:1] or [Watched()]
        times = sorted(1000 * seconds for seconds in watched.seconds[-_TIMES_KEPT:])
        found: dict[str, float] = {"n": len(times)}
        if times:
            found["p50_ms"] = round(statistics.median(times), 3)
            found["p99_ms"] = round(times[min(len(times) - 1, int(0.99 * len(times)))], 3)
        _answer(file, json.dumps(found))

    def do_close(self, group: int) -> None:
        self.spawn(self._close(self._groups.pop(group)))

    async def _open(self, group: int, number: int, name: str) -> None:
        try:
            client, _ = await asyncio.shield(self._groups[group])
            session = await client.open(name, timeout=_OPEN_SECONDS)
        except LorogoError as error:
            self.send("failed", number, f"{type(error).__name__}: {error}")
            return
        document = self._documents[number] = Document(number, session, self._watched[name])
        self.spawn(document.follow(self))
        self.send("opened", number, document.length)

    async def _close(self, group: "asyncio.Task[tuple[Client, connection.JetStreamTransport]]") -> None:
        """Close the connection first: a client that closes gracefully would resend updates without an ACK."""
        client, transport = await group
        await transport.close()
        await client.leave(raise_unsaved=False)

    def _flush(self) -> None:
        self._out.write(("\n".join(self._outgoing) + "\n").encode())
        self._outgoing.clear()


async def _connected(url: str) -> tuple[Client, connection.JetStreamTransport]:
    transport = await connection.connect(url, name="peers", timeout=_CONNECT_SECONDS)
    return await lorogo_client.connect(
        transport, settings=ClientSettings(close_seconds=_CLOSE_SECONDS)
    ), transport


async def _quietly(what: Coroutine[Any, Any, None]) -> None:
    try:
        await what
    except LorogoError as error:
        if os.environ.get("DEBUG"):
            sys.stderr.write(f"{type(error).__name__}: {error}\n")


def _answer(file: str, text: str) -> None:
    """Write the file atomically: the driver reads it as soon as it exists."""
    new = Path(f"{file}.new")
    new.write_text(text, encoding="utf-8")
    new.rename(file)


async def main() -> None:
    """Run until stdin ends."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    bridge = Bridge(ended, out)
    await loop.connect_read_pipe(lambda: bridge, sys.stdin)
    bridge.send("ready")
    await ended.wait()
    os._exit(0)  # the driver has exited: no need to send the rest


if __name__ == "__main__":
    uvloop.run(main())
