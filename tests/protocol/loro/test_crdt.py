"""The border to Loro: whole or nothing, trimmed history, and versions."""

from contextlib import suppress
from unittest.mock import Mock

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from loro import ID, CounterSpan, ExportMode, Frontiers, IdSpan, LoroDoc, VersionVector

from lorogo_protocol.errors import CrdtError, HistoryTrimmed, InvalidUpdate
from lorogo_protocol.loro import steps
from lorogo_protocol.loro.crdt import (
    Applied,
    CrdtPanic,
    Replica,
    UnclearPanic,
    Unready,
    Version,
    counters,
    nothing_known,
    try_decoding,
    vector_items,
)
from tests.protocol.support import everything, replica, text, typed


def version(*ids: tuple[int, int]) -> bytes:
    return Frontiers.from_ids([ID(peer, counter) for peer, counter in ids]).encode()


def vector(*ids: tuple[int, int]) -> bytes:
    made = VersionVector.decode(nothing_known())
    for peer, counter in ids:
        made.extend_to_include_last_id(ID(peer, counter))
    return made.encode()


def shallow() -> tuple[Replica, list[bytes]]:
    """A replica whose history begins at the sixth letter, and the six updates."""
    writer = replica(1)
    updates = [typed(writer, letter) for letter in "abcdef"]
    return Replica.from_snapshot(writer.shallow_snapshot(writer.frontiers())), updates


# --- whole or nothing -----------------------------------------------------------------------------


def test_updates_of_one_peer_apply_in_order_only() -> None:
    """An update that comes too early changes nothing, and applies when its time has come."""
    writer = replica(1)
    first, second, third = (typed(writer, letter) for letter in "abc")
    reader = Replica()
    empty = reader.version()
    assert reader.apply(second) == Unready()
    assert reader.version() == empty
    assert reader.apply(first) == Applied(new=True)
    assert text(reader) == "a"
    assert reader.apply(third) == Unready()
    assert reader.apply(second) == Applied(new=True)
    assert text(reader) == "ba"
    assert reader.apply(third) == Applied(new=True)
    assert text(reader) == "cba"


def test_an_update_that_is_here_already_is_nothing_new() -> None:
    """Updates are idempotent: a repeated update is applied and reports nothing new."""
    writer = replica(1)
    first, second = typed(writer, "a"), typed(writer, "b")
    reader = replica(2, first, second)
    assert reader.apply(first) == Applied(new=False)
    assert reader.apply(everything(writer)) == Applied(new=False)
    assert reader.apply(writer.snapshot()) == Applied(new=False)
    assert reader.apply(everything(Replica())) == Applied(new=False)


def test_an_update_that_is_half_here_adds_the_other_half() -> None:
    writer = replica(1)
    first = typed(writer, "a")
    typed(writer, "b")
    reader = replica(2, first)
    assert reader.apply(everything(writer)) == Applied(new=True)
    assert text(reader) == "ba"


def test_what_one_peer_builds_on_another_needs_both() -> None:
    """Dependencies go across peers, and through peers that the update does not name."""
    alice = replica(1)
    by_alice = typed(alice, "a")
    bob = replica(2, by_alice)
    by_bob = typed(bob, "b")
    carol = replica(3, by_alice, by_bob)
    by_carol = typed(carol, "c")
    reader = Replica()
    assert [reader.apply(update) for update in (by_carol, by_bob)] == [Unready(), Unready()]
    assert reader.apply(by_alice) == Applied(new=True)
    assert reader.apply(by_carol) == Unready()
    assert reader.apply(by_bob) == Applied(new=True)
    assert reader.apply(by_carol) == Applied(new=True)
    assert text(reader) == "cba"


def test_no_part_of_an_update_is_applied() -> None:
    """Loro itself would apply the half that it can; a Replica applies nothing until it can apply all."""
    alice, dave = replica(1), replica(4)
    by_alice, by_dave = typed(alice, "a"), typed(dave, "d")
    eve = replica(5, by_alice, by_dave)
    typed(eve, "e")
    mixed = eve.updates_since(alice.version().vector)  # dave's change, free of needs, and eve's
    raw = LoroDoc()
    status = raw.import_(mixed)
    assert status.pending is not None
    assert raw.get_text("t").to_string() == "d"

    reader = Replica()
    assert reader.apply(mixed) == Unready()
    assert (text(reader), reader.version()) == ("", Replica().version())
    reader.apply(by_alice)
    assert reader.apply(mixed) == Applied(new=True)
    assert reader.value() == eve.value()


def test_a_later_change_in_an_update_may_need_more_than_its_first() -> None:
    """An update needs the dependencies of all its changes, not only those of the earliest."""
    alice = replica(1)
    early = typed(alice, "abc")
    bob = replica(2, early)
    typed(bob, "x")
    late = typed(alice, "def")
    bob.apply(late)
    typed(bob, "y")
    both = bob.updates_since(alice.version().vector)
    reader = replica(3, early)
    before = reader.version()
    assert reader.apply(both) == Unready()
    assert reader.version() == before
    reader.apply(late)
    assert reader.apply(both) == Applied(new=True)
    assert reader.value() == bob.value()


acts = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from(["type", "type", "merge", "one"])),
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(acts, st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_whole_or_nothing_among_many_peers(
    acts: list[tuple[int, int, str]], source: int, knows: int, reader: int
) -> None:
    """For any history of four peers, an update is applied exactly when Loro would leave nothing pending."""
    peers = [replica(10 + n) for n in range(4)]
    written: list[bytes] = []
    for one, other, act in acts:
        match act:
            case "type":
                written.append(typed(peers[one], "x"))
            case "merge":
                peers[one].apply(peers[other].updates_since(peers[one].version().vector))
            case _ if written:
                peers[one].apply(written[other % len(written)])
            case _:
                pass
    update = peers[source].updates_since(peers[knows].version().vector)
    target = peers[reader].fork()
    pending = target.fork().doc.import_(update).pending is not None
    before = (target.version(), target.value())
    outcome = target.apply(update)
    assert (outcome == Unready()) is pending
    if pending:
        assert (target.version(), target.value()) == before
    else:
        assert target.covers(update)


def test_an_update_with_a_hole_poisons_the_replica_aloud() -> None:
    """An update with a hole inside hides its dependencies: the replica raises an error and must
    be discarded.
    """
    writer = replica(1)
    for letter in "abcd":
        typed(writer, letter)
    spans = [IdSpan(1, CounterSpan(0, 1)), IdSpan(1, CounterSpan(2, 4))]
    holed = writer.doc.export(ExportMode.UpdatesInRange(spans))
    with pytest.raises(CrdtPanic, match="declares wrong dependencies"):
        Replica().apply(holed)


def test_an_update_carries_its_origin_to_the_observers() -> None:
    """A listener of the document gets the origin of each change."""
    seen: list[str] = []
    reader = Replica()
    subscription = reader.doc.subscribe_root(lambda event: seen.append(event.origin))
    writer = replica(1)
    reader.apply(typed(writer, "a"), "from-the-server")
    reader.apply(typed(writer, "b"))
    assert seen == ["from-the-server", ""]
    subscription.unsubscribe()


def test_a_lazy_replica_works_the_state_out_when_it_is_read() -> None:
    """Until then its history is new and its state is old; whatever reads the state settles it first."""
    writer = replica(1)
    first, second, third = (typed(writer, letter) for letter in "abc")
    for read in (Replica.value, Replica.snapshot, Replica.fork, lambda lazy: lazy.at(lazy.frontiers())):
        reader = Replica(lazy=True)
        assert reader.apply(third) == Unready()
        assert [reader.apply(first), reader.apply(second)] == [Applied(new=True)] * 2
        assert (text(reader), reader.version().vector) == ("", vector((1, 1)))
        read(reader)
        assert (text(reader), reader.doc.is_detached()) == ("ba", False)
        assert reader.apply(third) == Applied(new=True)
        assert text(reader) == "ba"
        assert reader.settled().get_text("t").to_string() == text(writer)


def test_what_cannot_be_worked_out_poisons_the_replica_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the history already, and only a fresh document forgets it."""
    writer = replica(1)
    reader = Replica(lazy=True)
    reader.apply(typed(writer, "hello"))

    for error in (BaseException("it does not fit"), CrdtPanic("it does not fit")):
        monkeypatch.setattr(steps, "walk", Mock(side_effect=error))
        with pytest.raises(CrdtPanic, match="it does not fit"):
            reader.apply(typed(writer, "x" * 20_000))
        monkeypatch.undo()
        reader = Replica(lazy=True)
        reader.apply(everything(writer))


def test_a_read_after_a_panic_does_not_blame_one_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any update that is not in the state yet may be the cause."""
    reader = Replica(lazy=True)
    reader.apply(typed(replica(1), "hello"))
    monkeypatch.setattr(Replica, "_steps", Mock(side_effect=CrdtPanic("it does not fit")))
    with pytest.raises(UnclearPanic, match="it does not fit"):
        reader.value()


def test_covers_asks_without_changing() -> None:
    """`covers` compares the changes of an update with the document, and changes neither."""
    writer = replica(1)
    first, second = typed(writer, "a"), typed(writer, "b")
    reader = replica(2, first)
    assert reader.covers(first)
    assert not reader.covers(second)
    assert not reader.covers(everything(writer))
    assert text(reader) == "a"


# --- snapshots ------------------------------------------------------------------------------------


def test_a_snapshot_is_the_whole_replica() -> None:
    writer = replica(1)
    typed(writer, "hello")
    copy = Replica.from_snapshot(writer.snapshot())
    assert (copy.value(), copy.version(), copy.trimmed()) == (
        writer.value(),
        writer.version(),
        nothing_known(),
    )


def test_a_snapshot_adds_to_what_is_there() -> None:
    """A full snapshot needs nothing, so any replica can take it."""
    writer, reader = replica(1), replica(2)
    typed(writer, "a")
    typed(reader, "b")
    assert reader.apply(writer.snapshot()) == Applied(new=True)
    assert sorted(text(reader)) == ["a", "b"]


def test_a_snapshot_that_is_not_whole_is_refused() -> None:
    """An update in place of a snapshot is no snapshot if something is missing."""
    writer = replica(1)
    typed(writer, "a")
    with pytest.raises(InvalidUpdate, match="the snapshot is incomplete"):
        Replica.from_snapshot(typed(writer, "b"))


def test_a_shallow_snapshot_is_the_state_without_the_past() -> None:
    trimmed, _ = shallow()
    assert text(trimmed) == "fedcba"
    assert trimmed.doc.is_shallow()
    assert trimmed.trimmed() == vector((1, 4))


def test_an_edit_on_trimmed_history_is_refused() -> None:
    """It builds on changes that the replica no longer has: history-trimmed, and nothing changes."""
    trimmed, updates = shallow()
    late = replica(3, *updates[:2])
    edit = typed(late, "late")
    before = trimmed.version()
    for old in (edit, everything(late), late.snapshot(), typed(replica(7), "never synced")):
        with pytest.raises(HistoryTrimmed):
            trimmed.apply(old)
    assert (text(trimmed), trimmed.version()) == ("fedcba", before)


def test_an_edit_on_kept_history_is_taken() -> None:
    """An edit on the start of the kept history is accepted."""
    trimmed, updates = shallow()
    other = replica(3, *updates)
    assert trimmed.apply(typed(other, "x")) == Applied(new=True)
    assert text(trimmed) == "xfedcba"
    assert trimmed.apply(updates[0]) == Applied(new=False)


def test_a_shallow_snapshot_fits_an_empty_replica_or_one_that_has_its_start() -> None:
    """Any other replica would be left with a hole in its history."""
    writer = replica(1)
    updates = [typed(writer, letter) for letter in "abcdef"]
    snapshot = writer.shallow_snapshot(version((1, 3)))
    assert Replica().apply(snapshot) == Applied(new=True)
    assert replica(2, *updates[:1]).apply(snapshot) == Unready()
    assert replica(2, typed(replica(9), "foreign")).apply(snapshot) == Unready()
    near = replica(2, *updates[:5])
    assert near.apply(snapshot) == Applied(new=True)
    assert text(near) == "fedcba"
    assert replica(2, *updates).apply(snapshot) == Applied(new=False)


def test_a_lazy_replica_takes_a_shallow_snapshot_too() -> None:
    """A server's empty document can be filled from an export whose history was trimmed."""
    trimmed, _ = shallow()
    lazy = Replica(lazy=True)
    assert lazy.apply(trimmed.snapshot()) == Applied(new=True)
    assert lazy.value() == trimmed.value()


def test_a_vector_reads_the_same_however_it_is_encoded() -> None:
    """Two encodings of one version vector are equal after decoding."""
    assert vector_items(vector((2, 5), (1, 3))) == vector_items(vector((1, 3), (2, 5)))
    assert vector_items(nothing_known()) == ()


def test_unmerged_heads_keep_more_history() -> None:
    """Loro trims only up to the last single head."""
    alice = replica(1)
    base = typed(alice, "a")
    bob = replica(2, base)
    by_bob = typed(bob, "b")
    typed(alice, "A")
    alice.apply(by_bob)
    copy = Replica.from_snapshot(alice.shallow_snapshot(alice.frontiers()))
    assert copy.can_serve_since(nothing_known())
    assert Replica().apply(everything(copy)) == Applied(new=True)
    assert copy.apply(typed(replica(3, base), "c")) == Applied(new=True)


@pytest.mark.parametrize(
    ("known", "served"),
    [(nothing_known(), False), (vector((1, 1)), False), (vector((1, 4)), True), (vector((1, 5)), True)],
)
def test_who_can_be_served_by_updates(known: bytes, served: bool) -> None:
    """A replica that lacks trimmed history cannot apply our updates, and we know it beforehand."""
    trimmed, updates = shallow()
    assert trimmed.can_serve_since(known) is served
    have = {nothing_known(): 0, vector((1, 1)): 2, vector((1, 4)): 5, vector((1, 5)): 6}[known]
    reader = replica(2, *updates[:have])
    typed_after = typed(replica(3, *updates), "x")
    trimmed.apply(typed_after)
    outcome = reader.apply(trimmed.updates_since(known))
    assert (outcome == Applied(new=True)) is served


def test_a_full_history_serves_everybody() -> None:
    assert replica(1, typed(replica(2), "a")).can_serve_since(nothing_known())


# --- versions and time travel ---------------------------------------------------------------------


def test_asking_for_the_version_commits_what_is_open() -> None:
    """An edit that the app has not committed is in the version, or it would be lost from an export."""
    writer = replica(1)
    writer.doc.get_text("t").insert(0, "open")
    assert writer.version() == Version(version((1, 3)), vector((1, 3)))
    assert writer.frontiers() == version((1, 3))


def test_heads_and_vectors() -> None:
    """Heads that the replica knows have a vector; others have none."""
    writer = replica(1)
    typed(writer, "abc")
    assert writer.vector_of(writer.frontiers()) == writer.version().vector
    assert writer.vector_of(version((1, 1))) == vector((1, 1))
    assert writer.vector_of(Frontiers.from_ids([]).encode()) == nothing_known()
    assert writer.vector_of(version((1, 3))) is None
    assert writer.vector_of(version((9, 0))) is None
    trimmed, _ = shallow()
    assert trimmed.vector_of(version((1, 1))) is None


def test_what_a_replica_includes() -> None:
    writer = replica(1)
    typed(writer, "abc")
    assert writer.includes(nothing_known())
    assert writer.includes(vector((1, 2)))
    assert not writer.includes(vector((1, 3)))
    assert not writer.includes(vector((1, 2), (2, 0)))


def test_a_past_version_is_a_copy_to_read() -> None:
    """Time travel forks: the document itself does not move."""
    writer = replica(1)
    typed(writer, "abc")
    past = writer.at(version((1, 0)))
    assert (text(past), text(writer)) == ("a", "abc")
    assert past.doc.is_detached()
    assert text(writer.at(Frontiers.from_ids([]).encode())) == ""


def test_the_past_of_a_shallow_replica() -> None:
    """Kept versions can be seen; trimmed and unknown ones are history-trimmed, the beginning too."""
    trimmed, _ = shallow()
    assert text(trimmed.at(trimmed.frontiers())) == "fedcba"
    for gone in (version((1, 1)), version((9, 0)), Frontiers.from_ids([]).encode()):
        with pytest.raises(HistoryTrimmed):
            trimmed.at(gone)
        with pytest.raises(HistoryTrimmed):
            trimmed.revert_to(gone)
    assert text(trimmed) == "fedcba"


def test_reverting_is_a_new_change() -> None:
    """The content goes back, the history goes on, and others can follow."""
    writer = replica(1)
    first = typed(writer, "abc")
    reader = replica(2, first)
    writer.revert_to(version((1, 0)))
    assert text(writer) == "a"
    assert reader.apply(writer.updates_since(reader.version().vector)) == Applied(new=True)
    assert text(reader) == "a"


def test_a_copy_writes_under_the_peer_id_that_it_is_given() -> None:
    """A revert as well."""
    writer = replica(1)
    typed(writer, "abc")
    copy = writer.fork()
    copy.write_as(9)
    copy.revert_to(version((1, 0)))
    assert text(copy) == "a"
    assert set(counters(copy.version().vector)) == {1, 9}


def test_a_fork_is_independent() -> None:
    writer = replica(1)
    typed(writer, "abc")
    fork = writer.fork()
    typed(fork, "x")
    assert (text(fork), text(writer)) == ("xabc", "abc")


def test_the_value_is_plain_python() -> None:
    writer = replica(1)
    writer.doc.get_map("m").insert("k", [1, {"a": None}])
    typed(writer, "abc")
    assert writer.value() == {"m": {"k": [1, {"a": None}]}, "t": "abc"}


# --- foreign bytes --------------------------------------------------------------------------------


def forged(update: bytes) -> bytes:
    """The same bytes with a checksum that is right: damage that only a forger makes."""
    seed = int.from_bytes(b"LORO", "little")
    return update[:16] + xxhash.xxh32_intdigest(update[20:], seed).to_bytes(4, "little") + update[20:]


def sample() -> list[bytes]:
    writer = replica(1)
    typed(writer, "abc")
    writer.doc.get_map("m").insert("k", 1)
    writer.doc.get_list("l").insert(0, "v")
    writer.doc.commit()
    return [everything(writer), writer.snapshot(), writer.shallow_snapshot(writer.frontiers())]


SAMPLE = sample()


@given(st.binary(max_size=100) | st.binary(max_size=60).map(lambda tail: SAMPLE[0][:20] + tail))
def test_random_bytes_are_invalid(data: bytes) -> None:
    """Every function that reads bytes refuses them, and the replica stays unchanged."""
    reader = replica(2, SAMPLE[0])
    before = (reader.version(), reader.value())
    for read in (reader.apply, reader.covers, Replica.from_snapshot):
        with pytest.raises(InvalidUpdate):
            read(data)
    assert (reader.version(), reader.value()) == before


@pytest.mark.parametrize("blob", SAMPLE, ids=["updates", "snapshot", "shallow"])
def test_one_flipped_bit_is_noticed(blob: bytes) -> None:
    """Whichever byte is damaged on the way, nothing is applied. (Twelve bytes of the head are unused.)"""
    reader = Replica()
    for place in (*range(4), *range(16, len(blob))):
        damaged = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
        with suppress(InvalidUpdate):
            assert reader.apply(damaged) == Unready()
    assert reader.version() == Replica().version()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SAMPLE[:1]), st.integers(22, 400), st.integers(0, 255), st.integers(0, 3))
def test_a_forged_update_is_refused_by_name(blob: bytes, place: int, byte: int, cut: int) -> None:
    """With a right checksum over wrong bytes there is no other way out than our errors."""
    place = 22 + place % (len(blob) - 22)
    data = forged(blob[:place] + bytes([byte]) + blob[place + 1 + cut :])
    try:
        outcome = Replica().apply(data)
    except (InvalidUpdate, HistoryTrimmed, CrdtPanic):
        return
    assert isinstance(outcome, Applied | Unready)


def test_an_unknown_error_of_loro_is_an_invalid_update() -> None:
    """Loro reports "Unknown Error" for some unreadable bytes: they are an invalid update."""
    with pytest.raises(InvalidUpdate) as caught:
        Replica().apply(forged(SAMPLE[0][:20] + b"\x00\x01" + SAMPLE[0][22:]))
    assert type(caught.value) is InvalidUpdate


@pytest.mark.parametrize("data", [b"", b"\x05", b"\xff\xff"])
def test_bytes_that_are_no_version(data: bytes) -> None:
    """Frontiers and vectors from the wire are refused by name too."""
    reader = replica(2, SAMPLE[0])
    for read in (
        reader.includes,
        reader.updates_since,
        reader.vector_of,
        reader.at,
        reader.revert_to,
        reader.shallow_snapshot,
    ):
        with pytest.raises(InvalidUpdate):
            read(data)
    trimmed, _ = shallow()
    with pytest.raises(InvalidUpdate):
        trimmed.can_serve_since(data)


def test_a_snapshot_of_an_unknown_version_is_an_error() -> None:
    with pytest.raises(CrdtError, match="not found"):
        replica(2, SAMPLE[0]).shallow_snapshot(version((9, 9)))


@pytest.mark.parametrize("ids", [[ID(1, -1)], [ID(1, 0), ID(2, -(2**31))], [ID(9, 0)], [ID(1, 2**31 - 1)]])
def test_forged_heads_break_nothing(ids: list[ID]) -> None:
    """A counter below zero makes Loro panic and breaks the document, so the replica never passes such heads
    to Loro.
    """
    doc = LoroDoc()
    doc.peer_id = 1
    doc.get_text("t").insert(0, "hello")
    doc.commit()
    made = Replica(doc)
    forged = Frontiers.from_ids(ids).encode()
    assert made.vector_of(forged) is None
    with pytest.raises(HistoryTrimmed):
        made.at(forged)
    with pytest.raises(HistoryTrimmed):
        made.revert_to(forged)
    assert made.value() == {"t": "hello"}


def test_decoding_alone_says_what_is_wrong_and_needs_no_document() -> None:
    """A good update passes, whatever it builds on; what is none is refused as everywhere."""
    doc = LoroDoc()
    doc.get_text("t").insert(0, "one")
    doc.commit()
    before = doc.oplog_vv
    doc.get_text("t").insert(3, " two")
    doc.commit()
    try_decoding(doc.export(ExportMode.Updates(VersionVector())))
    try_decoding(doc.export(ExportMode.Updates(before)))
    try_decoding(doc.export(ExportMode.Snapshot()))
    for junk in (b"", b"loro", bytes(100)):
        with pytest.raises(InvalidUpdate):
            try_decoding(junk)
