"""Functions that both kinds of presence rooms share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from lorogo_client import LorogoError
from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, Status
from lorogo_gateway.rooms import join_errors
from lorogo_gateway.rooms.connection_port import ConnectionPort
from lorogo_transport.errors import TransportError

T = TypeVar("T")

PRESENCE_WEIGHT: Final = 64  # 64 KiB may be 5,000 keys, and take as long as 4 MiB of a document
_AGAIN_SECONDS = 0.5


async def retrying(work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of the work, retried while NATS is unreachable. The caller sets the deadline."""
    while True:
        try:
            return await work()
        except TransportError:
            await asyncio.sleep(_AGAIN_SECONDS)


def reject_join(port: ConnectionPort, crdt: Crdt, name: str, error: LorogoError | TimeoutError) -> None:
    """Answer a failed join: JoinError for a permanent error, else close the connection for a retry."""
    no = None if isinstance(error, TimeoutError) else join_errors.answer(crdt, name, error)
    if no is None:
        port.close(1013, f"presence of {name} is not served now; try again", "not_served")
        return
    port.send(frames.encode(no))
    port.forget(crdt, name)


def may_show(
    port: ConnectionPort, prefix: bytes, updates: tuple[bytes, ...], ref: bytes, *, allowed: bool
) -> bool:
    """Return whether a batch is allowed and small enough; if not, send the Ack that refuses it."""
    settings = port.gateway.settings
    if not allowed:
        port.ack(prefix, ref, Status.PERMISSION_DENIED)
    elif any(len(data) > settings.presence_bytes_max for data in updates):
        port.ack(prefix, ref, Status.PAYLOAD_TOO_LARGE)
    else:
        return True
    return False


def announced(port: ConnectionPort, size: int, *, joined: bool, allowed: bool) -> Status | None:
    """Return OK, or the status that refuses announced presence; None: ignore it without an Ack."""
    if not joined:
        return None
    if not allowed:
        return Status.PERMISSION_DENIED
    return Status.OK if size <= port.gateway.settings.presence_bytes_max else Status.PAYLOAD_TOO_LARGE


async def send_present(
    port: ConnectionPort, crdt: Crdt, name: str, data: bytes, wanted: Callable[[], bool]
) -> None:
    """Send the current presence at the client's pace: that of many rooms may exceed the unread limit."""
    gateway = port.gateway
    batch, size = gateway.fanout.next_batch(), gateway.settings.fragment_bytes
    for frame in frames.update_frames(crdt, name, data, batch, fragment_bytes=size):
        try:
            async with asyncio.timeout(gateway.settings.join_seconds):
                await port.writer.writable()
        except TimeoutError:
            port.slow()
            return
        if not wanted():
            return
        port.send(frame)
