"""Tokens: JWTs with a subject, grants and an expiry (docs/decisions/0016).

Pure: keys, time and ids are arguments. Apps mint tokens with `lorogo_client.tokens`. The key determines the
algorithm, never the token: Ed25519 keys use EdDSA, secrets of at least 32 bytes HS256.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import jwt
from jwt.types import Options

from lorogo_protocol.access import grants
from lorogo_protocol.access.grants import Grants, InvalidGrants
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import is_token
from lorogo_protocol.limits import TOKEN_BYTES_MAX, TOKEN_SUBJECT_CHARS_MAX

AUDIENCE: Final = "lorogo"
SECRET_BYTES_MIN: Final = 32
CLOCK_SECONDS: Final = 5.0  # tolerated difference between the clocks of issuers and verifiers
_USER_CHARS: Final = 32
_SECONDS_MAX: Final = 253_402_214_400  # the last day of the year 9999; rejects times in milliseconds
#: The only accepted form of a token: with a trailing `=` the same token would get another id to revoke.
_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]{1,4096}={0,2}")
_ALGORITHMS: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("OKP", "Ed25519"): ("EdDSA", "Ed25519"),  # the second is its newer name
    ("oct", None): ("HS256",),
}
#: claims are checked below, with specific messages
_VERIFIED: Final[Options] = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
_PEEKED: Final[Options] = {**_VERIFIED, "verify_signature": False}


class InvalidKey(LorogoError):
    """The value is not a valid key; the message does not contain the key."""

    code = "invalid-key"


class TokenRefused(LorogoError):
    """The token is not accepted.

    `code`: token-invalid, token-expired, token-early, token-revoked; or token-unchecked while the list of
    revoked tokens is unknown.
    """

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(problem)
        self.code = code


@dataclass(frozen=True, slots=True)
class Token:
    """The claims of a token."""

    subject: str  # `sub`
    grants: Grants
    expires: float  # Unix seconds
    issued: float | None
    token_id: str  # for revocation: `jti`, or the user without one
    key_id: str
    user: str = field(repr=False)  # NATS user, derived from the token's text: only its holder knows it
    key_print: str = field(default="", repr=False)  # fingerprint of the signing key; "": unverified

    def expired(self, now: float) -> bool:
        """Return True if the token has expired, with the tolerance for clocks."""
        return now >= self.expires + CLOCK_SECONDS


@dataclass(frozen=True, slots=True)
class Key:
    """A key that verifies tokens, and with a private part mints them."""

    key_id: str
    algorithm: str  # EdDSA or HS256
    _jwk: Mapping[str, str] = field(repr=False)
    prepared: Any = field(repr=False, compare=False)  # PyJWT's form
    print: str = field(repr=False, compare=False)  # fingerprint: distinguishes keys with the same id

    @property
    def mints(self) -> bool:
        """True if the key can sign tokens."""
        return self.algorithm == "HS256" or "d" in self._jwk

    @property
    def secret(self) -> bool:
        """True if the key must be kept secret."""
        return self.mints

    def public(self) -> dict[str, str]:
        """Return the verifying part as a JWK; for a shared secret, the secret."""
        return {name: value for name, value in self._jwk.items() if name != "d"}

    def private(self) -> dict[str, str]:
        """Return the complete key as a JWK."""
        return dict(self._jwk)


def key_of(jwk: object) -> Key:
    """Parse a JWK, as text or as a map, of type OKP (Ed25519) or oct. Raises InvalidKey."""
    if isinstance(jwk, str | bytes):
        jwk = _json(jwk)
    if not isinstance(jwk, Mapping):
        raise InvalidKey("a key is a JWK: a map with kty, kid and the key itself")
    found = {str(name): value for name, value in jwk.items() if isinstance(value, str)}
    key_id = found.get("kid", "")
    if not is_token(key_id):
        raise InvalidKey("a key needs a `kid` of 1 to 64 characters of A-Z a-z 0-9 _ -")
    kind, curve = found.get("kty", ""), found.get("crv")
    algorithm, *_ = names = _ALGORITHMS.get((kind, curve), ("",))
    if not algorithm:
        raise InvalidKey(
            f"key {key_id!r} is of type {kind[:20]!r}: only OKP (Ed25519) and oct (HS256) are supported"
        )
    if found.get("alg", algorithm) not in names or found.get("use", "sig") != "sig":
        raise InvalidKey(f"key {key_id!r} is not for {algorithm} signatures: check `alg` and `use`")
    parts = {name: found[name] for name in (("k",) if kind == "oct" else ("x", "d")) if name in found}
    if not all(_BASE64.fullmatch(part) for part in parts.values()):
        raise InvalidKey(f"key {key_id!r} cannot be read: it is not base64url")
    kept = {"kty": kind, **({} if curve is None else {"crv": curve}), **parts}
    kept |= {"kid": key_id, "alg": algorithm}
    try:
        made = jwt.PyJWK(dict(kept), algorithm)
        prepared = made.Algorithm.prepare_key(made.key)
    except jwt.exceptions.MissingCryptographyError:
        raise InvalidKey(
            f"key {key_id!r} needs the package cryptography: pip install 'lorogo[tokens]'"
        ) from None
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise InvalidKey(f"key {key_id!r} cannot be read: it is not a whole {algorithm} key") from None
    if algorithm == "HS256" and len(prepared) < SECRET_BYTES_MIN:
        raise InvalidKey(f"key {key_id!r} is too short: a secret must have {SECRET_BYTES_MIN} bytes or more")
    return Key(key_id, algorithm, kept, prepared, _print(kept))


def make_key(kind: str, key_id: str, material: bytes) -> Key:
    """Make a minting key: `kind` is EdDSA or HS256, `material` 32 random bytes. Raises InvalidKey."""
    if kind not in ("EdDSA", "HS256") or len(material) != SECRET_BYTES_MIN:
        raise InvalidKey(f"a key is of kind EdDSA or HS256, and of {SECRET_BYTES_MIN} random bytes")
    if kind == "HS256":
        return key_of({"kty": "oct", "kid": key_id, "k": _base64(material)})
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415  # optional
            Ed25519PrivateKey,
        )
    except ImportError:
        raise InvalidKey("Ed25519 keys need the package cryptography: pip install 'lorogo[tokens]'") from None
    public = Ed25519PrivateKey.from_private_bytes(material).public_key().public_bytes_raw()
    return key_of(
        {"kty": "OKP", "crv": "Ed25519", "kid": key_id, "x": _base64(public), "d": _base64(material)}
    )


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _print(kept: Mapping[str, str]) -> str:
    material = kept.get("x") or kept["k"]
    return hashlib.sha256(f"{kept['alg']} {material.rstrip('=')}".encode()).hexdigest()


class Keys:
    """Several keys, for rotation: add a new key before it signs, keep an old one until its tokens expire."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys: dict[str, Key] = {}
        for key in keys:
            if key.key_id in self._keys:
                raise InvalidKey(f"two keys have the same kid {key.key_id!r}")
            self._keys[key.key_id] = key
        if not self._keys:
            raise InvalidKey("there is no key in it")

    @property
    def all(self) -> tuple[Key, ...]:
        return tuple(self._keys.values())

    def get(self, key_id: str) -> Key | None:
        return self._keys.get(key_id)

    def verify(self, text: str, *, now: float) -> Token:
        """Return the claims of a token with a valid signature and time. Raises TokenRefused."""
        key = self._key_for(_header(text))
        try:
            claims = jwt.decode(
                text,
                key.prepared,
                algorithms=[key.algorithm],
                options=_VERIFIED,
            )
        except jwt.PyJWTError:
            raise _invalid(f"key {key.key_id!r} did not sign it") from None
        token = _read(claims, text, key.key_id, key.print)
        if token.expired(now):
            raise expired(token, now)
        if token.issued is not None and token.issued > now + CLOCK_SECONDS:
            raise _invalid("`iat` is in the future, so no revocation of its subject would reach it")
        early = _seconds(claims, "nbf")
        if early is not None and now < early - CLOCK_SECONDS:
            raise TokenRefused("token-early", f"the token is not valid before {_ago(early - now)} from now")
        return token

    def _key_for(self, header: Mapping[str, Any]) -> Key:
        key_id = header.get("kid")
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if key_id is None:
            raise _invalid("it names no key by `kid`, and there is more than one")
        if key_id not in self._keys:
            raise _invalid("it is signed with a key that is not known here")
        return self._keys[key_id]


def expired(token: Token, now: float) -> TokenRefused:
    """Return the refusal of an expired token."""
    return TokenRefused("token-expired", f"the token expired {_ago(now - token.expires)} ago: get a new one")


def keys_of(jwks: object) -> Keys:
    """Parse a JWK set (`{"keys": [...]}`) or one JWK, as text or as a map. Raises InvalidKey."""
    if isinstance(jwks, str | bytes):
        jwks = _json(jwks)
    if isinstance(jwks, Mapping) and "keys" in jwks:
        inside = jwks["keys"]
        if not isinstance(inside, list):
            raise InvalidKey("`keys` must be a list of JWKs")
        return Keys(key_of(one) for one in inside)
    return Keys([key_of(jwks)])


def mint(
    key: Key, *, subject: str, documents: Mapping[str, str], expires: float, now: float, token_id: str
) -> str:
    """Sign a token. `expires` and `now` are Unix seconds. Raises InvalidKey, InvalidGrants, ValueError."""
    if not key.mints:
        raise InvalidKey(f"key {key.key_id!r} only verifies: minting needs its private part")
    if not 0 <= now < expires <= _SECONDS_MAX:  # rejects NaN as well
        raise ValueError("a token must expire in the future")
    claims = {
        "aud": AUDIENCE,
        "sub": checked_subject(subject),
        "jti": _checked_id(token_id),
        "iat": int(now),
        "exp": math.ceil(expires),
        "documents": grants.parse(documents).words(),
    }
    text = jwt.encode(claims, key.prepared, algorithm=key.algorithm, headers={"kid": key.key_id})
    if len(text) > TOKEN_BYTES_MAX:
        raise InvalidGrants(
            f"the token would have {len(text)} bytes, at most {TOKEN_BYTES_MAX} are allowed:"
            " name fewer documents"
        )
    return text


def user_of(text: str) -> str:
    """Return the NATS user of a token: a part of its SHA-256."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_USER_CHARS]


def looks_like(text: str) -> bool:
    """Return True if a text has the form of a token, to detect one in a wrong place."""
    return text.startswith("eyJ") and _SHAPE.fullmatch(text) is not None


def peek(text: str) -> Token:
    """Return the claims of a token without verification, for its holder only. Raises TokenRefused."""
    header = _header(text)
    try:
        claims = jwt.decode(text, options=_PEEKED)
    except jwt.PyJWTError:
        raise _invalid("it is not a JWT") from None
    key_id = header.get("kid", "")
    return _read(claims, text, key_id if is_token(key_id) else "", "")  # valid keys have no other ids


def _header(text: str) -> Mapping[str, Any]:
    if len(text) > TOKEN_BYTES_MAX:
        raise _invalid(f"it has {len(text)} characters, at most {TOKEN_BYTES_MAX} are allowed")
    if _SHAPE.fullmatch(text) is None:
        raise _invalid("it is not a JWT")
    try:
        return jwt.get_unverified_header(text)
    except jwt.PyJWTError:
        raise _invalid("it is not a JWT") from None


def _read(claims: Mapping[str, Any], text: str, key_id: str, key_print: str) -> Token:
    audience = claims.get("aud")
    if AUDIENCE not in (audience if isinstance(audience, list) else [audience]):
        raise _invalid(f'it has another audience: `aud` must be "{AUDIENCE}"')
    user, named = user_of(text), claims.get("jti")
    try:
        subject, token_id = checked_subject(claims.get("sub")), user if named is None else _checked_id(named)
        granted = grants.parse(claims.get("documents"))
    except (ValueError, InvalidGrants) as error:
        raise _invalid(str(error)) from None
    expires = _seconds(claims, "exp")
    if expires is None:
        raise _invalid("it never expires: `exp` is missing")
    return Token(subject, granted, expires, _seconds(claims, "iat"), token_id, key_id, user, key_print)


def checked_subject(subject: object) -> str:
    """Return the subject if a token can have it. Raises ValueError."""
    if (
        not isinstance(subject, str)
        or not 0 < len(subject) <= TOKEN_SUBJECT_CHARS_MAX
        or not subject.isprintable()
    ):
        raise ValueError(f"`sub` must be 1 to {TOKEN_SUBJECT_CHARS_MAX} printable characters")
    return subject


def _checked_id(token_id: object) -> str:
    if not isinstance(token_id, str) or not is_token(token_id):
        raise ValueError("`jti` must be 1 to 64 characters of A-Z a-z 0-9 _ -")
    return token_id


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _SECONDS_MAX:
        raise _invalid(f"`{name}` must be Unix seconds (not milliseconds)")
    return float(value)


def _invalid(problem: str) -> TokenRefused:
    return TokenRefused("token-invalid", f"the token cannot be used: {problem}")


def _ago(seconds: float) -> str:
    for size, word in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{int(seconds / size)} {word}"
    return f"{int(seconds)} seconds"


def _json(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidKey("it is not JSON: keys are JWKs (`lorogo token keys` makes them)") from None
