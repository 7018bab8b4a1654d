"""Changes: every operation of a document once, with the update that brought it."""

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loro import Configure, ExpandType, ExportMode, LoroDoc, LoroMap, LoroText, StyleConfigMap, VersionVector

from lorogo_pipeline.decode.changes import batch_of, change_rows, changes
from lorogo_pipeline.decode.replay import ReplayRow, replay_document
from lorogo_pipeline.tables.schemas import CHANGES
from lorogo_pipeline.tables.table_rows import bucket_of
from lorogo_protocol.journal.records import DeletedRecord
from lorogo_protocol.loro import crdt
from tests.pipeline.decode.test_replay import base, fact, row, typed
from tests.pipeline.journals import SECOND, START, TERM, Author, Made, made, session


def rows_of(rows: list[ReplayRow]) -> list[dict[str, Any]]:
    replayed = replay_document("doc", rows)
    assert replayed is not None and replayed.replica is not None
    found = change_rows(replayed, 8)
    assert batch_of(found).schema == CHANGES
    batch_of(found).validate(full=True)
    ends = dict(crdt.vector_items(replayed.replica.version().vector))
    for peer, end in ends.items():
        parts = sorted(
            (one["counter_first"], one["counter_end"]) for one in found if one["peer"] == str(peer)
        )
        assert all(a[1] == b[0] for a, b in pairwise(parts)), "no hole, nothing twice"
        assert parts[-1][1] == end, "up to the end"
    for one in found:
        assert one["ops"] == one["counter_end"] - one["counter_first"] > 0
        assert one["ops"] == sum(part["ops"] for part in one["by_kind"])
    return found


def update_of(doc: LoroDoc, since: VersionVector | None = None, at: int = 1, log_id: str = "") -> Made:
    doc.commit()
    payload = doc.export(ExportMode.Updates(since or VersionVector()))
    return made("doc", payload, START + at * SECOND, sequence=at, log_id=log_id)


def only(doc: LoroDoc) -> dict[str, Any]:
    (one,) = rows_of([row(update_of(doc))])
    return one


def by_kind(one: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(part["container"], part["kind"]): part["ops"] for part in one["by_kind"]}


# --- cut at updates -------------------------------------------------------------------------------


def test_each_update_is_a_part() -> None:
    """Loro joins what one peer typed; here it is cut exactly where updates begin and end."""
    _, updates = typed("ab", "c", "def")
    found = rows_of([row(one) for one in updates])
    assert [(one["counter_first"], one["counter_end"], one["log_id"]) for one in found] == [
        (0, 2, "log-1"),
        (2, 3, "log-2"),
        (3, 6, "log-3"),
    ]
    assert [one["accepted_at"] for one in found] == [one.at_ns // 1000 for one in updates]
    assert [one["inserted"] for one in found] == [2, 1, 3]
    assert [one["lamport"] for one in found] == [0, 2, 3]
    assert {one["bucket"] for one in found} == {bucket_of("doc", 8)} and {one["peer"] for one in found} == {
        "1"
    }


def test_peers_at_the_same_time() -> None:
    """Concurrent changes of several peers stay separate, also of a peer above the signed numbers."""
    one, other = Author("doc", (1 << 64) - 2), Author("doc", 2)
    updates = [
        made("doc", one.type("abc"), START + SECOND, sequence=1),
        made("doc", other.type("xy"), START + 2 * SECOND, sequence=2),
    ]
    for writer, update in ((one, updates[1]), (other, updates[0])):
        writer.doc.import_(update.record.payload)
    updates.append(made("doc", one.type("!"), START + 3 * SECOND, sequence=3))
    found = rows_of([row(update) for update in updates])
    assert sorted((part["peer"], part["ops"], part["log_id"]) for part in found) == sorted(
        [(str((1 << 64) - 2), 3, "log-1"), ("2", 2, "log-2"), (str((1 << 64) - 2), 1, "log-3")]
    )


@pytest.mark.parametrize("later_first", [False, True])
def test_brought_by_several(later_first: bool) -> None:
    """The update that was accepted first counts as the origin of the changes that several updates contain."""
    author, small = typed("ab", "cd")
    whole = update_of(author.doc, at=0 if later_first else 9, log_id="all")
    more = made("doc", author.type("ef"), START + 10 * SECOND, sequence=10)
    again = update_of(author.doc, at=11, log_id="again")
    found = rows_of([row(one) for one in (*small, whole, more, again)])
    parts = [(one["counter_first"], one["counter_end"], one["log_id"]) for one in found]
    if later_first:
        assert parts == [(0, 4, "all"), (4, 6, "log-10")]
    else:
        assert parts == [(0, 2, "log-1"), (2, 4, "log-2"), (4, 6, "log-10")]


def test_a_part_within_what_came_before() -> None:
    """An update that brings only what was there takes nothing from those around it."""
    author, small = typed("ab", "cd", "ef")
    whole = update_of(author.doc, at=0, log_id="all")
    found = rows_of([row(whole), row(small[1])])
    assert [(one["counter_first"], one["counter_end"], one["log_id"]) for one in found] == [(0, 6, "all")]


def test_what_came_with_a_snapshot() -> None:
    """Changes that were in a snapshot have no time of acceptance; those behind it have theirs."""
    author, _ = typed("ab", "cd")
    start = base(author.doc, START)
    later = made("doc", author.type("ef"), START + SECOND, sequence=3)
    found = rows_of([start, row(later)])
    assert [(one["counter_end"], one["accepted_at"], one["log_id"]) for one in found] == [
        (4, None, None),
        (6, later.at_ns // 1000, "log-3"),
    ]


def test_a_trimmed_snapshot() -> None:
    """Of a document whose history is trimmed there are the changes that it still has."""
    author, _ = typed("ab", "cd")
    start = base(author.doc, START, shallow=True)
    later = made("doc", author.type("ef"), START + SECOND, sequence=3)
    replayed = replay_document("doc", [start, row(later)])
    assert replayed is not None
    found = change_rows(replayed, 8)
    assert found[-1]["log_id"] == "log-3" and found[-1]["counter_end"] == 6
    assert sum(one["ops"] for one in found if one["log_id"]) == 2


def test_a_deleted_document_keeps_its_changes() -> None:
    """The changes of a document stay in its history until it is erased."""
    _, updates = typed("ab")
    gone = fact("deleted", START + SECOND * 9, DeletedRecord("tombstone", (TERM,), 7, 0, START + SECOND * 9))
    replayed = replay_document("doc", [row(updates[0]), gone])
    assert replayed is not None and replayed.deleted
    assert [(one["log_id"], one["inserted"]) for one in change_rows(replayed, 8)] == [("log-1", 2)]


# --- kinds ----------------------------------------------------------------------------------------


def doc_of(peer: int = 5) -> LoroDoc:
    doc = LoroDoc()
    doc.peer_id = peer
    return doc


@pytest.mark.parametrize("text", ["plain", "ünïcödé", "漢字", "🌍🚀 astral \U0001d54f", "e\u0301", "👨‍👩‍👧"])
def test_lengths_of_text(text: str) -> None:
    """A character is a code point, astral ones too, as Loro counts."""
    doc = doc_of()
    body = doc.get_text("text")
    body.insert(0, text)
    body.insert(0, "x")
    body.delete(0, 2)
    one = only(doc)
    assert (one["inserted"], one["deleted"], one["ops"]) == (len(text) + 1, 2, len(text) + 3)
    assert sum(change.end - change.first for change in changes(crdt.Replica(doc))) == len(text) + 3


def test_text_deleted_backwards() -> None:
    """Deleting backwards counts as much as forwards."""
    doc = doc_of()
    body = doc.get_text("text")
    body.insert(0, "abcdef")
    for at in (5, 4, 3):
        body.delete(at, 1)
    assert only(doc)["deleted"] == 3


def test_marks() -> None:
    """Marking text takes operations and writes nothing."""
    doc = doc_of()
    styles = StyleConfigMap()
    styles.insert("bold", ExpandType.After)
    doc.config_text_style(styles)
    body = doc.get_text("text")
    body.insert(0, "marked")
    body.mark(0, 3, "bold", True)
    body.unmark(0, 2, "bold")
    one = only(doc)
    assert (one["inserted"], one["deleted"]) == (6, 0) and one["ops"] > 6
    assert {kind for _, kind in by_kind(one)} >= {"insert", "mark", "mark_end"}


def test_lists() -> None:
    """Items that are pushed, inserted and deleted are counted."""
    doc = doc_of()
    items = doc.get_list("list")
    odd: list[Any] = ["a", [1, 2, 3], {"x": [1]}, None]
    for item in odd:
        items.push(item)
    items.delete(1, 2)
    one = only(doc)
    assert (one["inserted"], one["deleted"], one["ops"]) == (4, 2, 6)
    assert by_kind(one) == {("cid:root-list:List", "insert"): 4, ("cid:root-list:List", "delete"): 2}


def test_movable_lists() -> None:
    """Moving and setting are operations of their own: nothing comes and nothing goes."""
    doc = doc_of()
    items = doc.get_movable_list("list")
    for item in ("a", "b", "c"):
        items.push(item)
    items.mov(0, 2)
    items.set(1, "z")
    items.delete(0, 1)
    one = only(doc)
    assert (one["inserted"], one["deleted"], one["ops"]) == (3, 1, 6)
    assert {kind for _, kind in by_kind(one)} == {"insert", "move", "set", "delete"}


def test_maps() -> None:
    """Setting and deleting keys is neither characters nor items."""
    doc = doc_of()
    map_ = doc.get_map("m")
    map_.insert("len", [1, 2, 3])
    map_.insert("text", "a longer text")
    map_.insert("pos", ["x"])
    map_.delete("pos")
    one = only(doc)
    assert (one["inserted"], one["deleted"], one["ops"]) == (0, 0, 4)
    assert sum(by_kind(one).values()) == 4


def test_trees() -> None:
    """Nodes that are made, moved and deleted are operations on the tree; their data is a map."""
    doc = doc_of()
    tree = doc.get_tree("tree")
    first = tree.create()
    second = tree.create()
    tree.mov(second, first)
    tree.get_meta(first).insert("name", "root")
    tree.delete(second)
    one = only(doc)
    assert (one["inserted"], one["deleted"], one["ops"]) == (0, 0, 5)
    assert {kind for container, kind in by_kind(one) if container == "cid:root-tree:Tree"} == {
        "create",
        "move",
        "delete",
    }


def test_counters() -> None:
    """A counter counts one operation each time."""
    doc = doc_of()
    counter = doc.get_counter("count")
    counter.increment(2)
    counter.decrement(0.5)
    one = only(doc)
    assert (one["inserted"], one["deleted"], one["ops"]) == (0, 0, 2)


def test_containers_in_containers() -> None:
    """A container within another is named by who made it, by that peer's own number."""
    doc = doc_of((1 << 64) - 9)
    inner = doc.get_map("m").insert_container("in", LoroMap())
    assert isinstance(inner, LoroMap)
    body = inner.insert_container("text", LoroText())
    assert isinstance(body, LoroText)
    body.insert(0, "abc")
    one = only(doc)
    assert ("cid:1@18446744073709551607:Text", "insert") in by_kind(one) and one["inserted"] == 3


def test_what_the_client_said() -> None:
    """The client's clock and message are kept unchanged; a missing clock is none."""
    doc = doc_of()
    config: Configure = doc.config
    config.set_record_timestamp(True)
    doc.get_text("text").insert(0, "abc")
    doc.set_next_commit_message("why")
    doc.set_next_commit_timestamp(1_700_000_000)
    assert only(doc)["client_time"] == 1_700_000_000 * 1_000_000 and only(doc)["message"] == "why"
    silent = doc_of()
    silent.get_text("text").insert(0, "abc")
    assert only(silent)["client_time"] is None and only(silent)["message"] is None
    wild = doc_of()
    wild.get_text("text").insert(0, "abc")
    wild.set_next_commit_timestamp(1 << 60)
    assert only(wild)["client_time"] is None


@given(seed=st.integers(0, 10_000), count=st.integers(1, 40), peers=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_every_operation_once(seed: int, count: int, peers: int) -> None:
    """Of any session: the operations of all parts are the document's, each with the update that was first."""
    updates = session(1, count, seed=seed, peers=peers)
    rng = random.Random(seed)
    extra = [
        row(one, log_id=f"again-{one.record.log_id}", accepted_ns=one.at_ns + SECOND // 2)
        for one in updates
        if rng.random() < 0.3
    ]
    found = rows_of([row(one) for one in updates] + extra)
    inserted = {one["log_id"]: one["inserted"] for one in found}
    assert inserted == {one.record.log_id: len(f"{one.record.sequence} ") for one in updates}
