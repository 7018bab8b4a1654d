"""The estimate of a merge's cost: everything since the last version that both sides have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loro import ID, ExpandType, ExportMode, Frontiers, ImportBlobMetadata, LoroDoc, VersionVector

from lorogo_protocol.loro import blocks, merge_cost
from lorogo_protocol.loro.crdt import Applied, CrdtPanic, Replica, SlowImport

_LONG = 80_000  # operations: more than PIECES_MAX


def update_of(doc: LoroDoc, since: VersionVector) -> bytes:
    return bytes(doc.export(ExportMode.Updates(since)))


def meta_of(update: bytes) -> ImportBlobMetadata:
    return LoroDoc.decode_import_blob_meta(update, False)


def is_slow(replica: Replica, update: bytes, edits: int = 0) -> bool:
    return merge_cost.is_slow(replica.doc, meta_of(update), blocks.contents(update), len(update), edits)


def typed(doc: LoroDoc, text: str, at: int = 0) -> bytes:
    before = doc.oplog_vv
    doc.get_text("body").insert(at, text)
    doc.commit()
    return update_of(doc, before)


def pair() -> tuple[LoroDoc, LoroDoc, Replica]:
    """Return two writers with the same document, and an owner's replica of it."""
    one = LoroDoc()
    one.peer_id = 8
    first = typed(one, "hello")
    other = one.fork()
    other.peer_id = 7
    replica = Replica(lazy=True)
    replica.apply(first)
    return one, other, replica


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30), st.integers(0, 2))
def test_replayed_operations_are_those_outside_the_common_history(
    edits: list[tuple[int, bool]], writer: int
) -> None:
    """Every operation that the estimate leaves out is in the history of both sides."""
    docs = [LoroDoc() for _ in range(3)]
    for number, doc in enumerate(docs):
        doc.peer_id = number + 1
    for number, merges in edits:
        if merges:
            docs[number].import_(docs[(number + 1) % 3].export(ExportMode.Updates(docs[number].oplog_vv)))
        typed(docs[number], "ab")
    server = LoroDoc()
    for number, doc in enumerate(docs):
        if number != writer:
            server.import_(doc.export(ExportMode.Updates(server.oplog_vv)))
    server.import_(docs[writer].export(ExportMode.Updates(server.oplog_vv)))
    late = typed(docs[writer], "late")
    replayed = merge_cost._replayed(server, meta_of(late).start_frontiers)
    begins = server.frontiers_to_vv(meta_of(late).start_frontiers)
    assert replayed is not None
    assert begins is not None
    common = {peer: first for peer, first, _ in replayed}
    left_out = [
        ID(span.peer, counter)
        for span in server.oplog_vv.sub_iter(VersionVector())
        for counter in range(span.counter.start, common.get(span.peer, span.counter.end))
    ]
    assert all(begins.includes_id(one) for one in left_out)
    for span in server.oplog_vv.sub_iter(begins):  # what the writer lacks
        for counter in range(span.counter.start, span.counter.end):
            made_on = server.frontiers_to_vv(Frontiers.from_ids([ID(span.peer, counter)]))
            assert made_on is not None
            assert all(made_on.includes_id(one) for one in left_out)


def test_an_edit_on_the_current_state_is_not_slow() -> None:
    """However long the document is, and however many edits it has."""
    one, _, replica = pair()
    replica.apply(typed(one, "x" * _LONG))
    update = typed(one, "y")
    assert not is_slow(replica, update, 10**6)


def test_an_edit_beside_many_operations_is_slow() -> None:
    """Also if its writer made them, and never imported the edit of another."""
    one, other, replica = pair()
    replica.apply(typed(one, "x" * _LONG))
    assert is_slow(replica, typed(other, "y"))
    one, other, replica = pair()
    replica.apply(typed(other, "y"))
    for _ in range(2):
        replica.apply(typed(one, "x" * (_LONG // 2)))
    assert is_slow(replica, typed(one, "x"))


def test_an_edit_beside_a_few_operations_is_not_slow() -> None:
    """Two people who type at the same time stay on the event loop, also in a long document."""
    one, other, replica = pair()
    replica.apply(typed(one, "x" * _LONG))
    other.import_(one.export(ExportMode.Updates(other.oplog_vv)))
    for _ in range(10):
        replica.apply(typed(one, "x"))
    assert not is_slow(replica, typed(other, "y"), 40_000)


def test_an_edit_beside_many_marks_is_slow() -> None:
    """Loro takes the square of their number, so fewer operations are slow."""
    for marks in (3_500, 0):
        one, other, replica = pair()
        one.config_default_text_style(ExpandType.After)
        before = one.oplog_vv
        for number in range(marks):
            one.get_text("body").mark(0, 5, "bold", number)
        one.get_text("body").insert(0, "x" * (8_000 - 2 * marks))
        one.commit()
        replica.apply(update_of(one, before))
        assert is_slow(replica, typed(other, "y"), -1_000_000) is bool(marks)


def test_separately_imported_edits_weigh_more_than_one_paste() -> None:
    """They are separate pieces, until the document is encoded again."""
    one, other, replica = pair()
    for _ in range(merge_cost.PIECES_MAX + 1):
        replica.apply(typed(one, "ab", at=0))
    late = typed(other, "y")
    with pytest.raises(SlowImport):
        replica.apply(late, new=True, defer=True)
    replica.adopt(replica.snapshot())
    assert isinstance(replica.apply(late, new=True, defer=True), Applied)


def test_a_known_update_is_not_slow() -> None:
    """A load reads messages of updates that the snapshot includes."""
    one, other, replica = pair()
    replica.apply(typed(one, "x" * _LONG))
    late = typed(other, "y")
    with pytest.raises(SlowImport) as found:
        replica.apply(late, defer=True)
    assert found.value.behind is True
    assert replica.apply(late) == Applied(True)
    assert replica.apply(late, defer=True) == Applied(False)


def test_many_marks_are_slow_until_the_document_is_encoded_again() -> None:
    """Also on the current state, and over several updates."""
    one, _, replica = pair()
    one.config_default_text_style(ExpandType.After)
    updates = list[bytes]()
    for _ in range(2):
        before = one.oplog_vv
        for number in range(300):
            one.get_text("body").mark(0, 5, "bold", number)
        one.commit()
        updates.append(update_of(one, before))
    assert isinstance(replica.apply(updates[0], defer=True), Applied)
    with pytest.raises(SlowImport) as found:
        replica.apply(updates[1], defer=True)
    assert found.value.behind is False
    replica.adopt(replica.snapshot())
    assert isinstance(replica.apply(updates[1], defer=True), Applied)


def test_an_update_of_many_peers_that_depend_on_each_other_is_slow() -> None:
    """Loro takes an entry for each peer in each dependency; a snapshot in an empty document is quick."""
    doc = LoroDoc()
    for turn in range(2):
        before, updates = doc.oplog_vv, list[bytes]()
        for peer in range(200):
            own = doc.fork()
            own.peer_id = 1000 + peer
            own.get_map("m").insert("by", turn)
            own.commit()
            updates.append(update_of(own, before))
        doc.import_batch(updates)
    update = update_of(doc, VersionVector())
    for replica, behind in ((pair()[2], True), (Replica(lazy=True), False)):
        with pytest.raises(SlowImport) as found:
            replica.apply(update, defer=True)
        assert found.value.behind is behind
    snapshot = bytes(doc.export(ExportMode.Snapshot()))
    assert isinstance(Replica(lazy=True).apply(snapshot, defer=True), Applied)


def test_a_replica_adopts_only_a_later_version_of_itself() -> None:
    """The added changes are those that the snapshot has besides."""
    one, other, replica = pair()
    before = replica.snapshot()
    replica.apply(typed(one, "more"))
    with pytest.raises(CrdtPanic, match="lacks changes"):
        replica.adopt(before)
    other.import_(replica.snapshot())
    typed(other, "y")
    assert replica.adopt(other.export(ExportMode.Snapshot())) == ((7, 0, 1),)
    assert replica.value() == other.get_deep_value()


def test_an_update_of_two_peers_hides_an_old_version() -> None:
    """Its heads are the current ones, but one of its changes was made on the first version."""
    one, other, replica = pair()
    replica.apply(typed(one, "x" * _LONG))
    typed(other, "late")
    current = one.fork()
    current.peer_id = 9
    typed(current, "y")
    current.import_(other.export(ExportMode.Updates(current.oplog_vv)))
    both = update_of(current, one.oplog_vv)
    assert len(meta_of(both).partial_end_vv.sub_iter(meta_of(both).partial_start_vv)) == 2
    assert is_slow(replica, both)


def test_the_estimate_itself_is_bounded() -> None:
    """Many peers with concurrent changes in a document of many peers count as slow."""
    one, other, replica = pair()
    for peer in range(2_000):
        one.peer_id = 2**60 + peer
        one.get_text("body").insert(0, "x" * 50)
        one.commit()
    before = one.oplog_vv
    replica.apply(update_of(one, other.oplog_vv))
    late = one.fork()
    for peer in range(30):
        own = one.fork()
        own.peer_id = 10_000 + peer
        replica.apply(typed(own, "z"))
    assert merge_cost._replayed(replica.doc, meta_of(typed(late, "y")).start_frontiers) is None
    assert replica.doc.oplog_vv.includes_vv(before)


def test_a_concurrent_edit_of_a_long_movable_list_is_slow() -> None:
    """Loro reads its history."""
    one, other, replica = pair()
    before = one.oplog_vv
    cards = one.get_movable_list("cards")
    for number in range(100):
        cards.push(number)
    for number in range(60_000):
        cards.mov(number % 100, 99 - number % 100)
    one.commit()
    replica.apply(update_of(one, before))
    other.import_(update_of(one, before))
    replica.apply(typed(one, "x"))
    at = other.oplog_vv
    other.get_movable_list("cards").mov(1, 2)
    other.commit()
    assert is_slow(replica, update_of(other, at), -1_000_000)
    replica.apply(update_of(other, at))
    assert not is_slow(replica, typed(other, "y"), -1_000_000)


def test_edited_roots_edit_each_kind_of_container() -> None:
    """An owner measures with it how soon an adopted document can be edited."""
    doc = LoroDoc()
    doc.get_text("text").insert(0, "hello")
    doc.get_list("list").push(1)
    doc.get_movable_list("cards").push(1)
    doc.get_tree("tree").create()
    doc.get_map("map").insert("key", 1)
    doc.get_counter("counter").increment(1)
    doc.commit()
    copy = Replica(doc.fork())
    edit = copy.edited_roots(7)
    assert [
        (span.peer, span.counter.start) for span in meta_of(edit).partial_end_vv.sub_iter(doc.oplog_vv)
    ] == [(7, 0)]
    replica = Replica(doc)
    assert isinstance(replica.apply(edit), Applied)
    value = replica.value()
    assert isinstance(value, dict)
    assert (value["text"], value["list"], value["cards"]) == ("xhello", [0, 1], [0, 1])
    assert len(value["tree"]) == 2
    assert value["map"] == {"": 0, "key": 1}


def test_a_trimmed_start_counts_as_slow() -> None:
    """The version before it is unknown."""
    one, other, _ = pair()
    typed(one, "x" * _LONG)
    shallow = LoroDoc()
    shallow.import_(one.export(ExportMode.ShallowSnapshot(one.oplog_frontiers)))
    assert merge_cost._replayed(shallow, meta_of(typed(other, "y")).start_frontiers) is None
