"""Tokens: JWTs that say who may do what, for how long (docs/decisions/0016).

Pure: keys, time and ids come in as arguments. An app mints with `lorogo_client.tokens`.
A key says its algorithm, never the token: Ed25519 keys sign EdDSA, secrets of 32 bytes or more HS256.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import jwt

from lorogo_protocol import grants
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.grants import Grants, InvalidGrants
from lorogo_protocol.ids import is_token
from lorogo_protocol.limits import TOKEN_BYTES_MAX, TOKEN_SUBJECT_CHARS_MAX

AUDIENCE: Final = "lorogo"
SECRET_BYTES_MIN: Final = 32
CLOCK_SECONDS: Final = 5.0  # by which the clocks of minters and ours may differ
_USER_CHARS: Final = 32
_SECONDS_MAX: Final = 2**53


class InvalidKey(LorogoError):
    """What should be a key is none; the message never has the key in it."""

    code = "invalid-key"


class TokenRefused(LorogoError):
    """The token lets nobody in; `code`: token-invalid, token-expired, token-early or token-revoked."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(problem)
        self.code = code


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says."""

    subject: str  # whose it is
    grants: Grants
    expires: float  # Unix seconds
    issued: float | None
    token_id: str  # its jti, or the user if it has none: by which it is revoked
    key_id: str
    user: str  # of NATS: only who has the token can know it


@dataclass(frozen=True, slots=True)
class Key:
    """A key that verifies, and if it has a private part mints."""

    key_id: str
    algorithm: str  # EdDSA or HS256
    _jwk: Mapping[str, str] = field(repr=False)
    prepared: Any = field(repr=False, compare=False)  # as PyJWT takes it

    @property
    def mints(self) -> bool:
        """Whether it can sign."""
        return self.algorithm == "HS256" or "d" in self._jwk

    @property
    def secret(self) -> bool:
        """Whether nobody else may see it."""
        return self.mints

    def public(self) -> dict[str, str]:
        """The part that verifies, as a JWK; of a shared secret, the secret."""
        return {name: value for name, value in self._jwk.items() if name != "d"}

    def private(self) -> dict[str, str]:
        """All of it, as a JWK."""
        return dict(self._jwk)


def key_of(jwk: object) -> Key:
    """The key in a JWK, as text or as a map, of type OKP (Ed25519) or oct. Raises InvalidKey."""
    if isinstance(jwk, str | bytes):
        jwk = _json(jwk)
    if not isinstance(jwk, Mapping):
        raise InvalidKey("a key is a JWK: a map with kty, kid and the key itself")
    found = {str(name): value for name, value in jwk.items() if isinstance(value, str)}
    key_id = found.get("kid", "")
    if not is_token(key_id):
        raise InvalidKey("a key needs a `kid` of 1 to 64 characters of A-Z a-z 0-9 _ -")
    kind, curve = found.get("kty", ""), found.get("crv")
    algorithm = {("OKP", "Ed25519"): "EdDSA", ("oct", None): "HS256"}.get((kind, curve), "")
    if not algorithm:
        raise InvalidKey(
            f"key {key_id!r} is of type {str(kind)[:20]!r}: only OKP (Ed25519) and oct (HS256) are taken"
        )
    if found.get("alg", algorithm) not in (algorithm, "Ed25519"):
        raise InvalidKey(
            f"key {key_id!r} says it is for {found['alg'][:20]!r}, but a key of its type is for {algorithm}"
        )
    kept: dict[str, str] = {
        name: found[name] for name in ("kty", "crv", "x", "d", "k", "kid") if name in found
    }
    try:
        prepared = jwt.PyJWK({**kept, "alg": algorithm}, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise InvalidKey(f"key {key_id!r} cannot be read: it is not a whole {algorithm} key") from None
    if algorithm == "HS256" and len(prepared) < SECRET_BYTES_MIN:
        raise InvalidKey(f"key {key_id!r} is too short: a secret must have {SECRET_BYTES_MIN} bytes or more")
    return Key(key_id, algorithm, {**kept, "alg": algorithm}, prepared)


class Keys:
    """Several keys at once: a new one is known before it is used, an old one until its tokens end."""

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

    def verify(self, text: str, *, now: float) -> Token:
        """What the token says, if one of our keys signed it and this is its time. Raises TokenRefused."""
        _check_text(text)
        key = self._key_for(text)
        try:
            claims = jwt.decode(
                text,
                key.prepared,
                algorithms=[key.algorithm],
                options={
                    "verify_signature": True,
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": False,
                },
            )
        except jwt.PyJWTError:
            raise _invalid(f"the signature is not of key {key.key_id!r}") from None
        token = _read(claims, text, key.key_id)
        if now >= token.expires + CLOCK_SECONDS:
            raise TokenRefused(
                "token-expired", f"the token expired {_ago(now - token.expires)} ago: get a new one"
            )
        early = _seconds(claims, "nbf")
        if early is not None and now < early - CLOCK_SECONDS:
            raise TokenRefused("token-early", f"the token is not valid before {_ago(early - now)} from now")
        return token

    def _key_for(self, text: str) -> Key:
        try:
            header = jwt.get_unverified_header(text)
        except jwt.PyJWTError:
            raise _invalid("it is not a JWT") from None
        key_id = header.get("kid")
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if not isinstance(key_id, str) or key_id not in self._keys:
            named = (
                "names no key by `kid`" if key_id is None else "is signed with a key that is not known here"
            )
            raise _invalid(f"it {named}")
        return self._keys[key_id]


def keys_of(jwks: object) -> Keys:
    """The keys in a JWK set (`{"keys": [...]}`) or in one JWK, as text or as a map. Raises InvalidKey."""
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
    """A token as text. `expires` and `now` are Unix seconds. Raises InvalidKey, InvalidGrants, ValueError."""
    if not key.mints:
        raise InvalidKey(f"key {key.key_id!r} only verifies: minting needs its private part")
    if expires <= now:
        raise ValueError("a token must expire in the future")
    _check_subject(subject)
    claims = {
        "aud": AUDIENCE,
        "sub": subject,
        "jti": token_id,
        "iat": int(now),
        "exp": int(expires) if float(expires).is_integer() else int(expires) + 1,
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
    """The NATS user that this token is."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_USER_CHARS]


def peek(text: str) -> Token:
    """What the token says of itself, unverified: for its holder only. Raises TokenRefused."""
    _check_text(text)
    try:
        header = jwt.get_unverified_header(text)
        claims = jwt.decode(text, options={"verify_signature": False})
    except jwt.PyJWTError:
        raise _invalid("it is not a JWT") from None
    return _read(claims, text, str(header.get("kid", "")))


def _check_text(text: str) -> None:
    """Raises TokenRefused for what PyJWT must not even see: too long, or with half of a surrogate pair."""
    if len(text) > TOKEN_BYTES_MAX:
        raise _invalid(f"it has {len(text)} characters, at most {TOKEN_BYTES_MAX} are allowed")
    if not text.isascii():
        raise _invalid("it is not a JWT")


def _read(claims: Mapping[str, Any], text: str, key_id: str) -> Token:
    audience = claims.get("aud")
    if AUDIENCE not in (audience if isinstance(audience, list) else [audience]):
        raise _invalid(f'it is for somebody else: `aud` must be "{AUDIENCE}"')
    subject = claims.get("sub")
    try:
        _check_subject(subject)
    except ValueError as error:
        raise _invalid(str(error)) from None
    assert isinstance(subject, str)
    expires = _seconds(claims, "exp")
    if expires is None:
        raise _invalid("it never expires: `exp` is missing")
    user = user_of(text)
    token_id = claims.get("jti", user)
    if not isinstance(token_id, str) or not is_token(token_id):
        raise _invalid("`jti` must be 1 to 64 characters of A-Z a-z 0-9 _ -")
    try:
        granted = grants.parse(claims.get("documents"))
    except InvalidGrants as error:
        raise _invalid(str(error)) from None
    return Token(subject, granted, expires, _seconds(claims, "iat"), token_id, key_id, user)


def _check_subject(subject: object) -> None:
    if (
        not isinstance(subject, str)
        or not 0 < len(subject) <= TOKEN_SUBJECT_CHARS_MAX
        or not subject.isprintable()
    ):
        raise ValueError(f"`sub` must be 1 to {TOKEN_SUBJECT_CHARS_MAX} printable characters")


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _SECONDS_MAX:
        raise _invalid(f"`{name}` must be Unix seconds")
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
