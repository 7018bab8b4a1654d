"""Faults of writers: one killed, or all killed together with every server."""

import asyncio
import random
from collections.abc import Callable

from lorogo_chaos.faults.faults import Fault, Heal, InjectedFault
from lorogo_chaos.fleet.client_fleet import ClientFleet
from lorogo_chaos.processes.stack import ChaosStack


def writer_kill(fleet: ClientFleet) -> Fault:
    """Kill one writer with SIGKILL; it restarts, with its local store if it has one."""

    async def inject(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
        index = rng.choice(fleet.running)
        await fleet.kill(index)
        name = f"writer-{index + 1}"
        store = "it has a local store" if fleet.has_store(index) else "it has no local store"
        return InjectedFault(f"kill -9 of {name}, {store}", name), lambda: fleet.start(index)

    return Fault("writer-kill", "", 1.0, _running(fleet), inject)


def blackout(fleet: ClientFleet) -> Fault:
    """Kill every writer, server and nats-server with SIGKILL, so that no replica in memory remains."""

    async def inject(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
        killed = fleet.running
        everybody = [*(server.kill for server in stack.servers), *(node.kill for node in stack.nodes)]
        rng.shuffle(everybody)
        await asyncio.gather(fleet.kill_all(), *(kill() for kill in everybody))

        async def heal() -> None:
            await stack.wait_ready()
            for index in killed:
                await fleet.start(index)

        return InjectedFault("kill -9 of every writer, server and nats-server"), heal

    return Fault("blackout", "", 1.0, _running(fleet), inject)


def _running(fleet: ClientFleet) -> Callable[[ChaosStack], str]:
    return lambda stack: "" if fleet.running else "no writer runs"


WRITER_FAULTS: dict[str, Callable[[ClientFleet], Fault]] = {"writer-kill": writer_kill, "blackout": blackout}
