"""Round trip and fan-out through the gateway, beside the SimpleServer of the npm package loro-websocket.

    python bench/gateway_fanout.py [--readers 50] [--blocks 20] [--edits 25] [--json]

nats-server, `lorogo serve` and `lorogo gateway` are separate processes, SimpleServer is a Node process, and
all npm clients of both are in another Node process, each with its own connection. A writer types one key
after all readers have the previous one and it is Acked. Blocks of edits alternate between both servers, so
that other load on the machine affects both. An Ack of SimpleServer means "in memory", an Ack of lorogo "on
disk". With many readers the Ack waits in the Node process behind their messages. Bare readers are sockets
without a document: they leave out the clients' own work.

Prints milliseconds from the writer's commit, and ratios. Exit code 1: a reader's text is not the writer's.
The goal is a fan-out p50 of at most 1.5 times that of SimpleServer.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gateways import NPM, node, start, started_lorogo
from turns import verdict

GOAL = 1.5
_RUN_SECONDS = 600.0


@dataclass(frozen=True)
class Figures:
    """Latencies of one server, in milliseconds."""

    ack: list[float]
    reader: list[float]
    last: list[float]
    right: bool


async def measure(
    servers: dict[str, str], readers: int, options: argparse.Namespace, *, bare: bool = False
) -> dict[str, Figures]:
    """Run all clients once, in a new room."""
    task = {
        "servers": servers,
        "room": f"bench-{readers}{'-bare' if bare else ''}",
        "readers": readers,
        "bare": bare,
        "blocks": options.blocks,
        "edits": options.edits,
    }
    process = await asyncio.create_subprocess_exec(
        node(), str(NPM / "fanout.mjs"), json.dumps(task), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_RUN_SECONDS):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise SystemExit("the clients failed; see above")
    return {name: Figures(**figures) for name, figures in json.loads(said).items()}


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def rows(found: dict[str, Figures], readers: str) -> list[dict[str, object]]:
    """Return one row per figure: ours, theirs, and the ratio."""
    ours, theirs = found["lorogo"], found["SimpleServer"]
    asked = [("Ack", "ack"), ("until each", "reader"), ("until all", "last")]
    if readers == "1 reader":
        asked = [("Ack", "ack"), ("round trip", "last")]
    result: list[dict[str, object]] = []
    for what, name in asked:
        mine, other = getattr(ours, name), getattr(theirs, name)
        row: dict[str, object] = {"readers": readers, "what": what, "samples": len(mine)}
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            row |= {
                f"lorogo_{label}_ms": round(quantile(mine, share), 3),
                f"SimpleServer_{label}_ms": round(quantile(other, share), 3),
                f"ratio_{label}": round(quantile(mine, share) / quantile(other, share), 3),
            }
        result.append(row)
    return result


def spread(found: dict[str, Figures], edits: int) -> str:
    """Return the ratios of the medians of each pair of blocks, which show the noise of the machine."""
    ours, theirs = found["lorogo"].last, found["SimpleServer"].last
    ratios = [
        statistics.median(ours[at : at + edits]) / statistics.median(theirs[at : at + edits])
        for at in range(0, len(ours), edits)
    ]
    return f"{min(ratios):.2f} to {max(ratios):.2f}, median {statistics.median(ratios):.2f}"


async def run(options: argparse.Namespace) -> int:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.dir)))
        lorogo = await started_lorogo(folder, stack)
        simple = await start(stack, [node(), str(NPM / "simple_server.mjs")], "ws://")
        servers = {"lorogo": f"{lorogo.websocket}", "SimpleServer": simple.line}
        found = {
            "1 reader": await measure(servers, 1, options),
            f"{options.readers} readers": await measure(servers, options.readers, options),
            f"{options.readers} bare readers": await measure(servers, options.readers, options, bare=True),
        }
    right = all(figures.right for one in found.values() for figures in one.values())
    table = [row for readers, one in found.items() for row in rows(one, readers)]
    wanted = (f"{options.readers} readers", "until all")
    ratio = next(float(str(row["ratio_p50"])) for row in table if (row["readers"], row["what"]) == wanted)
    if options.json:
        print(json.dumps({"rows": table, "right": right, "goal": GOAL, "ratio": ratio}, indent=2))
    else:
        show(table)
        for readers, one in found.items():
            print(f"ratio of each pair of blocks with {readers}: {spread(one, options.edits)}")
        print(f"every text is whole on both: {right}")
        goal = f"(goal {GOAL}): {verdict(ratio <= GOAL)}"
        print(f"fan-out to {options.readers}, p50: {ratio:.2f} of SimpleServer {goal}")
    return 0 if right else 1


def show(table: list[dict[str, object]]) -> None:
    print(f"{'':34}{'lorogo':>17}{'SimpleServer':>19}{'ratio':>15}")
    print(f"{'milliseconds from the commit':34}{'p50':>9}{'p99':>8}{'p50':>11}{'p99':>8}{'p50':>8}{'p99':>7}")
    for row in table:
        name = f"{row['readers']}, {row['what']}"
        print(
            f"{name:34}{row['lorogo_p50_ms']:9.2f}{row['lorogo_p99_ms']:8.2f}"
            f"{row['SimpleServer_p50_ms']:11.2f}{row['SimpleServer_p99_ms']:8.2f}"
            f"{row['ratio_p50']:8.2f}{row['ratio_p99']:7.2f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--edits", type=int, default=25, help="in a block")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--json", action="store_true")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
