"""Every row of the tables of docs/GATEWAY.md: what a join, an update or a bad frame is answered with."""

import random
from dataclasses import replace

import pytest
from loro import ID, LoroDoc, VersionVector

from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, JoinErrorCode, RoomErrorCode, Status
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.status import Failed
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.stores.catalogue import read_summary
from lorogo_transport.stores.statuses import Statuses
from tests.client.support import FakeOwner
from tests.gateway.support import SETTINGS, Peer, eventually, gate, presence, since, text_of, type_in

BATCH = b"batch-01"


async def rejoined(peer: Peer, doc: LoroDoc, room: str = "doc") -> frames.JoinOk:
    """As the npm client does when it is asked to: join, and send what the owner lacks."""
    error = await peer.room_error()
    assert error.error is RoomErrorCode.REJOIN_SUGGESTED
    return await peer.join(room, version=doc.oplog_vv.encode())


# ------------------------------------------------------------------------------------------ join


async def test_an_id_outside_our_alphabet_is_refused(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one:
        for kind in (Crdt.LORO, Crdt.EPHEMERAL, Crdt.PERSISTED):
            for room in ("", "a b", "a.b", "-a", "_kv", "é", "a*", "x\x00"):
                no = await one.join_error(room, crdt=kind)
                assert (no.error, no.app_code) == (JoinErrorCode.APP_ERROR, "invalid_document_id")
        assert served.stat("members") == 0


async def test_other_crdts_are_refused(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one:
        for kind in (Crdt.YJS, Crdt.YJS_AWARENESS, Crdt.ELO, Crdt.FLOCK):
            no = await one.join_error(crdt=kind)
            assert (no.error, no.app_code) == (JoinErrorCode.APP_ERROR, "unsupported_crdt")


@pytest.mark.parametrize("kind", [Crdt.LORO, Crdt.EPHEMERAL])
async def test_a_deleted_document_is_refused(world: MemoryNats, owner: FakeOwner, kind: Crdt) -> None:
    owner.deleted = True
    async with gate(world) as served, served.peer() as one:
        no = await one.join_error(crdt=kind)
        assert (no.error, no.app_code) == (JoinErrorCode.APP_ERROR, "deleted")
        await eventually(lambda: served.stat("members") == 0)


@pytest.mark.parametrize("kind", [Crdt.LORO, Crdt.EPHEMERAL])
async def test_a_document_in_error_is_refused(world: MemoryNats, kind: Crdt) -> None:
    await Statuses(world.connect("x")).write("doc", Failed("trace-1", 1), expected_revision=0)
    async with gate(world) as served, served.peer() as one:
        no = await one.join_error(crdt=kind)
        assert (no.error, no.app_code) == (JoinErrorCode.APP_ERROR, "document_failed")


@pytest.mark.parametrize("version", [b"\xff", b"not a version"])
async def test_a_version_that_does_not_decode_is_answered_with_the_owners(
    world: MemoryNats, owner: FakeOwner, version: bytes
) -> None:
    """And the same connection may join with another one."""
    await owner.edit("x", tell=False)
    async with gate(world) as served, served.peer() as one:
        no = await one.join_error(version=version)
        assert (no.error, no.version) == (JoinErrorCode.VERSION_UNKNOWN, owner.replica.version().vector)
        ok = await one.join()
        assert ok.version == owner.replica.version().vector


async def test_a_version_older_than_the_kept_history_is_refused(world: MemoryNats, owner: FakeOwner) -> None:
    """A new LoroDoc gets the shallow snapshot."""
    await owner.edit("old", tell=False)
    old = owner.replica.version().vector
    await owner.edit("new", tell=False)
    owner.compact()
    async with gate(world) as served, served.peer() as one:
        no = await one.join_error(version=old)
        assert (no.error, no.app_code) == (JoinErrorCode.APP_ERROR, "history_trimmed")
        await one.join()
        copy = LoroDoc()
        copy.import_batch(list(await one.received()))
        assert text_of(copy) == "oldnew"


@pytest.mark.parametrize("version", [b"", b"no version"])
async def test_a_document_of_so_many_peers_that_no_frame_has_room_is_refused(
    world: MemoryNats, owner: FakeOwner, monkeypatch: pytest.MonkeyPatch, version: bytes
) -> None:
    """Other rooms of the connection go on."""
    wide = VersionVector()
    for peer in range(27_000):
        wide.set_last(ID((1 << 60) + peer, 5))
    async with FakeOwner(world, "other"), gate(world) as served, served.peer() as one:
        await one.join("other")
        now = owner.replica.version()
        monkeypatch.setattr(owner.replica, "version", lambda: replace(now, vector=wide.encode()))
        for _ in range(2):
            error = await one.join_error(version=version)
            assert (error.error, error.app_code) == (JoinErrorCode.APP_ERROR, "too_many_peers")
        assert await one.save(type_in(LoroDoc(), "x"), room="other") is Status.OK
        await eventually(lambda: served.stat("members") == 1)


async def test_a_connection_has_so_many_rooms(world: MemoryNats, owner: FakeOwner) -> None:
    """Rooms that are left make place for others; joining one again needs none."""
    async with gate(world, replace(SETTINGS, rooms_max=2)) as served, served.peer() as one:
        await one.join()
        await one.join(crdt=Crdt.EPHEMERAL)
        no = await one.join_error("other")
        assert (no.error, no.app_code) == (JoinErrorCode.APP_ERROR, "too_many_rooms")
        await one.join()
        await one.send(frames.Leave(Crdt.LORO, "doc"))
        await one.join(crdt=Crdt.PERSISTED)
        assert owner.inits == 1


@pytest.mark.parametrize("kind", [Crdt.LORO, Crdt.EPHEMERAL])
async def test_a_document_without_an_owner_closes_the_connection_with_1013(
    world: MemoryNats, kind: Crdt
) -> None:
    """Not a JoinError: a client that rejoins would forget the room."""
    async with gate(world, replace(SETTINGS, join_seconds=0.2)) as served, served.peer() as one:
        await one.send(frames.JoinRequest(kind, "doc", b"", b""))
        assert (await one.closed())[0] == 1013
        assert one.waiting == []
        assert served.stat("closed") == {"not_served": 1}


async def test_a_join_waits_until_the_document_is_served(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one:
        await one.send(frames.JoinRequest(Crdt.LORO, "doc", b"", b""))
        assert await one.quiet() == []
        async with FakeOwner(world):
            assert (await one.take(frames.JoinOk)).permission == "write"


async def test_a_second_join_request_before_the_answer_changes_nothing(
    world: MemoryNats, owner: FakeOwner
) -> None:
    async with gate(world) as served, served.peer() as one:
        for _ in range(5):
            await one.send(frames.JoinRequest(Crdt.LORO, "doc", b"", b""))
        await one.take(frames.JoinOk)
        assert await one.save(type_in(LoroDoc(), "x")) is Status.OK
        assert len(owner.received) == 1


async def test_a_join_during_a_long_backfill_is_answered_after_it(
    world: MemoryNats, owner: FakeOwner
) -> None:
    await owner.edit(random.Random(1).randbytes(1_000_000).hex(), tell=False)
    async with gate(world) as served, served.peer() as one:
        await one.send(frames.JoinRequest(Crdt.LORO, "doc", b"", b""))
        first = await one.take(frames.FragmentHeader)
        await one.send(frames.JoinRequest(Crdt.LORO, "doc", b"", b""))
        second = await one.take(frames.FragmentHeader)
        for header in (first, second):
            for _ in range(header.count):
                await one.take(frames.Fragment, lambda part, batch=header.batch: part.batch == batch)  # type: ignore[misc]
        assert len([frame for frame in one.waiting if isinstance(frame, frames.JoinOk)]) == 2
        doc = LoroDoc()
        doc.get_map("m").insert("k", 1)
        doc.commit()
        assert await one.save(since(doc, LoroDoc().oplog_vv.encode())) is Status.OK


# ------------------------------------------------------------------------------------------- Ack


async def test_ok_is_never_said_before_the_owner_has(world: MemoryNats, owner: FakeOwner) -> None:
    owner.mute = 1
    async with gate(world) as served, served.peer() as one:
        await one.join()
        batch = await one.update(type_in(LoroDoc(), "x"))
        await eventually(lambda: len(owner.received) == 1)
        assert await one.quiet() == []
        assert await one.acked(batch) is Status.OK  # the relay sent it again
        assert len(owner.received) == 2


async def test_an_update_that_the_owner_refuses_for_good_is_invalid(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """The invalid update reaches no other client, and the room continues."""
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        await one.join()
        await two.join()
        owner.nacks.append(Reason.INVALID_UPDATE)
        assert await one.save(b"garbage") is Status.INVALID_UPDATE
        assert await one.save(b"") is Status.INVALID_UPDATE
        assert await two.quiet() == []
        assert await one.save(type_in(LoroDoc(), "x")) is Status.OK


async def test_one_bad_update_of_a_batch_makes_it_invalid(world: MemoryNats, owner: FakeOwner) -> None:
    async with gate(world) as served, served.peer() as one:
        await one.join()
        owner.nacks.append(Reason.INVALID_UPDATE)
        assert await one.save(b"garbage", type_in(LoroDoc(), "x")) is Status.INVALID_UPDATE
        assert await one.quiet() == []


async def test_an_update_for_a_room_not_joined_is_denied(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one:
        for kind in Crdt:
            assert await one.save(b"x", crdt=kind) is Status.PERMISSION_DENIED
        await one.send(frames.FragmentHeader(Crdt.LORO, "doc", BATCH, 2, 10))
        assert await one.acked(BATCH) is Status.PERMISSION_DENIED


async def test_a_reader_gets_read_permission_and_is_denied_writes(world: MemoryNats, server: Server) -> None:
    doc = LoroDoc()
    async with gate(world) as served, served.peer() as writer:
        await writer.join()
        assert await writer.save(type_in(doc, "x")) is Status.OK
        async with gate(world, replace(SETTINGS, read_only=True), seed=2) as mirror, mirror.peer() as one:
            for kind in (Crdt.LORO, Crdt.EPHEMERAL, Crdt.PERSISTED):
                assert (await one.join(crdt=kind)).permission == "read"
                assert await one.save(presence("k", 1), crdt=kind) is Status.PERMISSION_DENIED
            await one.received()  # what it lacked
            update = type_in(doc, "y")
            assert await writer.save(update) is Status.OK
            assert await one.received() == (update,)


async def test_a_gateway_that_only_reads_makes_no_document(world: MemoryNats, server: Server) -> None:
    async with gate(world, replace(SETTINGS, read_only=True)) as served, served.peer() as one:
        for kind in (Crdt.LORO, Crdt.EPHEMERAL):
            no = await one.join_error("never-was", crdt=kind)
            assert (no.error, no.app_code) == (JoinErrorCode.APP_ERROR, "not_found")
        assert not (await read_summary(served.client.transport, "never-was")).known


async def test_an_update_above_the_limit_is_too_large(world: MemoryNats, owner: FakeOwner) -> None:
    """Here by its header, or at the owner by its bytes; it is never healed."""
    async with gate(world, replace(SETTINGS, update_bytes_max=1000)) as served, served.peer() as one:
        await one.join()
        await one.send(frames.FragmentHeader(Crdt.LORO, "doc", BATCH, 2, 1001))
        assert await one.acked(BATCH) is Status.PAYLOAD_TOO_LARGE
        owner.nacks.append(Reason.TOO_LARGE)
        assert await one.save(type_in(LoroDoc(), "x")) is Status.PAYLOAD_TOO_LARGE
        assert await one.quiet() == []


@pytest.mark.parametrize("kind", [Crdt.EPHEMERAL, Crdt.PERSISTED])
async def test_presence_above_the_limit_is_too_large(world: MemoryNats, owner: FakeOwner, kind: Crdt) -> None:
    async with gate(world, replace(SETTINGS, presence_bytes_max=1000)) as served, served.peer() as one:
        await one.join(crdt=kind)
        assert await one.save(presence("k", "x" * 2000), crdt=kind) is Status.PAYLOAD_TOO_LARGE
        assert await one.save(b"garbage", crdt=kind) is Status.INVALID_UPDATE
        assert await one.save(presence("k", "x"), crdt=kind) is Status.OK
        assert owner.received == []


@pytest.mark.parametrize("limit", [{"updates_per_second": 4.0}, {"bytes_per_second": 400.0}])
async def test_above_its_rate_an_update_is_dropped_and_healed_later(
    world: MemoryNats, owner: FakeOwner, limit: dict[str, float]
) -> None:
    """The first gets rate_limited, those after it no Ack at all until the client has joined again."""
    settings = replace(SETTINGS, burst_seconds=0.5, **limit)  # type: ignore[arg-type]
    async with gate(world, settings) as served, served.peer() as one:
        await one.join()
        doc = LoroDoc()
        for turn in range(20):
            await one.update(type_in(doc, f"{turn} "))
        ok = await rejoined(one, doc)
        seen = [frame.status for frame in one.waiting if isinstance(frame, frames.AckFrame)]
        assert seen.count(Status.RATE_LIMITED) == 1
        assert seen.count(Status.OK) == len(owner.received) < 20
        assert await one.save(since(doc, ok.version)) is Status.OK
        assert owner.text() == text_of(doc)
        assert served.stat("rejoins") == 1


async def test_fragments_that_do_not_come_in_time_are_healed(world: MemoryNats, owner: FakeOwner) -> None:
    async with gate(world, replace(SETTINGS, fragment_seconds=0.5)) as served, served.peer() as one:
        await one.join()
        doc = LoroDoc()
        update = type_in(doc, "in two parts")
        await one.send(frames.FragmentHeader(Crdt.LORO, "doc", BATCH, 2, len(update)))
        await one.send(frames.Fragment(Crdt.LORO, "doc", BATCH, 0, update[:5]))
        await eventually(lambda: served.stat("unfinished_bytes") > 0)
        assert await one.acked(BATCH) is Status.FRAGMENT_TIMEOUT
        await one.send(frames.Fragment(Crdt.LORO, "doc", BATCH, 1, update[5:]))
        ok = await rejoined(one, doc)
        assert await one.save(since(doc, ok.version)) is Status.OK
        assert [payload for _, payload in owner.received] == [since(doc, ok.version)]


async def test_a_full_wal_is_an_app_error_and_healed(world: MemoryNats, owner: FakeOwner) -> None:
    async with gate(world) as served, served.peer() as one:
        await one.join()
        doc = LoroDoc()
        owner.nacks.append(Reason.STORAGE_FULL)
        assert await one.save(type_in(doc, "x")) is Status.APP_ERROR
        ok = await rejoined(one, doc)
        assert await one.save(since(doc, ok.version)) is Status.OK
        assert owner.text() == "x"


# --------------------------------------------------------------------------------------- healing


async def test_an_update_that_needs_one_which_did_not_arrive_is_healed_without_an_ack(
    world: MemoryNats, owner: FakeOwner
) -> None:
    async with gate(world) as served, served.peer() as one:
        await one.join()
        doc = LoroDoc()
        type_in(doc, "lost ")
        batch = await one.update(type_in(doc, "found"))
        ok = await rejoined(one, doc)
        assert await one.save(since(doc, ok.version)) is Status.OK
        assert owner.text() == "lost found"
        assert not any(isinstance(frame, frames.AckFrame) and frame.ref == batch for frame in one.waiting)


async def test_a_lost_owner_is_healed_when_another_serves(world: MemoryNats) -> None:
    """An update in flight has no ACK; the version in the join response is the base of the client's resend."""
    async with gate(world) as served, served.peer() as one:
        doc = LoroDoc()
        async with FakeOwner(world, name="first") as first:
            await one.join()
            assert await one.save(type_in(doc, "kept ")) is Status.OK
            first.mute = 99
            batch = await one.update(type_in(doc, "in flight"))
            await eventually(lambda: len(first.received) == 2)
            await first.stop()
        assert (await one.room_error()).error is RoomErrorCode.REJOIN_SUGGESTED
        async with FakeOwner(world, name="second") as second:
            second.replica.apply(first.received[0][1])
            ok = await one.join(version=doc.oplog_vv.encode())
            assert await one.save(since(doc, ok.version)) is Status.OK
            assert second.text() == "kept in flight"
        assert not any(isinstance(frame, frames.AckFrame) and frame.ref == batch for frame in one.waiting)


async def test_updates_for_a_room_that_waits_to_rejoin_are_dropped_without_an_ack(
    world: MemoryNats, owner: FakeOwner
) -> None:
    async with gate(world) as served, served.peer() as one:
        await one.join()
        doc = LoroDoc()
        owner.nacks.append(Reason.STORAGE_FULL)
        assert await one.save(type_in(doc, "x")) is Status.APP_ERROR
        await one.room_error()
        await one.update(type_in(doc, "y"))
        assert await one.quiet() == []
        assert len(owner.received) == 1


async def test_a_deletion_evicts_the_members(world: MemoryNats, owner: FakeOwner) -> None:
    async with gate(world) as served, served.peer() as one:
        await one.join()
        owner.nacks.append(Reason.DELETED)
        await one.update(type_in(LoroDoc(), "x"))
        error = await one.room_error()
        assert error.error is RoomErrorCode.EVICTED
        assert "deleted" in error.message
        await eventually(lambda: served.stat("members") == 0)
        assert await one.save(b"x") is Status.PERMISSION_DENIED


async def test_a_client_whose_fragments_time_out_joins_again_until_that_is_hopeless(
    world: MemoryNats, owner: FakeOwner
) -> None:
    async with gate(world) as served, served.peer() as one:
        for _ in range(2):
            await one.join()
            await one.send(frames.AckFrame(Crdt.LORO, "doc", BATCH, Status.FRAGMENT_TIMEOUT))
            assert (await one.room_error()).error is RoomErrorCode.REJOIN_SUGGESTED
        await one.join()
        await one.send(frames.AckFrame(Crdt.LORO, "doc", BATCH, Status.FRAGMENT_TIMEOUT))
        assert (await one.room_error()).error is RoomErrorCode.UNKNOWN
        await eventually(lambda: served.stat("members") == 0)
        assert owner.inits == 1


async def test_rejoins_are_not_suggested_more_often_than_makes_sense(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """The second one waits for its time: until then the room stays as it is, and drops what comes."""
    async with gate(world, replace(SETTINGS, rejoin_seconds=3600.0)) as served, served.peer() as one:
        lost = [frames.AckFrame(Crdt.LORO, "doc", BATCH, Status.FRAGMENT_TIMEOUT)] * 2
        await one.join()
        await one.send(lost[0])
        assert (await one.room_error()).error is RoomErrorCode.REJOIN_SUGGESTED
        await one.join()
        await one.send(lost[1])
        await one.update(type_in(LoroDoc(), "x"))
        assert await one.quiet() == []
        assert (served.stat("rejoins"), len(owner.received)) == (1, 0)
        await one.join()  # by itself
        assert await one.save(type_in(LoroDoc(), "x")) is Status.OK
