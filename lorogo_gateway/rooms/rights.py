"""The rights of a room's member, by the token that it joined with."""

from dataclasses import dataclass

from lorogo_gateway.auth import Principal
from lorogo_protocol.access.grants import Access


@dataclass(frozen=True, slots=True)
class RoomRights:
    """The rights of a principal in one room; another JoinRequest may change them."""

    principal: Principal
    access: Access
    read_only: bool = False  # of the gateway

    @property
    def writes(self) -> bool:
        """True if the member may change or create the document."""
        return self.access >= Access.WRITE and not self.read_only

    @property
    def shows_presence(self) -> bool:
        """True if the member may publish presence."""
        return self.access >= Access.READ and not self.read_only


def permission(allowed: bool) -> str:
    """Return the permission field of a JoinOk."""
    return "write" if allowed else "read"
