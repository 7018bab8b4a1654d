"""Token lookup in a request, the rights that an operation needs, and the end of a token."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.datastructures import Headers

from lorogo_gateway.auth import (
    OPEN,
    AccessDenied,
    NotSignedIn,
    PresentedToken,
    Principal,
    TokenGuard,
    presented,
)
from lorogo_gateway.auth.needs import (
    AnyToken,
    Need,
    NoToken,
    OnDocument,
    Operator,
    SomeDocument,
    check,
    check_body,
    words,
)
from lorogo_gateway.auth.presented_token import in_message, shaped
from lorogo_protocol.access import grants
from lorogo_protocol.access.grants import Access
from lorogo_protocol.access.tokens import Token, TokenRefused
from lorogo_protocol.limits import TOKEN_BYTES_MAX
from tests.client.support import eventually


def headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.encode(), value.encode("latin-1")) for name, value in pairs])


FOUND: list[tuple[list[tuple[str, str]], tuple[str, str] | None]] = [
    ([], None),
    ([("authorization", "Bearer a.b.c")], ("a.b.c", "bearer")),
    ([("authorization", "bEARER   a.b.c  ")], ("a.b.c", "bearer")),
    ([("authorization", "Basic a.b.c")], None),
    ([("authorization", "Bearer")], ("", "bearer")),
    ([("authorization", "a.b.c")], None),
    ([("authorization", "Basic x"), ("cookie", "lorogo_token=a.b.c")], ("a.b.c", "cookie")),
    ([("cookie", "lorogo_token=a.b.c")], ("a.b.c", "cookie")),
    ([("cookie", ' x=1 ;lorogo_token="a.b.c"; y=2')], ("a.b.c", "cookie")),
    ([("cookie", "x=1"), ("cookie", "lorogo_token=a.b.c")], ("a.b.c", "cookie")),
    ([("cookie", "xlorogo_token=a.b.c; Lorogo_Token=a.b.c")], None),
    ([("cookie", "lorogo_token")], ("", "cookie")),
    ([("authorization", "Bearer a.b.c"), ("cookie", "lorogo_token=d.e.f")], ("a.b.c", "bearer")),
    ([("x-token", "a.b.c"), ("token", "a.b.c"), ("proxy-authorization", "Bearer a.b.c")], None),
]


@pytest.mark.parametrize(("sent", "expected"), FOUND)
def test_where_a_token_is_found(sent: list[tuple[str, str]], expected: tuple[str, str] | None) -> None:
    """In the bearer header, else in the cookie, and nowhere else."""
    found = presented(headers(*sent))
    assert (None if found is None else (found.text, found.place)) == expected


@pytest.mark.parametrize(
    "sent",
    [
        [("authorization", "Bearer a.b.c"), ("authorization", "Bearer d.e.f")],
        [("cookie", "lorogo_token=a.b.c; lorogo_token=d.e.f")],
        [("cookie", "lorogo_token=a.b.c"), ("cookie", "lorogo_token=d.e.f")],
    ],
)
def test_two_different_tokens_are_none(sent: list[tuple[str, str]]) -> None:
    """A request with two different tokens is refused, because the gateway cannot choose between them."""
    with pytest.raises(NotSignedIn, match="different tokens"):
        presented(headers(*sent))


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a.b", "a.b.c.d", "a.b.c=", "a.b.c\n", "a b.c.d", "a.b.c\r\nX: 1", "ä.b.c", "a..c"),
        "a.b.\x00",
        "a" * TOKEN_BYTES_MAX + ".b.c",
    ],
    ids=lambda text: repr(text)[:20],
)
def test_what_is_not_shaped_like_a_token_is_refused(text: str) -> None:
    """The gateway refuses a malformed token before it computes a signature, and the error does not repeat the
    token.
    """
    with pytest.raises(TokenRefused) as no:
        shaped(text)
    assert no.value.code == "token-invalid"
    assert len(str(no.value)) < 100


def test_a_message_is_a_token_in_ascii() -> None:
    """JoinRequest.auth."""
    assert in_message(b" a.b.c\n").text == "a.b.c"
    with pytest.raises(TokenRefused):
        in_message("ä".encode())


def who(documents: dict[str, str]) -> Principal:
    return Principal(grants.parse(documents))


ID = {"id": "doc"}
CHECKS: list[tuple[Need, dict[str, str], dict[str, Any], bool]] = [
    (NoToken(), {}, {}, True),
    (AnyToken(), {}, {}, True),
    (SomeDocument(), {}, {}, False),
    (SomeDocument(), {"a": "read"}, {}, True),
    (SomeDocument(), {"a": "read"}, {"document": ["a"]}, True),
    (SomeDocument(), {"a": "read"}, {"document": ["a", "b"]}, False),
    (OnDocument(Access.READ), {}, ID, False),
    (OnDocument(Access.READ), {"doc": "read"}, ID, True),
    (OnDocument(Access.READ), {"d*": "read"}, ID, True),
    (OnDocument(Access.READ), {"docs": "admin", "do": "admin", "Doc": "admin"}, ID, False),
    (OnDocument(Access.WRITE), {"doc": "read"}, ID, False),
    (OnDocument(Access.WRITE), {"doc": "read", "*": "write"}, ID, True),
    (OnDocument(Access.WRITE, flags={"purge": Access.ADMIN}), {"doc": "write"}, ID | {"purge": False}, True),
    (OnDocument(Access.WRITE, flags={"purge": Access.ADMIN}), {"doc": "write"}, ID | {"purge": True}, False),
    (OnDocument(Access.WRITE, flags={"purge": Access.ADMIN}), {"doc": "admin"}, ID | {"purge": True}, True),
    (Operator(), {"*": "write", "doc": "admin"}, {}, False),
    (Operator(), {"doc*": "admin", "a*": "admin"}, {}, False),
    (Operator(), {"*": "admin"}, {}, True),
]


@pytest.mark.parametrize(("need", "documents", "values", "may"), CHECKS)
def test_who_may(need: Need, documents: dict[str, str], values: dict[str, Any], may: bool) -> None:
    """The grants of the token decide; without keys every request has access."""
    check(need, OPEN, values)
    if may:
        check(need, who(documents), values)
        return
    with pytest.raises(AccessDenied) as no:
        check(need, who(documents), values)
    assert no.value.code == "permission-denied"


def test_documents_that_a_body_names_are_asked_for_too() -> None:
    """The target of a fork."""
    need = OnDocument(Access.READ, others={"to": Access.WRITE})
    check_body(need, who({"two": "write"}), {"to": "two"})
    for body in ({"to": "one"}, {"to": ""}):
        with pytest.raises(AccessDenied):
            check_body(need, who({"two": "write"}), body)
    check_body(need, who({}), None)
    assert words(need) == "`read` on the document, `write` on `to`"


class Keys:
    """A verifier whose verdicts a test sets."""

    def __init__(self) -> None:
        self.good = self.ready = True
        self.listeners: list[Callable[[], None]] = []

    def verify(self, text: str) -> Token:
        if not self.good:
            raise TokenRefused("token-revoked", "it was revoked")
        return Token("s", grants.parse({"doc": "read"}), Clock.at + 1000.0, None, text[:5], "k", text)

    def is_valid(self, _token: Token) -> bool:
        return self.good

    def watch(self, listener: Callable[[], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)


class Clock:
    at = 1_000_000.0

    def wall_ns(self) -> int:
        return int(self.at * 1e9)

    def now(self) -> float:
        return self.at


async def test_each_follower_is_notified_once() -> None:
    """A stopped follower is not notified; an exception in one follower does not prevent the notification of
    the others.
    """
    keys = Keys()
    guard = TokenGuard(keys, Clock())
    principal = guard.verified(PresentedToken("a.b.c", "bearer"))
    ends: list[str] = []

    def fails(_: TokenRefused) -> None:
        raise RuntimeError("a mistake")

    guard.follow(principal, fails)
    guard.follow(principal, lambda error: ends.append(f"one {error.code}"))
    stop = guard.follow(principal, lambda _: ends.append("stopped"))
    stop()
    stop()
    for tell in list(keys.listeners):
        tell()
    assert (ends, guard.followed) == ([], 1)
    keys.good = False
    for tell in list(keys.listeners) * 2:
        tell()
    assert (ends, guard.followed) == (["one token-revoked"], 0)
    guard.close()
    assert not keys.listeners


async def test_a_token_that_ends_by_itself_is_noticed_by_its_time() -> None:
    """The expiry timer of the guard ends the token without a notification, also when the clock lags by a
    moment.
    """
    keys, clock = Keys(), Clock()
    guard = TokenGuard(keys, clock)
    principal = guard.verified(PresentedToken("a.b.c", "bearer"))
    clock.at += 999.9
    over = asyncio.Event()
    guard.follow(principal, lambda _: over.set())
    keys.good = False
    async with asyncio.timeout(5):
        await over.wait()
    await eventually(lambda: guard.followed == 0)


async def test_where_there_are_no_keys_nothing_is_asked_or_followed() -> None:
    """Without keys, the guard ignores any token in the request."""
    guard = TokenGuard()
    for sent in ([], [("authorization", "Bearer garbage")], [("cookie", "lorogo_token=garbage")]):
        assert guard.needed(headers(*sent)) is OPEN
    guard.follow(OPEN, lambda _: None)()
    assert guard.followed == 0
    assert guard.still(OPEN)
    assert guard.left(OPEN) == float("inf")
