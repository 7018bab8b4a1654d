"""Tokens, keys and grants from any client; only tokens that our keys signed are accepted."""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping

from lorogo_protocol.access import grants, tokens
from lorogo_protocol.access.grants import Access, InvalidGrants
from lorogo_protocol.access.tokens import InvalidKey, TokenRefused
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_SECRET = bytes(range(32))
_HMAC = {"kty": "oct", "kid": "hmac", "k": base64.urlsafe_b64encode(_SECRET).rstrip(b"=").decode()}
# RFC 8037, appendix A.1: a published key
_ED25519 = {
    "kty": "OKP",
    "crv": "Ed25519",
    "kid": "ed",
    "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
    "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
}
_KEYS = tokens.keys_of({"keys": [_HMAC, _ED25519]})
_NOW = 1_000_000.0
_CLAIMS = (
    "aud",
    "sub",
    "exp",
    "documents",
    "jti",
    "iat",
    "nbf",
    "lorogo",
    "read",
    "write",
    "admin",
    "doc-*",
    "*",
)
_MEMBERS = (
    "kty",
    "crv",
    "kid",
    "x",
    "d",
    "k",
    "alg",
    "keys",
    "OKP",
    "oct",
    "Ed25519",
    "EdDSA",
    "HS256",
    "none",
)


def _packed(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _signed(header: bytes, claims: bytes) -> str:
    text = f"{_packed(header)}.{_packed(claims)}"
    return f"{text}.{_packed(hmac.digest(_SECRET, text.encode(), 'sha256'))}"


def _said(value: object) -> bytes:
    return json.dumps(value).encode()


def _forged(source: Source) -> str:
    """A token whose signature is right and whose content is anything."""
    kind = source.byte()
    header: object = {"alg": "HS256", "kid": "hmac", "typ": "JWT"}
    if kind % 4 == 0:
        header = source.value(("alg", "kid", "hmac", "HS256", "none", "typ", "crit", "b64"))
    if kind % 8 == 1:
        return _signed(_said(header), source.rest())
    claims: object = source.value(_CLAIMS)
    if isinstance(claims, dict) and kind % 2:
        claims = {"aud": "lorogo", "sub": "me", "exp": 2_000_000, "documents": {"doc": "read"}} | claims
    return _signed(_said(header), _said(claims))


def _verify(text: str, *, ours: bool) -> None:
    tokens.user_of(text)
    try:
        peeked = tokens.peek(text)
    except TokenRefused:
        peeked = None
    token = _KEYS.verify(text, now=_NOW)
    assert ours, "only what we signed gets in"
    assert peeked is not None
    assert (peeked.subject, peeked.grants, peeked.expires, peeked.user) == (
        token.subject,
        token.grants,
        token.expires,
        token.user,
    )
    assert token.expires > _NOW - tokens.CLOCK_SECONDS
    _granted(token.grants)


def _granted(found: grants.Grants) -> None:
    assert grants.parse(found.words()).words() == found.words()
    for document in ("doc", "doc-1", "a", "-"):
        expected = max(
            (access for pattern, access in found.table if _matches(pattern, document)), default=Access.NONE
        )
        assert found.access(document) == expected
    grants.subjects_of("0" * 32, [(name, found.access(name)) for name in found.named])


def _matches(pattern: str, document: str) -> bool:
    """The same by other means."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), document) is not None


def _keys(jwk: object) -> None:
    for read in (tokens.key_of, tokens.keys_of):
        try:
            found = read(jwk)
        except InvalidKey as error:
            _check_message(jwk, str(error))
            continue
        for key in found.all if isinstance(found, tokens.Keys) else (found,):
            assert tokens.key_of(key.private()) == key
            assert "d" not in key.public()
            assert not any(value in repr(key) for name, value in key.private().items() if name in "dk")


def _check_message(jwk: object, message: str) -> None:
    """No message has the key in it."""
    if isinstance(jwk, Mapping):
        secrets = [jwk.get(name) for name in "dk"]
        assert not any(isinstance(one, str) and len(one) > 8 and one in message for one in secrets), message


def run(data: bytes) -> None:
    """The first byte chooses."""
    source = Source(data)
    match source.byte() % 6:
        case 0:
            _verify(source.rest().decode("utf-8", "surrogateescape"), ours=False)
        case 1 | 2:
            _verify(_forged(source), ours=True)
        case 3:
            _keys(source.rest().decode("utf-8", "surrogateescape") if source.byte() % 2 else source.rest())
        case 4:
            jwk = source.value(_MEMBERS)
            base = source.pick((_HMAC, _ED25519))
            _keys({**base, **jwk} if isinstance(jwk, dict) else jwk)
        case _:
            _granted(grants.parse(source.value(_CLAIMS)))


def seeds() -> Iterable[bytes]:
    claims = {"aud": "lorogo", "sub": "me", "exp": 2_000_000, "documents": {"doc-*": "write", "a": "read"}}
    yield b"\0" + _signed(b'{"alg":"HS256","kid":"other"}', _said(claims)).encode()
    none = f"{_packed(_said({'alg': 'none', 'kid': 'hmac'}))}.{_packed(_said(claims))}."
    yield b"\0" + none.encode()
    confused = f"{_packed(_said({'alg': 'HS256', 'kid': 'ed'}))}.{_packed(_said(claims))}"
    mac = hmac.new(_ED25519["x"].encode(), confused.encode(), hashlib.sha256).digest()
    yield b"\0" + f"{confused}.{_packed(mac)}".encode()
    yield b"\x01\x01" + _said(claims)
    yield b"\x01\x01" + _said({**claims, "jti": "one", "iat": 1, "nbf": 2, "aud": ["x", "lorogo"]})
    yield b"\x01\x01" + b"[" * 1800
    yield b"\x01\x03" + bytes([7, 2, 1, 2, 2, 0, 9, 0, 1, 3, 7, 1, 1, 11, 5, 1, 8])
    yield b"\x03\x01" + _said({"keys": [_HMAC, _ED25519]})
    yield b"\x03\0" + _said(_ED25519)
    yield b"\x03\0" + b"[" * 3000
    yield b"\x04" + bytes([7, 2, 1, 6, 5, 1, 11, 1, 5, 5, 0, 4, *b"abcd", 0])
    yield b"\x05" + bytes([7, 3, 1, 11, 5, 1, 8, 1, 12, 5, 1, 9, 0, 2, *b"a*", 5, 1, 10])


TARGET = Target(run, seeds, (TokenRefused, InvalidKey, InvalidGrants))
