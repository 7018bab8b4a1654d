"""Somebody who asks for something, and what they may do. Pure."""

from dataclasses import dataclass, field
from typing import Final

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.grants import EVERYTHING, Access, Grants
from lorogo_protocol.tokens import Token

#: the code of a token that cannot be judged yet: it is we who are not ready
UNCHECKED: Final = "token-unchecked"


class NotSignedIn(LorogoError):
    """There is no token where one is needed, or not one that can be read."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(problem)
        self.code = code


class AccessDenied(LorogoError):
    """The token is good and does not allow this. Says the same of a document whether it exists or not."""

    code = "permission-denied"


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever has this token; without keys, everybody."""

    grants: Grants
    token: Token | None = None  # None: there are no keys here
    text: str = field(default="", repr=False, compare=False)  # for owners, who verify it themselves

    @property
    def subject(self) -> str:
        """Whose token it is."""
        return "" if self.token is None else self.token.subject

    @property
    def operator(self) -> bool:
        """Whether everything is allowed on every document."""
        return self.grants.everywhere >= Access.ADMIN

    @property
    def sees_all(self) -> bool:
        """Whether every document there is may be read."""
        return self.grants.everywhere >= Access.READ

    def access(self, document_id: str) -> Access:
        """What is allowed on this document."""
        return self.grants.access(document_id)

    def reads(self, document_id: str) -> bool:
        """Whether this document may be read."""
        return self.grants.access(document_id) >= Access.READ

    def need(self, document_id: str, access: Access) -> None:
        """Raise NotAllowed unless so much is allowed on this document."""
        has = self.grants.access(document_id)
        if has < access:
            allows = "nothing" if has is Access.NONE else f"only {has.word}"
            raise AccessDenied(
                f"this needs {access.word} on {document_id!r}; the token allows {allows} there"
            )


#: everybody, where there are no keys
OPEN: Final = Principal(EVERYTHING)
#: somebody without a token, where that is enough
NOBODY: Final = Principal(Grants())
