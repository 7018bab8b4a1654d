"""Facts read from updates, vectors and snapshots without keeping a document."""

import json
from dataclasses import replace
from unittest.mock import Mock

import pytest

from lorogo_protocol.errors import InvalidUpdate
from lorogo_protocol.loro import crdt, ephemeral
from lorogo_protocol.messages import chunks
from tests.protocol.support import everything, replica, text, typed


def test_a_reach_grows_by_updates_and_by_vectors() -> None:
    """It covers what was added or merged, and nothing that comes later."""
    writer = replica(1)
    first, before = typed(writer, "a"), writer.version().vector
    second, after = typed(writer, "b"), writer.version().vector
    reach = crdt.Reach(crdt.nothing_known())
    assert not reach.covers(first)
    reach.add(first)
    assert reach.covers(first)
    assert reach.includes(before)
    assert not reach.covers(second)
    assert not reach.includes(after)
    reach.merge(after)
    assert reach.covers(second)
    assert crdt.counters(reach.encode()) == {1: 2}


def test_a_reach_refuses_what_is_no_update_or_vector() -> None:
    """Bytes of another kind are named invalid, and change nothing."""
    with pytest.raises(InvalidUpdate):
        crdt.Reach(b"\xff\xff")
    reach = crdt.Reach(crdt.nothing_known())
    for refused in (reach.add, reach.covers, reach.includes, reach.merge):
        with pytest.raises(InvalidUpdate):
            refused(b"\xff\xff")
    assert crdt.counters(reach.encode()) == {}


def test_an_interrupt_passes_through_a_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not the update's fault."""
    reach = crdt.Reach(crdt.nothing_known())
    reading = Mock(decode_import_blob_meta=Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(crdt, "LoroDoc", reading)
    with pytest.raises(KeyboardInterrupt):
        reach.add(b"any")


def test_updates_replayed_are_the_document() -> None:
    """However many they are; None if one builds on what does not come before it."""
    writer = replica(1)
    updates = [typed(writer, str(number % 10)) for number in range(3 * crdt._REPLAY_TOGETHER // 2)]
    again = crdt.replayed(updates)
    assert again is not None
    assert text(again) == text(writer)
    assert crdt.replayed(updates[1:]) is None
    with pytest.raises(InvalidUpdate):
        crdt.replayed([b"nothing"])


def test_the_history_in_json_holds_every_change() -> None:
    """In Loro's own form."""
    writer = replica(1)
    typed(writer, "a")
    typed(writer, "b")
    (change,) = json.loads(crdt.history_json(writer))["changes"]
    assert [one["content"]["text"] for one in change["ops"]] == ["a", "b"]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x01"])
def test_a_version_names_a_head(data: bytes) -> None:
    """Neither the frontiers of an empty replica nor other bytes do; nor may anything follow."""
    writer = replica(1)
    typed(writer, "a")
    head = writer.version().frontiers
    assert crdt.is_version(head)
    assert not crdt.is_version(data)
    assert not crdt.is_version(head + b"\x00")
    assert crdt.no_frontiers() == replica(2).version().frontiers
    assert writer.operations_at(head) == 1
    assert replica(2).operations_at(head) is None
    assert not writer.shallow


def test_the_frame_of_a_snapshot_is_checked_without_decoding_it() -> None:
    """An update, a cut and a flipped bit are refused, each by its own words."""
    writer = replica(1)
    update = typed(writer, "a")
    snapshot = writer.snapshot()
    crdt.check_snapshot_frame(snapshot)
    for wrong, words in (
        (b"", "missing"),
        (snapshot[:10], "missing"),
        (update, "another kind"),
        (snapshot[:-1], "checksum"),
    ):
        with pytest.raises(InvalidUpdate, match=words):
            crdt.check_snapshot_frame(wrong)


def test_the_changes_of_an_update_are_counted() -> None:
    """None if it does not decode."""
    writer, other = replica(1), replica(2)
    merged = replica(3, typed(writer, "a"), typed(other, "b"))
    assert crdt.change_count(everything(merged)) == 2
    assert crdt.change_count(b"nothing") is None


def test_presence_is_checked_and_its_marks_are_dropped() -> None:
    """A removed entry leaves a mark in what newcomers get until it is forgotten."""
    presence = ephemeral.PresenceStore(30)
    presence.store.set("ana", 1)
    presence.store.set("ben", 2)
    ephemeral.check_presence(presence.encode_all())
    with pytest.raises(InvalidUpdate):
        ephemeral.check_presence(b"\xff\xff")
    presence.store.delete("ana")
    assert b"ana" in presence.encode_all()
    presence.forget_removed()
    assert b"ana" not in presence.encode_all()
    assert presence.states() == {"ben": 2}


def test_a_replica_without_open_work_settles_in_no_steps() -> None:
    """Also a lazy one, once its state is worked out."""
    writer = replica(1)
    update = typed(writer, "a")
    lazy = crdt.Replica(lazy=True)
    lazy.apply(update)
    lazy.settled()
    assert list(lazy.settling()) == list(writer.settling()) == []


def test_a_large_index_is_read() -> None:
    """Beyond the numbers whose texts are known."""
    (chunk,) = chunks.split(b"x", "id", chunk_bytes_max=10)
    far = replace(chunk, index=99_999, count=100_000)
    assert chunks.parse(far.headers(), far.data) == far
