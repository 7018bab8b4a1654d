"""How a connection says who it is: a token and the documents it is for, the seed of a service, or nothing.

`CONNECT` carries a token as `auth_token`, or as `pass` with the documents in `user` (docs/decisions/0016).
Nothing here shows a token or a seed: not a repr, not a message.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from lorogo_protocol import subjects, tokens
from lorogo_protocol.ids import check_document_id
from lorogo_protocol.limits import TOKEN_BYTES_MAX, TOKEN_DOCUMENTS_BYTES_MAX, TOKEN_DOCUMENTS_MAX
from lorogo_transport.errors import NotAuthorized, TooLarge, Unreachable
from lorogo_transport.tasks import being_cancelled

TokenSource = str | Callable[[], Awaitable[str]]  # the token, or who is asked for it before each connection


@dataclass(frozen=True, slots=True)
class NatsCredentials:
    """What we know of ourselves before a connection is made."""

    token: TokenSource | None = field(default=None, repr=False)
    documents: tuple[str, ...] = ()  # what the connection is for; none: what the token names by itself
    seed: str | None = field(default=None, repr=False)  # an nkey's
    credentials: str | Path | None = None  # a .creds file

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.token, self.seed, self.credentials)) > 1:
            raise ValueError("a token, a seed and a credentials file exclude each other")
        if self.documents and self.token is None:
            raise ValueError("documents are named with a token only")
        for document_id in self.documents:
            check_document_id(document_id)
        if len(set(self.documents)) > TOKEN_DOCUMENTS_MAX:
            raise TooLarge(
                f"a connection names {len(set(self.documents))} documents, and {TOKEN_DOCUMENTS_MAX} at most"
                " are allowed: use more connections, or a token that names them"
            )
        size = len(",".join(self.documents))
        if size > TOKEN_DOCUMENTS_BYTES_MAX:
            raise TooLarge(
                f"the names of {len(self.documents)} documents take {size} bytes, and a connection has room"
                f" for {TOKEN_DOCUMENTS_BYTES_MAX}: use more connections, or a token that names them"
            )
        if isinstance(self.token, str):
            _check(self.token)

    async def ask(self, timeout: float) -> str | None:
        """The token to use now; None if we go without one. Raises Unreachable, NotAuthorized."""
        if self.token is None or isinstance(self.token, str):
            return self.token
        try:
            async with asyncio.timeout(timeout):
                text = await self.token()
        except Unreachable:
            raise  # whoever gives tokens can say better why
        except TimeoutError:
            raise Unreachable(f"no token could be had within {timeout:g} s") from None
        except asyncio.CancelledError as error:
            if being_cancelled():
                raise
            raise Unreachable("no token could be had: what gives it was cancelled") from error
        except Exception as error:
            raise Unreachable(f"the token function raised {type(error).__name__}") from error
        return _check(text)


def inbox_prefix(token: str) -> str:
    """What all inboxes of this token's connections begin with."""
    return subjects.user_inbox(tokens.user_of(token))


def _check(text: object) -> str:
    if not isinstance(text, str) or not text:
        raise NotAuthorized("the token is empty or no text")
    if len(text) > TOKEN_BYTES_MAX:
        raise NotAuthorized(
            f"the token has {len(text)} characters, at most {TOKEN_BYTES_MAX} are allowed:"
            " name fewer documents"
        )
    return text
