"""A decode sandbox without a process, for tests of its verdicts' effects."""

from lorogo_protocol.errors import InvalidUpdate
from lorogo_server.sandbox.decode_sandbox import SUSPECTED, DecodeSandbox


class Suspicious(DecodeSandbox):
    """Starts no process; notes what it tastes, and may suspect everything."""

    def __init__(self, *, suspects: bool) -> None:
        super().__init__()
        self.suspects = suspects
        self.validated: list[tuple[bytes, bool]] = []

    def new_instance(self) -> DecodeSandbox:
        return self

    def start(self) -> None:
        """There is nothing to start."""

    def validate(self, update: bytes, *, accepted: bool = False, bounded: bool = False) -> None:
        self.validated.append((update, accepted))
        if self.suspects and not accepted:
            raise InvalidUpdate(SUSPECTED)
