"""Attacks on a gateway: its answers, its memory, and the service for other clients.

    python bench/abuse.py [--only NAME] [--json]       or: make abuse

nats-server, `lorogo serve` and the gateway are separate processes. Every attack (`attackers.py`) runs twice.
The gateway's resident memory is read before each attack, at its peak, and after it; it is flat if it grows by
at most 5 % from the end of the first round to the end of the second. A neighbour edits and reads meanwhile.
Exit code 1: the memory is not flat, or the neighbour was refused. Takes a few minutes.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import secrets
import sys
import tempfile
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import attackers
from abuse_gateway import SECRET
from abuse_neighbour import TOKEN
from attackers import ATTACKS, Target
from gateways import ROOT, resident_bytes, start
from turns import verdict

from lorogo_protocol.access import tokens
from lorogo_transport.nats.embedded import EmbeddedNats

GROWTH_MAX = 0.05
_SAMPLE_SECONDS = 0.1
_FILES = 16_000


@dataclass
class Round:
    """One attack, once."""

    attack: str
    number: int
    answered: str = ""
    before: int = 0
    most: int = 0
    after: int = 0
    served: int = 0  # edits and pages of the neighbour
    worst_ms: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Neighbour:
    """The lines of `abuse_neighbour.py`, by round."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.round = Round("", 0)
        self.ready = asyncio.Event()

    async def listen(self) -> None:
        """Read lines until the process ends, which is an error."""
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode():
            acked, page, milliseconds = line.split()
            if (acked, page) != ("OK", "200"):
                self.round.wrong.append(line.strip())
            self.round.served += 1
            self.round.worst_ms = max(self.round.worst_ms, float(milliseconds))
            self.ready.set()
        self.round.wrong.append("it was cut off")


async def attack(name: str, number: int, target: Target, pid: int, neighbour: Neighbour) -> Round:
    """Run an attack, and wait until the gateway has closed its connections."""
    made = neighbour.round = Round(name, number, before=resident_bytes(pid))

    async def watch() -> None:
        while True:
            made.most = max(made.most, resident_bytes(pid))
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def held() -> None:
        made.most = max(made.most, resident_bytes(pid))

    watching = asyncio.create_task(watch())
    try:
        made.answered = await ATTACKS[name](target, held)
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    await _calm(target)
    made.after = resident_bytes(pid)
    return made


async def _calm(target: Target) -> None:
    """Wait until only the neighbour is connected."""
    async with asyncio.timeout(60):
        while True:
            if re.search("websocket_connections [01].0", await attackers.page(target, "/metrics")):
                await asyncio.sleep(1.0)  # rooms are left after their connections
                return
            await asyncio.sleep(0.2)


async def run(options: argparse.Namespace) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, hard), hard))
    names = [name for name in ATTACKS if options.only in name]
    rounds: list[Round] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nats = await stack.enter_async_context(EmbeddedNats(folder / "nats"))
        lorogo = [sys.executable, "-m", "lorogo_cli", "serve", "--nats", nats.url]
        await start(stack, [*lorogo, "--data", str(folder / "server")], log=folder / "serve.log")
        secret = os.environ[SECRET] = secrets.token_hex(32)
        command = [sys.executable, str(ROOT / "bench" / "abuse_gateway.py"), nats.url]
        gateway = await start(stack, command, "lorogo gateway on ", log=folder / "gateway.log")
        target = Target(int(gateway.line.rpartition(":")[2]), _token(secret, "abuse"))
        await _fill(target)
        os.environ[TOKEN] = _token(secret, "neighbour")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "bench" / "abuse_neighbour.py"),
            str(target.port),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        neighbour = Neighbour(process)
        beside = asyncio.create_task(neighbour.listen())
        async with asyncio.timeout(30):
            await neighbour.ready.wait()
        for number in (1, 2):
            for name in names:
                rounds.append(await attack(name, number, target, gateway.pid, neighbour))
                if not options.json:
                    print(_row(rounds[-1]), flush=True)
        beside.cancel()
        with suppress(asyncio.CancelledError):
            await beside
        if process.returncode is None:
            process.terminate()
        await process.wait()
    return _judge(rounds, options)


def _judge(rounds: list[Round], options: argparse.Namespace) -> int:
    first, second = rounds[len(rounds) // 2 - 1].after, rounds[-1].after
    flat = second <= first * (1 + GROWTH_MAX)
    decent = not any(one.wrong for one in rounds)
    if options.json:
        facts = {"rounds": [asdict(one) for one in rounds], "flat": flat, "neighbour_served": decent}
        print(json.dumps(facts, indent=2))
    else:
        change = f"{first / 2**20:.1f} -> {second / 2**20:.1f} MiB ({second / first - 1:+.1%})"
        print(f"memory after the first and the second round: {change}, flat: {verdict(flat)}")
        for one in rounds:
            for wrong in one.wrong[:5]:
                print(f"the neighbour, during {one.attack}: {wrong}")
        print(f"the neighbour was always served: {verdict(decent)}")
    return 0 if flat and decent else 1


def _row(one: Round) -> str:
    memory = f"{one.before / 2**20:6.1f} {one.most / 2**20:6.1f} {one.after / 2**20:6.1f} MiB"
    served = f"{one.served:4d} served, worst {one.worst_ms:6.0f} ms"
    return f"{one.number} | {one.attack:36} | {memory} | {served} | {one.answered}"


def _token(secret: str, subject: str) -> str:
    key, now = tokens.make_key("HS256", "abuse", bytes.fromhex(secret)), time.time()
    grants = {"*": "admin"}
    return tokens.mint(key, subject=subject, documents=grants, expires=now + 3600, now=now, token_id=subject)


async def _fill(target: Target) -> None:
    """Make a large document for clients that never read."""
    body = json.dumps({"t": "x" * 1_000_000}).encode()
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close")
    async with asyncio.timeout(60):
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
            writer.write(attackers.head(target, "/v1/documents/large", *lines, method="PUT") + body)
            status = await attackers.status(reader)
            writer.close()
            if status in ("201", "409"):
                return
            await asyncio.sleep(0.5)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", metavar="NAME", help="attacks with this in their name")
    parser.add_argument("--json", action="store_true")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
