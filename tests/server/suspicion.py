"""A decode sandbox without a process, for tests of its verdicts' effects."""

from collections.abc import Callable

from lorogo_protocol.errors import InvalidUpdate
from lorogo_server.sandbox.decode_sandbox import SUSPECTED, DecodeSandbox, Validation


class Suspicious(DecodeSandbox):
    """Starts no process; notes what it tastes, and may suspect everything."""

    def __init__(self, *, suspects: bool) -> None:
        super().__init__()
        self.suspects = suspects
        self.validated: list[tuple[bytes, bool]] = []

    async def start(self) -> None:
        """There is nothing to start."""

    def queue(self, update: bytes, wake: Callable[[], None]) -> Validation | None:
        """Leave every update to `validate`."""
        return None

    async def validate(self, update: bytes, *, accepted: bool = False, bounded: bool = False) -> None:
        self.validated.append((update, accepted))
        if self.suspects and not accepted:
            raise InvalidUpdate(SUSPECTED)
