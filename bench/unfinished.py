"""ACK latency of other clients while one client sends chunks of unfinished updates straight to NATS.

    python bench/unfinished.py [--mib 2048] [--wal-bytes-max 512MiB] [--only NAME]

nats-server and `lorogo serve` are separate processes; the attacker is a plain socket that publishes as fast
as nats-server reads. A neighbour edits another document every 20 ms. A row has the number and latency of the
neighbour's ACKs and NACKs, the largest and the final size of the WAL, and the memory of nats-server.
"""

import argparse
import asyncio
import socket
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gateways import start

from lorogo_protocol import subjects
from lorogo_protocol.chunks import Chunk
from lorogo_protocol.replies import Ack, Nack
from lorogo_transport.errors import TransportError
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.server.support import Probe, Writer

MIB = 1024 * 1024
_CHUNK_BYTES = 128 * 1024
_PAUSE_SECONDS = 0.02
_AFTER_SECONDS = 5.0

#: name: (the document is open, chunks of one update)
ATTACKS = {
    "one update without an end": (True, 1_000_000),
    "updates of 4 chunks": (True, 4),
    "a document that is not open": (False, 4),
}


def flood(port: int, document: str, mib: int, per_update: int) -> None:
    """Publish this much; return when nats-server has read it."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.recv(65536)
        line.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n')
        data = bytes(_CHUNK_BYTES)
        for number in range(mib * MIB // _CHUNK_BYTES):
            update, index = divmod(number, per_update)
            headers = b"NATS/1.0\r\nLORO_LOG_ID: flood%d\r\nLORO_CHUNK_INDEX: %d\r\n\r\n" % (update, index)
            sizes = (document.encode(), len(headers), len(headers) + len(data))
            line.sendall(b"HPUB loro.wal.%b %d %d\r\n%b%b\r\n" % (*sizes, headers, data))
        line.sendall(b"PING\r\n")
        while b"PONG" not in line.recv(65536):
            pass


class Neighbour:
    """Edits one document, and records each reply and its latency."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._writer = Writer()
        self.seconds: list[float] = []
        self.outcomes: Counter[str] = Counter()

    async def run(self) -> None:
        while True:
            parts, began = self._probe.split(self._writer.type("x")), time.perf_counter()
            outcome = "no answer"
            try:
                outcome = await self._edit(parts[0].log_id, parts)
            finally:  # an edit without an answer counts with the time that it waited
                self.seconds.append(time.perf_counter() - began)
                self.outcomes[outcome] += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _edit(self, log_id: str, parts: list[Chunk]) -> str:
        while True:
            try:
                async with asyncio.timeout(5.0):
                    await self._probe.put("neighbour", parts)
                    while (reply := await self._probe.replies.get()).log_id != log_id:
                        pass
                    assert isinstance(reply, Ack | Nack)
                    return "ACK" if isinstance(reply, Ack) else reply.reason.value
            except (TransportError, TimeoutError) as error:
                self.outcomes[f"again after {type(error).__name__}"] += 1
                await asyncio.sleep(_PAUSE_SECONDS)


def memory_mib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) // 1024


async def run(options: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nats = await stack.enter_async_context(EmbeddedNats(folder / "nats"))
        serve = [sys.executable, "-m", "lorogo_cli", "serve", "--nats", nats.url]
        serve += ["--wal-bytes-max", options.wal_bytes_max]
        await start(stack, [*serve, "--data", str(folder / "server")], log=folder / "serve.log")
        transport = await stack.enter_async_context(await connect(nats.url))
        probe = await stack.enter_async_context(Probe(transport))
        watching = await stack.enter_async_context(await connect(nats.url))
        wal = watching.stream(subjects.WAL_STREAM)
        async with asyncio.timeout(60):
            while True:
                with suppress(Exception):  # the server is not there yet
                    await probe.start("neighbour")
                    break
                await asyncio.sleep(0.5)
        most = {"wal": 0, "memory": 0}

        async def watch() -> None:
            while True:
                with suppress(TransportError):
                    most["wal"] = max(most["wal"], (await wal.state()).bytes // MIB)
                most["memory"] = max(most["memory"], memory_mib(nats.pid))
                await asyncio.sleep(0.1)

        watcher = asyncio.create_task(watch())
        for number, (name, (opened, per_update)) in enumerate(ATTACKS.items()):
            if options.only not in name:
                continue
            document = f"attacked-{number}"
            if opened:
                await probe.start(document)
            most["wal"] = most["memory"] = 0
            neighbour = Neighbour(probe)
            editing = asyncio.create_task(neighbour.run())
            await asyncio.sleep(1.0)
            began = time.perf_counter()
            await asyncio.to_thread(flood, nats.port, document, options.mib, per_update)
            took = time.perf_counter() - began
            await asyncio.sleep(_AFTER_SECONDS)
            editing.cancel()
            with suppress(asyncio.CancelledError):
                await editing
            seconds = sorted(neighbour.seconds)
            p50, p99 = (1e3 * seconds[int(part * (len(seconds) - 1))] for part in (0.5, 0.99))
            outcomes = ", ".join(f"{count} {what}" for what, count in neighbour.outcomes.most_common())
            left = (await wal.state()).bytes // MIB
            print(
                f"{name:28} {options.mib} MiB in {took:.1f} s | {outcomes} | p50 {p50:.0f} p99 {p99:.0f}"
                f" max {1e3 * seconds[-1]:.0f} ms | WAL at most {most['wal']} MiB, then {left} |"
                f" nats-server {most['memory']} MiB",
                flush=True,
            )
        watcher.cancel()
        if options.log:
            print((folder / "serve.log").read_text()[-6000:])
            print(nats.log_path.read_text()[-3000:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=2048, help="how much is sent, of each attack")
    parser.add_argument("--wal-bytes-max", default="0", help="of the server")
    parser.add_argument("--only", default="", metavar="NAME", help="attacks with this in their name")
    parser.add_argument("--log", action="store_true", help="print the ends of the logs")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
