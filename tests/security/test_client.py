"""The SDK on a closed NATS: everything that a token grants, and not one message that it does not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lorogo_client
from lorogo_client import (
    Client,
    ClientSettings,
    NotAllowed,
    NotAuthorized,
    ReadOnly,
    Session,
    State,
    Timeout,
    TokenExpired,
    TooManyDocuments,
    Unsaved,
)
from lorogo_client.auth.token_provider import TokenSource
from lorogo_gateway.relay.relays import Relays
from lorogo_protocol.access import tokens
from lorogo_protocol.messages import subjects
from lorogo_server import Server, ServerSettings
from lorogo_transport.stores.statuses import Statuses
from tests.client.support import eventually, until_state
from tests.revoking import list_of
from tests.security.closed import KEY, OTHER_KEY, Closed, closed_nats, mint

pytestmark = pytest.mark.nats

SETTINGS = ClientSettings(open_seconds=20.0, reply_seconds=3.0, retry_seconds_max=0.5, idle_link_seconds=0.2)
SECONDS = 30.0


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    async with (
        closed_nats(tmp_path) as made,
        Server(made.server, ServerSettings(), data=tmp_path / "server", authority=made.authority),
    ):
        yield made


@asynccontextmanager
async def _client(
    closed: Closed, token: TokenSource, settings: ClientSettings = SETTINGS, store: Path | None = None
) -> AsyncIterator[Client]:
    async with lorogo_client.connect(closed.url, token=token, settings=settings, store=store) as client:
        yield client


def _violations(closed: Closed) -> list[str]:
    """The permission violations in the log of nats-server."""
    lines = closed.nats.log_path.read_text().splitlines()
    return [line for line in lines if "iolation" in line]


def _text(session: Session) -> str:
    return str(session.doc.get_text("t").to_string())


def _write(session: Session, text: str) -> None:
    session.doc.get_text("t").insert(0, text)
    session.commit()


async def test_all_that_a_token_grants_works_and_nats_refuses_nothing(closed: Closed) -> None:
    """Sessions, ACKs, presence, calls, documents by pattern, large ones, a crash of NATS: no violation."""
    granted = {"plan": "write", "book": "read", "minutes-*": "write", "own-*": "admin"}
    async with _client(closed, mint({"*": "admin"}, subject="root")) as root:
        await root.document("book").patch([{"op": "add", "path": "/t", "value": "chapter"}])
        async with (
            _client(closed, mint(granted)) as ann,
            _client(closed, mint({"plan": "write"}, subject="bob")) as bob,
            ann.open("plan") as plan,
            bob.open("plan") as other,
            ann.open("minutes-7") as minutes,
            ann.open("book") as book,
        ):
            assert (plan.read_only, minutes.read_only, book.read_only) == (False, False, True)
            assert _text(book) == "chapter"
            _write(plan, "hello")
            receipt = await plan.flush(SECONDS)
            assert receipt is not None
            assert receipt.durability == "journal"
            await eventually(lambda: _text(other) == "hello")
            plan.presence.set({"name": "ann"})
            book.presence.set({"name": "ann"})  # a reader may be seen
            await eventually(lambda: {"name": "ann"} in other.presence.all().values())
            _write(minutes, "x" * (5 << 20))
            await minutes.flush(SECONDS)

            calls = ann.document("plan")
            assert (await calls.get())["value"] == {"t": "hello"}
            assert (await calls.status())["sequence"] == receipt.sequence
            assert len(await calls.history()) == 1
            await calls.patch([{"op": "replace", "path": "/t", "value": "patched"}])
            await eventually(lambda: _text(plan) == "patched")
            assert await ann.document("book").fork("minutes-8") == "minutes-8"
            assert (await ann.document("minutes-8").get())["value"] == {"t": "chapter"}
            await ann.document("own-1").patch([{"op": "add", "path": "/t", "value": "mine"}])
            await ann.document("own-1").compact()
            await ann.document("own-1").delete(purge=True)
            async with _client(closed, mint({"minutes-*": "read"}, subject="eve")) as eve:
                async with eve.open("minutes-7") as large:  # more than fits into one window of chunks
                    assert len(_text(large)) == 5 << 20
                assert len(await eve.document("minutes-7").export()) > 1000

            await closed.nats.kill()
            await until_state(plan, State.OFFLINE)
            _write(plan, "offline ")
            _write(minutes, "offline ")
            await closed.nats.start()
            for session in (plan, minutes):
                await session.flush(SECONDS)
            await eventually(lambda: _text(other) == "offline patched")
    assert _violations(closed) == []


async def test_what_a_token_does_not_grant_fails_before_anything_is_sent(closed: Closed) -> None:
    """Each with the same error, which names the document and whose token it is; NATS sees none of it."""
    async with _client(closed, mint({"plan": "write", "book": "read"})) as ann:
        for attempt in (
            lambda: ann.open("secret"),
            lambda: ann.document("secret").get(),
            lambda: ann.document("book").patch([]),
            lambda: ann.document("plan").compact(),
            lambda: ann.document("plan").delete(purge=True),
            lambda: ann.document("plan").fork("secret"),
            lambda: ann.reset("plan"),
            lambda: Relays(ann).enter("secret", None),  # type: ignore[arg-type]  # nothing is sent
        ):
            with pytest.raises(NotAllowed, match="the token of 'ann'") as no:
                await attempt()
            assert no.value.code == "permission-denied"
            assert no.value.document_id in {"secret", "book", "plan"}
        for beyond in (
            lambda: ann.transport.stream(subjects.WAL_STREAM).state(),
            lambda: ann.transport.stream(subjects.STATUS_STREAM).append("x", b""),
            lambda: Statuses(ann.transport).read("plan"),
            ann.feed,
        ):
            with pytest.raises(NotAllowed, match="a token only opens documents"):
                await beyond()
        with pytest.raises(NotAllowed, match="a list of all documents"):
            ann.statuses()
        with pytest.raises(NotAllowed, match="persisted presence"):
            _ = ann.kept_presence
        async with ann.open("book") as book:
            book.doc.get_text("t").insert(0, "no")
            with pytest.raises(ReadOnly):
                book.commit()
    assert _violations(closed) == []


async def test_many_documents_by_pattern_are_bounded(closed: Closed) -> None:
    """Each document takes a connection; at the limit the open fails, and closing a session frees
    its place.
    """
    few = replace(SETTINGS, documents_open_max=2, idle_link_seconds=60.0)
    async with _client(closed, mint({"m-*": "write"}), few) as ann:
        async with ann.open("m-1") as first, ann.open("m-2"):
            with pytest.raises(TooManyDocuments):
                await ann.open("m-3")
            async with ann.open("m-1") as again:
                assert again.doc is first.doc
        async with ann.open("m-3") as third:
            _write(third, "there is room again")
            await third.flush(SECONDS)
    assert _violations(closed) == []


@pytest.mark.parametrize(
    ("key", "seconds", "error"),
    [(OTHER_KEY, 600.0, NotAuthorized), (KEY, -60.0, TokenExpired)],
    ids=["of another key", "ended"],
)
async def test_a_token_that_nats_refuses_fails_the_connect(
    closed: Closed, key: tokens.Key, seconds: float, error: type[Exception]
) -> None:
    """The error has a type of its own, and its text does not contain the token."""
    token = mint({"plan": "write"}, key=key, seconds=seconds)
    with pytest.raises(error) as no:
        await lorogo_client.connect(closed.url, token=token, settings=SETTINGS)
    assert type(no.value) is error
    assert token not in str(no.value)


async def test_an_expired_token_is_reported_by_open_sessions_and_edits_are_kept(
    closed: Closed, tmp_path: Path
) -> None:
    """State and problem of the session report it; a store keeps the edits, and a client with a new token
    sends them.
    """
    token, store = mint({"plan": "write", "minutes": "write"}, seconds=3), tmp_path / "store"
    async with _client(closed, token, store=store) as ann, ann.open("plan") as plan:
        _write(plan, "before")
        await plan.flush(SECONDS)
        await until_state(plan, State.UNAUTHORIZED)
        assert isinstance(plan.problem, TokenExpired)
        assert plan.problem.code == "token-expired"
        _write(plan, "kept, ")
        with pytest.raises(TokenExpired):
            await plan.flush(SECONDS)
        await plan.stored(SECONDS)
        assert plan.unsaved == 1
        async with ann.open("plan") as again:  # from the store
            assert _text(again) == "kept, before"
        with pytest.raises(TokenExpired):
            await ann.open("minutes")
    async with (
        _client(closed, mint({"plan": "write"}), store=store) as ann,
        ann.open("plan") as plan,
    ):
        await plan.flush(SECONDS)
        assert _text(plan) == "kept, before"
    assert _violations(closed) == []


async def test_a_fresh_token_is_there_before_the_old_one_ends(closed: Closed) -> None:
    """Sessions go on over several tokens, each with inboxes of its own; nothing is refused, nothing lost."""
    given: list[str] = []

    async def source() -> str:
        given.append(mint({"plan": "write", "m-*": "write"}, seconds=4))
        return given[-1]

    async with (
        _client(closed, source) as ann,
        ann.open("plan") as plan,
        ann.open("m-1") as minutes,
    ):
        async with asyncio.timeout(SECONDS):
            for number in range(1_000_000):
                _write(plan, f"{number}.")
                _write(minutes, f"{number}.")
                await plan.flush(SECONDS)
                await minutes.flush(SECONDS)
                assert plan.problem is None
                if len(given) >= 4:
                    break
        async with _client(closed, mint({"plan": "read"}, subject="bob")) as bob, bob.open("plan") as other:
            assert _text(other) == _text(plan)
    assert _violations(closed) == []


async def test_a_document_by_pattern_is_waited_for_while_nats_is_away(closed: Closed) -> None:
    """It opens when NATS is back, as one on the first connection does."""
    async with _client(closed, mint({"m-*": "write"})) as ann:
        await closed.nats.kill()
        await eventually(lambda: not ann.transport.bus.connected)
        opening = asyncio.ensure_future(ann.open("m-1").__aenter__())
        await closed.nats.start()
        session = await opening
        _write(session, "there")
        await session.flush(SECONDS)
        await ann.close_session(session)
    assert _violations(closed) == []


async def test_a_connect_without_credentials_names_the_argument(closed: Closed) -> None:
    """A closed NATS accepts no client without a token; a seed that is a Path is a TypeError at once."""
    with pytest.raises(NotAuthorized, match=r"pass a token with connect\(\.\.\., token="):
        await lorogo_client.connect(closed.url, settings=SETTINGS)
    wrong: Any = Path("operator.seed")
    with pytest.raises(TypeError, match="read_text"):
        lorogo_client.connect(closed.url, seed=wrong)


async def test_a_revoked_token_is_reported_and_edits_wait(closed: Closed) -> None:
    """The connection is closed and not made again; what was written is neither lost nor called saved."""
    token = mint({"plan": "write"})
    client = await lorogo_client.connect(
        closed.url, token=token, settings=replace(SETTINGS, close_seconds=0.2)
    )
    session = await client.open("plan")
    await list_of(closed.authority).revoke_token(tokens.peek(token).token_id)
    await until_state(session, State.UNAUTHORIZED)
    assert isinstance(session.problem, NotAuthorized)
    assert not isinstance(session.problem, TokenExpired)
    assert "if the token of 'ann' was revoked, get a new one" in str(session.problem)
    _write(session, "kept")
    with pytest.raises(Timeout, match="refuses the credentials"):
        await session.flush(0.2)
    with pytest.raises(NotAuthorized):
        await lorogo_client.connect(closed.url, token=token, settings=SETTINGS)
    with pytest.raises(Unsaved, match="refuses the credentials"):
        await client.close()
