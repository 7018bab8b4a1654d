"""Requests of NATS's auth callout, whose parts come from the connecting client; and entries of
revocations.
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import replace

from lorogo_protocol.access import callout, revocation
from lorogo_protocol.access.callout import Allowed, Denied
from lorogo_protocol.access.grants import Access, Grants
from lorogo_protocol.access.tokens import Token, TokenRefused
from lorogo_protocol.errors import MalformedMessage
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_SERVER, _USER = "N" + "A" * 55, "U" + "B" * 55
_TOKEN = Token(
    "some body",
    Grants((("doc-*", Access.READ), ("mine", Access.WRITE), ("a*", Access.ADMIN))),
    2_000_000.0,
    1.5,
    "token-id",
    "key",
    "0" * 32,
)
_NOW = 1_000_000.0
_KEYS = ("auth_token", "user", "pass", "host", "kind", "Client", "good", "mine", "doc-1,mine", "id", "type")


class _Signer:
    public_key = "A" * 56

    def sign(self, data: bytes) -> bytes:
        return bytes(64)


def _verify(text: str) -> Token:
    if text != "good":
        raise TokenRefused("token-invalid", "it is not good")
    return _TOKEN


def _ask(data: bytes) -> None:
    request = callout.parse_request(data)
    assert repr(request) == repr(replace(request, token="")), "no repr has the token in it"
    outcome = callout.decide(request, _verify, now=_NOW)
    if isinstance(outcome, Denied):
        other = callout.decide(replace(request, token=request.token[::-1] + "x"), _verify, now=_NOW)
        assert other == outcome or request.token in ("", "good"), "no sentence has the token in it"
        _answered(callout.deny(request, outcome.code, _Signer(), now=_NOW))
        return
    assert isinstance(outcome, Allowed)
    assert request.token == "good"
    assert not request.conflict
    nats = outcome.claims["nats"]
    allowed = [*nats["pub"]["allow"], *nats["sub"]["allow"]]
    assert not any(one == ">" or one.startswith(("$", "loro.committed", "loro.rejected")) for one in allowed)
    documents = {one.split(".")[-1] for one in allowed if one.startswith("loro.")}
    assert all(_TOKEN.grants.access(one) >= Access.READ for one in documents), documents
    _answered(callout.allow(request, outcome, _Signer(), now=_NOW))


def _answered(answer: bytes) -> None:
    _, body, _ = answer.decode("ascii").split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    assert claims["aud"] == claims["aud"][:56]
    assert claims["iss"] == _Signer.public_key


def _packed(value: object) -> bytes:
    body = base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")
    return b"e30." + body + b".c2ln"


def _request(source: Source) -> bytes:
    options: object = {
        source.pick(_KEYS[:3]): source.pick(_KEYS[6:9]) if source.byte() % 2 else source.text()
        for _ in range(source.below(4))
    }
    client: object = {"host": "1.2.3.4", "kind": "Client"}
    if source.byte() % 4 == 0:
        options, client = source.value(_KEYS), source.value(_KEYS)
    server: object = {"id": _SERVER} if source.byte() % 8 else source.value(_KEYS)
    user: object = _USER if source.byte() % 8 else source.value()
    return _packed(
        {
            "nats": {
                "type": "authorization_request",
                "server_id": server,
                "user_nkey": user,
                "client_info": client,
                "connect_opts": options,
            }
        }
    )


def _name(text: str) -> None:
    token = callout.token_named(text)
    if token is not None:
        again = callout.token_named(callout.name_of(token))
        assert again == token or token.expires != token.expires or token.issued != token.issued
        token.expired(_NOW)


def _revoked(source: Source) -> None:
    key = source.pick(("tok_x", "sub_x"))
    entry = revocation.decode(key, source.rest())
    assert entry.refuses(_TOKEN) or entry.kind == revocation.SUBJECT
    entry.over(_NOW)
    again = revocation.decode(key, revocation.encode(entry))
    assert again == entry or entry.at == float("inf"), "what cannot be read refuses for ever"


def run(data: bytes) -> None:
    """The first byte chooses."""
    source = Source(data)
    match source.byte() % 5:
        case 0:
            _ask(source.rest())
        case 1 | 2:
            _ask(_request(source))
        case 3:
            _name(source.rest().decode("utf-8", "surrogateescape"))
        case _:
            _revoked(source)


def seeds() -> Iterable[bytes]:
    claims = {
        "nats": {
            "type": "authorization_request",
            "server_id": {"id": _SERVER},
            "user_nkey": _USER,
            "client_info": {"host": "1.2.3.4", "kind": "Client"},
            "connect_opts": {"user": "doc-1,mine", "pass": "good"},
        }
    }
    yield b"\0" + _packed(claims)
    yield b"\0" + b"e30." + base64.urlsafe_b64encode(b"[" * 1500) + b".c2ln"
    yield bytes([1, 2, 1, 1, 2, 2, 1, 0, 1, 1, 1])
    yield bytes([1, 1, 0, 1, 0, 1, 1, 1])
    yield bytes([1, 3, 1, 0, 3, *b"a,b", 0, 1, 0, 2, 0, 4, 0, 1, 1])
    yield b"\x03" + callout.name_of(_TOKEN).encode()
    yield b"\x03u t k - - nan some body"
    for text in (
        '{"at": 1.5, "until": null}',
        '{"at": 2, "until": 3e5}',
        '{"at": 1%s, "until": null}' % ("0" * 400),
    ):
        yield b"\x04\0" + text.encode()
        yield b"\x04\x01" + text.encode()


TARGET = Target(run, seeds, (MalformedMessage,))
