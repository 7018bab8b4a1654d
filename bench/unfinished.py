"""Others' ACKs while one client sends chunks of updates that it never finishes, straight into NATS.

    python bench/unfinished.py [--mib 2048] [--chunk-bytes 1024] [--wal-bytes-max 512MiB] [--only NAME]
                               [--ingest-mib 4 128]

nats-server and `lorogo serve` are separate processes; the attacker is a plain socket that publishes as fast
as nats-server reads. A neighbour, lorogo's client, edits another document every 20 ms. A row has the number
and latency of the neighbour's ACKs, the largest and the final size of the WAL, and the memory of nats-server.
`--ingest-mib` compares values of nats-server's `max_buffered_size`.
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

from lorogo_client import Session
from lorogo_client import connect as client_of
from lorogo_protocol import limits
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages import subjects
from lorogo_transport.errors import TransportError
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.server.support import Probe

MIB = 1024 * 1024
_PAUSE_SECONDS = 0.02
_AFTER_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0

#: name: (the document is open, chunks of one update; 0: nothing is sent)
ATTACKS = {
    "nothing": (False, 0),
    "one update without an end": (True, 1_000_000),
    "updates of 4 chunks": (True, 4),
    "a document that is not open": (False, 4),
}


def flood(port: int, document: str, mib: int, per_update: int, chunk_bytes: int) -> None:
    """Publish so much; returns when nats-server has read it."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.recv(65536)
        line.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n')
        data, together = bytes(chunk_bytes), bytearray()
        for number in range(mib * MIB // chunk_bytes):
            update, index = divmod(number, per_update)
            headers = b"NATS/1.0\r\nLORO_LOG_ID: flood%d\r\nLORO_CHUNK_INDEX: %d\r\n\r\n" % (update, index)
            sizes = (document.encode(), len(headers), len(headers) + len(data))
            together += b"HPUB loro.wal.%b %d %d\r\n%b%b\r\n" % (*sizes, headers, data)
            if len(together) >= limits.CHUNK_BYTES_MAX:
                line.sendall(together)
                together.clear()
        line.sendall(together + b"PING\r\n")
        while b"PONG" not in line.recv(65536):
            pass


class Neighbour:
    """Edits one document, and notes how long each edit took until its ACK."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.seconds: list[float] = []
        self.outcomes: Counter[str] = Counter()

    async def run(self) -> None:
        text = self._session.doc.get_text("t")
        while True:
            began, said = time.perf_counter(), "no answer"
            try:
                text.insert(0, "x")
                self._session.commit()
                await self._session.flush(_PATIENCE_SECONDS)
                said = "ACK"
            except LorogoError as error:
                said = type(error).__name__
            finally:  # an edit without an answer counts with the time that it waited
                self.seconds.append(time.perf_counter() - began)
                self.outcomes[said] += 1
            await asyncio.sleep(_PAUSE_SECONDS)


def memory_mib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) // 1024


async def run(options: argparse.Namespace, ingest_mib: int) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nats = await stack.enter_async_context(
            EmbeddedNats(folder / "nats", ingest_bytes_max=ingest_mib * MIB)
        )
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
        client = await stack.enter_async_context(client_of(nats.url))
        session = await stack.enter_async_context(client.open("neighbour"))
        most = {"wal": 0, "memory": 0}

        async def watch() -> None:
            while True:
                with suppress(TransportError):
                    most["wal"] = max(most["wal"], (await wal.state()).bytes // MIB)
                most["memory"] = max(most["memory"], memory_mib(nats.pid))
                await asyncio.sleep(0.1)

        watcher = asyncio.create_task(watch())
        for number, (name, (opened, per_update)) in enumerate(ATTACKS.items()):
            if options.only not in name and per_update:
                continue
            document = f"attacked-{number}"
            if opened:
                await probe.start(document)
            most["wal"] = most["memory"] = 0
            neighbour = Neighbour(session)
            editing = asyncio.create_task(neighbour.run())
            await asyncio.sleep(1.0)
            began = time.perf_counter()
            if per_update:
                size = options.chunk_bytes
                await asyncio.to_thread(flood, nats.port, document, options.mib, per_update, size)
            took = time.perf_counter() - began
            await asyncio.sleep(_AFTER_SECONDS)
            editing.cancel()
            with suppress(asyncio.CancelledError):
                await editing
            seconds = sorted(neighbour.seconds)
            p50, p99 = (1e3 * seconds[int(part * (len(seconds) - 1))] for part in (0.5, 0.99))
            outcomes = ", ".join(f"{count} {what}" for what, count in neighbour.outcomes.most_common())
            left = (await wal.state()).bytes // MIB
            sent = options.mib if per_update else 0
            print(
                f"{name:28} queue {ingest_mib:3} MiB | {sent} MiB in {took:.1f} s |"
                f" {outcomes} | p50 {p50:.0f} p99 {p99:.0f} max {1e3 * seconds[-1]:.0f} ms |"
                f" WAL at most {most['wal']} MiB, then {left} | nats-server {most['memory']} MiB",
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
    parser.add_argument(
        "--chunk-bytes", type=int, default=limits.CHUNK_BYTES_MAX, help="of a chunk, without headers"
    )
    parser.add_argument(
        "--ingest-mib",
        type=int,
        nargs="+",
        default=[limits.INGEST_BYTES_MAX // MIB],
        help="max_buffered_size of nats-server, one run for each; nats-server's own default is 128",
    )
    options = parser.parse_args()
    for ingest_mib in options.ingest_mib:
        asyncio.run(run(options, ingest_mib))


if __name__ == "__main__":
    main()
