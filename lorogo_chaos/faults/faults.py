"""The faults of a drill, by name: what each needs, how it strikes, and how it is mended.

    faults = registry()
    fault = faults["server-kill"]
    if not (why_not := fault.needs(stack)):
        struck = await fault.strike(stack, rng)     # struck.words: for the table
        await asyncio.sleep(fault.hold_seconds)
        await fault.mend(stack)

lorogo survives the loss of the stream or of a journal, not of both for the same update. So `harms` says what
a fault takes away for good ("stream", "journal" or nothing), and between two faults of different harm
there must be `await stack.reconciled()` and an ACK of every document.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from lorogo_chaos.errors import ChaosError, FaultUnavailable, StackNotReady
from lorogo_chaos.faults import damage
from lorogo_chaos.processes import nats_nodes
from lorogo_chaos.processes.links import ProxyLink
from lorogo_chaos.processes.nats_nodes import NatsNode
from lorogo_chaos.processes.servers import ServerUnderTest
from lorogo_chaos.processes.stack import ChaosStack
from lorogo_protocol import limits, subjects
from lorogo_transport.errors import TransportError

Harm = Literal["", "stream", "journal"]
Mend = Callable[[], Awaitable[None]]

NEEDS_CLUSTER = "needs a cluster: --nats three"
_PAUSE_SECONDS = limits.STALE_SECONDS + 3.0  # others take over meanwhile
_STORM_ROUNDS = 3
_BUSIEST_CHANCE = 0.75
_READY_SECONDS = 60.0
_LEADER_SECONDS = 20.0
_FELT_SECONDS = 10.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """What was done, and to whom."""

    words: str
    party: str = ""  # the server, the node or the line; empty: all of them
    document_ids: tuple[str, ...] | None = None  # None: any may feel it
    at: float | None = None  # of the monotonic clock: when a server was taken away from its documents
    felt: bool = True  # False: it had no effect, and says nothing about what was struck


Strike = Callable[[ChaosStack, random.Random], Awaitable[tuple[InjectedFault, Mend]]]


@dataclass(slots=True)
class Fault:
    """One kind of fault; strikes one target at a time, chosen by chance."""

    name: str
    harms: Harm
    hold_seconds: float  # between strike and mend
    _needs: Callable[[ChaosStack], str] = field(repr=False)
    _strike: Strike = field(repr=False)
    _mend: Mend | None = field(default=None, repr=False)

    def needs(self, stack: ChaosStack) -> str:
        """Why it is not possible on this stack; empty if it is."""
        return self._needs(stack)

    @property
    def clustered(self) -> bool:
        """Whether it needs a cluster of NATS: that is known before anything is started."""
        return self._needs is _cluster

    async def strike(self, stack: ChaosStack, rng: random.Random) -> InjectedFault:
        """Do it. Raises NotPossible (nothing was done), ChaosError."""
        if why_not := self.needs(stack):
            raise FaultUnavailable(why_not)
        if self._mend is not None:
            raise ChaosError(f"{self.name} has struck already, and is not mended")
        struck, self._mend = await self._strike(stack, rng)
        return struck

    async def mend(self, stack: ChaosStack) -> None:
        """End it: everything runs again, and what can be healed is. Nothing if it did not strike."""
        mend, self._mend = self._mend, None
        if mend is not None:
            await mend()


def registry() -> dict[str, Fault]:
    """Every fault, by name, for one drill."""
    faults = (
        Fault("server-kill", "", 1.0, _any, _server_kill),
        Fault("server-pause", "", _PAUSE_SECONDS, _any, _server_pause),
        Fault("server-stop", "", 1.0, _any, _server_stop),
        Fault("restart-storm", "", 0.0, _any, _restart_storm),
        Fault("nats-kill", "", 1.0, _any, _nats_kill),
        Fault("nats-pause", "", _PAUSE_SECONDS, _any, _nats_pause),
        Fault("nats-restart", "", 0.0, _any, _nats_restart),
        Fault("line-cut", "", _PAUSE_SECONDS, _any, _line_cut),
        Fault("line-blackhole", "", _PAUSE_SECONDS, _any, _line_blackhole),
        Fault("line-delay", "", 10.0, _any, _line_delay),
        Fault("client-line-cut", "", 3.0, _clients, _client_line_cut),
        Fault("partition", "", _PAUSE_SECONDS, _cluster, _partition),
        Fault("leader-change", "", 0.0, _cluster, _leader_change),
        Fault("disk-full", "", 3.0, _disk, _disk_full),
        Fault("journal-flip", "journal", 0.0, _any, _journal_flip),
        Fault("journal-truncate", "journal", 0.0, _any, _journal_truncate),
        Fault("wal-flip", "stream", 0.0, _any, _wal_flip),
        Fault("wal-truncate", "stream", 0.0, _any, _wal_truncate),
        Fault("wal-loss", "stream", 0.0, _any, _wal_loss),
    )
    return {fault.name: fault for fault in faults}


# --- what they need ---------------------------------------------------------------------------------


def _any(stack: ChaosStack) -> str:
    return ""


def _cluster(stack: ChaosStack) -> str:
    return "" if stack.clustered else NEEDS_CLUSTER


def _clients(stack: ChaosStack) -> str:
    return "" if stack.client_lines else "no client has a line of its own"


def _disk(stack: ChaosStack) -> str:
    return stack.disk_problem


# --- servers ----------------------------------------------------------------------------------------


async def _victim(stack: ChaosStack, rng: random.Random) -> ServerUnderTest:
    """A server, mostly that which has the most documents: one without any feels little."""
    if rng.random() < _BUSIEST_CHANCE:
        with suppress(TransportError):
            found = await stack.stats()
            owned = {name: int(one.stats.get("documents", 0)) for name, one in found.items()}
            return max(stack.servers, key=lambda server: owned.get(server.name, 0))
    return rng.choice(stack.servers)


async def _server_kill(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    server = await _victim(stack, rng)
    at = time.monotonic()
    await server.kill()
    return InjectedFault(f"kill -9 of {server.name}", server.name, at=at), lambda: _started(server)


async def _server_stop(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    server = await _victim(stack, rng)
    at = time.monotonic()
    code = await server.stop()
    words = f"SIGTERM of {server.name}, which ended with {code}"
    return InjectedFault(words, server.name, at=at), lambda: _started(server)


async def _server_pause(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    server = await _victim(stack, rng)
    helpers = rng.random() < 0.5
    at = time.monotonic()
    server.pause(helpers=helpers)

    async def mend() -> None:
        server.resume()

    words = f"SIGSTOP of {server.name}{', helpers too' if helpers else ''}"
    return InjectedFault(words, server.name, at=at), mend


async def _restart_storm(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    """All servers, in any order, killed at any moment of their start."""
    for _ in range(_STORM_ROUNDS):
        for server in rng.sample(stack.servers, len(stack.servers)):
            await server.kill()
            await server.start()
        await asyncio.sleep(rng.uniform(0.0, 2.0))

    async def mend() -> None:
        for server in stack.servers:
            await _started(server)

    return InjectedFault(f"every server killed {_STORM_ROUNDS} times in a row"), mend


async def _started(server: ServerUnderTest) -> None:
    await server.start()
    await server.ready(_READY_SECONDS)


# --- NATS -------------------------------------------------------------------------------------------


async def _nats_kill(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    node = rng.choice(stack.nodes)
    await node.kill()
    return InjectedFault(f"kill -9 of {node.name}", node.name), lambda: _node_started(stack, node)


async def _nats_pause(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    node = rng.choice(stack.nodes)
    node.pause()

    async def mend() -> None:
        node.resume()
        await nats_nodes.formed(stack.nodes, _READY_SECONDS)

    return InjectedFault(f"SIGSTOP of {node.name}", node.name), mend


async def _nats_restart(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    """Gracefully, as for an upgrade: one after the other."""
    for node in stack.nodes:
        await node.stop()
        await _node_started(stack, node)

    async def mend() -> None:
        await nats_nodes.formed(stack.nodes, _READY_SECONDS)

    return InjectedFault("every nats-server restarted, one after the other"), mend


async def _partition(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    """One node is cut off from the others; its clients still reach it."""
    node = rng.choice(stack.nodes)
    silent = rng.random() < 0.5
    for line in node.routes:
        if silent:
            line.blackhole()
        else:
            line.cut()

    async def mend() -> None:
        for line in node.routes:
            line.heal()
        await nats_nodes.formed(stack.nodes, _READY_SECONDS)

    how = "hears nothing of the others" if silent else "cut off from the others"
    return InjectedFault(f"{node.name} {how}", node.name), mend


async def _leader_change(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    stream = rng.choice([subjects.WAL_STREAM, subjects.STATUS_STREAM, subjects.SNAPSHOT_STREAM])
    before = await _leader(stack, stream)
    async with await stack.connect() as operator:
        try:
            await nats_nodes.step_down(operator.bus, stream)
        except TransportError as error:
            raise FaultUnavailable(f"{stream} changes its leader already: {error}") from None

    async def mend() -> None:
        await _leader(stack, stream)

    return InjectedFault(f"{before} gives up leading {stream}", before), mend


async def _leader(stack: ChaosStack, stream: str) -> str:
    """Who leads the stream, as soon as somebody does. Raises NotReady."""
    problem = "nobody leads"
    with suppress(TimeoutError):
        async with asyncio.timeout(_LEADER_SECONDS):
            while True:
                try:
                    async with await stack.connect() as operator:
                        if found := await nats_nodes.leader(operator.bus, stream):
                            return found
                except TransportError as error:
                    problem = str(error)
                await asyncio.sleep(_POLL_SECONDS)
    raise StackNotReady(f"{stream} has no leader: {problem}")


async def _node_started(stack: ChaosStack, node: NatsNode) -> None:
    await node.start()
    await nats_nodes.formed(stack.nodes, _READY_SECONDS)


# --- lines ------------------------------------------------------------------------------------------


async def _line_cut(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    line = (await _victim(stack, rng)).line
    at = time.monotonic()
    line.cut()
    return InjectedFault(f"the line of {line.name} cut", line.name, at=at), lambda: _healed(line)


async def _line_blackhole(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    line = (await _victim(stack, rng)).line
    at = time.monotonic()
    line.blackhole()
    return InjectedFault(f"the line of {line.name} passes nothing", line.name, at=at), lambda: _healed(line)


async def _line_delay(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    line = (await _victim(stack, rng)).line
    seconds = rng.choice([0.02, 0.1, 0.5])
    line.delay(seconds, jitter=seconds)
    words = f"the line of {line.name} takes {seconds * 1000:g} to {seconds * 2000:g} ms each way"
    return InjectedFault(words, line.name), lambda: _healed(line)


async def _client_line_cut(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    line = rng.choice(stack.client_lines)
    silent = rng.random() < 0.5
    if silent:
        line.blackhole()
    else:
        line.cut()
    words = f"the line of {line.name} {'passes nothing' if silent else 'cut'}"
    return InjectedFault(words, line.name), lambda: _healed(line)


async def _healed(line: ProxyLink) -> None:
    line.heal()


# --- disks and files --------------------------------------------------------------------------------


async def _disk_full(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    """A journal that met a full disk has stopped for good: its server is started again."""
    disk, server = stack.disk, stack.servers[0]
    assert disk is not None
    for other in stack.servers[1:]:  # so that the documents are where the disk is
        await other.stop()
        await _started(other)
    filled = await asyncio.to_thread(disk.fill)
    felt = await _not_ready(stack, server)
    effect = "its journal stopped" if felt else "had no effect: the journal still had room prepared"

    async def mend() -> None:
        await server.kill()
        await asyncio.to_thread(disk.free)
        await _started(server)

    words = f"{filled} bytes fill the disk of {server.name}: {effect}"
    return InjectedFault(words, server.name, felt=felt), mend


async def _not_ready(stack: ChaosStack, server: ServerUnderTest) -> bool:
    """Whether it says so within some seconds: a journal has some room prepared, and goes on until it ends."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_FELT_SECONDS):
            while True:
                with suppress(TransportError, KeyError):
                    if not (await stack.stats())[server.name].stats["ready"]:
                        return True
                await asyncio.sleep(_POLL_SECONDS)
    return False


async def _journal_flip(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    return await _journal_damaged(stack, rng, damage.flip_bit)


async def _journal_truncate(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    return await _journal_damaged(stack, rng, damage.cut_tail)


async def _wal_flip(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    return await _wal_damaged(stack, rng, damage.flip_bit)


async def _wal_truncate(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    return await _wal_damaged(stack, rng, damage.cut_tail)


async def _wal_loss(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Mend]:
    node = rng.choice(stack.nodes)
    await node.kill()
    folder = node.store / "jetstream"
    if await asyncio.to_thread(folder.exists):
        await asyncio.to_thread(damage.lose_folder, folder, within=stack.folder)
    return InjectedFault(f"{node.name} lost everything it stored", node.name), lambda: _node_back(stack, node)


_Damage = Callable[..., damage.FileDamage]


async def _journal_damaged(stack: ChaosStack, rng: random.Random, how: _Damage) -> tuple[InjectedFault, Mend]:
    server = await _victim(stack, rng)
    at = time.monotonic()
    await server.kill()
    try:
        files = await asyncio.to_thread(damage.segments, server.journal)
        done = await asyncio.to_thread(how, files, rng, within=stack.folder)
    except FaultUnavailable:
        await _started(server)
        raise
    stack.must_reconcile([server])

    async def mend() -> None:
        stack.must_reconcile([server])
        await _started(server)

    return InjectedFault(f"in the journal of {server.name} {done.words}", server.name, at=at), mend


async def _wal_damaged(stack: ChaosStack, rng: random.Random, how: _Damage) -> tuple[InjectedFault, Mend]:
    node = rng.choice(stack.nodes)
    await node.kill()
    try:
        files = await asyncio.to_thread(damage.wal_blocks, node.store)
        done = await asyncio.to_thread(how, files, rng, within=stack.folder)
    except FaultUnavailable:
        await _node_started(stack, node)
        raise
    return InjectedFault(f"in the WAL of {node.name} {done.words}", node.name), lambda: _node_back(
        stack, node
    )


async def _node_back(stack: ChaosStack, node: NatsNode) -> None:
    """Start it, and expect that all servers look what it has lost."""
    stack.must_reconcile(stack.servers)
    await _node_started(stack, node)
