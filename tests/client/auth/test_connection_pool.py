"""A document goes over the connection that has its rights; there are no more connections than needed."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from lorogo_client import ClientSettings, NotAuthorized, SessionClosed, TokenExpired, TooManyDocuments
from lorogo_client.auth.connection_pool import ClientResources, ConnectionPool
from lorogo_client.auth.token_provider import TokenProvider, TokenSource
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.errors import Unreachable
from tests.client.support import QUICK, eventually
from tests.client.tokens import SetClock, token_for

SETTINGS = replace(QUICK, idle_link_seconds=0.02, documents_open_max=3)


class Line(MemoryTransport):
    """A connection that can be asked to be made anew."""

    renewed = 0
    closed = False

    def renew(self) -> None:
        self.renewed += 1

    async def close(self) -> None:
        self.closed = True
        await super().close()


class Switchboard:
    """Makes connections in memory, and remembers which."""

    def __init__(self) -> None:
        self.nats = MemoryNats(rng=random.Random(1))
        self.made: list[tuple[tuple[str, ...], str, Line]] = []
        self.failure: Exception | None = None
        self.patient = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def dial(
        self, documents: Sequence[str], token: Callable[[], Awaitable[str]], *, patient: bool
    ) -> Line:
        text = await token()
        self.patient = patient
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        line = Line(self.nats, self.nats.connect(f"c{len(self.made)}").bus)
        self.made.append((tuple(documents), text, line))
        return line

    @property
    def named(self) -> list[tuple[str, ...]]:
        return [documents for documents, _, line in self.made if not line.closed]


@asynccontextmanager
async def _pool(
    source: TokenSource | None,
    board: Switchboard,
    *,
    clock: SetClock | None = None,
    settings: ClientSettings = SETTINGS,
) -> AsyncIterator[ConnectionPool]:
    clock = clock or SetClock()
    shared = ClientResources(
        clock=clock,
        rng=random.Random(1),
        new_id=lambda: "id",
        settings=settings,
        token_provider=TokenProvider(source, clock, seconds=1.0),
        store=None,
        guarded=source is not None,
    )
    pool = ConnectionPool(shared, board.dial)
    try:
        await pool.open()
        yield pool
    finally:
        await pool.close()


async def test_without_a_token_there_is_one_connection() -> None:
    """As it always was."""
    board = Switchboard()
    async with _pool(None, board) as pool:
        contexts = [await pool.take(name) for name in ("a", "b", "c", "d", "e")]
        assert all(context is pool.first for context in contexts)
        assert board.named == [()]
    assert board.named == []


async def test_a_document_that_only_a_pattern_covers_has_a_connection_that_names_it() -> None:
    """One for all who use it; its calls carry the token that it was made with."""
    token = token_for("ann", {"plan": "write", "minutes-*": "write"})
    board = Switchboard()
    async with _pool(token, board) as pool:
        assert await pool.take("plan") is pool.first
        first, again = await asyncio.gather(pool.take("minutes-1"), pool.take("minutes-1"))
        other = await pool.take("minutes-2")
        assert first is again
        assert first is not pool.first
        assert other is not first
        assert board.named == [(), ("minutes-1",), ("minutes-2",)]
        assert {text for _, text, _ in board.made} == {token}
        assert first.connection_token.text == token
        assert token not in repr(first)
    assert board.named == []


async def test_a_connection_goes_some_time_after_its_last_use() -> None:
    """Not before, however many used it; who comes again in time finds it."""
    board = Switchboard()
    async with _pool(token_for("ann", {"m-*": "write"}), board) as pool:
        first, second = await pool.take("m-1"), await pool.take("m-1")
        pool.give_back("m-1", first)
        assert pool._connections["m-1"].timer is None  # no end is in sight while somebody uses it
        pool.give_back("m-1", second)
        assert await pool.take("m-1") is first
        pool.give_back("m-1", first)
        await eventually(lambda: board.named == [()])
        assert pool.documents == 0
        assert await pool.take("m-1") is not first


async def test_there_are_not_more_than_the_settings_allow() -> None:
    """One that nobody uses makes room; if all are used the sentence says what can be done."""
    board = Switchboard()
    patient = replace(SETTINGS, idle_link_seconds=600.0)
    async with _pool(token_for("ann", {"m-*": "write"}), board, settings=patient) as pool:
        taken = {name: await pool.take(name) for name in ("m-1", "m-2", "m-3")}
        with pytest.raises(TooManyDocuments, match="3 documents are open that the token only grants by a"):
            await pool.take("m-4")
        assert await pool.take("m-3") is taken["m-3"]
        pool.give_back("m-2", taken["m-2"])
        await pool.take("m-4")
        assert board.named == [(), ("m-1",), ("m-3",), ("m-4",)]
        with pytest.raises(TooManyDocuments):
            await pool.take("m-2")


async def test_a_connection_that_cannot_be_made_leaves_nothing_behind() -> None:
    """The next one who wants it tries again."""
    board = Switchboard()
    async with _pool(token_for("ann", {"m-*": "write"}), board) as pool:
        board.failure = Unreachable("nothing answers")
        for _ in range(SETTINGS.documents_open_max + 1):
            with pytest.raises(Unreachable):
                await pool.take("m-1")
        assert pool.documents == 0
        board.failure = None
        await pool.take("m-1")
        assert board.named == [(), ("m-1",)]


async def test_while_nats_is_away_it_is_waited_for() -> None:
    """As by everything that is on the first connection; else a failure is told at once."""
    board = Switchboard()
    async with _pool(token_for("ann", {"m-*": "write"}), board) as pool:
        await pool.take("m-1")
        assert not board.patient
        board.made[0][2].bus.cut()
        await pool.take("m-2")
        assert board.patient


async def test_whoever_gives_up_waiting_does_not_spoil_it_for_others() -> None:
    """The second takes over from the first, who was cancelled while the connection was made."""
    board = Switchboard()
    async with _pool(token_for("ann", {"m-*": "write"}), board) as pool:
        board.gate.clear()
        impatient = asyncio.ensure_future(pool.take("m-1"))
        await asyncio.sleep(0)
        patient = asyncio.ensure_future(pool.take("m-1"))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        board.gate.set()
        context = await patient
        assert board.named == [(), ("m-1",)]
        pool.give_back("m-1", context)
        await eventually(lambda: board.named == [()])


async def test_a_refusal_says_that_the_token_has_expired() -> None:
    """On the first connection and on any other."""
    board, clock = Switchboard(), SetClock()
    async with _pool(token_for("ann", {"m-*": "write"}, seconds=100), board, clock=clock) as pool:
        board.failure = NotAuthorized("refuses the credentials")
        with pytest.raises(NotAuthorized) as no:
            await pool.take("m-1")
        assert not isinstance(no.value, TokenExpired)
        clock.ahead = 101.0
        with pytest.raises(TokenExpired):
            await pool.take("m-1")
    with pytest.raises(TokenExpired):
        async with _pool(token_for("ann", {"m-*": "write"}, seconds=-1), board):
            raise AssertionError("nobody gets in")


async def test_connections_are_made_anew_before_the_token_ends() -> None:
    """A fresh token is asked for in time, and every connection is told to use it."""
    board, clock = Switchboard(), SetClock()
    given = [token_for("ann", {"m-*": "write"}, seconds=100)]

    async def source() -> str:
        return given[-1]

    async with _pool(source, board, clock=clock) as pool:
        await pool.take("m-1")
        given.append(token_for("ann", {"m-*": "write"}, seconds=1000))
        clock.ahead = 95.0
        await pool.renew_if_due()
        assert [line.renewed for _, _, line in board.made] == [1, 1]
        assert pool.token_provider.text == given[-1]
        await pool.renew_if_due()
        assert [line.renewed for _, _, line in board.made] == [1, 1]


@pytest.mark.parametrize(
    "error", [OSError("no network"), asyncio.CancelledError()], ids=["fails", "cancelled"]
)
async def test_a_source_that_fails_is_asked_again_and_nothing_is_cut(error: BaseException) -> None:
    """The old token is good until it ends. A task of the app's that was cancelled is no end of ours."""
    board, clock = Switchboard(), SetClock()
    token, broken = token_for("ann", {"m-*": "write"}, seconds=100), False

    async def source() -> str:
        if broken:
            raise error
        return token

    async with _pool(source, board, clock=clock) as pool:
        broken, clock.ahead = True, 95.0
        await pool.renew_if_due()
        broken, token = False, token_for("ann", {"m-*": "write"}, seconds=1000)
        assert [line.renewed for _, _, line in board.made] == [0]
        await pool.renew_if_due()
        assert [line.renewed for _, _, line in board.made] == [1]


async def test_after_the_end_nobody_gets_a_connection() -> None:
    """And one that was being made is ended."""
    board = Switchboard()
    async with _pool(token_for("ann", {"m-*": "write"}), board) as pool:
        board.gate.clear()
        late = asyncio.ensure_future(pool.take("m-1"))
        await asyncio.sleep(0)
        await pool.close()
        board.gate.set()
        with pytest.raises(SessionClosed):
            await late
        with pytest.raises(SessionClosed):
            await pool.take("m-1")
    assert board.named == []
