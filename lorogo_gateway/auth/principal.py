"""The principal of a request: its token and grants. Pure."""

from dataclasses import dataclass, field
from typing import Final

from lorogo_protocol.access.grants import EVERYTHING, Access, Grants
from lorogo_protocol.access.tokens import Token
from lorogo_protocol.errors import LorogoError

#: the code of a token that cannot be verified yet, because the gateway is not ready
UNCHECKED: Final = "token-unchecked"


class NotSignedIn(LorogoError):
    """A required token is missing or cannot be read."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(problem)
        self.code = code


class AccessDenied(LorogoError):
    """The token is valid and does not grant this.

    The message is the same whether the document exists or not.
    """

    code = "permission-denied"


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a token; without keys, every client."""

    grants: Grants
    token: Token | None = None  # None: this gateway has no keys, or the client no token
    text: str = field(default="", repr=False, compare=False)  # passed to owners, which verify it again

    @property
    def subject(self) -> str:
        """The token's subject; empty without a token."""
        return "" if self.token is None else self.token.subject

    @property
    def operator(self) -> bool:
        """True if the token grants admin on every document."""
        return self.grants.everywhere >= Access.ADMIN

    @property
    def sees_all(self) -> bool:
        """True if the token grants read on every document."""
        return self.grants.everywhere >= Access.READ

    def access(self, document_id: str) -> Access:
        """Return the access to this document."""
        return self.grants.access(document_id)

    def reads(self, document_id: str) -> bool:
        """Return whether the token grants read on this document."""
        return self.grants.access(document_id) >= Access.READ

    def need(self, document_id: str, access: Access) -> None:
        """Check for this access to the document. Raises NotAllowed."""
        has = self.grants.access(document_id)
        if has < access:
            allows = "nothing" if has is Access.NONE else f"only {has.word}"
            raise AccessDenied(
                f"this needs {access.word} on {document_id!r}; the token allows {allows} there"
            )


#: every client, where there are no keys
OPEN: Final = Principal(EVERYTHING)
#: a client without a token, where none is needed
ANONYMOUS: Final = Principal(Grants())
