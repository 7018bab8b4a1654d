"""Rights over WebSocket, in frames: by the token of the handshake, of the cookie and of the JoinRequest."""

from dataclasses import replace

import pytest
from loro import LoroDoc

from lorogo_gateway.frames import Crdt, Fragment, FragmentHeader, JoinErrorCode, JoinOk, JoinRequest, Status
from lorogo_gateway.websocket.connection import _BAD_TOKENS_MAX
from lorogo_protocol.messages import subjects
from tests.gateway.support import presence, states, text_of, type_in
from tests.revoking import list_of
from tests.security.closed_gateway import SETTINGS, Closed, closed, cookie
from tests.security.people import PEOPLE, mint, token_of

LORO, EPH, EPS = Crdt.LORO, Crdt.EPHEMERAL, Crdt.PERSISTED
GOOD = {person: grant for person, grant in PEOPLE.items() if grant is not None}
BAD = [person for person, grant in PEOPLE.items() if grant is None and person != "no token"]
CODES = {
    "no token": "token-missing",
    "garbage": "token-invalid",
    "expired": "token-expired",
    "wrong key": "token-invalid",
    "revoked": "token-revoked",
}


async def stored(gate: Closed, document: str) -> int:
    """The number of messages of a document in the WAL."""
    return await gate.world.connect("look").stream(subjects.WAL_STREAM).count(subjects.wal(document))


def update() -> bytes:
    return type_in(LoroDoc(), "mine")


@pytest.mark.parametrize("way", ["bearer", "cookie", "join"])
async def test_every_room_is_joined_by_right(way: str) -> None:
    """Readers hear, writers write, others get JoinError auth_failed; nothing of a reader reaches the WAL."""
    async with closed() as gate:
        for number, (person, grant) in enumerate(GOOD.items()):
            document = f"doc{number}"
            await gate.write(document)
            before, token = await stored(gate, document), token_of(person, document)
            auth = token if way == "join" else ""
            headers = cookie(token, gate.address) if way == "cookie" else {}
            async with gate.peer(token if way == "bearer" else "", headers) as peer:
                if grant in ("", "another"):
                    for crdt in (LORO, EPH, EPS):
                        no = await peer.join_error(document, crdt=crdt, auth=auth)
                        assert (no.crdt, no.error) == (crdt, JoinErrorCode.AUTH_FAILED)
                        assert no.message.startswith("permission-denied: this needs read on")
                        assert await peer.save(update(), room=document, crdt=crdt) is Status.PERMISSION_DENIED
                    assert await stored(gate, document) == before
                    continue
                writes = grant != "read"
                ok = await peer.join(document, crdt=LORO, auth=auth)
                assert ok.permission == ("write" if writes else "read")
                saved = await peer.save(update(), room=document)
                assert saved is (Status.OK if writes else Status.PERMISSION_DENIED)
                assert (await stored(gate, document) > before) is writes
                ok = await peer.join(document, crdt=EPH, auth=auth)
                assert ok.permission == "write", "readers show where they are, too"
                assert await peer.save(presence("me", 1), room=document, crdt=EPH) is Status.OK
                ok = await peer.join(document, crdt=EPS, auth=auth)
                assert ok.permission == ("write" if writes else "read")
                saved = await peer.save(presence("kept", 1), room=document, crdt=EPS)
                assert saved is (Status.OK if writes else Status.PERMISSION_DENIED)
                assert bool(await gate.client.kept_presence.load(document)) is writes
        assert gate.gateway.sockets.stats()["joins_refused"] == 3 * sum(
            grant in ("", "another") for grant in GOOD.values()
        )


@pytest.mark.parametrize("person", BAD)
async def test_a_bad_token_is_refused(person: str) -> None:
    """In the handshake: closed with 4401 and why. In a JoinRequest: JoinError auth_failed, and no room."""
    async with closed() as gate:
        await gate.write("doc")
        token = token_of(person, "doc")
        if person == "revoked":
            await list_of(gate.authority).revoke_token("revoked")
        for headers in ({"Authorization": f"Bearer {token}"}, cookie(token, gate.address)):
            async with gate.peer("", headers) as peer:
                code, reason = await peer.closed()
                assert (code, reason.partition(":")[0]) == (4401, CODES[person])
                assert token not in reason
        async with gate.peer() as peer:
            no = await peer.join_error("doc", auth=token)
            assert no.error is JoinErrorCode.AUTH_FAILED
            assert no.message.startswith(CODES[person])
            assert token not in no.message
            assert await peer.save(update()) is Status.PERMISSION_DENIED
        assert await gate.read("doc") == {"body": "hello"}


async def test_without_a_token_there_are_no_rooms() -> None:
    """Neither one that exists nor one that does not; the answer is the same."""
    async with closed() as gate:
        await gate.write("doc")
        async with gate.peer() as peer:
            errors = [
                await peer.join_error(room, crdt=crdt)
                for room in ("doc", "gone")
                for crdt in (LORO, EPH, EPS)
            ]
        assert {(no.error, no.message) for no in errors} == {(JoinErrorCode.AUTH_FAILED, errors[0].message)}
        assert errors[0].message.startswith("token-missing")


async def test_a_room_that_is_not_yours_looks_the_same_whether_it_exists_or_not() -> None:
    """auth_failed both ways, before the document is looked for."""
    async with closed() as gate:
        await gate.write("doc")
        async with gate.peer(mint({"mine": "write"})) as peer:
            messages = {(await peer.join_error(room)).message.replace(room, "X") for room in ("doc", "gone")}
        assert len(messages) == 1


async def test_fragments_of_who_may_not_write_are_refused_before_any_comes() -> None:
    """A reader's would wait in memory for nothing; where readers may speak, it is a cursor and no file."""
    async with closed() as gate, gate.peer(mint({"doc": "read"})) as reader:
        await gate.write("doc")
        denied = Status.PERMISSION_DENIED
        answers = {LORO: denied, EPS: denied, EPH: Status.PAYLOAD_TOO_LARGE}
        for number, (crdt, answer) in enumerate(answers.items()):
            batch = number.to_bytes(8, "big")
            await reader.send(FragmentHeader(crdt, "doc", batch, 100, 1 << 20))
            assert await reader.acked(batch) is denied, "not in the room"
            await reader.join("doc", crdt=crdt)
            await reader.send(FragmentHeader(crdt, "doc", batch, 100, 1 << 20))
            await reader.send(Fragment(crdt, "doc", batch, 0, bytes(100_000)))
            assert await reader.acked(batch) is answer
        assert gate.gateway.sockets.stats()["unfinished_bytes"] == 0


async def test_a_reader_begins_no_document() -> None:
    """A user who may only read a document cannot create it."""
    async with closed() as gate, gate.peer(mint({"new": "read"})) as peer:
        no = await peer.join_error("new")
        assert (no.error, no.app_code) == (JoinErrorCode.APP_ERROR, "not_found")
        assert await stored(gate, "new") == 0
        async with gate.peer(mint({"new": "write"})) as writer:
            assert (await writer.join("new")).permission == "write"


async def test_a_token_of_its_own_counts_for_its_room_alone() -> None:
    """JoinRequest.auth overrides the handshake's token in that room and nowhere else."""
    async with closed() as gate:
        await gate.write("one")
        await gate.write("two")
        async with gate.peer(mint({"*": "read"})) as peer:
            assert (await peer.join("one", auth=mint({"one": "write"}))).permission == "write"
            assert (await peer.join("two")).permission == "read"
            assert await peer.save(update(), room="one") is Status.OK
            assert await peer.save(update(), room="two") is Status.PERMISSION_DENIED
            # and a worse one counts, too
            no = await peer.join_error("two", auth=mint({"one": "write"}))
            assert no.error is JoinErrorCode.AUTH_FAILED
            assert await peer.save(update(), room="two") is Status.PERMISSION_DENIED


async def test_a_room_is_joined_again_with_a_better_token_without_leaving() -> None:
    """The same room, the same connection: what was read goes on, and now it may be written."""
    async with closed() as gate:
        await gate.write("doc", "first")
        async with gate.peer() as peer, gate.peer(mint({"doc": "write"})) as other:
            doc = LoroDoc()
            assert (await peer.join("doc", auth=mint({"doc": "read"}))).permission == "read"
            for payload in await peer.received("doc"):
                doc.import_(payload)
            assert await peer.save(type_in(LoroDoc(), "x"), room="doc") is Status.PERMISSION_DENIED
            again = await peer.join("doc", doc.oplog_vv.encode(), auth=mint({"doc": "write"}))
            assert again.permission == "write"
            assert await peer.save(type_in(doc, "written"), room="doc") is Status.OK
            theirs = LoroDoc()
            ok = await other.join("doc")
            for payload in await other.received("doc"):
                theirs.import_(payload)
            assert text_of(theirs) == "written"
            # and back: what is taken away by a worse one is gone at once
            worse = await peer.join("doc", ok.version, auth=mint({"doc": "read"}))
            assert worse.permission == "read"
            assert await peer.save(type_in(doc, "!"), room="doc") is Status.PERMISSION_DENIED


async def test_a_join_without_a_token_keeps_the_one_that_the_room_has() -> None:
    """A client that joins again on request has no new token to send."""
    async with closed() as gate:
        await gate.write("doc")
        async with gate.peer() as peer:
            await peer.join("doc", auth=mint({"doc": "write"}))
            assert (await peer.join("doc")).permission == "write"
            assert await peer.save(update(), room="doc") is Status.OK


async def test_a_join_again_with_a_bad_token_ends_the_room() -> None:
    """The client forgets a room whose join fails; so do we."""
    async with closed() as gate:
        await gate.write("doc")
        async with gate.peer() as peer:
            await peer.join("doc", auth=mint({"doc": "write"}))
            await peer.received("doc")
            assert (await peer.join_error("doc", auth="garbage")).error is JoinErrorCode.AUTH_FAILED
            assert await peer.save(update(), room="doc") is Status.PERMISSION_DENIED
            await gate.patch("doc", {"op": "add", "path": "/secret", "value": "s"})
            assert not [frame for frame in await peer.quiet() if not isinstance(frame, str)]


async def test_a_connection_with_many_bad_tokens_is_closed() -> None:
    """Each costs a signature; after a few the connection is gone."""
    async with closed() as gate, gate.peer() as peer:
        for number in range(_BAD_TOKENS_MAX):
            await peer.send(JoinRequest(LORO, f"doc{number}", b"a.b.c", b""))
        assert (await peer.closed())[0] == 4401


@pytest.mark.parametrize(
    "auth",
    [b"\xff\xfe", b"\x00" * 100, b"a" * 200_000, "täken".encode(), b"a.b.c\r\nX-Evil: 1", b".", b"..", b" "],
    ids=["bytes", "zeros", "huge", "umlaut", "header", "dot", "dots", "space"],
)
async def test_whatever_is_no_token_is_refused_in_a_sentence(auth: bytes) -> None:
    """Hostile bytes in `auth` are token-invalid, and the connection goes on."""
    async with closed() as gate, gate.peer() as peer:
        await peer.send(JoinRequest(LORO, "doc", auth, b""))
        no = await peer.next()
        assert getattr(no, "error", None) is JoinErrorCode.AUTH_FAILED
        assert getattr(no, "message", "").startswith("token-invalid")
        await gate.write("doc")
        assert isinstance(await peer.join("doc", auth=mint({"doc": "read"})), JoinOk)


async def test_a_reader_sends_and_receives_presence() -> None:
    """Every reader reads and writes %EPH; readers read %EPS, and writers write it."""
    async with closed() as gate:
        await gate.write("doc")
        async with gate.peer(mint({"doc": "read"})) as reader, gate.peer(mint({"doc": "write"})) as writer:
            for peer in (reader, writer):
                await peer.join("doc", crdt=EPH)
                await peer.join("doc", crdt=EPS)
            assert await reader.save(presence("reader", 1), room="doc", crdt=EPH) is Status.OK
            assert states(*await writer.received("doc", EPH)) == {"reader": 1}
            assert await writer.save(presence("kept", 2), room="doc", crdt=EPS) is Status.OK
            assert states(*await reader.received("doc", EPS)) == {"kept": 2}


async def test_read_only_is_stricter_than_any_token() -> None:
    """`--read-only` refuses all writes, also those of operators."""
    async with closed(replace(SETTINGS, read_only=True)) as gate:
        await gate.write("doc")
        async with gate.peer(mint({"*": "admin"})) as peer:
            assert (await peer.join("doc")).permission == "read"
            assert await peer.save(update(), room="doc") is Status.PERMISSION_DENIED
            assert (await peer.join("doc", crdt=EPH)).permission == "read"
            assert await peer.save(presence("a", 1), room="doc", crdt=EPH) is Status.PERMISSION_DENIED
