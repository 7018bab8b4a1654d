"""Memory of the gateway per idle WebSocket client, above that of the process without clients.

    python bench/gateway_idle.py [--clients 1000] [--seconds 5] [--json]

nats-server, `lorogo serve` and `lorogo gateway` are separate processes; the clients are npm clients in a Node
process. First all join one document; then, with a new gateway, each joins its own document. The gateway's
resident memory is read before the first client connects, and after all have been idle for some seconds. The
memory of SimpleServer for the same clients is measured, too. Exit code 1: a client was not served.
The goal is at most 64 KiB.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gateways import NPM, node, resident_bytes, start, started_lorogo
from turns import verdict

GOAL_KIB = 64.0
_SAMPLE_SECONDS = 0.5


@dataclass(frozen=True)
class Cost:
    """Measurements of one server with all its clients."""

    name: str
    rooms: int
    clients: int  # that are joined
    before_bytes: int
    after_bytes: int

    @property
    def kib_each(self) -> float:
        return (self.after_bytes - self.before_bytes) / 1024 / self.clients


async def measure(name: str, url: str, pid: int, rooms: int, options: argparse.Namespace) -> Cost:
    """Connect all clients, and keep them for a while."""
    async with AsyncExitStack() as stack:
        before = resident_bytes(pid)
        task = {"url": url, "clients": options.clients, "rooms": rooms, "first": f"idle{rooms}"}
        joined = await start(stack, [node(), str(NPM / "idle.mjs"), json.dumps(task)], "joined ", seconds=120)
        most = 0
        for _ in range(max(1, round(options.seconds / _SAMPLE_SECONDS))):
            await asyncio.sleep(_SAMPLE_SECONDS)
            most = max(most, resident_bytes(pid))
        return Cost(name, rooms, int(joined.line.split()[1]), before, most)


async def costs(rooms: int, options: argparse.Namespace) -> list[Cost]:
    """Start a new gateway and a new SimpleServer."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.dir)))
        lorogo = await started_lorogo(folder, stack)
        simple = await start(stack, [node(), str(NPM / "simple_server.mjs")], "ws://")
        return [
            await measure("lorogo", lorogo.websocket, lorogo.gateway.pid, rooms, options),
            await measure("SimpleServer", simple.line, simple.pid, rooms, options),
        ]


async def run(options: argparse.Namespace) -> int:
    found = [cost for rooms in (1, options.clients) for cost in await costs(rooms, options)]
    served = all(cost.clients == options.clients for cost in found)
    worst = max(cost.kib_each for cost in found if cost.name == "lorogo")
    if options.json:
        rows = [{**asdict(cost), "kib_each": round(cost.kib_each, 1)} for cost in found]
        facts = {"rows": rows, "served": served, "goal_kib": GOAL_KIB, "worst_kib": round(worst, 1)}
        print(json.dumps(facts, indent=2))
        return 0 if served else 1
    for cost in found:
        print(
            f"{cost.name:12} {cost.clients} clients in {cost.rooms} document(s): "
            f"{cost.before_bytes / 2**20:6.1f} -> {cost.after_bytes / 2**20:6.1f} MiB, "
            f"{cost.kib_each:6.1f} KiB each"
        )
    goal = f"(goal {GOAL_KIB:g}): {verdict(worst <= GOAL_KIB)}"
    print(f"at most {worst:.1f} KiB each {goal}; all served: {served}")
    return 0 if served else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of idleness")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--json", action="store_true")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
