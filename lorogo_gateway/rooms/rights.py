"""What the member of a room may do in it, by the token that it joined with."""

from dataclasses import dataclass

from lorogo_gateway.auth import Principal
from lorogo_protocol.grants import Access


@dataclass(frozen=True, slots=True)
class RoomRights:
    """A principal in one room; another JoinRequest may bring other ones."""

    principal: Principal
    access: Access
    read_only: bool = False  # the gateway is

    @property
    def writes(self) -> bool:
        """Whether the document may be changed, or begun."""
        return self.access >= Access.WRITE and not self.read_only

    @property
    def shows_presence(self) -> bool:
        """Whether others may be told where the reader is."""
        return self.access >= Access.READ and not self.read_only


def permission(allowed: bool) -> str:
    """As a JoinResponseOk says it."""
    return "write" if allowed else "read"
