"""A token that ends takes everything with it that it had opened: rooms, connections, feeds, answers."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from loro import LoroDoc

from lorogo_gateway.frames import (
    Crdt,
    DocUpdate,
    Fragment,
    FragmentHeader,
    JoinRequest,
    RoomErrorCode,
    Status,
)
from lorogo_protocol.access.tokens import CLOCK_SECONDS
from lorogo_transport.auth.key_source import KeySource
from tests.gateway.support import DEADLINE, Peer, eventually, type_in
from tests.revoking import list_of
from tests.security.closed_gateway import SETTINGS, Closed, bearer, closed
from tests.security.people import NEXT, OURS, jwks, mint

SOON = 1.0 - CLOCK_SECONDS  # it expired, and clocks may differ: good for a second more

Ending = Callable[[Closed, str], Awaitable[None]]


async def expires(_gate: Closed, _token_id: str) -> None:
    """By itself."""


async def is_revoked(gate: Closed, token_id: str) -> None:
    await list_of(gate.authority).revoke_token(token_id)


async def subject_is_revoked(gate: Closed, _token_id: str) -> None:
    await list_of(gate.authority).revoke_subject("somebody")


ENDINGS = [
    pytest.param(expires, SOON, "token-expired", id="expired"),
    pytest.param(is_revoked, 600.0, "token-revoked", id="revoked"),
    pytest.param(subject_is_revoked, 600.0, "token-revoked", id="subject-revoked"),
]


async def ended(peer: Peer, crdt: Crdt) -> str:
    """The message with which a room ends."""
    error = await peer.room_error(crdt)
    assert error.error is RoomErrorCode.UNKNOWN
    return error.message


@pytest.mark.parametrize(("ending", "seconds", "code"), ENDINGS)
async def test_the_end_of_the_handshakes_token_closes_the_connection(
    ending: Ending, seconds: float, code: str
) -> None:
    """Every room gets a RoomError, then the connection closes with 4401; other connections stay open."""
    async with closed() as gate:
        await gate.write("doc")
        token = mint({"doc": "write"}, seconds=seconds, token_id="ends")
        async with gate.peer(token) as peer, gate.peer(mint({"doc": "write"}, subject="other")) as other:
            for crdt in (Crdt.LORO, Crdt.EPHEMERAL, Crdt.PERSISTED):
                await peer.join("doc", crdt=crdt)
            await other.join("doc")
            await ending(gate, "ends")
            for crdt in (Crdt.LORO, Crdt.EPHEMERAL, Crdt.PERSISTED):
                assert (await ended(peer, crdt)).startswith(f"auth_failed: {code}")
            closed_with, reason = await peer.closed()
            assert (closed_with, reason.partition(":")[0]) == (4401, code)
            assert await other.save(type_in(LoroDoc(), "x")) is Status.OK
        await eventually(lambda: gate.gateway.guard.followed == 0, "nothing is watched over any more")


@pytest.mark.parametrize(("ending", "seconds", "code"), ENDINGS)
async def test_the_end_of_a_rooms_own_token_ends_the_room_alone(
    ending: Ending, seconds: float, code: str
) -> None:
    """The room gets a RoomError and no more updates, and its own updates are refused; other rooms
    continue.
    """
    async with closed() as gate:
        await gate.write("one")
        await gate.write("two")
        token = mint({"one": "write"}, seconds=seconds, token_id="ends")
        async with gate.peer() as peer:
            await peer.join("two", auth=mint({"two": "write"}, subject="other"))
            await peer.join("one", auth=token)
            await ending(gate, "ends")
            assert (await ended(peer, Crdt.LORO)).startswith(f"auth_failed: {code}")
            await peer.quiet()
            assert await peer.save(type_in(LoroDoc(), "x"), room="one") is Status.PERMISSION_DENIED
            await gate.patch("one", {"op": "add", "path": "/secret", "value": "s"})
            assert await peer.save(type_in(LoroDoc(), "y"), room="two") is Status.OK
            updates = [frame for frame in await peer.quiet() if isinstance(frame, DocUpdate)]
            assert not [frame for frame in updates if frame.room == "one"]


async def test_a_fresh_token_in_time_keeps_the_room() -> None:
    """After a join with a new token, the end of the old one does not affect the room."""
    async with closed() as gate:
        await gate.write("doc")
        async with gate.peer() as peer:
            await peer.join("doc", auth=mint({"doc": "write"}, token_id="old"))
            await peer.join("doc", auth=mint({"doc": "write"}, token_id="new"))
            await list_of(gate.authority).revoke_token("old")
            await eventually(lambda: gate.gateway.guard.followed == 1)
            assert await peer.save(type_in(LoroDoc(), "x"), room="doc") is Status.OK
            await list_of(gate.authority).revoke_token("new")
            assert (await ended(peer, Crdt.LORO)).startswith("auth_failed: token-revoked")


async def test_a_room_is_asked_in_time_to_come_with_a_fresh_token() -> None:
    """`rejoin_suggested` before the end of its own token, once; with a fresh one nothing ends."""
    async with closed(replace(SETTINGS, renew_seconds=0.5)) as gate:
        await gate.write("doc")
        old, fresh = mint({"doc": "write"}, seconds=1.2), mint({"doc": "write"}, token_id="fresh")
        async with gate.peer() as peer:
            for crdt in (Crdt.LORO, Crdt.EPHEMERAL, Crdt.PERSISTED):
                await peer.join("doc", crdt=crdt, auth=old)
            for crdt in (Crdt.LORO, Crdt.EPHEMERAL, Crdt.PERSISTED):
                asked = await peer.room_error(crdt)
                assert (asked.error, asked.message[:23]) == (
                    RoomErrorCode.REJOIN_SUGGESTED,
                    "the token expires soon:",
                )
                await peer.join("doc", crdt=crdt, auth=fresh)
            assert await peer.save(type_in(LoroDoc(), "x"), room="doc") is Status.OK
            assert gate.gateway.guard.followed == 1
            await list_of(gate.authority).revoke_token("fresh")
            assert (await ended(peer, Crdt.LORO)).startswith("auth_failed: token-revoked")


async def test_a_key_that_is_taken_away_takes_its_tokens_with_it(tmp_path: Path) -> None:
    """A new key set without the key ends the connections that the key admitted."""
    path = tmp_path / "keys.jwks"
    path.write_text(jwks(OURS, NEXT))
    path.chmod(0o600)
    async with closed(keys=KeySource.from_file(path)) as gate:
        await gate.write("doc")
        async with gate.peer(mint({"doc": "read"})) as old, gate.peer(mint({"doc": "read"}, key=NEXT)) as new:
            await old.join("doc")
            await new.join("doc")
            path.write_text(jwks(NEXT))
            os.utime(path, (1, 1))
            await gate.authority.refresh()
            assert (await old.closed())[0] == 4401
            assert await new.quiet() is not None


@pytest.mark.parametrize(("ending", "seconds", "code"), ENDINGS)
async def test_a_feed_ends_with_its_token(ending: Ending, seconds: float, code: str) -> None:
    """The stream of events ends; asking again is 401."""
    async with closed() as gate:
        await gate.write("doc")
        headers = bearer(mint({"doc": "read"}, seconds=seconds, token_id="ends"))
        async with asyncio.timeout(DEADLINE), gate.http.stream("GET", "/v1/feed", headers=headers) as feed:
            assert feed.status_code == 200
            await ending(gate, "ends")
            async for _ in feed.aiter_bytes():
                pass
        again = await gate.http.get("/v1/feed", headers=headers)
        assert (again.status_code, again.json()["code"]) == (401, code)
        await eventually(lambda: gate.gateway.feeds.open == 0 and gate.gateway.guard.followed == 0)


async def test_a_newcomer_is_sent_no_more_of_a_document_when_its_token_ends() -> None:
    """A large document goes out as its reader reads: what was not sent before the end is not sent."""
    async with closed() as gate:
        await gate.write("doc", random.Random(1).randbytes(8_000_000).hex())
        async with gate.peer() as peer:
            await peer.send(
                JoinRequest(Crdt.LORO, "doc", mint({"doc": "read"}, token_id="ends").encode(), b"")
            )
            header = await peer.take(FragmentHeader)
            await list_of(gate.authority).revoke_token("ends")
            await eventually(lambda: gate.gateway.guard.followed == 0)
            assert (await ended(peer, Crdt.LORO)).startswith("auth_failed: token-revoked")
            sent = [frame for frame in peer.waiting if isinstance(frame, Fragment)]
            rest = [frame for frame in await peer.quiet() if frame not in sent]
            assert len(sent) < header.count - 1
            assert not [frame for frame in rest if isinstance(frame, Fragment)]


async def test_a_long_answer_is_cut_off_with_its_token() -> None:
    """The gateway cuts off a slow reader after the revocation of its token; the answer is incomplete."""
    async with closed() as gate:
        big = "x" * 16_000_000
        await gate.write("doc", big)
        headers = bearer(mint({"doc": "read"}, token_id="ends"))
        got: list[int] = []

        async def read() -> None:
            async with gate.http.stream("GET", "/v1/documents/doc", headers=headers) as answer:
                assert answer.status_code == 200
                async for part in answer.aiter_raw(65_536):
                    if not got:
                        await list_of(gate.authority).revoke_token("ends")
                    got.append(len(part))

        with pytest.raises(httpx.HTTPError):
            await read()
        assert 0 < sum(got) < len(big)


async def test_who_has_no_token_must_bring_one_before_long() -> None:
    """A connection without a token that joins nothing is closed with 4401."""
    async with closed(replace(SETTINGS, join_seconds=0.3)) as gate, gate.peer() as peer:
        code, reason = await peer.closed()
        assert (code, reason) == (4401, "token-missing: no join with a token")
