"""What a drill can do: every fault by name, what it does, and whether it can be had here."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from lorogo_chaos.errors import FaultUnavailable
from lorogo_chaos.faults.faults import Harm, registry
from lorogo_chaos.faults.writer_faults import WRITER_FAULTS
from lorogo_chaos.processes.disks import SmallDisk
from lorogo_chaos.processes.links import ProxyLink
from lorogo_chaos.processes.nats_nodes import NatsNode
from lorogo_chaos.processes.stack import ChaosStack, ChaosStackSettings

WORDS: dict[str, str] = {
    "server-kill": "kill -9 of one server; it is started again",
    "server-pause": "SIGSTOP of one server, with or without its helpers, long enough that others take over",
    "server-stop": "SIGTERM of one server, as an operator does",
    "restart-storm": "every server killed three times in a row, at any moment of its start",
    "nats-kill": "kill -9 of one nats-server",
    "nats-pause": "SIGSTOP of one nats-server",
    "nats-restart": "every nats-server stopped and started, one after the other, as for an upgrade",
    "line-cut": "the connection of one server to NATS is reset, and no new one is made",
    "line-blackhole": "the connection of one server stays, and nothing passes; then everything at once",
    "line-delay": "everything that one server sends and hears takes longer, up to a second",
    "client-line-cut": "the connection of one writer is cut, or passes nothing",
    "partition": "one nats-server of the cluster does not reach the others; its clients reach it",
    "leader-change": "a stream gets another leader",
    "disk-full": "the disk of one server's journal is filled to the last byte, then freed",
    "journal-flip": "one bit of a server's journal is flipped while it is down",
    "journal-truncate": "the end of a server's journal is lost while it is down",
    "wal-flip": "one bit of JetStream's files is flipped while it is down",
    "wal-truncate": "the end of one of JetStream's files is lost while it is down",
    "wal-loss": "one nats-server loses everything that it stored",
    "writer-kill": "kill -9 of one writer; it comes back, with its local store if it has one",
    "blackout": "kill -9 of every writer, server and nats-server at once",
}


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One fault on the menu."""

    name: str
    words: str
    harms: Harm
    why_not: str  # "": it can be had


async def menu(nodes: int) -> list[CatalogueEntry]:
    """Every fault of a drill with so many nats-servers. Starts none of them."""
    with tempfile.TemporaryDirectory(prefix="lorogo-chaos-") as folder:
        stack = await _sketch(nodes, Path(folder))
    found = [
        CatalogueEntry(fault.name, WORDS[fault.name], fault.harms, fault.needs(stack))
        for fault in registry().values()
    ]
    return found + [CatalogueEntry(name, WORDS[name], "", "") for name in WRITER_FAULTS]


async def _sketch(nodes: int, folder: Path) -> ChaosStack:
    """A stack that is not started, to ask what would be possible on it."""
    stack = ChaosStack(ChaosStackSettings(nodes=nodes))
    stack.nodes = [NatsNode(f"nats-{number + 1}", folder, 4222) for number in range(nodes)]
    stack.lines["writer-1"] = ProxyLink("writer-1", [4222])
    disk = SmallDisk(folder / "disk")
    try:
        await disk.mount()
    except FaultUnavailable as error:
        stack.disk_problem = str(error)
    else:
        await disk.unmount()
        stack.disk_problem = ""
    return stack
