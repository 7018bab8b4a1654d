"""The faults of a run: requirements, injection and healing of each, by name.

    faults = registry()
    fault = faults["server-kill"]
    if not (reason := fault.unmet_need(stack)):
        injected = await fault.inject(stack, rng)     # injected.words: for the table
        await asyncio.sleep(fault.hold_seconds)
        await fault.heal(stack)

lorogo survives the loss of the stream or of a journal, not of both for the same update. `harms` names the
data that a fault destroys ("stream", "journal" or nothing). Between two faults of different harm the run must
wait for `await stack.reconciled()` and an ACK of every document.
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
from lorogo_protocol import limits
from lorogo_protocol.messages import subjects
from lorogo_transport.errors import TransportError

Harm = Literal["", "stream", "journal"]
Heal = Callable[[], Awaitable[None]]

NEEDS_CLUSTER = "needs a cluster: --nats three"
_PAUSE_SECONDS = limits.STALE_SECONDS + 3.0  # other servers take over meanwhile
_STORM_ROUNDS = 3
_BUSIEST_CHANCE = 0.75
_READY_SECONDS = 60.0
_LEADER_SECONDS = 20.0
_EFFECT_SECONDS = 10.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """An injected fault and its target."""

    words: str
    target: str = ""  # the server, node or link; empty: all of them
    document_ids: tuple[str, ...] | None = None  # None: any document may be affected
    at: float | None = None  # of the monotonic clock: when a server lost contact with its documents
    effective: bool = True  # False: it had no effect, and proves nothing about its target


Strike = Callable[[ChaosStack, random.Random], Awaitable[tuple[InjectedFault, Heal]]]


@dataclass(slots=True)
class Fault:
    """One kind of fault; each injection has one random target."""

    name: str
    harms: Harm
    hold_seconds: float  # between injection and healing
    _unmet_need: Callable[[ChaosStack], str] = field(repr=False)
    _inject: Strike = field(repr=False)
    _heal: Heal | None = field(default=None, repr=False)

    def unmet_need(self, stack: ChaosStack) -> str:
        """Return why the fault is not possible on this stack; empty if it is."""
        return self._unmet_need(stack)

    @property
    def clustered(self) -> bool:
        """True if it needs a NATS cluster, which is known before any process starts."""
        return self._unmet_need is _cluster

    async def inject(self, stack: ChaosStack, rng: random.Random) -> InjectedFault:
        """Inject the fault. Raises FaultUnavailable (nothing was changed), ChaosError."""
        if unmet_need := self.unmet_need(stack):
            raise FaultUnavailable(unmet_need)
        if self._heal is not None:
            raise ChaosError(f"{self.name} is injected already, and not healed")
        injected, self._heal = await self._inject(stack, rng)
        return injected

    async def heal(self, stack: ChaosStack) -> None:
        """End the fault: every process runs again, and reversible damage is undone. No-op if not injected."""
        heal, self._heal = self._heal, None
        if heal is not None:
            await heal()


def registry() -> dict[str, Fault]:
    """Return every fault by name, for one run."""
    faults = (
        Fault("server-kill", "", 1.0, _any, _server_kill),
        Fault("server-pause", "", _PAUSE_SECONDS, _any, _server_pause),
        Fault("server-stop", "", 1.0, _any, _server_stop),
        Fault("restart-storm", "", 0.0, _any, _restart_storm),
        Fault("nats-kill", "", 1.0, _any, _nats_kill),
        Fault("nats-pause", "", _PAUSE_SECONDS, _any, _nats_pause),
        Fault("nats-restart", "", 0.0, _any, _nats_restart),
        Fault("link-cut", "", _PAUSE_SECONDS, _any, _link_cut),
        Fault("link-blackhole", "", _PAUSE_SECONDS, _any, _link_blackhole),
        Fault("link-delay", "", 10.0, _any, _link_delay),
        Fault("client-link-cut", "", 3.0, _clients, _client_link_cut),
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


# --- requirements -----------------------------------------------------------------------------------


def _any(stack: ChaosStack) -> str:
    return ""


def _cluster(stack: ChaosStack) -> str:
    return "" if stack.clustered else NEEDS_CLUSTER


def _clients(stack: ChaosStack) -> str:
    return "" if stack.client_links else "no client has a link of its own"


def _disk(stack: ChaosStack) -> str:
    return stack.disk_problem


# --- servers ----------------------------------------------------------------------------------------


async def _victim(stack: ChaosStack, rng: random.Random) -> ServerUnderTest:
    """Choose a server, mostly the one with the most documents: a server without any is hardly affected."""
    if rng.random() < _BUSIEST_CHANCE:
        with suppress(TransportError):
            found = await stack.stats()
            owned = {name: int(one.stats.get("documents", 0)) for name, one in found.items()}
            return max(stack.servers, key=lambda server: owned.get(server.name, 0))
    return rng.choice(stack.servers)


async def _server_kill(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    server = await _victim(stack, rng)
    at = time.monotonic()
    await server.kill()
    return InjectedFault(f"kill -9 of {server.name}", server.name, at=at), lambda: _started(server)


async def _server_stop(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    server = await _victim(stack, rng)
    at = time.monotonic()
    code = await server.stop()
    words = f"SIGTERM of {server.name}, which ended with {code}"
    return InjectedFault(words, server.name, at=at), lambda: _started(server)


async def _server_pause(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    server = await _victim(stack, rng)
    helpers = rng.random() < 0.5
    at = time.monotonic()
    server.pause(helpers=helpers)

    async def heal() -> None:
        server.resume()

    words = f"SIGSTOP of {server.name}{', helpers too' if helpers else ''}"
    return InjectedFault(words, server.name, at=at), heal


async def _restart_storm(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    """Kill all servers, in random order, at random moments of their start."""
    for _ in range(_STORM_ROUNDS):
        for server in rng.sample(stack.servers, len(stack.servers)):
            await server.kill()
            await server.start()
        await asyncio.sleep(rng.uniform(0.0, 2.0))

    async def heal() -> None:
        for server in stack.servers:
            await _started(server)

    return InjectedFault(f"every server killed {_STORM_ROUNDS} times in a row"), heal


async def _started(server: ServerUnderTest) -> None:
    await server.start()
    await server.ready(_READY_SECONDS)


# --- NATS -------------------------------------------------------------------------------------------


async def _nats_kill(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    node = rng.choice(stack.nodes)
    await node.kill()
    return InjectedFault(f"kill -9 of {node.name}", node.name), lambda: _node_started(stack, node)


async def _nats_pause(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    node = rng.choice(stack.nodes)
    node.pause()

    async def heal() -> None:
        node.resume()
        await nats_nodes.formed(stack.nodes, _READY_SECONDS)

    return InjectedFault(f"SIGSTOP of {node.name}", node.name), heal


async def _nats_restart(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    """Restart all nodes gracefully, one after the other, as in an upgrade."""
    for node in stack.nodes:
        await node.stop()
        await _node_started(stack, node)

    async def heal() -> None:
        await nats_nodes.formed(stack.nodes, _READY_SECONDS)

    return InjectedFault("every nats-server restarted, one after the other"), heal


async def _partition(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    """Cut one node off from the others; its clients still reach it."""
    node = rng.choice(stack.nodes)
    silent = rng.random() < 0.5
    for link in node.routes:
        if silent:
            link.blackhole()
        else:
            link.cut()

    async def heal() -> None:
        for link in node.routes:
            link.heal()
        await nats_nodes.formed(stack.nodes, _READY_SECONDS)

    how = "receives nothing from the others" if silent else "cut off from the others"
    return InjectedFault(f"{node.name} {how}", node.name), heal


async def _leader_change(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    stream = rng.choice([subjects.WAL_STREAM, subjects.STATUS_STREAM, subjects.SNAPSHOT_STREAM])
    before = await _leader(stack, stream)
    async with await stack.connect() as operator:
        try:
            await nats_nodes.step_down(operator.bus, stream)
        except TransportError as error:
            raise FaultUnavailable(f"{stream} changes its leader already: {error}") from None

    async def heal() -> None:
        await _leader(stack, stream)

    return InjectedFault(f"{before} gives up leading {stream}", before), heal


async def _leader(stack: ChaosStack, stream: str) -> str:
    """Return the leader of the stream, once there is one. Raises StackNotReady."""
    problem = "no leader"
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


# --- links ------------------------------------------------------------------------------------------


async def _link_cut(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    link = (await _victim(stack, rng)).link
    at = time.monotonic()
    link.cut()
    return InjectedFault(f"the link of {link.name} cut", link.name, at=at), lambda: _healed(link)


async def _link_blackhole(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    link = (await _victim(stack, rng)).link
    at = time.monotonic()
    link.blackhole()
    return InjectedFault(f"the link of {link.name} passes no bytes", link.name, at=at), lambda: _healed(link)


async def _link_delay(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    link = (await _victim(stack, rng)).link
    seconds = rng.choice([0.02, 0.1, 0.5])
    link.delay(seconds, jitter=seconds)
    words = f"the link of {link.name} takes {seconds * 1000:g} to {seconds * 2000:g} ms each way"
    return InjectedFault(words, link.name), lambda: _healed(link)


async def _client_link_cut(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    link = rng.choice(stack.client_links)
    silent = rng.random() < 0.5
    if silent:
        link.blackhole()
    else:
        link.cut()
    words = f"the link of {link.name} {'passes no bytes' if silent else 'cut'}"
    return InjectedFault(words, link.name), lambda: _healed(link)


async def _healed(link: ProxyLink) -> None:
    link.heal()


# --- disks and files --------------------------------------------------------------------------------


async def _disk_full(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    """Fill the disk of a journal, which then waits or stops, until it is healed by a restart."""
    disk, server = stack.disk, stack.servers[0]
    assert disk is not None
    for other in stack.servers[1:]:  # so that the documents are on the server with the small disk
        await other.stop()
        await _started(other)
    filled = await asyncio.to_thread(disk.fill)
    effective = await _not_ready(stack, server)
    effect = "its journal stopped" if effective else "had no effect: the journal still had room prepared"

    async def heal() -> None:
        await server.kill()
        await asyncio.to_thread(disk.free)
        await _started(server)

    words = f"{filled} bytes fill the disk of {server.name}: {effect}"
    return InjectedFault(words, server.name, effective=effective), heal


async def _not_ready(stack: ChaosStack, server: ServerUnderTest) -> bool:
    """Wait some seconds for NOT READY: a journal continues until its prepared space is used."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_EFFECT_SECONDS):
            while True:
                with suppress(TransportError, KeyError):
                    if not (await stack.stats())[server.name].stats["ready"]:
                        return True
                await asyncio.sleep(_POLL_SECONDS)
    return False


async def _journal_flip(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    return await _journal_damaged(stack, rng, damage.flip_bit)


async def _journal_truncate(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    return await _journal_damaged(stack, rng, damage.cut_tail)


async def _wal_flip(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    return await _wal_damaged(stack, rng, damage.flip_bit)


async def _wal_truncate(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    return await _wal_damaged(stack, rng, damage.cut_tail)


async def _wal_loss(stack: ChaosStack, rng: random.Random) -> tuple[InjectedFault, Heal]:
    node = rng.choice(stack.nodes)
    await node.kill()
    folder = node.store / "jetstream"
    if await asyncio.to_thread(folder.exists):
        await asyncio.to_thread(damage.lose_folder, folder, within=stack.folder)
    return InjectedFault(f"{node.name} lost all stored data", node.name), lambda: _node_back(stack, node)


_Damage = Callable[..., damage.FileDamage]


async def _journal_damaged(stack: ChaosStack, rng: random.Random, how: _Damage) -> tuple[InjectedFault, Heal]:
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

    async def heal() -> None:
        stack.must_reconcile([server])
        await _started(server)

    return InjectedFault(f"in the journal of {server.name} {done.words}", server.name, at=at), heal


async def _wal_damaged(stack: ChaosStack, rng: random.Random, how: _Damage) -> tuple[InjectedFault, Heal]:
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
    """Start the node, and expect every server to reconcile."""
    stack.must_reconcile(stack.servers)
    await _node_started(stack, node)
