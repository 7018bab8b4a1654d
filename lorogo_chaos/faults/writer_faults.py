"""Faults of those who write: killed, or all killed together with every server."""

import asyncio
import random
from collections.abc import Callable

from lorogo_chaos.faults.faults import Fault, InjectedFault, Mend
from lorogo_chaos.fleet.client_fleet import ClientFleet
from lorogo_chaos.processes.stack import ChaosStack


def writer_kill(crowd: ClientFleet) -> Fault:
    """Kill -9 of one writer; it comes back, with its local store if it has one."""

    async def strike(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
        index = rng.choice(crowd.living)
        await crowd.kill(index)
        name = f"writer-{index + 1}"
        store = "it has a local store" if crowd.has_store(index) else "it has no local store"
        return InjectedFault(f"kill -9 of {name}, {store}", name), lambda: crowd.start(index)

    return Fault("writer-kill", "", 1.0, _living(crowd), strike)


def blackout(crowd: ClientFleet) -> Fault:
    """Kill -9 of every writer, server and nats-server: no replica in memory can bring anything back."""

    async def strike(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
        killed = crowd.living
        everybody = [*(server.kill for server in stack.servers), *(node.kill for node in stack.nodes)]
        rng.shuffle(everybody)
        await asyncio.gather(crowd.kill_all(), *(kill() for kill in everybody))

        async def mend() -> None:
            await stack.wait_ready()
            for index in killed:
                await crowd.start(index)

        return InjectedFault("kill -9 of every writer, server and nats-server"), mend

    return Fault("blackout", "", 1.0, _living(crowd), strike)


def _living(crowd: ClientFleet) -> Callable[[ChaosStack], str]:
    return lambda stack: "" if crowd.living else "no writer lives"


WRITER_FAULTS: dict[str, Callable[[ClientFleet], Fault]] = {"writer-kill": writer_kill, "blackout": blackout}
