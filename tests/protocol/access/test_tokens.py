"""Tokens: what is taken, what is refused and why, and that no key ever shows."""

import base64
import dataclasses
import hashlib
import hmac
import json
import re
import sys
import traceback
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.access import tokens
from lorogo_protocol.access.grants import Access, InvalidGrants
from lorogo_protocol.access.tokens import InvalidKey, Key, Keys, Token, TokenRefused
from lorogo_protocol.limits import TOKEN_BYTES_MAX, TOKEN_SUBJECT_CHARS_MAX

NOW = 1_800_000_000.0


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def ed25519(seed: bytes, kid: str) -> dict[str, str]:
    """A private JWK, made of its seed."""
    made = Ed25519PrivateKey.from_private_bytes(seed)
    x = made.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return {"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": b64(x), "d": b64(seed)}


SECRET = b"an app's secret, 32 bytes long!!"
PRIVATE = ed25519(bytes(range(32)), "ed")
PUBLIC = {name: value for name, value in PRIVATE.items() if name != "d"}
SHARED = {"kty": "oct", "kid": "hs", "k": b64(SECRET)}
ED, HS = tokens.key_of(PRIVATE), tokens.key_of(SHARED)
KEYS = tokens.keys_of({"keys": [PUBLIC, SHARED]})
CLAIMS: dict[str, Any] = {
    "aud": "lorogo",
    "sub": "ana",
    "exp": NOW + 3600,
    "documents": {"minutes-*": "write", "plans-7": "read"},
}


def sign(claims: object, header: dict[str, Any] | None = None, secret: bytes = SECRET) -> str:
    """A token signed HS256, with any claims and header."""
    whole = {"alg": "HS256", "typ": "JWT", "kid": "hs", **(header or {})}
    body = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    signed = f"{b64(json.dumps(whole).encode())}.{b64(body)}"
    return f"{signed}.{b64(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def refused(text: str, keys: Keys = KEYS, now: float = NOW) -> TokenRefused:
    with pytest.raises(TokenRefused) as caught:
        keys.verify(text, now=now)
    said = str(caught.value)
    assert len(said) < 400 and (len(text) < 10 or text not in said)
    return caught.value


@pytest.mark.parametrize("key", [ED, HS], ids=["EdDSA", "HS256"])
def test_what_is_minted_verifies(key: Key) -> None:
    """A verified token has the values and the key with which it was minted."""
    text = tokens.mint(
        key, subject="ana", documents=CLAIMS["documents"], expires=NOW + 60.5, now=NOW, token_id="id-1"
    )
    token = KEYS.verify(text, now=NOW)
    assert (token.subject, token.token_id, token.key_id) == ("ana", "id-1", key.key_id)
    assert (token.issued, token.expires) == (NOW, NOW + 61)
    assert token.grants.access("minutes-4") is Access.WRITE
    assert token.grants.access("plans-7") is Access.READ
    assert token.grants.access("plans-8") is Access.NONE
    assert token.user == tokens.user_of(text) == hashlib.sha256(text.encode()).hexdigest()[:32]
    assert token.key_print == key.print and token.key_print
    assert dataclasses.replace(token, key_print="") == tokens.peek(text)


@pytest.mark.parametrize(
    ("algorithm", "jwk", "key"),
    [("EdDSA", PRIVATE, tokens.key_of(PRIVATE).prepared), ("HS256", SHARED, SECRET)],
    ids=["EdDSA", "HS256"],
)
def test_any_jwt_library_can_mint(algorithm: str, jwk: dict[str, str], key: Any) -> None:
    """The documented claims are all that is needed; without `jti` a token has its user for an id."""
    text = jwt.encode(CLAIMS, key, algorithm=algorithm, headers={"kid": jwk["kid"]})
    token = KEYS.verify(text, now=NOW)
    assert (token.subject, token.issued) == ("ana", None)
    assert token.token_id == token.user


def test_with_one_key_a_token_need_not_name_it() -> None:
    """`kid` may be missing where there is one key, and must be there where there are several."""
    text = jwt.encode(CLAIMS, SECRET, algorithm="HS256")
    assert tokens.keys_of(SHARED).verify(text, now=NOW).key_id == "hs"
    assert "names no key" in str(refused(text))
    assert "not known here" in str(refused(sign(CLAIMS, {"kid": "other"}), tokens.keys_of(SHARED)))


CLAIMS_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"aud": None}, "another audience"),
    ({"aud": "other"}, "another audience"),
    ({"aud": []}, "another audience"),
    ({"aud": ["other", "lorogo2"]}, "another audience"),
    ({"aud": {"lorogo": 1}}, "another audience"),
    ({"sub": None}, "`sub` must be"),
    ({"sub": ""}, "`sub` must be"),
    ({"sub": 7}, "`sub` must be"),
    ({"sub": "a" * (TOKEN_SUBJECT_CHARS_MAX + 1)}, "`sub` must be"),
    ({"sub": "a\nb"}, "`sub` must be"),
    ({"sub": "\ud800"}, "`sub` must be"),
    ({"sub": "\u202eana"}, "`sub` must be"),
    ({"exp": None}, "never expires"),
    ({"exp": True}, "`exp` must be Unix seconds"),
    ({"exp": (NOW + 60) * 1000}, "`exp` must be Unix seconds .not milliseconds"),
    ({"iat": NOW * 1000}, "`iat` must be Unix seconds .not milliseconds"),
    ({"iat": NOW + 6}, "`iat` is in the future"),
    ({"exp": "2030-01-01"}, "`exp` must be"),
    ({"exp": -1}, "`exp` must be"),
    ({"exp": 1e300}, "`exp` must be"),
    ({"exp": float("nan")}, "`exp` must be"),
    ({"exp": float("inf")}, "`exp` must be"),
    ({"exp": [1]}, "`exp` must be"),
    ({"iat": "now"}, "`iat` must be"),
    ({"iat": False}, "`iat` must be"),
    ({"nbf": {}}, "`nbf` must be"),
    ({"jti": ""}, "`jti` must be"),
    ({"jti": 5}, "`jti` must be"),
    ({"jti": "a" * 65}, "`jti` must be"),
    ({"jti": "a.b"}, "`jti` must be"),
    ({"jti": "a*"}, "`jti` must be"),
    ({"jti": "a b"}, "`jti` must be"),
    ({"documents": None}, "must be a map"),
    ({"documents": []}, "must be a map"),
    ({"documents": "*"}, "must be a map"),
    ({"documents": {"a": "owner"}}, "must be given read"),
    ({"documents": {"$JS.>": "read"}}, "neither a document id nor"),
    ({"documents": {f"{n}": "read" for n in range(257)}}, "characters, at most|257 entries"),
]


@pytest.mark.parametrize(("change", "problem"), CLAIMS_REFUSED)
def test_claims_that_are_refused(change: dict[str, Any], problem: str) -> None:
    """A signed token without a required claim is refused; `null` counts as missing."""
    claims = {**CLAIMS, **change}
    error = refused(sign(claims))
    assert error.code == "token-invalid"
    assert re.search(problem, str(error)), str(error)
    for name in [name for name, value in change.items() if value is None]:
        del claims[name]
        assert str(refused(sign(claims))) == str(error)


@pytest.mark.parametrize(
    "change",
    [
        {"aud": ["other", "lorogo"]},
        {"sub": "Ångström 李"},
        {"sub": "a" * TOKEN_SUBJECT_CHARS_MAX},
        {"jti": None, "iat": None, "nbf": None},
        {"jti": "sub_" + "0" * 32},
        {"iat": NOW + 5},  # clocks differ
        {"exp": NOW + 0.5},
        {"documents": {}},
        {"iss": 7, "more": {"of": ["the", "app's"]}},
    ],
)
def test_claims_that_are_taken(change: dict[str, Any]) -> None:
    """Other claims of a token belong to the app."""
    assert KEYS.verify(sign({**CLAIMS, **change}), now=NOW).subject


def test_a_token_that_is_too_long_is_refused_however_good_it_is() -> None:
    """One byte more than fits into a CONNECT line is too much."""
    room = TOKEN_BYTES_MAX - len(sign({**CLAIMS, "more": ""}))
    fits, more = (sign({**CLAIMS, "more": "x" * length}) for length in (room * 3 // 4 - 2, room * 3 // 4 + 3))
    assert TOKEN_BYTES_MAX - 5 < len(fits) <= TOKEN_BYTES_MAX < len(more)
    KEYS.verify(fits, now=NOW)
    assert "at most 2560" in str(refused(more))


def test_a_token_has_its_time() -> None:
    """It is good until `exp` and from `nbf` on; five seconds are for clocks that differ."""
    text = sign({**CLAIMS, "exp": NOW + 10, "nbf": NOW})
    KEYS.verify(text, now=NOW + 14.9)
    assert refused(text, now=NOW + 15).code == "token-expired"
    assert "2 hours ago" in str(refused(text, now=NOW + 2 * 3600 + 11))
    assert "3 days ago" in str(refused(text, now=NOW + 3 * 86400 + 11))
    assert "2 minutes ago" in str(refused(text, now=NOW + 131))
    assert "20 seconds ago" in str(refused(text, now=NOW + 30))
    KEYS.verify(text, now=NOW - 5)
    early = refused(text, now=NOW - 6)
    assert early.code == "token-early" and "6 seconds from now" in str(early)


def forged() -> dict[str, str]:
    """Texts that no key of ours has signed."""
    none = f"{b64(json.dumps({'alg': 'none', 'kid': 'ed'}).encode())}.{b64(json.dumps(CLAIMS).encode())}."
    x = base64.urlsafe_b64decode(PUBLIC["x"] + "=")
    good = sign(CLAIMS)
    header, claims, signature = good.split(".")
    return {
        "alg none": none,
        "alg none with a signature": none + "AAAA",
        "alg None": sign(CLAIMS, {"alg": "None"}),
        "no alg": sign(CLAIMS, {"alg": None}),
        "alg a list": sign(CLAIMS, {"alg": ["HS256"]}),
        "alg of the other key": sign(CLAIMS, {"alg": "EdDSA"}),
        "HS384": sign(CLAIMS, {"alg": "HS384"}),
        "HMAC with the public key's bytes": sign(CLAIMS, {"kid": "ed"}, secret=x),
        "HMAC with the public key's text": sign(CLAIMS, {"kid": "ed"}, secret=PUBLIC["x"].encode()),
        "HMAC with the public JWK": sign(CLAIMS, {"kid": "ed"}, secret=json.dumps(PUBLIC).encode()),
        "the shared secret under the other name": sign(CLAIMS, {"kid": "ed"}),
        "a key of the attacker in the header": sign(CLAIMS, {"kid": "hs", "jwk": SHARED}, secret=b"x" * 32),
        "another secret": sign(CLAIMS, secret=b"x" * 32),
        "an unknown kid": sign(CLAIMS, {"kid": "other"}),
        "a kid that is a path": sign(CLAIMS, {"kid": "../../dev/null"}),
        "a kid that is a number": sign(CLAIMS, {"kid": 1}),
        "a kid that is a list": sign(CLAIMS, {"kid": ["hs"]}),
        "an empty kid": sign(CLAIMS, {"kid": ""}),
        "critical extensions": sign(CLAIMS, {"crit": ["exp"], "exp": 1}),
        "a detached body": sign(CLAIMS, {"b64": False, "crit": ["b64"]}),
        "other claims": f"{header}.{b64(json.dumps({**CLAIMS, 'sub': 'eve'}).encode())}.{signature}",
        "the signature of another header": f"{b64(b'{}')}.{claims}.{signature}",
        "no signature": f"{header}.{claims}.",
        "half": good[: len(good) // 2],
        "two parts": f"{header}.{claims}",
        "four parts": f"{good}.{signature}",
        "five parts": f"{good}.a.b",
        "padded": good + "=",
        "padded inside": f"{header}=.{claims}.{signature}",
        "a line end": good + "\n",
        "a space before": " " + good,
        "Bearer": f"Bearer {good}",
        "empty": "",
        "dots": "..",
        "not base64": "a$b.c.d",
        "not ASCII": good[:-1] + "é",
        "a lone surrogate": good[:-1] + "\ud800",
        "a null": good + "\0",
        "header not JSON": f"{b64(b'nothing')}.{claims}.{signature}",
        "header a list": f"{b64(b'[]')}.{claims}.{signature}",
        "header nested deep": f"{b64(b'[' * 1500)}.a.b",
        "claims a list": sign([CLAIMS]),
        "claims not JSON": sign(b"nothing"),
        "claims not text": sign(b"\xff\xfe\xff"),
        "claims nested deep": sign(b"[" * 1500),
        "huge": "a." + "b" * 10_000_000 + ".c",
        "a little too long": "a.b." + "c" * (TOKEN_BYTES_MAX - 3),
    }


@pytest.mark.parametrize(("text"), forged().values(), ids=forged())
def test_what_was_not_signed_by_a_key_of_ours(text: str) -> None:
    """It is refused, whatever it claims about its algorithm, its key or itself."""
    assert refused(text).code == "token-invalid"


def test_a_token_has_one_spelling() -> None:
    """Padding behind the signature would make another text, and so another id, of the same token."""
    text = jwt.encode(CLAIMS, ED.prepared, algorithm="EdDSA", headers={"kid": "ed"})
    KEYS.verify(text, now=NOW)
    padded = text + "=" * (-len(text.rpartition(".")[2]) % 4)
    assert padded != text
    assert jwt.decode(padded, ED.prepared, ["EdDSA"], audience="lorogo", options={"verify_exp": False})
    assert refused(padded).code == "token-invalid"


@given(st.text(max_size=200) | st.text("abcAB01_-.=", max_size=200))
def test_any_text_is_refused_with_an_error_of_ours(text: str) -> None:
    """No text whatever makes verifying or peeking raise anything else."""
    refused(text)
    with pytest.raises(TokenRefused):
        tokens.peek(text)


@given(st.integers(0, 10_000), st.integers(0, 63))
def test_no_character_can_be_changed(position: int, letter: int) -> None:
    """A token with any one character changed is refused."""
    text = GOOD
    position %= len(text)
    new = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[letter]
    if text[position] not in (new, "."):
        refused(text[:position] + new + text[position + 1 :])


GOOD = jwt.encode(CLAIMS, ED.prepared, algorithm="EdDSA", headers={"kid": "ed"})

BAD_KEYS: list[tuple[object, str]] = [
    (None, "a key is a JWK"),
    ([], "a key is a JWK"),
    ("", "not JSON"),
    ("nothing", "not JSON"),
    (b"\xff\xff", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("7", "a key is a JWK"),
    ({}, "needs a `kid`"),
    ({**SHARED, "kid": 7}, "needs a `kid`"),
    ({**SHARED, "kid": "a b"}, "needs a `kid`"),
    ({**SHARED, "kid": "a" * 65}, "needs a `kid`"),
    ({"kid": "a", "kty": "RSA", "n": "AQAB", "e": "AQAB"}, "only OKP"),
    ({"kid": "a", "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, "only OKP"),
    ({"kid": "a"}, "only OKP"),
    ({**PUBLIC, "crv": "Ed448"}, "only OKP"),
    ({**PUBLIC, "crv": "X25519"}, "only OKP"),
    ({**SHARED, "crv": "Ed25519"}, "only OKP"),
    ({**SHARED, "alg": "EdDSA"}, "not for HS256"),
    ({**SHARED, "alg": "Ed25519"}, "not for HS256"),
    ({**SHARED, "alg": "none"}, "not for HS256"),
    ({**PUBLIC, "alg": "HS256"}, "not for EdDSA"),
    ({**PUBLIC, "use": "enc"}, "not for EdDSA"),
    ({**PUBLIC, "x": "AAAA"}, "not a whole EdDSA key"),
    ({**PUBLIC, "x": "!" * 43}, "not base64url"),
    ({"kty": "OKP", "crv": "Ed25519", "kid": "a"}, "not a whole EdDSA key"),
    ({**PRIVATE, "d": "AAAA"}, "not a whole EdDSA key"),
    ({**PRIVATE, "d": b64(bytes(32))}, "not a whole EdDSA key"),  # of another public part
    ({"kty": "oct", "kid": "a"}, "not a whole HS256 key"),
    ({**SHARED, "k": b64(b"x" * 31)}, "too short"),
    ({**SHARED, "k": ""}, "not base64url"),
    ({**SHARED, "k": 5}, "not a whole HS256 key"),
    ({**SHARED, "k": "s3cret pass phrase with spaces in it"}, "not base64url"),
    ({**SHARED, "k": "A"}, "not a whole HS256 key"),
    ({**SHARED, "k": b64(json.dumps(PUBLIC).encode())}, "not a whole HS256 key"),
    (
        {**SHARED, "k": b64(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----")},
        "not a whole HS256 key",
    ),
]


@pytest.mark.parametrize(("jwk", "problem"), BAD_KEYS)
def test_what_is_no_key(jwk: object, problem: str) -> None:
    """The error names the reason, and neither its text nor its traceback has any part of the key."""
    with pytest.raises(InvalidKey, match=problem) as caught:
        tokens.key_of(jwk)
    said = "".join(traceback.format_exception(caught.value, chain=True))
    assert not any(value in said for value in (SHARED["k"], PRIVATE["d"], "s3cret"))


@pytest.mark.parametrize(
    ("jwks", "problem"),
    [
        ({"keys": []}, "no key in it"),
        ({"keys": {}}, "must be a list"),
        ({"keys": "abc"}, "must be a list"),
        ({"keys": [None]}, "a key is a JWK"),
        ({"keys": [SHARED, {**PUBLIC, "kid": "hs"}]}, "same kid 'hs'"),
        ({"keys": [SHARED, {}]}, "needs a `kid`"),  # one bad key is not passed over in silence
        ("[]", "a key is a JWK"),
        ("{", "not JSON"),
    ],
)
def test_what_is_no_key_set(jwks: object, problem: str) -> None:
    """A set is taken whole or not at all."""
    with pytest.raises(InvalidKey, match=problem):
        tokens.keys_of(jwks)


def test_a_key_set_is_read_as_text_too() -> None:
    """As a map, as text, as bytes, or one key alone."""
    for given_as in (json.dumps(PUBLIC), json.dumps({"keys": [PUBLIC]}).encode(), PUBLIC):
        (key,) = tokens.keys_of(given_as).all
        assert (key.key_id, key.algorithm, key.mints, key.secret) == ("ed", "EdDSA", False, False)
    assert KEYS.get("ed") is not None and KEYS.get("other") is None


def test_the_private_key_verifies_as_well() -> None:
    """The private key also verifies; its public part contains no secret."""
    assert Keys([ED]).verify(GOOD, now=NOW).key_print == KEYS.verify(GOOD, now=NOW).key_print
    assert ED.mints and ED.secret and HS.mints and HS.secret
    assert ED.public() == {**PUBLIC, "alg": "EdDSA"} and ED.private() == {**PRIVATE, "alg": "EdDSA"}
    assert HS.public() == {**SHARED, "alg": "HS256"}
    assert tokens.key_of({**PUBLIC, "alg": "Ed25519", "use": "sig"}).algorithm == "EdDSA"


def test_keys_of_one_name_are_distinguished() -> None:
    """A key that was replaced under its own name is another key; padding makes no difference."""
    assert tokens.key_of(ed25519(b"x" * 32, "ed")).print != ED.print
    assert tokens.key_of({**PUBLIC, "x": PUBLIC["x"] + "="}).print == ED.print


def test_no_key_shows() -> None:
    """Neither repr() nor str() of a key, of keys or of a token has a secret or an inbox in it."""
    token = KEYS.verify(GOOD, now=NOW)
    named = dataclasses.replace(token, token_id="t")
    shown = f"{ED!r} {ED} {HS!r} {HS} {KEYS!r} {named!r} {named}"
    for secret in (
        PRIVATE["d"],
        PUBLIC["x"],
        SHARED["k"],
        SECRET.decode(),
        token.user,
        GOOD,
        ED.print,
        HS.print,
    ):
        assert secret not in shown


MINT: dict[str, Any] = {
    "subject": "ana", "documents": {"a": "read"}, "expires": NOW + 60, "now": NOW, "token_id": "t",
}  # fmt: skip
BAD_MINT: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"expires": NOW}, ValueError, "expire in the future"),
    ({"expires": NOW - 1}, ValueError, "expire in the future"),
    ({"expires": float("nan")}, ValueError, "expire in the future"),
    ({"expires": float("inf")}, ValueError, "expire in the future"),
    ({"now": float("nan")}, ValueError, "expire in the future"),
    ({"subject": ""}, ValueError, "`sub` must be"),
    ({"subject": None}, ValueError, "`sub` must be"),
    ({"token_id": ""}, ValueError, "`jti` must be"),
    ({"token_id": "a.b"}, ValueError, "`jti` must be"),
    ({"documents": {"a": "all"}}, InvalidGrants, "must be given read"),
    ({"documents": {"x" * 100 + str(n): "read" for n in range(30)}}, InvalidGrants, "name fewer documents"),
]


@pytest.mark.parametrize(("change", "kind", "problem"), BAD_MINT)
def test_what_cannot_be_minted(change: dict[str, Any], kind: type[Exception], problem: str) -> None:
    """Minting refuses values that verification would refuse."""
    with pytest.raises(kind, match=problem):
        tokens.mint(ED, **{**MINT, **change})


def test_a_public_key_mints_nothing() -> None:
    """Minting needs the private part."""
    with pytest.raises(InvalidKey, match="only verifies"):
        tokens.mint(tokens.key_of(PUBLIC), **MINT)


def test_the_largest_token_verifies() -> None:
    """Up to the bound minting and verifying agree."""
    count = 1
    while True:
        documents = {f"document-{n:04}": "write" for n in range(count)}
        try:
            text = tokens.mint(ED, **{**MINT, "documents": documents})
        except InvalidGrants:
            break
        assert len(KEYS.verify(text, now=NOW).grants.table) == count
        count += 1
    assert count > 40


def test_without_cryptography_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Ed25519 key needs a package that a plain client does not have; shared secrets do without."""
    monkeypatch.setattr("jwt.api_jwk.has_crypto", False)
    with pytest.raises(InvalidKey, match=r"pip install 'lorogo\[tokens\]'"):
        tokens.key_of(PRIVATE)
    assert tokens.key_of(SHARED).algorithm == "HS256"


@pytest.mark.parametrize(("kind", "size"), [("EdDSA", 31), ("HS256", 33), ("RS256", 32), ("none", 32)])
def test_keys_that_cannot_be_made(kind: str, size: int) -> None:
    """A key is made of 32 bytes, for one of two algorithms."""
    with pytest.raises(InvalidKey, match="of kind EdDSA or HS256"):
        tokens.make_key(kind, "k", b"x" * size)


def test_keys_are_made_of_what_they_are_given() -> None:
    """The same bytes make the same key."""
    assert tokens.make_key("EdDSA", "ed", bytes(range(32))) == ED
    assert tokens.make_key("HS256", "hs", SECRET) == HS


def test_without_cryptography_no_ed25519_key_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package to install."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(InvalidKey, match=r"pip install 'lorogo\[tokens\]'"):
        tokens.make_key("EdDSA", "k", bytes(32))


def test_what_looks_like_a_token() -> None:
    """The shape of a token is recognised, also in a wrong place."""
    assert tokens.looks_like(GOOD) and not tokens.looks_like("token.of.ana") and not tokens.looks_like("eyJ")


def test_a_peek_reads_an_unverified_token() -> None:
    """The holder of a token may read it without keys; the empty key print marks it as unverified."""
    token = tokens.peek(sign(CLAIMS, {"kid": "gone"}, secret=b"x" * 32))
    assert (token.subject, token.key_id, token.key_print) == ("ana", "gone", "")
    assert tokens.peek(jwt.encode(CLAIMS, SECRET, algorithm="HS256")).key_id == ""
    assert tokens.peek(sign(CLAIMS, {"kid": "\x1b[31m"})).key_id == ""  # no way into a terminal
    for text in (sign([1]), sign(b"no"), "a" * (TOKEN_BYTES_MAX + 1), sign({**CLAIMS, "exp": None})):
        with pytest.raises(TokenRefused):
            tokens.peek(text)


def test_a_token_is_over_after_its_end() -> None:
    """By our clock and five seconds more."""
    token: Token = KEYS.verify(GOOD, now=NOW)
    assert not token.expired(token.expires + 4.9) and token.expired(token.expires + 5)
