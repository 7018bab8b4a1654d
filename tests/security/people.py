"""The people who connect: anonymous ones, those with a bad token, and those with a good one."""

import base64
import itertools
import json
import time
from collections.abc import Mapping

from lorogo_protocol.access import tokens
from lorogo_protocol.access.tokens import Key

_numbers = itertools.count(1)


def secret(letter: str, key_id: str) -> Key:
    """A key of 32 equal letters."""
    k = base64.urlsafe_b64encode(letter.encode() * 32).decode().rstrip("=")
    return tokens.key_of({"kty": "oct", "kid": key_id, "k": k})


OURS = secret("o", "ours")
NEXT = secret("n", "next")
THEIRS = secret("t", "ours")  # by the name of ours, and another key


def jwks(*keys: Key) -> str:
    return json.dumps({"keys": [key.private() for key in keys]})


def mint(
    documents: Mapping[str, str],
    *,
    key: Key = OURS,
    seconds: float = 3600.0,
    subject: str = "somebody",
    token_id: str = "",
) -> str:
    """A token that ends in so many seconds, or ended so long ago."""
    now = time.time()
    expires = now + seconds
    return tokens.mint(
        key,
        subject=subject,
        documents=documents,
        expires=expires,
        now=min(now, expires - 60),
        token_id=token_id or f"t{next(_numbers)}",
    )


#: by name: what their token grants on a document; None: it is not a good one, or there is none
PEOPLE: Mapping[str, str | None] = {
    "no token": None,
    "garbage": None,
    "expired": None,
    "wrong key": None,
    "revoked": None,
    "nothing granted": "",
    "writer of another": "another",
    "reader": "read",
    "writer": "write",
    "admin": "admin",
    "operator": "operator",
}


def token_of(person: str, document: str) -> str:
    """The token that this person has, for this document; "" for who has none. The revoked one is as good
    as the writer's until it is revoked.
    """
    match person:
        case "no token":
            return ""
        case "garbage":
            return "garbage"
        case "expired":
            return mint({"*": "admin"}, seconds=-3600.0)
        case "wrong key":
            return mint({"*": "admin"}, key=THEIRS)
        case "revoked":
            return mint({"*": "admin"}, token_id="revoked")
        case "nothing granted":
            return mint({})
        case "writer of another":
            return mint({f"{document}-another": "write", "another-*": "admin"})
        case "reader" | "writer" | "admin":
            return mint({document: {"reader": "read", "writer": "write", "admin": "admin"}[person]})
        case "operator":
            return mint({"*": "admin"}, subject="operator")
        case _:
            raise ValueError(person)
