"""Rebase: when history is gone, our unsaved edits go on top of the current state, once."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loro import (
    CounterSpan,
    ExportMode,
    IdSpan,
    LoroDoc,
    LoroList,
    LoroMap,
    LoroMovableList,
    LoroText,
    LoroTree,
    TreeID,
)

from lorogo_client import ClientSettings, Rebased, Session, State, Unsaved, UpdateRefused
from lorogo_client.delivery.accepted import AcceptedUpdate
from lorogo_client.rebase import tree_rebase
from lorogo_client.rebase.rebase import apply_edits, edits_since
from lorogo_client.replica import LocalReplica, ReplicaListeners, spans_of
from lorogo_client.session.mirror import Mirror, MirrorCallbacks
from lorogo_client.session.syncing import Synced
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from tests.client.support import DEADLINE, FakeOwner, client_of, eventually, text_of, type_in, until_state


async def cut(session: Session, transport: MemoryTransport) -> None:
    """Lose the connection, and wait until the room has noticed."""
    transport.cut()
    await eventually(lambda: session._room._connecting)


async def test_edits_on_trimmed_history_are_put_on_the_current_state(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """history-trimmed: a fresh document under a new peer id, with the edit in it once."""
    async with client_of(world) as client, client.open("doc") as session:
        type_in(session.doc, "base ")
        await session.flush(DEADLINE)
        changes = session.changes()
        old, peer = session.doc, session.doc.peer_id
        owner.nacks.append(Reason.HISTORY_TRIMMED)
        owner.compact()
        type_in(session.doc, "mine", at=5)
        await session.flush(DEADLINE)
        assert session.doc is not old
        assert session.doc.peer_id != peer
        assert owner.text() == text_of(session) == "base mine"
        async with asyncio.timeout(DEADLINE):
            assert isinstance(await anext(changes), Rebased)
        type_in(session.doc, "!", at=9)
        await session.flush(DEADLINE)
        assert owner.text() == "base mine!"


async def test_a_replica_older_than_the_history_is_replaced(world: MemoryNats, owner: FakeOwner) -> None:
    """Offline while the owner trimmed: the sync brings a shallow snapshot, the edits go on top."""
    transport = world.connect("client")
    async with client_of(world, transport=transport) as client, client.open("doc") as session:
        type_in(session.doc, "base ")
        await session.flush(DEADLINE)
        await cut(session, transport)
        for number in range(3):
            type_in(session.doc, f"{number}", at=5 + number)
            session.commit()
        await owner.edit("theirs ", tell=False)
        owner.compact()
        transport.heal()
        await session.flush(DEADLINE)
        assert owner.text() == text_of(session)
        assert sorted(owner.text()) == sorted("base theirs 012")
        assert len(owner.received) == 2


async def test_the_rebased_update_is_sent_again_byte_for_byte(world: MemoryNats, owner: FakeOwner) -> None:
    """A lost answer to it does not lead to a second rebase: the edit is there once."""
    async with client_of(world) as client, client.open("doc") as session:
        type_in(session.doc, "base ")
        await session.flush(DEADLINE)
        owner.nacks.append(Reason.HISTORY_TRIMMED)
        owner.compact()
        type_in(session.doc, "mine", at=5)
        session.commit()
        await eventually(lambda: len(owner.received) >= 2 and not owner.nacks)
        owner.mute = 2
        await session.flush(DEADLINE)
        after = [update for update in owner.received if update[0] != owner.received[1][0]][1:]
        assert len(set(after)) == 1
        assert owner.text() == text_of(session) == "base mine"


async def test_an_edit_that_the_owner_took_without_our_knowing_is_not_made_twice(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """What both have in common is the base, so a lost ACK before a rebase does no harm."""
    transport = world.connect("client")
    async with client_of(world, transport=transport) as client, client.open("doc") as session:
        type_in(session.doc, "base ")
        await session.flush(DEADLINE)
        type_in(session.doc, "taken ", at=5)
        session.commit()
        owner.leases.extend([0] * 100)  # ACKs that are not believed
        await eventually(lambda: owner.text() == "base taken ")
        await cut(session, transport)
        owner.leases.clear()
        type_in(session.doc, "new", at=11)
        session.commit()
        await owner.edit("theirs", tell=False)
        owner.compact()
        transport.heal()
        await session.flush(DEADLINE)
        assert owner.text() == text_of(session)
        assert sorted(owner.text()) == sorted("base taken newtheirs")


@pytest.mark.parametrize("mode", ["current", "updates"])
def test_a_rebase_that_becomes_needed_during_a_sync_waits_for_the_whole_state(mode: str) -> None:
    """The answer to what was asked before is no state to put edits on: it is asked again, for all."""
    hearers = MirrorCallbacks(lambda: None, lambda *_: None, lambda: None)
    mirror = Mirror("doc", ClientSettings(), lambda: "id", hearers, read_only=False)
    owner = crdt.Replica()
    type_in(owner.doc, "base ")
    owner.doc.commit()
    payload = owner.updates_since(crdt.nothing_known()) if mode == "updates" else b""
    type_in(mirror.replica.doc, "mine")
    mirror.replica.commit()
    mirror.syncing()
    mirror.need.fresh = mirror.need.sync = True  # history-trimmed, while the answer is on its way
    mirror.absorb(Synced(mode, payload, crdt.nothing_known(), 1, 1, 0, b""), now=0.0, jitter=0.0)
    assert mirror.need.fresh
    assert mirror.need.sync
    assert mirror.failure is None
    mirror.syncing()
    snapshot = owner.snapshot()
    mirror.absorb(Synced("snapshot", snapshot, owner.version().vector, 1, 1, 0, b""), now=0.0, jitter=0.0)
    assert sorted(str(mirror.replica.doc.get_text("t").to_string())) == sorted("base mine")
    assert not mirror.need.fresh


def test_what_was_acked_and_lost_is_imported_when_it_comes_back() -> None:
    """An owner that had lost our update is given it again from a journal: by then we have its state, too."""
    hearers = MirrorCallbacks(lambda: None, lambda *_: None, lambda: None)
    mirror = Mirror("doc", ClientSettings(), lambda: "id", hearers, read_only=False)
    mirror.syncing()
    mirror.absorb(Synced("current", b"", crdt.nothing_known(), 0, 1, 0, b""), now=0.0, jitter=0.0)
    type_in(mirror.replica.doc, "mine")
    mirror.replica.commit()
    flight = mirror.outbox.next_to_send(0.0, lambda: "log-1")
    assert flight is not None
    mirror.outbox.sending("log-1", 0.0)
    mirror.answered(Ack("log-1", flight.digest, 1, "journal", 1), now=0.0, jitter=0.0)
    assert mirror.outbox.owns("log-1")
    mirror.need.fresh = True
    mirror.syncing()
    empty = crdt.Replica()
    answer = Synced("snapshot", empty.snapshot(), empty.version().vector, 1, 1, 0, b"")
    mirror.absorb(answer, now=0.0, jitter=0.0)
    assert not mirror.replica.doc.get_text("t").to_string()
    assert not mirror.outbox.owns("log-1")
    mirror.arrived(AcceptedUpdate("log-1", 2, 1, 1, flight.payload))
    assert mirror.replica.doc.get_text("t").to_string() == "mine"
    assert not mirror.need.sync


async def test_another_generation_gets_only_what_was_never_acked(world: MemoryNats, owner: FakeOwner) -> None:
    """After a restore the owner's state counts; what it had ACKed and forgot does not come back."""
    transport = world.connect("client")
    async with client_of(world, transport=transport) as client, client.open("doc") as session:
        type_in(session.doc, "acked ")
        await session.flush(DEADLINE)
        await cut(session, transport)
        type_in(session.doc, "unsent", at=6)
        session.commit()
        owner.replica = crdt.Replica()
        owner.generation += 1
        await owner.edit("restored", tell=False)
        transport.heal()
        await session.flush(DEADLINE)
        assert session.generation == 1
        assert owner.text() == text_of(session)
        assert sorted(owner.text()) == sorted("restoredunsent")


async def test_a_list_that_others_shortened_can_be_rebased(world: MemoryNats, owner: FakeOwner) -> None:
    """Two deleted the same last element, and the document was restored: it is open, and saved."""
    transport = world.connect("client")
    async with client_of(world, transport=transport) as client, client.open("doc") as session:
        for letter in "abc":
            session.doc.get_list("items").push(letter)
        await session.flush(DEADLINE)
        await cut(session, transport)
        session.doc.get_list("items").delete(2, 1)
        session.commit()
        owner.replica.doc.get_list("items").delete(2, 1)
        owner.replica.doc.commit()
        owner.generation += 1
        transport.heal()
        await session.flush(DEADLINE)
        assert session.generation == 1
        assert session.doc.get_deep_value() == owner.replica.value() == {"items": ["a", "b"]}


async def test_what_was_acked_and_comes_back_after_a_rebase_is_taken(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """Servers bring back what the stream lost under its old log id, and the new replica lacks it."""
    transport = world.connect("client")
    async with client_of(world, transport=transport) as client, client.open("doc") as session:
        type_in(session.doc, "acked")
        await session.flush(DEADLINE)
        log_id, update = owner.received[-1]
        await cut(session, transport)
        owner.replica = crdt.Replica()
        owner.generation += 1
        transport.heal()
        await eventually(lambda: session.generation == 1)
        assert text_of(session) == ""
        owner.replica.apply(update)
        previous, owner.head = owner.head, owner.head + 1
        await owner.publish_accepted(log_id, update, previous)
        await eventually(lambda: text_of(session) == "acked")


async def test_a_reader_without_edits_just_takes_the_new_state(world: MemoryNats, owner: FakeOwner) -> None:
    """Nothing is sent by it."""
    transport = world.connect("client")
    async with client_of(world, transport=transport) as client, client.open("doc", read_only=True) as session:
        await owner.edit("one ")
        await eventually(lambda: text_of(session) == "one ")
        await cut(session, transport)
        await owner.edit("two", tell=False)
        owner.compact()
        transport.heal()
        await until_state(session, State.SAVED)
        assert text_of(session) == "one two"
        assert owner.received == []


async def test_a_state_that_cannot_be_read_is_an_honest_failure(world: MemoryNats, owner: FakeOwner) -> None:
    """If the rebase itself fails, the app hears it and nothing says SAVED."""
    async with client_of(world) as client:
        with pytest.raises(Unsaved):  # noqa: PT012 - leaving is what raises
            async with client.open("doc") as session:
                owner.nacks.append(Reason.HISTORY_TRIMMED)
                owner.sync_payload = b"not a snapshot"
                type_in(session.doc, "x")
                with pytest.raises(UpdateRefused) as caught:
                    await session.flush(DEADLINE)
                assert caught.value.reason is Reason.HISTORY_TRIMMED
                assert session.state is State.SAVING


# --- the replica alone


@pytest.mark.parametrize("shallow", [False, True])
def test_texts_are_merged_by_what_they_say_not_by_position(shallow: bool) -> None:
    """Others typed before our edit: it stays where it was meant, in nested texts too."""
    old = LoroDoc()
    type_in(old, "hello")
    note = old.get_map("notes").insert_container("first", LoroText())
    assert isinstance(note, LoroText)
    note.insert(0, "one two")
    old.commit()
    if shallow:
        old = crdt.Replica.from_snapshot(old.export(ExportMode.ShallowSnapshot(old.oplog_frontiers))).doc
    base = old.oplog_frontiers
    server = crdt.Replica.from_snapshot(old.export(ExportMode.Snapshot())).doc
    type_in(server, ">> ")
    server.get_text(note.id).insert(0, "zero ")
    server.get_map("notes").insert("theirs", 1)
    server.commit()
    fresh = crdt.Replica.from_snapshot(server.export(ExportMode.ShallowSnapshot(server.oplog_frontiers))).doc
    old.get_text("t").delete(1, 1)
    type_in(old, "a", at=1)
    type_in(old, " world", at=5)
    old.get_text(note.id).insert(7, " three")
    old.get_map("notes").insert("ours", 2)
    second = old.get_map("notes").insert_container("second", LoroText())
    assert isinstance(second, LoroText)
    second.insert(0, "new")
    old.commit()
    apply_edits(fresh, edits_since(old, base, fresh))
    assert fresh.get_deep_value() == {
        "t": ">> hallo world",
        "notes": {"first": "zero one two three", "second": "new", "theirs": 1, "ours": 2},
    }


def on_top(old: LoroDoc, ours: Callable[[LoroDoc], object], theirs: Callable[[LoroDoc], object]) -> object:
    """What becomes of our edits on a state that others edited, and whose history is trimmed."""
    old.commit()
    base = old.oplog_frontiers
    server = crdt.Replica.from_snapshot(old.export(ExportMode.Snapshot())).doc
    theirs(server)
    server.commit()
    fresh = crdt.Replica.from_snapshot(server.export(ExportMode.ShallowSnapshot(server.oplog_frontiers))).doc
    ours(old)
    old.commit()
    apply_edits(fresh, edits_since(old, base, fresh))
    fresh.commit()
    return fresh.get_deep_value()


def in_new_life(old: LoroDoc, ours: Callable[[LoroDoc], object]) -> object:
    """What becomes of our edits on a document that knows nothing of what they were made on."""
    old.commit()
    base = old.oplog_frontiers
    ours(old)
    old.commit()
    fresh = LoroDoc()
    a_new_life(fresh)
    fresh.commit()
    apply_edits(fresh, edits_since(old, base, fresh))
    fresh.commit()
    return fresh.get_deep_value()


@pytest.mark.parametrize(
    ("ours", "theirs", "merged"),
    [
        pytest.param(
            lambda x: x.delete(3, 1), lambda x: x.delete(3, 1), "abc", id="both delete the last one"
        ),
        pytest.param(
            lambda x: x.delete(1, 1), lambda x: x.insert(0, "z"), "zacd", id="the one that was meant"
        ),
        pytest.param(lambda x: x.insert(4, "e"), lambda x: x.delete(0, 4), "e", id="they removed all"),
        pytest.param(lambda x: x.insert(2, "+"), lambda x: x.delete(0, 1), "b+cd", id="in its place"),
    ],
)
@pytest.mark.parametrize("movable", [False, True])
def test_lists_are_merged_by_their_elements_not_by_position(
    ours: Callable[[Any], None], theirs: Callable[[Any], None], merged: str, movable: bool
) -> None:
    """Others inserted or deleted elsewhere in it: our edit meets the element that was meant, or none."""
    old = LoroDoc()
    items = "movable" if movable else "list"
    get = LoroDoc.get_movable_list if movable else LoroDoc.get_list
    for letter in "abcd":
        get(old, items).push(letter)
    value = on_top(old, lambda doc: ours(get(doc, items)), lambda doc: theirs(get(doc, items)))
    assert value == {items: list(merged)}


@pytest.mark.parametrize(
    ("ours", "theirs", "merged"),
    [
        pytest.param(lambda x: x.mov(3, 1), lambda x: x.insert(0, "z"), "zadbc", id="they insert"),
        pytest.param(lambda x: x.mov(3, 0), lambda x: x.delete(1, 1), "dac", id="they delete another"),
        pytest.param(lambda x: x.mov(3, 0), lambda x: x.mov(3, 2), "dabc", id="they move the same"),
        pytest.param(lambda x: x.set(1, "B"), lambda x: x.mov(1, 3), "acdB", id="they move what we replace"),
        pytest.param(lambda x: x.delete(1, 1), lambda x: x.mov(1, 3), "acdb", id="they move what we delete"),
    ],
)
def test_an_element_that_is_moved_is_there_once(
    ours: Callable[[Any], None], theirs: Callable[[Any], None], merged: str
) -> None:
    """In a movable list, whoever moved it, and whatever others did meanwhile."""
    old = LoroDoc()
    for letter in "abcd":
        old.get_movable_list("order").push(letter)
    get = LoroDoc.get_movable_list
    value = on_top(old, lambda doc: ours(get(doc, "order")), lambda doc: theirs(get(doc, "order")))
    assert value == {"order": list(merged)}


def test_edits_inside_of_what_others_removed_are_gone_with_it() -> None:
    """They keep no other edit from being put on the current state, also if it knows nothing of them."""
    old = LoroDoc()
    card = old.get_list("cards").insert_container(0, LoroMap())
    assert isinstance(card, LoroMap)
    section = old.get_tree("tree").create()

    def ours(doc: LoroDoc) -> None:
        doc.get_map(card.id).insert("title", "mine")
        note = doc.get_map(card.id).insert_container("note", LoroText())
        assert isinstance(note, LoroText)
        note.insert(0, "also mine")
        second = doc.get_list("cards").insert_container(1, LoroMap())
        assert isinstance(second, LoroMap)
        second.insert("title", "kept")
        tree = doc.get_tree("tree")
        tree.get_meta(tree.create()).insert("name", "kept")
        tree.get_meta(tree.create(section)).insert("name", "mine")

    def theirs(doc: LoroDoc) -> None:
        doc.get_list("cards").delete(0, 1)
        doc.get_tree("tree").delete(section)

    value = on_top(old, ours, theirs)
    assert isinstance(value, dict)
    assert value["cards"] == [{"title": "kept"}]
    assert [node["meta"] for node in value["tree"]] == [{"name": "kept"}]


def test_a_node_that_we_moved_comes_back_with_what_we_wrote_at_it() -> None:
    """Others deleted it meanwhile: a move outlives that, and so do the edits that go with it."""
    old = LoroDoc()
    root = old.get_tree("tree").create()
    node = old.get_tree("tree").create(root)

    def ours(doc: LoroDoc) -> None:
        doc.get_tree("tree").mov(node, None)
        doc.get_tree("tree").get_meta(node).insert("name", "mine")

    value = on_top(old, ours, lambda doc: doc.get_tree("tree").delete(node))
    assert isinstance(value, dict)
    assert [one["meta"] for one in value["tree"]] == [{}, {"name": "mine"}]


# --- trees


def nodes_of(value: object) -> list[Any]:
    """What is written at each node of `tree`, with its children."""

    def shown(nodes: list[Any]) -> list[Any]:
        return [(node["meta"].get("name"), shown(node["children"])) for node in nodes]

    assert isinstance(value, dict)
    return shown(value["tree"])


def grow(doc: LoroDoc, name: str, parent: TreeID | None = None) -> TreeID:
    tree = doc.get_tree("tree")
    node = tree.create(parent)
    tree.get_meta(node).insert("name", name)
    return node


def a_new_life(doc: LoroDoc) -> None:
    """Nothing that was in it is known."""
    doc.get_map("facts").insert("life", "new")
    grow(doc, "theirs")


@pytest.mark.parametrize("forgotten", [False, True])
def test_what_is_below_a_node_that_is_gone_goes_with_it(forgotten: bool) -> None:
    """Others deleted it, or the document has a new life without it: all other edits are there, once."""
    old = LoroDoc()
    section = grow(old, "section")
    inside = grow(old, "inside", section)

    def ours(doc: LoroDoc) -> None:
        tree = doc.get_tree("tree")
        child = grow(doc, "child", section)
        note = tree.get_meta(grow(doc, "grandchild", child)).insert_container("note", LoroText())
        assert isinstance(note, LoroText)
        note.insert(0, "gone with it")
        tree.get_meta(inside).insert("name", "gone with it")
        kept = grow(doc, "kept")
        grow(doc, "below", kept)
        tree.mov(grow(doc, "first"), kept)
        tree.mov_to(grow(doc, "moved"), 0, kept)
        type_in(doc, "text")
        doc.get_list("list").push("element")
        doc.get_movable_list("movable").push("element")
        doc.get_map("map").insert("key", "value")

    def theirs(doc: LoroDoc) -> None:
        doc.get_tree("tree").delete(section)

    value = in_new_life(old, ours) if forgotten else on_top(old, ours, theirs)
    assert isinstance(value, dict)
    others: list[Any] = [("theirs", [])] if forgotten else []
    assert nodes_of(value) == [*others, ("kept", [("moved", []), ("below", []), ("first", [])])]
    rest = {"t": "text", "list": ["element"], "movable": ["element"], "map": {"key": "value"}}
    assert value.items() >= rest.items()


@pytest.mark.parametrize(
    "ours",
    [
        pytest.param(lambda tree, node, _: tree.mov_to(node, 0, None), id="moved"),
        pytest.param(lambda tree, node, other: tree.mov(node, other), id="moved below another"),
        pytest.param(lambda tree, node, _: tree.delete(node), id="deleted"),
        pytest.param(lambda tree, node, _: tree.get_meta(node).insert("name", "x"), id="written at"),
    ],
)
def test_nothing_is_done_to_a_node_that_is_not_known(
    ours: Callable[[LoroTree, TreeID, TreeID], None],
) -> None:
    """In a document with a new life there is none to move, delete or write at."""
    old = LoroDoc()
    other = grow(old, "other")
    node = grow(old, "node", other)
    another = grow(old, "another")

    def edit(doc: LoroDoc) -> None:
        ours(doc.get_tree("tree"), node, another)
        grow(doc, "kept")

    assert nodes_of(in_new_life(old, edit)) == [("theirs", []), ("kept", [])]


def test_a_node_that_both_deleted_is_gone() -> None:
    """And what we moved out of it before, others' deletion or not, is where we put it."""
    old = LoroDoc()
    section = grow(old, "section")
    child = grow(old, "child", section)
    grow(old, "other")

    def ours(doc: LoroDoc) -> None:
        doc.get_tree("tree").mov_to(child, 0, None)
        doc.get_tree("tree").get_meta(child).insert("name", "ours")
        doc.get_tree("tree").delete(section)

    value = on_top(old, ours, lambda doc: doc.get_tree("tree").delete(section))
    assert nodes_of(value) == [("ours", []), ("other", [])]


def test_a_node_that_was_to_go_below_one_that_is_gone_stays() -> None:
    old = LoroDoc()
    section, node = grow(old, "section"), grow(old, "node")

    def ours(doc: LoroDoc) -> None:
        doc.get_tree("tree").mov(node, section)
        doc.get_tree("tree").get_meta(node).insert("name", "renamed")

    value = on_top(old, ours, lambda doc: doc.get_tree("tree").delete(section))
    assert nodes_of(value) == [("renamed", [])]


def test_a_move_that_would_make_a_circle_is_left_out() -> None:
    """Others moved the one below the other, and we the other below the one: theirs stands."""
    old = LoroDoc()
    one, other = grow(old, "one"), grow(old, "other")

    def ours(doc: LoroDoc) -> None:
        doc.get_tree("tree").mov(one, other)
        grow(doc, "kept", one)
        type_in(doc, "text")

    value = on_top(old, ours, lambda doc: doc.get_tree("tree").mov(other, one))
    assert nodes_of(value) == [("one", [("other", []), ("kept", [])])]
    assert isinstance(value, dict)
    assert value["t"] == "text"


def test_siblings_keep_the_order_that_we_gave_them() -> None:
    """Also where others made and deleted some: a place is between those that are there."""
    old = LoroDoc()
    nodes = [grow(old, name) for name in "abcd"]

    def ours(doc: LoroDoc) -> None:
        doc.get_tree("tree").mov_to(nodes[3], 1, None)
        doc.get_tree("tree").get_meta(doc.get_tree("tree").create_at(3)).insert("name", "new")

    def theirs(doc: LoroDoc) -> None:
        doc.get_tree("tree").delete(nodes[1])
        grow(doc, "theirs")

    value = on_top(old, ours, theirs)
    assert [name for name, _ in nodes_of(value)] == ["a", "d", "new", "c", "theirs"]


def test_a_node_that_others_made_after_our_edit_stays_what_it_is() -> None:
    """It is no copy, others' later words at it stand, and what we wrote there is in it once."""
    old = LoroDoc()
    root = grow(old, "root")
    old.commit()
    other = old.fork()
    for number in range(10):
        other.get_map("clock").insert("tick", number)
    theirs = grow(other, "theirs", root)
    note = other.get_tree("tree").get_meta(theirs).insert_container("note", LoroText())
    assert isinstance(note, LoroText)
    note.insert(0, "their note")
    other.commit()
    grow(old, "ours", root)
    old.commit()
    old.import_(other.export(ExportMode.Snapshot()))
    old.get_text(note.id).insert(10, ", and ours")
    old.get_tree("tree").get_meta(theirs).insert("seen", True)
    old.commit()
    base = other.oplog_frontiers
    other.get_tree("tree").get_meta(theirs).insert("name", "theirs, renamed")
    other.commit()
    apply_edits(other, edits_since(old, base, other))
    meta = other.get_tree("tree").get_meta(theirs)
    assert meta.get_deep_value() == {"name": "theirs, renamed", "seen": True, "note": "their note, and ours"}
    names: list[Any] = [("root", [("theirs, renamed", []), ("ours", [])])]
    assert nodes_of(other.get_deep_value()) == names


Steps = list[tuple[str, int, int]]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "move", "delete", "name", "note", "items", "order", "text", "wait"]),
        st.integers(0, 20),
        st.integers(0, 20),
    ),
    max_size=8,
)


def take(doc: LoroDoc, steps: Steps, who: str) -> None:
    """Edit a tree and what is at its nodes; each step says which of them, whatever there is."""
    tree = doc.get_tree("tree")
    for number, (step, one, other) in enumerate(steps):
        nodes = sorted(tree.nodes(), key=lambda node: (node.peer, node.counter))
        there = [node for node in nodes if not tree.is_node_deleted(node)]
        parent = [None, *there][one % (len(there) + 1)]
        target = there[other % len(there)] if there else grow(doc, f"{who} first {number}")
        meta: Any = tree.get_meta(target)
        words = f"{who} {number} "
        match step:
            case "create":
                grow(doc, words, parent)
            case "move" if not within(tree, parent, target):
                tree.mov_to(target, 0, parent)
            case "delete":
                tree.delete(target)
            case "name":
                meta.insert("name", words)
            case "note":
                note = meta.get_or_create_container("note", LoroText())
                note.delete(0, min(note.len_unicode, one % 3))
                note.insert(note.len_unicode, words)
            case "items":
                items = meta.get_or_create_container("items", LoroList())
                if one % 2 and len(items):
                    items.delete(other % len(items), 1)
                else:
                    items.insert(0, words)
            case "order":
                order = meta.get_or_create_container("order", LoroMovableList())
                if one % 2 and len(order):
                    order.mov(other % len(order), 0)
                else:
                    order.insert(0, words)
            case "text":
                type_in(doc, words)
            case "wait":  # others' operations come later than those of whoever waits less
                for _ in range(one):
                    doc.get_map("clock").insert("tick", other)
        doc.commit()


def within(tree: LoroTree, node: TreeID | None, other: TreeID) -> bool:
    while node is not None and node != other:
        node = tree.parent(node)
    return node is not None


def content(doc: LoroDoc) -> object:
    """All that is in it; siblings in any order, since two may have the same place."""

    def shown(nodes: list[Any]) -> list[str]:
        return sorted(repr((sorted(node["meta"].items()), shown(node["children"]))) for node in nodes)

    value: Any = doc.get_deep_value()
    return {name: shown(one) if name == "tree" else one for name, one in value.items() if one}


@given(STEPS, STEPS, STEPS, STEPS, STEPS, st.booleans())
def test_any_edits_of_a_tree_are_put_on_a_state(
    start: Steps, theirs: Steps, ours: Steps, later: Steps, meanwhile: Steps, forgotten: bool
) -> None:
    """On that which they were made on they make what they made; on any other nothing raises, nor is twice."""
    first, other, old = LoroDoc(), LoroDoc(), LoroDoc()
    take(first, start, "start")
    for doc in (other, old):
        doc.import_(first.export(ExportMode.Snapshot()))
    take(other, theirs, "theirs")
    take(old, ours, "ours")  # not saved yet
    old.import_(other.export(ExportMode.Snapshot()))
    take(old, later, "later")
    known = old.oplog_vv
    known.shrink_to_exclude(IdSpan(old.peer_id, CounterSpan(0, 2**31 - 1)))
    base = old.vv_to_frontiers(known)
    same = old.fork_at(base)
    apply_edits(same, edits_since(old, base, same))
    assert content(same) == content(old)
    another = LoroDoc() if forgotten else old.fork_at(base)
    take(another, meanwhile, "meanwhile")
    apply_edits(another, edits_since(old, base, another))
    another.commit()
    words = repr(another.get_deep_value())
    assert all(words.count(f"'{who} {n} '") <= 1 for who in ("ours", "later", "theirs") for n in range(8))


def test_edits_inside_of_an_element_stay_with_it() -> None:
    """Among equal elements, too: a container is known by its id."""
    old = LoroDoc()
    cards = old.get_list("cards")
    card = cards.insert_container(0, LoroMap())
    assert isinstance(card, LoroMap)
    for _ in range(4):
        cards.push("x")

    def ours(doc: LoroDoc) -> None:
        doc.get_map(card.id).insert("title", "mine")
        doc.get_list("cards").insert(1, "new")

    def theirs(doc: LoroDoc) -> None:
        for _ in range(4):
            doc.get_list("cards").insert(0, "x")
        doc.get_list("cards").delete(5, 4)

    assert on_top(old, ours, theirs) == {"cards": ["x", "x", "x", "x", {"title": "mine"}, "new"]}


def test_a_rebase_has_no_chance_in_it() -> None:
    """Where others typed in the same place, the same edits give the same text each time."""
    found = set()
    for _ in range(32):
        old = LoroDoc()
        old.peer_id = 2**63
        type_in(old, "hello")
        value = on_top(old, lambda doc: type_in(doc, " we", at=5), lambda doc: type_in(doc, " they", at=5))
        found.add(str(value))
    assert len(found) == 1


class Heard:
    def __init__(self) -> None:
        self.local: list[bytes] = []
        self.remote = 0

    def listeners(self) -> ReplicaListeners:
        return ReplicaListeners(self.local.append, lambda _: setattr(self, "remote", self.remote + 1))


def test_merged_updates_hold_what_the_single_ones_hold() -> None:
    """And nothing of others, so they are small."""
    heard = Heard()
    replica = LocalReplica(heard.listeners())
    other = LoroDoc()
    type_in(other, "other " * 100)
    other.commit()
    replica.apply(other.export(ExportMode.Snapshot()))
    for number in range(10):
        type_in(replica.doc, f"{number}")
        replica.commit()
    assert len(heard.local) == 10
    merged = replica.merged(heard.local)
    assert len(merged) < sum(map(len, heard.local))
    assert spans_of([merged]) == spans_of(heard.local)
    other.import_(merged)
    assert other.get_deep_value() == replica.doc.get_deep_value()
    assert heard.remote == 0


def test_imports_are_told_from_when_somebody_listens() -> None:
    """Not what came before; also with an edit open here, and by the document that a rebase makes."""
    heard = Heard()
    replica, other = LocalReplica(heard.listeners()), LoroDoc()

    def comes(words: str) -> None:
        known = other.oplog_vv
        type_in(other, words)
        other.commit()
        replica.apply(other.export(ExportMode.Updates(known)))

    comes("before")
    type_in(replica.doc, "open ")
    replica.listen()
    replica.listen()
    assert heard.remote == 0
    comes("one")
    assert (heard.remote, len(heard.local)) == (1, 1)
    replica, edited = replica.rebased(crdt.Replica.from_snapshot(replica.snapshot()), heard.local)
    assert (heard.remote, edited) == (1, False)
    comes("two")
    assert heard.remote == 2
    assert replica.doc.get_text("t").to_string().count("two") == 1


def test_what_the_vector_lacks_is_found_beyond_what_is_on_its_way() -> None:
    """Nothing if the outbox holds all of it; else everything in one update."""
    heard = Heard()
    replica = LocalReplica(heard.listeners())
    type_in(replica.doc, "a")
    replica.commit()
    nothing = crdt.nothing_known()
    assert replica.lacking(nothing, heard.local) == []
    (lacking,) = replica.lacking(nothing, [])
    assert crdt.Replica.from_snapshot(lacking).value() == {"t": "a"}
    assert replica.lacking(replica.version().vector, []) == []


def test_what_goes_out_anew_holds_what_is_not_acked_though_the_owner_has_it() -> None:
    """An owner that took an edit may be gone before it is on its disk: only an ACK makes it saved."""
    heard = Heard()
    replica = LocalReplica(heard.listeners())
    other = LoroDoc()
    other.get_text("t").insert(0, "others' ")
    other.commit()
    replica.apply(other.export(ExportMode.Snapshot()))
    type_in(replica.doc, "mine ")
    replica.commit()
    (mine,) = heard.local
    theirs = replica.doc.oplog_vv  # of an owner that lost the others' edit, and has ours
    theirs.shrink_to_exclude(IdSpan(other.peer_id, CounterSpan(0, 8)))
    (lacking,) = replica.lacking(theirs.encode(), [mine], [mine])
    assert spans_of([lacking]) == spans_of([mine, other.export(ExportMode.Snapshot())])


def test_a_replica_that_nobody_holds_is_freed() -> None:
    """Loro's callbacks do not keep it: a process that opens documents all day would grow by each of them."""
    heard = Heard()
    replica = LocalReplica(heard.listeners())
    type_in(replica.doc, "a")
    replica.commit()
    found = weakref.ref(replica)
    del replica
    gc.collect()
    assert found() is None


@pytest.mark.parametrize("left", [False, True])
async def test_who_edits_a_document_that_is_not_ours_any_more_is_told(
    world: MemoryNats, owner: FakeOwner, caplog: pytest.LogCaptureFixture, left: bool
) -> None:
    """An app that kept the `doc` of before a `Rebased`, or of a session that it left, loses edits openly."""
    async with client_of(world) as client:
        async with client.open("doc") as session:
            type_in(session.doc, "base ")
            await session.flush(DEADLINE)
            old = session.doc
            if not left:
                owner.nacks.append(Reason.HISTORY_TRIMMED)
                owner.compact()
                type_in(session.doc, "mine", at=5)
                await session.flush(DEADLINE)
                assert session.doc is not old
        del session
        gc.collect()
        assert "is lost" not in caplog.text
        type_in(old, "lost")
        old.commit()
        assert "edit of a replaced document is lost" in caplog.text


def test_a_replaced_document_is_heard_no_more() -> None:
    """Whoever edits it edits nothing; the new one is heard."""
    heard = Heard()
    replica = LocalReplica(heard.listeners())
    type_in(replica.doc, "a")
    replica.commit()
    old = replica.doc
    fresh, edited = replica.rebased(crdt.Replica(), heard.local)
    assert edited
    assert len(heard.local) == 2
    type_in(old, "lost")
    old.commit()
    assert len(heard.local) == 2
    type_in(fresh.doc, "kept")
    fresh.commit()
    assert len(heard.local) == 3


def test_edits_of_a_tree_within_a_node_that_we_deleted_go_with_it() -> None:
    """A tree at a node of a tree: whichever of the two comes first."""
    old = LoroDoc()
    old.peer_id = 1
    node = old.get_tree("tree").create()
    outer: Any = old.get_tree("tree").get_meta(node).insert_container("outer", LoroTree())
    inside = outer.create()
    inner = outer.get_meta(inside).insert_container("inner", LoroTree())
    old.commit()
    base = old.oplog_frontiers
    fresh = LoroDoc()
    fresh.import_(old.export(ExportMode.Snapshot()))
    inner.create()
    outer.delete(inside)
    old.commit()
    apply_edits(fresh, edits_since(old, base, fresh))
    fresh.commit()
    assert fresh.get_deep_value() == old.get_deep_value()


def test_what_we_made_at_a_node_goes_with_what_others_moved_it_below() -> None:
    """We delete that: neither the node nor a container that we made at it has a place any more."""
    first, other, old = LoroDoc(), LoroDoc(), LoroDoc()
    first.peer_id, other.peer_id, old.peer_id = 1, 2, 3
    doomed = first.get_tree("tree").create()
    first.commit()
    for doc in (other, old):
        doc.import_(first.export(ExportMode.Snapshot()))
    for tick in range(5):
        other.get_map("clock").insert("tick", tick)  # theirs come later than ours
    theirs = other.get_tree("tree").create()
    other.commit()
    old.get_tree("tree").create()
    old.commit()
    old.import_(other.export(ExportMode.Snapshot()))
    note: Any = old.get_tree("tree").get_meta(theirs).insert_container("note", LoroText())
    note.insert(0, "ours")
    old.get_tree("tree").delete(doomed)
    old.commit()
    known = old.oplog_vv
    known.shrink_to_exclude(IdSpan(3, CounterSpan(0, 2**31 - 1)))
    base = old.vv_to_frontiers(known)
    fresh = old.fork_at(base)
    fresh.get_tree("tree").mov_to(theirs, 0, doomed)
    fresh.commit()
    apply_edits(fresh, edits_since(old, base, fresh))
    fresh.commit()
    assert len(fresh.get_tree("tree").roots) == 1


def test_of_many_siblings_each_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of thousands would be read for each of thousands."""
    old, asked = LoroDoc(), list[object]()
    tree = old.get_tree("tree")
    for _ in range(50):
        tree.create()
    old.commit()
    base = old.oplog_frontiers
    fresh = LoroDoc()
    fresh.import_(old.export(ExportMode.Snapshot()))
    for place in range(50):
        tree.create_at(2 * place)
    tree.mov_to(tree.roots[0], 60, None)
    old.commit()

    class Asked(tree_rebase._Siblings):
        def _of(self, parent: tree_rebase.Node | None) -> list[tree_rebase.Node]:
            if parent not in self._below:
                asked.append(parent)
            return super()._of(parent)

    monkeypatch.setattr(tree_rebase, "_Siblings", Asked)
    apply_edits(fresh, edits_since(old, base, fresh))
    fresh.commit()
    assert asked == [None]
    assert len(_names(fresh)) == len(_names(old)) == 100
    both = set(_names(fresh)) & set(_names(old))
    assert [name for name in _names(fresh) if name in both] == [name for name in _names(old) if name in both]


def _names(doc: LoroDoc) -> list[tuple[int, int]]:
    return [(node.peer, node.counter) for node in doc.get_tree("tree").roots]
