"""The credentials of a connection: a token with its documents, the seed of a service, or none.

`CONNECT` carries a token as `auth_token`, or as `pass` with the documents in `user` (docs/decisions/0016).
No repr or message of this module contains a token or a seed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from lorogo_protocol.access import tokens
from lorogo_protocol.ids import check_document_id
from lorogo_protocol.limits import TOKEN_BYTES_MAX, TOKEN_DOCUMENTS_BYTES_MAX, TOKEN_DOCUMENTS_MAX
from lorogo_protocol.messages import subjects
from lorogo_transport.errors import NotAuthorized, TooLarge, Unreachable
from lorogo_transport.tasks import being_cancelled

TokenSource = str | Callable[[], Awaitable[str]]  # the token, or a function called before each connection


@dataclass(frozen=True, slots=True)
class NatsCredentials:
    """Credentials for a connection; at most one kind."""

    token: TokenSource | None = field(default=None, repr=False)
    documents: tuple[str, ...] = ()  # the documents of the connection; empty: those that the token names
    seed: str | None = field(default=None, repr=False)  # an nkey's

    def __post_init__(self) -> None:
        if self.token is not None and self.seed is not None:
            raise ValueError("a token and a seed exclude each other")
        if self.documents and self.token is None:
            raise ValueError("documents are named with a token only")
        for document_id in self.documents:
            check_document_id(document_id)
        if len(set(self.documents)) > TOKEN_DOCUMENTS_MAX:
            raise TooLarge(
                f"a connection names {len(set(self.documents))} documents, at most {TOKEN_DOCUMENTS_MAX}"
                " are allowed: use more connections, or a token that names them"
            )
        size = len(",".join(self.documents))
        if size > TOKEN_DOCUMENTS_BYTES_MAX:
            raise TooLarge(
                f"the names of {len(self.documents)} documents have {size} bytes, at most"
                f" {TOKEN_DOCUMENTS_BYTES_MAX} are allowed: use more connections, or a token that names them"
            )
        if isinstance(self.token, str):
            _check(self.token)

    async def ask(self, timeout: float) -> str | None:
        """Return the current token; None without one. Raises Unreachable, NotAuthorized."""
        if self.token is None or isinstance(self.token, str):
            return self.token
        try:
            async with asyncio.timeout(timeout):
                text = await self.token()
        except Unreachable:
            raise  # the token function has the better message
        except TimeoutError:
            raise Unreachable(f"the token function did not return within {timeout:g} s") from None
        except asyncio.CancelledError as error:
            if being_cancelled():
                raise
            raise Unreachable("cannot get a token: the token function was cancelled") from error
        except Exception as error:
            raise Unreachable(f"the token function raised {type(error).__name__}") from error
        return _check(text)


def inbox_prefix(token: str) -> str:
    """Return the inbox prefix of this token's user."""
    return subjects.user_inbox(tokens.user_of(token))


def _check(text: object) -> str:
    if not isinstance(text, str) or not text:
        raise NotAuthorized("the token is empty or not text")
    if len(text) > TOKEN_BYTES_MAX:
        raise NotAuthorized(
            f"the token has {len(text)} characters, at most {TOKEN_BYTES_MAX} are allowed:"
            " name fewer documents"
        )
    return text
