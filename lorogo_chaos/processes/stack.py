"""The stack of a fault run: nats-servers, document servers, and the links between them.

    async with Stack(StackSettings(nodes=1, servers=2)) as stack:
        url = await stack.link("writer-1")      # a NATS address through a new link
        ...
        await stack.servers[0].kill()
        await stack.servers[0].start()
        await stack.wait_ready()

Everything is on loopback, in one folder, and ends with the fault run, however that ends.
"""

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lorogo_chaos.errors import ChaosError, FaultUnavailable, StackNotReady
from lorogo_chaos.processes import nats_nodes
from lorogo_chaos.processes.disks import SmallDisk
from lorogo_chaos.processes.links import ProxyLink
from lorogo_chaos.processes.nats_nodes import CLUSTER_NODES, NatsNode
from lorogo_chaos.processes.servers import ServerUnderTest
from lorogo_transport.errors import TransportError
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.rpc.discovery import ServerStats, server_stats

_LINES_MAX = 1000
_POLL_SECONDS = 0.2
_ASK_SECONDS = 2.0
_LOOK_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ChaosStackSettings:
    """The size and options of a stack."""

    nodes: int = 1  # nats-servers: one, or three in a cluster with replicated streams
    servers: int = 2
    folder: Path | None = None  # where all files are kept; None: a temporary folder
    keep: bool = False  # keep the temporary folder, too
    small_disk_bytes: int = 0  # size of a disk for the first server's data folder; 0: none
    serve_options: tuple[str, ...] = ()  # more options of `lorogo serve`

    def __post_init__(self) -> None:
        if self.nodes not in (1, CLUSTER_NODES):
            raise ChaosError(f"nodes must be 1 or {CLUSTER_NODES}")
        if not 1 <= self.servers <= 16:
            raise ChaosError("servers must be 1 to 16")


class ChaosStack:
    """The processes and links of one fault run; use with `async with`.

    `servers` and `nodes` stay the same objects over kills and restarts. `disk` is the small disk of
    `servers[0]`; if it is None, `disk_problem` has the reason.
    """

    def __init__(
        self, settings: ChaosStackSettings | None = None, *, rng: random.Random | None = None
    ) -> None:
        """`rng` chooses ports and jitter."""
        self.settings = settings if settings is not None else ChaosStackSettings()
        self.servers: list[ServerUnderTest] = []
        self.nodes: list[NatsNode] = []
        self.links: dict[str, ProxyLink] = {}  # of servers and clients, by name
        self.routes: list[ProxyLink] = []  # between the nodes of a cluster
        self.disk: SmallDisk | None = None
        self.disk_problem = "no small disk was requested"
        self.folder = Path()
        self._rng = rng if rng is not None else random.Random()
        self._due: dict[str, int] = {}  # servers that must reconcile, and since when (Unix ns)
        self._exit = AsyncExitStack()
        self._exit_of_links = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as exit_stack:  # close everything started if the rest fails
            await self._begin(exit_stack)
            self._exit = exit_stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    @property
    def clustered(self) -> bool:
        return len(self.nodes) > 1

    @property
    def direct_url(self) -> str:
        """The NATS address without a link, for observers."""
        return ",".join(node.url for node in self.nodes)

    async def link(self, name: str) -> str:
        """Return a NATS address through a new link of that name, for one client process.

        In a cluster it has an address for each node, and all are cut together.
        """
        if name in self.links or len(self.links) >= _LINES_MAX:
            raise ChaosError(f"link {name} exists already, or there are too many links")
        link = ProxyLink(name, [node.port for node in self.nodes], rng=self._rng)
        await link.open()
        self._exit_of_links.push_async_callback(link.close)
        self.links[name] = link
        return link.url

    @property
    def client_links(self) -> list[ProxyLink]:
        """The links of clients."""
        own = {server.name for server in self.servers}
        return [link for name, link in self.links.items() if name not in own]

    # --- waits --------------------------------------------------------------------------------------

    async def wait_ready(self, seconds: float = 60.0) -> None:
        """Start stopped processes, and wait until every server answers over NATS. Raises StackNotReady."""
        for node in self.nodes:
            node.resume()
            await node.start()
        await nats_nodes.formed(self.nodes, seconds)
        for server in self.servers:
            server.resume()
            await server.start()
        await asyncio.gather(*(server.ready(seconds) for server in self.servers))
        await self._until("every server answers", seconds, self._all_answer)

    async def stats(self) -> Mapping[str, ServerStats]:
        """Return the statistics of each server that answers, by its name. Raises TransportError."""
        names = {server.server_id: server.name for server in self.servers}
        async with await self.connect() as operator:
            found = await server_stats(operator.bus, first_seconds=_ASK_SECONDS)
        return {names[one.server_id]: one for one in found if one.server_id in names}

    async def connect(self) -> JetStreamTransport:
        """Return a connection without a link, for `async with`. Raises Unreachable."""
        return await connect(self.direct_url, name="operator", timeout=_ASK_SECONDS)

    def must_reconcile(self, servers: Iterable[ServerUnderTest], since_ns: int | None = None) -> None:
        """Require these servers to reconcile after now (or `since_ns`)."""
        since_ns = time.time_ns() if since_ns is None else since_ns
        self._due.update((server.name, since_ns) for server in servers)

    async def reconciled(self, seconds: float = 300.0) -> None:
        """Wait until every server has reconciled since the last damage.

        Required between two faults that harm files, together with an ACK of every document: then every ACKed
        update is in the stream and in a journal again. A server reconciles when it reconnects. A server
        without a reason to reconnect (another node of the cluster was damaged) gets one: its link is cut for
        a moment. Raises StackNotReady.
        """
        try:
            await self._until("every server has reconciled", _LOOK_SECONDS, self._all_reconciled)
        except StackNotReady:
            for server in self.servers:
                if server.name in self._due and server.link.condition == "whole":
                    server.link.cut()
                    server.link.heal()
            await self._until("every server has reconciled", seconds, self._all_reconciled)
        self._due.clear()

    async def _until(self, what: str, seconds: float, check: Callable[[], Awaitable[str]]) -> None:
        problem = "no server answers"
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        problem = await check()
                    except TransportError as error:
                        problem = str(error)
                    if not problem:
                        return
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise StackNotReady(f"not within {seconds:g} s: {what} ({problem})") from None

    async def _all_answer(self) -> str:
        found = await self.stats()
        missing = [server.name for server in self.servers if server.name not in found]
        return f"{', '.join(missing)} does not answer" if missing else ""

    async def _all_reconciled(self) -> str:
        found = await self.stats()
        for server in self.servers:
            if server.name not in found:
                return f"{server.name} does not answer"
            stats = found[server.name].stats
            names = ("reconcile_waiting", "reconcile_unread", "reconcile_unsettled")
            left = {name: stats.get(name) for name in names}
            if stats.get("reconcile") != "idle" or not stats.get("reconcile_passes"):
                return f"{server.name}: {stats.get('reconcile')}"
            if int(stats.get("reconciled_ns", 0)) <= self._due.get(server.name, 0):
                return f"{server.name} has not begun"
            if any(left.values()):
                return f"{server.name}: {left}"
        return ""

    # --- beginning and end --------------------------------------------------------------------------

    async def _begin(self, ending: AsyncExitStack) -> None:
        self.folder = await asyncio.to_thread(self._make_folder)
        if self.settings.folder is None and not self.settings.keep:
            ending.push_async_callback(asyncio.to_thread, shutil.rmtree, self.folder, True)
        self._exit_of_links = await ending.enter_async_context(AsyncExitStack())
        await self._begin_nodes(ending)
        await self._begin_servers(ending)
        await self.wait_ready()

    def _make_folder(self) -> Path:
        if self.settings.folder is None:
            return Path(tempfile.mkdtemp(prefix="lorogo-chaos-"))
        folder = self.settings.folder.absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ChaosError(f"{folder} cannot be created: {error.strerror}") from None
        if any(folder.iterdir()):
            raise ChaosError(
                f"{folder} is not empty: a fault run damages files and needs a folder of its own"
            )
        return folder

    async def _begin_nodes(self, ending: AsyncExitStack) -> None:
        if self.settings.nodes == 1:
            self.nodes = await nats_nodes.one(self.folder, self._rng)
        else:
            self.nodes, self.routes = await nats_nodes.cluster(self.folder, self._rng)
        for link in self.routes:
            ending.push_async_callback(link.close)
        for node in self.nodes:
            ending.push_async_callback(node.stop)
        for node in self.nodes:
            await node.start()
        await nats_nodes.formed(self.nodes)

    async def _begin_servers(self, ending: AsyncExitStack) -> None:
        options = self.settings.serve_options
        if self.clustered:
            options = ("--replicas", str(len(self.nodes)), *options)
        for number in range(self.settings.servers):
            name = f"server-{number + 1}"
            await self.link(name)
            server = ServerUnderTest(name, self.folder / name, self.links[name], options=options)
            if not number and self.settings.small_disk_bytes:
                await self._begin_disk(ending, server)
            self.servers.append(server)
            ending.push_async_callback(server.close)
        for server in self.servers:
            await server.start()
            await server.ready()  # the first creates the streams

    async def _begin_disk(self, ending: AsyncExitStack, server: ServerUnderTest) -> None:
        disk = SmallDisk(server.data, self.settings.small_disk_bytes)
        try:
            await disk.mount()
        except FaultUnavailable as error:
            self.disk_problem = str(error)
            return
        ending.push_async_callback(disk.unmount)
        self.disk, self.disk_problem = disk, ""
