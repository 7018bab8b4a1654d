"""Discovery of servers through the NATS services protocol."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from lorogo_protocol.ids import is_token
from lorogo_protocol.messages.subjects import SERVICE
from lorogo_transport.headers import STATUS
from lorogo_transport.ports import Bus, Message
from lorogo_transport.tasks import within
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)
T = TypeVar("T")

_FIRST_SECONDS = 2.0
_GATHER_SECONDS = 0.25  # for further answers, after the last one
_SERVERS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class FoundServer:
    """One server, as it describes itself."""

    server_id: str
    durability: str
    journals: tuple[str, ...]  # the ids of its journal's partitions, hex
    journal_address: str = ""  # host:port where other servers copy it; empty: not offered
    journal_replicas: int = 0  # the number of copies that it wants
    journal_place: str = ""  # its failure domain; copies in the same one do not count. Empty: unknown


@dataclass(frozen=True, slots=True)
class ServerStats:
    """The figures of one server, as it reports them."""

    server_id: str
    version: str
    started: str  # ISO 8601
    stats: Mapping[str, Any]


def is_ready(stats: Mapping[str, Any]) -> bool:
    """True if the server accepts documents and can ACK: connected, and its journal, if any, is open."""
    return stats.get("ready") is True and stats.get("journal", "open") == "open"


async def find_servers(
    bus: Bus, *, first_seconds: float = _FIRST_SECONDS, gather_seconds: float = _GATHER_SECONDS
) -> list[FoundServer]:
    """Return every server that answers. Raises Disconnected."""
    answers = await _gather(bus, "INFO", _read, first_seconds, gather_seconds)
    return list({server.server_id: server for server in answers}.values())


async def server_stats(
    bus: Bus, *, first_seconds: float = _FIRST_SECONDS, gather_seconds: float = _GATHER_SECONDS
) -> list[ServerStats]:
    """Return the figures of every server that answers. Raises Disconnected."""
    return await _gather(bus, "STATS", _read_stats, first_seconds, gather_seconds)


async def _gather(
    bus: Bus, verb: str, read: Callable[[bytes], T | None], first_seconds: float, gather_seconds: float
) -> list[T]:
    """Query all servers, and wait until no more answers arrive."""
    found: list[T] = []
    arrived = asyncio.Event()
    no_responders = False

    def on_answer(message: Message) -> None:
        nonlocal no_responders
        if message.headers.get(STATUS) == "503":
            no_responders = True
        elif (answer := read(message.data)) is not None and len(found) < _SERVERS_MAX:
            found.append(answer)
        arrived.set()

    inbox = bus.new_inbox()
    subscription = await bus.subscribe(inbox, on_answer)
    try:
        await bus.publish(f"$SRV.{verb}.{SERVICE}", reply=inbox)
        wait = first_seconds
        while not no_responders:
            arrived.clear()
            if not await within(wait, arrived.wait()):
                break
            wait = gather_seconds
    finally:
        await subscription.close()
    return found


def _reject_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _read_stats(data: bytes) -> ServerStats | None:
    """Parse one STATS answer; None if it is invalid."""
    try:
        answer = json.loads(data, parse_constant=_reject_constant)
        stats = (answer.get("endpoints") or [{}])[0].get("data") or {}
        server_id = answer["metadata"]["server_id"]
        if not is_token(server_id) or not isinstance(stats, dict):
            raise ValueError("invalid id or figures")
        return ServerStats(server_id, str(answer.get("version", "?")), str(answer.get("started", "")), stats)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        log.debug("malformed answer of a server", problem=str(error))
        return None


def _read(data: bytes) -> FoundServer | None:
    """Parse one INFO answer; None if it is invalid."""
    try:
        metadata = json.loads(data)["metadata"]
        server_id = metadata["server_id"]
        journals = tuple(metadata.get("journals", "").split())
        server = FoundServer(
            server_id,
            metadata.get("durability", ""),
            journals,
            metadata.get("journal_address", ""),
            int(metadata.get("journal_replicas", "0")),
            str(metadata.get("journal_place", "")),
        )
        if not is_token(server_id) or not all(is_token(journal) for journal in journals):
            raise ValueError("invalid id")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.debug("malformed answer of a server", problem=str(error))
        return None
    return server
