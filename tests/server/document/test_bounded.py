"""Memory of a server that stays bounded, whatever clients write."""

import json
from dataclasses import replace

import pytest
from loro import EphemeralStore, ExportMode, VersionVector

from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.position import Position
from lorogo_server.intake.decisions import (
    RefusedUpdate,
)
from lorogo_server.intake.history import DatedVersion, History, decode, encode
from lorogo_server.intake.intake import (
    Intake,
)
from lorogo_server.rpc import methods
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.headers import encode_headers
from lorogo_transport.ports import StoredMessage
from tests.server.support import QUICK, Writer, until
from tests.server.worlds import World


@pytest.mark.parametrize("filler", ["bytes", "headers"])
async def test_a_message_that_fills_its_packet_is_moved_like_any_other(memory: World, filler: str) -> None:
    """It leaves no room for the reason of its refusal, and yet it is kept apart and the WAL is trimmed."""
    server, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("a"))
    headers = {h.LOG_ID: "x", h.CHUNK_INDEX: "0", h.FINAL: "nonsense", "FILLER": "f"}
    room = memory.nats.max_payload - len(encode_headers(headers))
    if filler == "headers":
        headers["FILLER"], data = "f" * room, b""
    else:
        data = bytes(room)
    bad = await probe.wal.append(subjects.wal("doc"), data, headers=headers)
    *_, last = [await probe.accept("doc", writer.type("b")) for _ in range(3)]

    async def moved() -> bool:
        return await probe.wal.get(bad) is None and not server.hosts["doc"].refused.to_move

    await until(moved)
    kept = [stored async for stored in probe.rejected.read(subjects.rejected("doc"))]
    assert kept[0].headers[h.REASON] == Reason.INVALID_UPDATE.value
    assert kept[0].headers[h.SEQUENCE] == str(bad)
    assert b"".join(stored.data for stored in kept) == data
    await probe.call("compact", "doc")
    left = [stored.sequence async for stored in probe.wal.read(subjects.wal("doc"))]
    assert left == [last.sequence]


def test_refused_updates_leave_no_dated_versions() -> None:
    """Only what changes the document makes a version of it."""
    writer = Writer()
    good, needed, unready = writer.type("good"), writer.type("needed"), writer.type("unready")
    del needed  # it never comes
    intake = Intake(Replica(lazy=True), History(), QUICK, head=Position(1), deleted=False)
    sequence = 0

    def take(payload: bytes) -> None:
        nonlocal sequence
        sequence += 1
        headers = {
            h.LOG_ID: f"l{sequence}",
            h.CHUNK_INDEX: "0",
            h.FINAL: "true",
            h.CHUNK_COUNT: "1",
            h.DIGEST: digest(payload),
        }
        minute_ns = sequence * 60 * 1_000_000_000
        intake.take(
            StoredMessage(subjects.wal("doc"), sequence, minute_ns, payload, headers), float(sequence)
        )

    take(good)
    for _ in range(5):
        take(b"garbage")
        take(unready)
        take(good)  # again: it changes nothing
    frontiers = intake.replica.frontiers()
    assert intake.history.versions(frontiers) == [DatedVersion(60 * 1_000_000_000, frontiers, 1)]


def stored(sequence: int, payload: bytes) -> StoredMessage:
    headers = {h.LOG_ID: f"l{sequence}", h.CHUNK_INDEX: "0", h.FINAL: "true", h.DIGEST: digest(payload)}
    return StoredMessage(subjects.wal("doc"), sequence, 1, payload, headers)


def test_an_early_update_that_was_read_late_expires_in_its_own_time() -> None:
    """It is moved at its deadline, in whatever order others expire: else its owner turns in circles."""
    writer = Writer()
    writer.type("needed")  # it never comes
    intake = Intake(Replica(lazy=True), History(), QUICK, head=Position(1), deleted=False)
    intake.go_live()
    for sequence, (payload, now) in enumerate(((writer.type("heard"), 10.0), (writer.type("read"), 5.0)), 1):
        intake.take(stored(sequence, payload), now)
    due = intake.next_deadline()
    assert due == 5.0 + QUICK.pending_seconds
    (given_up,) = intake.tick(due)
    assert isinstance(given_up, RefusedUpdate)
    assert given_up.quarantine
    assert given_up.sequences == (2,)
    assert intake.next_deadline() == 10.0 + QUICK.pending_seconds


def test_an_owner_keeps_no_bytes_of_early_updates_and_moves_the_oldest_of_too_many() -> None:
    """Its memory is bounded, and no purge passes an update that is neither moved nor covered."""
    writer = Writer()
    writer.type("needed")  # it never comes
    settings = replace(QUICK, pending_updates_max=2)
    intake = Intake(Replica(lazy=True), History(), settings, head=Position(1), deleted=False)
    intake.go_live()
    moved: list[tuple[int, ...]] = []
    for sequence in range(1, 5):
        effects = intake.take(stored(sequence, writer.type("x" * 100)), float(sequence))
        assert isinstance(effects, list)
        moved += [one.sequences for one in effects if isinstance(one, RefusedUpdate) and one.quarantine]
    assert moved == [(1,), (2,)]
    assert (intake.pending, intake.first_needed()) == (2, 3)
    assert all(not early.update.payload for early in intake._early.values())


def test_an_early_update_whose_changes_came_in_another_one_is_forgotten() -> None:
    """Its client syncs, and sends all that is missing as one update: the first copy bounds no purge then."""
    writer = Writer()
    intake = Intake(Replica(lazy=True), History(), QUICK, head=Position(1), deleted=False)
    intake.go_live()
    writer.type("needed ")
    intake.take(stored(1, writer.type("early")), 1.0)
    assert intake.first_needed() == 1
    intake.take(stored(2, writer.doc.export(ExportMode.Updates(VersionVector()))), 2.0)
    intake.settled()
    assert intake.first_needed() is None
    assert intake.tick(100.0) == []


@pytest.mark.parametrize(("versions", "heads"), [(0, 10), (3000, 10), (3, 300_000), (3000, 300_000)])
def test_metadata_fits_into_a_message(versions: int, heads: int) -> None:
    """Informative entries are left out if they do not fit, oldest first; deciding ones stay."""
    dated = [DatedVersion(number, b"f" * 100, number) for number in range(1, versions + 1)]
    facts = SnapshotMetadata(
        position=Position(2, 7, 5),
        frontiers=b"h" * heads,
        trim=b"t" * heads,
        dated=encode(dated),
        lease=9,
        generation=3,
        deleted_ns=11,
    )
    rendered = facts.render()
    assert len(json.dumps(rendered)) < 512 * 1024  # half of what NATS takes by default
    read = SnapshotMetadata.parse(rendered)
    assert replace(read, frontiers=b"", trim=b"", dated="") == replace(
        facts, frontiers=b"", trim=b"", dated=""
    )
    kept = decode(read.dated)
    assert kept == dated[len(dated) - len(kept) :]
    if heads == 10:
        assert read.frontiers == facts.frontiers
        assert len(kept) > 500 or kept == dated


async def test_presence_between_two_sweeps_is_bounded(memory: World) -> None:
    """Newcomers are never sent more than 1 MiB of it, the newest entries."""
    await memory.server(replace(QUICK, presence_seconds=60.0))
    probe = memory.probe
    await probe.start("doc")
    for number in range(50):
        store = EphemeralStore(60_000)
        store.set(f"k{number}", "x" * 60_000)
        await probe.bus.publish(subjects.awareness("doc"), store.encode_all())
    presence = (await probe.call("sync", "doc"))["presence"]
    assert isinstance(presence, bytes)
    assert 768 * 1024 < len(presence) <= 1024 * 1024  # bounded, and not by forgetting all of it
    newcomer = EphemeralStore(60_000)
    newcomer.apply(presence)
    keys = set(newcomer.keys())
    assert keys == {f"k{number}" for number in range(50 - len(keys), 50)}
    assert len(keys) > 10


async def test_many_who_ask_for_the_whole_document_share_its_bytes(memory: World) -> None:
    """While their replies wait for one another there is one export of each version, not one for each."""
    server, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("one "))
    host = server.hosts["doc"]
    exports = [await methods.answer(host, "export", {}) for _ in range(3)]
    newcomers = [await methods.answer(host, "sync", {}) for _ in range(3)]
    assert len({id(one["payload"]) for one in [*exports, *newcomers]}) == 1
    await probe.accept("doc", writer.type("two "))
    payload = (await probe.call("export", "doc"))["payload"]
    assert isinstance(payload, bytes)
    assert Writer(payload).text == "one two "
