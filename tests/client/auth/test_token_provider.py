"""Whoever holds a token knows what it grants, and asks for a fresh one before it ends."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from lorogo_client import NotAllowed, NotAuthorized, TokenExpired
from lorogo_client.auth.token_provider import TokenProvider, TokenSource
from lorogo_protocol.access.grants import Access
from lorogo_protocol.access.tokens import TokenRefused
from tests.client.tokens import SetClock, token_for


async def _holder(source: TokenSource | None, clock: SetClock | None = None) -> TokenProvider:
    token_provider = TokenProvider(source, clock or SetClock(), seconds=1.0)
    await token_provider.fresh()
    return token_provider


async def test_without_a_token_nothing_is_asked() -> None:
    """An open client may try everything, and names no document to NATS."""
    token_provider = await _holder(None)
    assert not token_provider.present
    assert (token_provider.text, token_provider.subject) == ("", "")
    assert token_provider.access("anything") is Access.ADMIN
    assert not token_provider.by_pattern("anything")
    assert token_provider.seconds_left() is None


async def test_a_token_says_what_its_holder_may_do() -> None:
    """The highest of what the patterns grant; the sentence names the holder, the document and the right."""
    token_provider = await _holder(token_for("ann", {"plan": "read", "minutes-*": "write"}))
    assert token_provider.access("plan") is Access.READ
    assert token_provider.access("minutes-7") is Access.WRITE
    assert token_provider.access("other") is Access.NONE
    token_provider.require("minutes-7", Access.WRITE)
    with pytest.raises(NotAllowed, match="the token of 'ann' only grants read on 'plan'; write is") as no:
        token_provider.require("plan", Access.WRITE)
    assert (no.value.code, no.value.document_id) == ("permission-denied", "plan")
    with pytest.raises(NotAllowed, match="the token of 'ann' does not grant 'other'; read is needed"):
        token_provider.require("other", Access.READ)
    assert token_provider.text not in str(no.value)
    assert token_provider.text not in repr(token_provider)


@pytest.mark.parametrize(
    ("documents", "document", "by_pattern"),
    [
        ({"plan": "write"}, "plan", False),
        ({"*": "read"}, "plan", False),
        ({"**": "read"}, "plan", False),
        ({"pl*": "read"}, "plan", True),
        ({"plan": "write", "pl*": "read"}, "plan", False),
        (
            {"plan": "read", "pl*": "write"},
            "plan",
            True,
        ),  # a connection that names nothing could only read it
        ({"*": "read", "pl*": "write"}, "plan", True),
        ({"*": "admin", "pl*": "write"}, "plan", False),
        ({"other": "write"}, "plan", False),
    ],
)
async def test_only_what_a_pattern_adds_takes_a_connection_that_names_it(
    documents: dict[str, str], document: str, by_pattern: bool
) -> None:
    """What the token says literally, or of all documents, a connection has without naming anything."""
    assert (await _holder(token_for("ann", documents))).by_pattern(document) is by_pattern


async def test_a_token_that_is_not_here_yet_is_named_to_be_sure() -> None:
    """A function that has not answered yet: nothing is denied, and a connection names its document."""

    async def source() -> str:
        raise OSError("no network")

    token_provider = TokenProvider(source, SetClock(), seconds=1.0)
    with pytest.raises(OSError, match="no network"):
        await token_provider.fresh()
    assert token_provider.by_pattern("plan")
    assert token_provider.denied("plan", Access.WRITE) is None


async def test_a_fresh_token_is_asked_for_when_a_tenth_of_the_time_is_left() -> None:
    """At most a minute before its end; and what it grants then counts."""
    clock, given = SetClock(), [token_for("ann", {"plan": "write"}, seconds=100)]

    async def source() -> str:
        return given[-1]

    token_provider = await _holder(source, clock)
    left = token_provider.seconds_left()
    assert left is not None
    assert 80 < left < 95
    clock.ahead = 95.0
    left = token_provider.seconds_left()
    assert left is not None
    assert left < 0
    given.append(token_for("ann", {"plan": "read"}, seconds=200))
    assert await token_provider.fresh() == given[-1]
    assert token_provider.access("plan") is Access.READ
    assert not token_provider.expired


async def test_many_connections_ask_once() -> None:
    """Whatever came a moment ago is good for all of them, unless one wants another."""
    asked = 0

    async def source() -> str:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return token_for("ann", {"plan": "write"})

    clock = SetClock()
    token_provider = await _holder(source, clock)
    assert len({await token_provider.fresh() for _ in range(20)}) == 1
    assert asked == 1
    assert await token_provider.fresh(renew=True) == token_provider.text
    assert asked == 2
    clock.ahead = 3.0
    await asyncio.gather(*(token_provider.fresh() for _ in range(20)))
    assert asked == 3


async def test_an_expired_token_is_never_good_enough() -> None:
    """However lately it came, it is asked for again."""
    given = [token_for("ann", {"plan": "write"}, seconds=-1), token_for("ann", {"plan": "write"})]

    async def source() -> str:
        return given.pop(0)

    token_provider = await _holder(source)
    assert token_provider.expired
    await token_provider.fresh()
    assert not token_provider.expired


@pytest.mark.parametrize("text", ["", "abc", "a.b.c", "x" * 100_000, "\n", "é" * 10])
async def test_what_is_no_token_is_refused(text: str) -> None:
    """In words, without the text; an earlier token stays."""
    with pytest.raises(TokenRefused) as no:
        await _holder(text)
    assert not text.strip() or text not in str(no.value)
    given = [good := token_for("ann", {"plan": "write"}), text]

    async def source() -> str:
        return given.pop(0)

    token_provider = await _holder(source)
    with pytest.raises(TokenRefused):
        await token_provider.fresh(renew=True)
    assert token_provider.text == good
    assert token_provider.access("plan") is Access.WRITE


async def test_a_source_that_hangs_is_not_waited_for() -> None:
    """It has its time; then whoever asked goes on without."""

    async def source() -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(TimeoutError):
        await TokenProvider(source, SetClock(), seconds=0.01).fresh()


async def test_a_refusal_of_nats_is_explained_by_the_tokens_end() -> None:
    """NATS does not say why; the holder of an expired token knows."""
    refused = NotAuthorized("nats://x refuses the credentials")
    ended = await _holder(token_for("ann", {"plan": "write"}, seconds=-1))
    explained = ended.explained(refused)
    assert isinstance(explained, TokenExpired)
    assert explained.code == "token-expired"
    assert "'ann' has expired" in str(explained)
    assert ended.explained(explained) is explained
    good = await _holder(token_for("ann", {"plan": "write"}))
    told = good.explained(refused)
    assert type(told) is NotAuthorized
    assert str(told) == f"{refused}: if the token of 'ann' was revoked, get a new one"
    assert good.explained(told) is told


async def test_line_ends_around_a_token_do_not_count() -> None:
    """As it comes out of a file or a command."""
    text = token_for("ann", {"plan": "read"})
    assert (await _holder(f"{text}\n")).text == text

    async def source() -> str:
        return f" {text}\r\n"

    assert (await _holder(source)).text == text


@pytest.mark.parametrize("source", [Path("ann.token"), b"eyJ", 7])
def test_what_is_no_source_of_tokens(source: object) -> None:
    """Is told at once, by its kind and never by its content."""
    with pytest.raises(TypeError, match=r"a token is text, or a function .*: read it first"):
        TokenProvider(cast("Any", source), SetClock(), seconds=1.0)


async def test_a_plain_function_may_give_the_token() -> None:
    """A token function need not be async; the token in hand is a common case."""
    text = token_for("ann", {"plan": "read"})
    token_provider = await _holder(lambda: text)
    assert (token_provider.subject, token_provider.renewable) == ("ann", True)


@pytest.mark.parametrize("given", [None, 5, b"token"])
async def test_a_function_that_gives_no_text_is_named(given: Any) -> None:
    """The error is about the function, not about a network."""
    with pytest.raises(TokenRefused, match=f"the token function returned {type(given).__name__}, not the"):
        await _holder(lambda: given)
