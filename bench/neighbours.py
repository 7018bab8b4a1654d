"""Others' ACKs while one client sends updates that are hard to import.

    python bench/neighbours.py [--only NAME ...]       or: make neighbours

nats-server and `lorogo serve` are separate processes. A neighbour edits another document every 20 ms, a
second one pastes 10 KiB into a third document, above the size that the sandbox validates in batches, and each
attack of this file runs beside them. A row has the number of each neighbour's ACKs, their median, 99th
percentile and maximum, the results of the attacks, and whether a document changed its owner. Exits with 1
if an ACK took longer than the rule allows (docs/PROTOCOL.md); a busy machine makes each longer.
"""

import argparse
import asyncio
import random
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gateways import start
from loro import ExportMode, LoroDoc, VersionVector
from shapes import SHAPES

from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_protocol.status import Up
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.server.poison import deadly
from tests.server.support import Probe, Writer

_WAIT_SECONDS = 0.25
_PAUSE_SECONDS = 0.02
_ATTACK_SECONDS = 60.0
#: document: what is typed into it
_NEIGHBOURS = {"neighbour": "x", "pasted-into": "x" * (10 * 1024)}


def shaped(shape: str, count: int) -> bytes:
    doc = LoroDoc()
    SHAPES[shape](doc, count)
    doc.commit()
    return bytes(doc.export(ExportMode.Updates(VersionVector())))


def deadly_and_large() -> bytes:
    """Return an update that ends the sandbox's worker, above the size that is validated in batches."""
    return deadly() + bytes(64 * 1024)


def late_letters(paste: int, count: int) -> list[bytes]:
    """Return a paste, and letters of a writer who does not import it."""
    doc, rng = LoroDoc(), random.Random(1)
    doc.peer_id = 8
    doc.get_text("text").insert(0, "hello")
    doc.commit()
    updates, late = [bytes(doc.export(ExportMode.Updates(VersionVector())))], doc.fork()
    late.peer_id = 7
    before = doc.oplog_vv
    doc.get_text("text").insert(5, "".join(rng.choices(string.ascii_letters, k=paste)))
    doc.commit()
    updates.append(bytes(doc.export(ExportMode.Updates(before))))
    for _ in range(count):
        at = late.oplog_vv
        late.get_text("text").insert(2, "x")
        late.commit()
        updates.append(bytes(late.export(ExportMode.Updates(at))))
    return updates


def meshed() -> bytes:
    """Return an update of 500 peers, each of whose second edits depends on all first ones."""
    doc = LoroDoc()
    SHAPES["mesh"](doc, 100_000)
    return bytes(doc.export(ExportMode.Updates(VersionVector())))


def pasted() -> bytes:
    """Return an honest update above the size that is validated in batches: quick to decode, and accepted."""
    doc, rng = LoroDoc(), random.Random(1)
    doc.get_text("text").insert(0, "".join(rng.choices(string.ascii_letters, k=80 * 1024)))
    doc.commit()
    return bytes(doc.export(ExportMode.Updates(VersionVector())))


#: name: (update, or several in turn; number of documents; updates into each, one after another)
ATTACKS: dict[str, tuple[Callable[[], bytes | list[bytes]], int, int]] = {
    "nothing": (lambda: b"", 0, 0),
    "honest, 80 KiB, 8 documents": (pasted, 8, 5),
    "500,000 pushes": (lambda: shaped("pushes", 500_000), 1, 1),
    "500,000 pushes, 4 documents": (lambda: shaped("pushes", 500_000), 4, 1),
    "deep tree of 6,000": (lambda: shaped("deep tree", 6_000), 1, 1),
    "wide tree of 400,000": (lambda: shaped("wide tree", 400_000), 4, 1),
    "too long to decode, 8 documents": (lambda: shaped("wide tree", 1_000_000), 8, 5),
    "forged, 8 documents": (deadly_and_large, 8, 5),
    "20 letters behind 500 kB, 4 documents": (lambda: late_letters(500_000, 20), 4, 22),
    "2 letters behind 2 MB, 4 documents": (lambda: late_letters(2_000_000, 2), 4, 4),
    "500 peers, 4 documents": (meshed, 4, 1),
    "10,000 marks, 4 documents": (lambda: shaped("marks", 100_000), 4, 1),
}


class Neighbour:
    """Edits one document, and notes how long each ACK took."""

    def __init__(self, probe: Probe, document: str, text: str) -> None:
        self._probe = probe
        self._document = document
        self._text = text
        self._writer = Writer()
        self.seconds: list[float] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`, and the edit that is on its way is ACKed: the next one builds on it."""
        while not stop.is_set():
            parts, began = self._probe.split(self._writer.type(self._text)), time.perf_counter()
            try:
                await self._probe.put(self._document, parts)
                while (await self._probe.replies.get()).log_id != parts[0].log_id:
                    pass
            finally:  # an edit without an ACK counts with the time that it waited
                self.seconds.append(time.perf_counter() - began)
            await asyncio.sleep(_PAUSE_SECONDS)


def shown(seconds: list[float]) -> str:
    took = sorted(seconds)
    p50, p99 = (took[int(part * (len(took) - 1))] for part in (0.5, 0.99))
    return f"{len(took):4} ACKs p50 {1e3 * p50:4.0f} p99 {1e3 * p99:5.0f} max {1e3 * took[-1]:5.0f} ms"


async def attack(url: str, name: str, updates: list[bytes], documents: int, times: int) -> Counter[str]:
    """Send the updates in turn into new documents, all at once; return the number of each answer."""
    said: Counter[str] = Counter()

    async def one(number: int) -> None:
        async with await connect(url) as transport, Probe(transport) as probe:
            document = f"attack-{abs(hash(name))}-{number}"
            await probe.start(document)
            for turn in range(times):
                await probe.put(document, probe.split(updates[turn % len(updates)]))
                try:
                    async with asyncio.timeout(_ATTACK_SECONDS):
                        match await probe.replies.get():
                            case Ack():
                                said["ACK"] += 1
                            case Nack(reason=reason, message=message):
                                said[f"{reason.value}: {message}" if message else reason.value] += 1
                except TimeoutError:
                    said["no answer"] += 1

    await asyncio.gather(*(one(number) for number in range(documents)))
    if not documents:
        await asyncio.sleep(3.0)
    return said


async def run(options: argparse.Namespace) -> int:
    worst = 0.0
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nats = await stack.enter_async_context(EmbeddedNats(folder / "nats"))
        serve = [sys.executable, "-m", "lorogo_cli", "serve", "--nats", nats.url]
        await start(stack, [*serve, "--data", str(folder / "server")], log=folder / "serve.log")
        probes = {}
        for document in _NEIGHBOURS:
            transport = await stack.enter_async_context(await connect(nats.url))
            probes[document] = await stack.enter_async_context(Probe(transport))
        async with asyncio.timeout(60):
            for document, probe in probes.items():
                while True:
                    with suppress(Exception):  # the server is not there yet
                        await probe.start(document)
                        break
                    await asyncio.sleep(0.5)
        neighbours = [Neighbour(probe, document, _NEIGHBOURS[document]) for document, probe in probes.items()]
        for name, (made, documents, times) in ATTACKS.items():
            if documents and not any(only in name for only in options.only):
                continue
            written = await asyncio.to_thread(made)
            updates = written if isinstance(written, list) else [written]
            before = {document: (await probe.status(document)).trace for document, probe in probes.items()}
            stop = asyncio.Event()
            for neighbour in neighbours:
                neighbour.seconds.clear()
            editing = [asyncio.create_task(neighbour.run(stop)) for neighbour in neighbours]
            said = await attack(nats.url, name, updates, documents, times)
            await asyncio.sleep(1.0)
            stop.set()
            async with asyncio.timeout(_ATTACK_SECONDS):
                await asyncio.gather(*editing)
            lost = 0
            for document, probe in probes.items():
                status = await probe.status(document)
                lost += not isinstance(status.status, Up) or status.trace != before[document]
            worst = max(worst, *(max(neighbour.seconds) for neighbour in neighbours))
            answers = ", ".join(f"{count} {what}" for what, count in said.items()) or "-"
            small, large = (shown(neighbour.seconds) for neighbour in neighbours)
            print(
                f"{name:37} {max(map(len, updates)):>9} bytes | {small} | 10 KiB: {large} | {answers}"
                f"{' | OWNER LOST' if lost else ''}",
                flush=True,
            )
        if options.log:
            print((folder / "serve.log").read_text()[-6000:])
    kept = worst <= _WAIT_SECONDS
    print(f"the longest ACK took {1e3 * worst:.0f} ms, the rule allows {1e3 * _WAIT_SECONDS:.0f} ms")
    return 0 if kept else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", action="store_true", help="print the end of the server's log")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="NAME", help="attacks with one of these in their names"
    )
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
