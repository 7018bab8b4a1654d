"""What a room needs of the connection that it is on."""

from collections.abc import Callable
from typing import Protocol

from lorogo_gateway.frames import Crdt, Status
from lorogo_gateway.state.gateway_state import GatewayState
from lorogo_gateway.transport.transport import FrameWriter
from lorogo_transport.tasks import Tasks


class ConnectionPort(Protocol):
    """One connection, as its rooms see it."""

    gateway: GatewayState
    writer: FrameWriter
    tasks: Tasks  # ends with the connection

    def send(self, data: bytes) -> None:
        """Write a frame; a reader that is too slow is dropped."""

    async def send_paced(self, data: bytes, wanted: Callable[[], bool]) -> bool:
        """Write a frame when the reader has taken those before it, if it is wanted still; whether it was.

        The caller has the deadline.
        """

    def ack(self, prefix: bytes, ref: bytes, status: Status) -> None:
        """Answer a batch."""

    def forget(self, crdt: Crdt, name: str) -> None:
        """The room is over."""

    def slow(self) -> None:
        """It does not read what it asked for: drop it."""

    def close(self, code: int, reason: str, why: str) -> None:
        """End the connection; `why` is the word for it in the counters."""
