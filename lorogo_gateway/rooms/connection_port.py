"""The interface of a connection for its rooms."""

from collections.abc import Callable
from typing import Protocol

from lorogo_gateway.frames import Crdt, Status
from lorogo_gateway.state.gateway_state import GatewayState
from lorogo_gateway.transport.transport import FrameWriter
from lorogo_transport.tasks import Tasks


class ConnectionPort(Protocol):
    """The interface of a connection for its rooms."""

    gateway: GatewayState
    writer: FrameWriter
    tasks: Tasks  # cancelled with the connection

    def send(self, data: bytes) -> None:
        """Write a frame; a slow consumer is disconnected."""

    async def send_paced(self, data: bytes, wanted: Callable[[], bool]) -> bool:
        """Write a frame once the client has read the previous ones, if `wanted()` is still true.

        Returns whether it was. The caller sets the deadline.
        """

    def ack(self, prefix: bytes, ref: bytes, status: Status) -> None:
        """Send the Ack of a batch."""

    def forget(self, crdt: Crdt, name: str) -> None:
        """Remove the room and leave it in the background."""

    def slow(self) -> None:
        """Disconnect a slow consumer."""

    def close(self, code: int, reason: str, why: str) -> None:
        """Close the connection; `why` is the label of the counter."""
