"""The identity that a token gives to a connection, and the JWTs between nats-server and the auth service."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.access import callout, grants
from lorogo_protocol.access.callout import Allowed, Denied, Request
from lorogo_protocol.access.grants import Grants
from lorogo_protocol.access.tokens import Token, TokenRefused
from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.limits import MIB, TOKEN_BYTES_MAX, TOKEN_DOCUMENTS_BYTES_MAX, TOKEN_DOCUMENTS_MAX

NOW = 1_000_000.0
SERVER, USER = "N" + "A" * 55, "U" + "B" * 55


class FakeSigner:
    """Signs with its own name."""

    public_key = "ACCOUNT"

    def sign(self, data: bytes) -> bytes:
        return b"signed:" + data[:4]


def _token(documents: dict[str, str], *, expires: float = NOW + 60.5, subject: str = "ann b") -> Token:
    return Token(subject, grants.parse(documents), expires, NOW - 1.5, "jti-1", "k1", "f" * 32, "print")


def _request(**options: str) -> Request:
    return callout.parse_request(_asked(options))


def _asked(options: object, **nats: object) -> bytes:
    claims = {
        "nats": {
            "type": "authorization_request",
            "server_id": {"id": SERVER},
            "user_nkey": USER,
            "client_info": {"host": "10.0.0.7", "kind": "Client"},
            "connect_opts": options,
            **nats,
        }
    }
    return _jwt(claims)


def _jwt(claims: object) -> bytes:
    return b"e30." + base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=") + b".c2ln"


def _read(text: str | bytes) -> dict[str, Any]:
    part = (text if isinstance(text, str) else text.decode()).split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


def _decide(documents: dict[str, str], **options: str) -> Allowed | Denied:
    return callout.decide(_request(**options), lambda _: _token(documents), now=NOW)


def test_a_request_says_where_and_what() -> None:
    """The token as auth_token, or as a password beside documents; and never in a repr."""
    one = _request(auth_token="secret")
    assert (one.token, one.documents, one.conflict, one.address) == ("secret", None, False, "10.0.0.7")
    two = _request(user="d1,d2", **{"pass": "secret"})
    assert (two.token, two.documents, two.conflict) == ("secret", "d1,d2", False)
    assert "secret" not in repr(one) + repr(two)
    assert _request(auth_token="a", **{"pass": "b"}).conflict
    assert _request(auth_token="a", user="d1").conflict
    assert _request().token == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a.b",
        b"a.b.c.d",
        b"\xff.\xff.\xff",
        b"a.!!!.c",
        _jwt([]),
        _jwt({}),
        _jwt({"nats": None}),
        _jwt({"nats": {"type": "user"}}),
        _asked(["auth_token"]),
        _asked({"auth_token": 7}),
        _asked({"user": ["d1"]}),
        _asked({}, server_id=None),
        _asked({}, server_id={"id": "x"}),
        _asked({}, user_nkey="U"),
        _asked({}, user_nkey="N" + "A" * 55),
        _asked({}, client_info={"host": 5}),
        _asked({"auth_token": "x" * 100_000}),
        b"e30." + base64.urlsafe_b64encode(b"[" * 20_000) + b".x",
    ],
)
def test_what_is_no_request_is_refused_without_being_repeated(data: bytes) -> None:
    """Half, of the wrong types, too long, too deep."""
    with pytest.raises(MalformedMessage) as refusal:
        callout.parse_request(data)
    assert len(str(refusal.value)) < 100


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    """Anything else that comes is malformed, too."""
    for given_data in (data, b"e30." + base64.urlsafe_b64encode(data).rstrip(b"=") + b".x"):
        with pytest.raises(MalformedMessage):
            callout.parse_request(given_data)


def test_a_token_becomes_a_user_with_its_documents() -> None:
    """Its rights, its end and its name are the token's; it may not answer whom it likes (`resp`)."""
    allowed = _decide({"d1": "read", "d2": "admin", "minutes-*": "write"}, auth_token="t")
    assert isinstance(allowed, Allowed)
    claims = allowed.claims
    assert (claims["aud"], claims["sub"], claims["exp"]) == ("LOROGO", USER, int(NOW + 60))
    nats = claims["nats"]
    assert set(nats) == {
        "type",
        "version",
        "pub",
        "sub",
        "subs",
        "payload",
        "data",
        "allowed_connection_types",
    }
    assert set(nats["pub"]) == set(nats["sub"]) == {"allow"}
    assert "loro.reset.d2" in nats["pub"]["allow"]
    assert "loro.wal.d1" not in nats["pub"]["allow"]
    assert not any("minutes" in subject or "*" in subject for subject in nats["pub"]["allow"])
    assert f"_INBOX_{'f' * 32}.>" in nats["sub"]["allow"]
    assert nats["payload"] == MIB


def test_a_document_that_is_named_gets_the_highest_that_covers_it() -> None:
    """And a connection that names documents has those alone, also an operator's."""
    allowed = _decide({"*": "read", "d*": "write"}, user="d1", **{"pass": "t"})
    assert isinstance(allowed, Allowed)
    publish = allowed.claims["nats"]["pub"]["allow"]
    assert "loro.wal.d1" in publish
    assert "loro.reset.d1" not in publish
    assert not any(subject.endswith(".*") for subject in publish)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "no-token"),
        ({"user": "d1"}, "no-token"),
        ({"auth_token": "x" * (TOKEN_BYTES_MAX + 1)}, "token-invalid"),
        ({"auth_token": "t", "user": "d1"}, "token-invalid"),
        ({"pass": "t", "user": "d2"}, "permission-denied"),
        ({"pass": "t", "user": "d1,d2"}, "permission-denied"),
        ({"pass": "t", "user": "d1,"}, "invalid-documents"),
        ({"pass": "t", "user": "*"}, "invalid-documents"),
        ({"pass": "t", "user": "d1\r\nx"}, "invalid-documents"),
        ({"pass": "t", "user": ",".join(["d1"] * (TOKEN_DOCUMENTS_BYTES_MAX // 2))}, "invalid-documents"),
    ],
)
def test_who_is_sent_away(options: dict[str, str], code: str) -> None:
    """Each with its reason, and with no word of the token."""
    denied = _decide({"d1": "admin"}, **options)
    assert isinstance(denied, Denied)
    assert denied.code == code


def test_a_connection_names_so_many_documents_and_no_more() -> None:
    """Each is work for who lets it in; what is named twice counts once."""
    names = [f"d{number}" for number in range(TOKEN_DOCUMENTS_MAX)]
    for good in (names, names + names):
        assert isinstance(_decide({"*": "read"}, user=",".join(good), **{"pass": "t"}), Allowed)
    denied = _decide({"*": "read"}, user=",".join([*names, "more"]), **{"pass": "t"})
    assert isinstance(denied, Denied)
    assert denied.code == "invalid-documents"


def test_why_a_token_is_refused_stays_with_us() -> None:
    """The verifier's own code is kept for the log; nats-server gets it, the peer never."""

    def verify(_: str) -> Token:
        raise TokenRefused("token-revoked", "the token was revoked")

    request = _request(auth_token="t")
    denied = callout.decide(request, verify, now=NOW)
    assert denied == Denied("token-revoked", "the token was revoked")
    answer = _read(callout.deny(request, "token-revoked", FakeSigner(), now=NOW))
    assert answer["nats"] == {"type": "authorization_response", "version": 2, "error": "token-revoked"}


def test_a_token_that_ends_this_second_is_too_late_for_nats() -> None:
    """Elsewhere it has some seconds more; NATS takes no user that has ended."""
    for expires in (NOW - 1, NOW, NOW + 0.9):
        token = _token({"d1": "read"}, expires=expires)
        decided = callout.decide(_request(auth_token="t"), lambda _, token=token: token, now=NOW)  # type: ignore[misc]  # mypy does not know defaults of lambdas
        assert isinstance(decided, Denied)
        assert decided.code == "token-expired"


def test_only_clients_come_in() -> None:
    """A leaf node would forward the connections of others."""
    request = callout.parse_request(_asked({"auth_token": "t"}, client_info={"kind": "Leafnode"}))
    denied = callout.decide(request, lambda _: _token({"d1": "read"}), now=NOW)
    assert isinstance(denied, Denied)


def test_the_answer_is_for_this_connection_of_this_server() -> None:
    """Signed by the issuer, with the user inside it."""
    request = _request(auth_token="t")
    allowed = callout.decide(request, lambda _: _token({"d1": "read"}), now=NOW)
    assert isinstance(allowed, Allowed)
    answer = callout.allow(request, allowed, FakeSigner(), now=NOW)
    claims = _read(answer)
    assert (claims["aud"], claims["sub"], claims["iss"], claims["iat"]) == (SERVER, USER, "ACCOUNT", int(NOW))
    inner = _read(claims["nats"]["jwt"])
    assert {name: inner[name] for name in allowed.claims} == dict(allowed.claims)
    header, _, signature = answer.decode().split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"typ": "JWT", "alg": "ed25519-nkey"}
    assert base64.urlsafe_b64decode(signature + "==").startswith(b"signed:")


@given(
    st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=128),
    st.floats(0, 2**53),
    st.one_of(st.none(), st.floats(0, 2**53)),
    st.sampled_from(["", "p" * 64]),
)
def test_a_name_has_every_claim_of_its_token(
    subject: str, expires: float, issued: float | None, key_print: str
) -> None:
    """The name has everything except the grants, so that a later check can decide whether the token is still
    good.
    """
    token = Token(subject, Grants(), expires, issued, "jti-_1", "k-1", "f" * 32, key_print)
    assert callout.token_named(callout.name_of(token)) == token


@pytest.mark.parametrize("name", ["", "ann", "U" + "A" * 55, "a b c d e f g", "[REDACTED]", "a  c d 1 2 g"])
def test_other_names_are_not_ours(name: str) -> None:
    """Names of services and of anonymous connections are no tokens."""
    assert callout.token_named(name) is None


def test_a_proof_lets_in_a_user_who_may_do_nothing() -> None:
    """It shows that NATS takes our signature, and grants neither publishing nor subscribing."""
    answer = _read(callout.prove(_request(), FakeSigner(), now=NOW))
    proof = _read(answer["nats"]["jwt"])
    assert proof["nats"]["pub"] == proof["nats"]["sub"] == {"deny": [">"]}
    assert proof["nats"]["subs"] == 0
    assert proof["exp"] > NOW
