"""The catalogue of faults: each by name, its effect, and whether it is possible here."""

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
    "server-kill": "kill -9 of one server; it is restarted",
    "server-pause": "SIGSTOP of one server, with or without its helpers, long enough for others to take over",
    "server-stop": "SIGTERM of one server, as an operator does",
    "restart-storm": "every server killed three times in a row, at random moments of its start",
    "nats-kill": "kill -9 of one nats-server",
    "nats-pause": "SIGSTOP of one nats-server",
    "nats-restart": "every nats-server stopped and started, one after the other, as in an upgrade",
    "link-cut": "the connection of one server to NATS is reset, and no new one is made",
    "link-blackhole": "the connection of one server stays, passes no bytes, then all at once",
    "link-delay": "all messages of one server are delayed, up to a second",
    "client-link-cut": "the connection of one writer is cut, or passes no bytes",
    "partition": "one nats-server of the cluster cannot reach the others; its clients reach it",
    "leader-change": "a stream gets another leader",
    "disk-full": "the disk of one server's journal is filled to the last byte, then freed",
    "journal-flip": "one bit of a server's journal is flipped while it is down",
    "journal-truncate": "the end of a server's journal is lost while it is down",
    "wal-flip": "one bit of JetStream's files is flipped while it is down",
    "wal-truncate": "the end of one of JetStream's files is lost while it is down",
    "wal-loss": "one nats-server loses all stored data",
    "writer-kill": "kill -9 of one writer; it restarts, with its local store if it has one",
    "blackout": "kill -9 of every writer, server and nats-server at once",
}


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One fault of the catalogue."""

    name: str
    words: str
    harms: Harm
    unmet_need: str  # why it is not possible; "": it is


async def list_faults(nodes: int) -> list[CatalogueEntry]:
    """Return every fault of a run with so many nats-servers. Starts none of them."""
    with tempfile.TemporaryDirectory(prefix="lorogo-chaos-") as folder:
        stack = await _unstarted_stack(nodes, Path(folder))
    found = [
        CatalogueEntry(fault.name, WORDS[fault.name], fault.harms, fault.unmet_need(stack))
        for fault in registry().values()
    ]
    return found + [CatalogueEntry(name, WORDS[name], "", "") for name in WRITER_FAULTS]


async def _unstarted_stack(nodes: int, folder: Path) -> ChaosStack:
    """Return a stack that is not started, to query possible faults."""
    stack = ChaosStack(ChaosStackSettings(nodes=nodes))
    stack.nodes = [NatsNode(f"nats-{number + 1}", folder, 4222) for number in range(nodes)]
    stack.links["writer-1"] = ProxyLink("writer-1", [4222])
    disk = SmallDisk(folder / "disk")
    try:
        await disk.mount()
    except FaultUnavailable as error:
        stack.disk_problem = str(error)
    else:
        await disk.unmount()
        stack.disk_problem = ""
    return stack
