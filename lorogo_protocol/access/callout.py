"""Messages and decisions of NATS's auth callout (docs/decisions/0016).

Pure: time, verification and signing are arguments. nats-server sends a request JWT for each new connection.
`decide` checks the connection's token, and the response JWT has the NATS user: its permissions and expiry.

The request's signature is not verified: only nats-server can publish on that subject.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from lorogo_protocol.access import grants
from lorogo_protocol.access.grants import Access, Grants
from lorogo_protocol.access.tokens import Token, TokenRefused
from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.ids import is_document_id, is_token
from lorogo_protocol.limits import (
    CALLOUT_SUBSCRIPTIONS_MAX,
    MIB,
    TOKEN_BYTES_MAX,
    TOKEN_DOCUMENTS_BYTES_MAX,
    TOKEN_DOCUMENTS_MAX,
)

SUBJECT: Final = "$SYS.REQ.USER.AUTH"  # of nats-server's requests
QUEUE: Final = "lorogo-auth"  # one of several services replies: NATS refuses after two replies
ACCOUNT: Final = "LOROGO"  # account of all users with tokens
_HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}
_REQUEST_BYTES_MAX: Final = 64 * 1024  # CONNECT has 4 KiB, and the request may have TLS certificates
_NKEY_CHARS: Final = 56
_NAME_PARTS: Final = 7
_PROOF_SECONDS: Final = 3600  # long, since clocks may differ; the user has no permissions


class Signer(Protocol):
    """An nkey of an account."""

    @property
    def public_key(self) -> str: ...

    def sign(self, data: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Request:
    """A request of nats-server to authorise a new connection."""

    server_id: str
    user_nkey: str  # unique for this connection, so a response is valid for no other
    address: str
    kind: str  # Client, Leafnode...
    token: str = field(repr=False)
    documents: str | None  # ids separated by commas; None: not given
    conflict: bool  # CONNECT has a token in two places


@dataclass(frozen=True, slots=True)
class Allowed:
    """The connection gets this user."""

    token: Token
    claims: Mapping[str, Any]  # of the user's JWT, without issuer and time


@dataclass(frozen=True, slots=True)
class Denied:
    """The connection is refused. The peer does not get the reason; the message contains no secret."""

    code: str
    problem: str


def parse_request(data: bytes) -> Request:
    """Parse a request of nats-server. Raises MalformedMessage, without content of the request."""
    if len(data) > _REQUEST_BYTES_MAX:
        raise MalformedMessage(f"an authorization request of {len(data)} bytes")
    claims = _claims(data)
    try:
        nats = claims["nats"]
        if nats["type"] != "authorization_request":
            raise MalformedMessage("not an authorization request")
        options, client = nats.get("connect_opts") or {}, nats.get("client_info") or {}
        server_id, user_nkey = nats["server_id"]["id"], nats["user_nkey"]
        texts = {name: options.get(name) or "" for name in ("auth_token", "user", "pass")}
        address, kind = client.get("host") or "", client.get("kind") or ""
    except (KeyError, TypeError, AttributeError):
        raise MalformedMessage("an authorization request without its parts") from None
    if not all(isinstance(text, str) for text in (*texts.values(), server_id, user_nkey, address, kind)):
        raise MalformedMessage("an authorization request with parts that are not text")
    if not (_is_nkey(server_id, "N") and _is_nkey(user_nkey, "U")):
        raise MalformedMessage("an authorization request without the keys that a response needs")
    return Request(
        server_id,
        user_nkey,
        address[:64],
        kind[:16],
        token=texts["auth_token"] or texts["pass"],
        documents=texts["user"] or None,
        conflict=bool(texts["auth_token"] and (texts["pass"] or texts["user"])),
    )


def decide(request: Request, verify: Callable[[str], Token], *, now: float) -> Allowed | Denied:
    """Decide about a connection. `verify` raises TokenRefused for an invalid token."""
    if request.kind != "Client":
        return Denied("not-a-client", "only clients connect with tokens")
    if request.conflict:
        return Denied("token-invalid", "CONNECT has auth_token and also user or pass: send the token once")
    if not request.token:
        return Denied("no-token", "CONNECT has no token")
    if len(request.token) > TOKEN_BYTES_MAX:
        return Denied("token-invalid", f"the token has more than {TOKEN_BYTES_MAX} characters")
    try:
        token = verify(request.token)
    except TokenRefused as error:
        return Denied(error.code, str(error))
    ends = int(token.expires)
    if ends <= now:  # `verify` tolerates some seconds, but NATS refuses an expired user
        return Denied("token-expired", "the token has expired: get a new one")
    documents = _documents(request.documents, token.grants)
    if isinstance(documents, Denied):
        return documents
    return Allowed(token, _user(request, token, documents, ends))


def allow(request: Request, allowed: Allowed, signer: Signer, *, now: float) -> bytes:
    """Return the response that accepts the connection."""
    return _response(request, {"jwt": encode(allowed.claims, signer, now=now)}, signer, now)


def deny(request: Request, code: str, signer: Signer, *, now: float) -> bytes:
    """Return the response that refuses the connection; nats-server writes `code` to its log."""
    return _response(request, {"error": code}, signer, now)


def prove(request: Request, signer: Signer, *, now: float) -> bytes:
    """Return a response with a user without permissions, to test that NATS accepts the signature."""
    claims = {
        "aud": ACCOUNT,
        "sub": request.user_nkey,
        "name": "lorogo-auth-proof",
        "exp": int(now) + _PROOF_SECONDS,
        "nats": {"type": "user", "version": 2, "pub": {"deny": [">"]}, "sub": {"deny": [">"]}, "subs": 0},
    }
    return _response(request, {"jwt": encode(claims, signer, now=now)}, signer, now)


def encode(claims: Mapping[str, Any], signer: Signer, *, now: float) -> str:
    """Encode and sign a JWT in NATS's format."""
    full = {**claims, "iss": signer.public_key, "iat": int(now)}
    digest = hashlib.sha256(json.dumps(full, sort_keys=True).encode()).digest()
    full["jti"] = base64.b32encode(digest).decode().rstrip("=")
    signed = f"{_base64(json.dumps(_HEADER).encode())}.{_base64(json.dumps(full).encode())}"
    return f"{signed}.{_base64(signer.sign(signed.encode()))}"


def name_of(token: Token) -> str:
    """Return the NATS user name of a token, with all claims needed to check the token later.

    NATS's connection lists have no other field that a service can set, so a newly started service can check
    connections that another one accepted. The user comes first, the subject last.
    """
    issued = "-" if token.issued is None else repr(token.issued)
    return " ".join(
        (
            token.user,
            token.token_id,
            token.key_id,
            token.key_print or "-",
            issued,
            repr(token.expires),
            token.subject,
        )
    )


def token_named(name: str) -> Token | None:
    """Parse a token, without its grants, from a NATS user name; None if `name_of` did not make it."""
    parts = name.split(" ", _NAME_PARTS - 1)
    if len(parts) != _NAME_PARTS or not is_token(parts[0]) or not is_token(parts[1]):
        return None
    user, token_id, key_id, key_print, issued, expires, subject = parts
    try:
        return Token(
            subject,
            Grants(),
            float(expires),
            None if issued == "-" else float(issued),
            token_id,
            key_id,
            user,
            "" if key_print == "-" else key_print,
        )
    except ValueError:
        return None


def _documents(named: str | None, granted: Grants) -> list[tuple[str, Access]] | Denied:
    """Return the documents of a connection with their access: the requested ones, or those of the token."""
    if named is None:
        found = [(name, granted.access(name)) for name in granted.named]
        return [("*", granted.everywhere), *found]
    if len(named.encode(errors="replace")) > TOKEN_DOCUMENTS_BYTES_MAX:
        return Denied("invalid-documents", f"the names have more than {TOKEN_DOCUMENTS_BYTES_MAX} bytes")
    names = dict.fromkeys(named.split(","))
    if len(names) > TOKEN_DOCUMENTS_MAX:
        return Denied("invalid-documents", f"a connection names more than {TOKEN_DOCUMENTS_MAX} documents")
    documents = []
    for document_id in names:
        if not is_document_id(document_id):
            return Denied("invalid-documents", "a requested document has an invalid id")
        access = granted.access(document_id)
        if access < Access.READ:
            return Denied("permission-denied", f"the token does not grant {document_id!r}")
        documents.append((document_id, access))
    return documents


def _user(request: Request, token: Token, documents: list[tuple[str, Access]], ends: int) -> dict[str, Any]:
    may = grants.subjects_of(token.user, documents)
    return {
        "aud": ACCOUNT,
        "sub": request.user_nkey,
        "name": name_of(token),
        "exp": ends,
        "nats": {
            "type": "user",
            "version": 2,
            # no `resp`: see docs/decisions/0016, 5
            "pub": {"allow": list(may.publish)},
            "sub": {"allow": list(may.subscribe)},
            "subs": CALLOUT_SUBSCRIPTIONS_MAX,
            "payload": MIB,
            "data": -1,
            "allowed_connection_types": ["STANDARD", "WEBSOCKET"],
        },
    }


def _response(request: Request, outcome: Mapping[str, str], signer: Signer, now: float) -> bytes:
    claims = {
        "aud": request.server_id,
        "sub": request.user_nkey,
        "nats": {"type": "authorization_response", "version": 2, **outcome},
    }
    return encode(claims, signer, now=now).encode()


def _claims(data: bytes) -> dict[str, Any]:
    try:
        _, body, _ = data.decode("ascii").split(".")
        claims = json.loads(base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError, binascii.Error):
        raise MalformedMessage("an authorization request that is not a JWT") from None
    if not isinstance(claims, dict):
        raise MalformedMessage("an authorization request that is not a JWT")
    return claims


def _is_nkey(text: str, first: str) -> bool:
    return len(text) == _NKEY_CHARS and text.startswith(first) and text.isascii() and text.isalnum()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
