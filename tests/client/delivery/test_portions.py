"""A copy of a long-lived document sends what the owner lacks in parts that the owner takes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loro import LoroDoc, VersionVector

from lorogo_client.delivery.portions import portions
from lorogo_protocol.errors import TooLong
from lorogo_protocol.limits import TREE_BESIDE_OPERATIONS_MAX, UPDATE_PEERS_MAX
from lorogo_protocol.loro.crdt import Applied, Replica, nothing_known, spans, vector_items

STEPS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["type", "cut", "pull"]), st.integers(0, 5)))


@settings(deadline=None)
@given(STEPS, st.integers(0, 30), st.integers(1, 4), st.integers(4, 12), st.integers(1, 9))
def test_parts_fit_are_taken_in_order_and_are_all_of_it(
    steps: list[tuple[int, str, int]], had: int, peers_max: int, peer_changes_max: int, operations_max: int
) -> None:
    """Whoever edited on top of whom: no part waits for another that comes later."""
    docs = [LoroDoc() for _ in range(6)]
    for peer, doc in enumerate(docs):
        doc.peer_id = peer + 1
    whole, owner = Replica(), Replica()
    for number, (peer, act, other) in enumerate(steps):
        doc = docs[peer]
        if act == "pull":
            doc.import_(Replica(docs[other]).updates_since(doc.oplog_vv.encode()))
            continue
        text = doc.get_text("t")
        if act == "type":
            text.insert(len(text) // 2, "ab")
        elif len(text):
            text.delete(0, 1)
        doc.commit()
        update = Replica(doc).updates_since(whole.version().vector)
        for replica in (whole, owner) if number < had else (whole,):
            assert isinstance(replica.apply(update), Applied)
    theirs = VersionVector.decode(owner.version().vector)
    parts = portions(
        whole.doc,
        theirs,
        peers_max=peers_max,
        peer_changes_max=peer_changes_max,
        operations_max=operations_max,
    )
    for part in parts:
        assert len(parts) == 1 or len(spans(part)) <= peers_max
        assert sum(end - first for _, first, end in spans(part)) <= operations_max
        assert isinstance(owner.apply(part), Applied)
    assert vector_items(owner.version().vector) == vector_items(whole.version().vector)
    assert owner.value() == whole.value()


def test_an_owner_takes_each_part_of_a_tree_beside_others() -> None:
    """One change of more tree operations than an owner takes at once is cut into several updates."""
    doc, owner = LoroDoc(), Replica(lazy=True)
    for _ in range(TREE_BESIDE_OPERATIONS_MAX + 1):
        doc.get_tree("t").create()
    doc.commit()
    other = LoroDoc()
    other.get_tree("t").create()
    other.commit()
    assert isinstance(owner.apply(Replica(other).updates_since(nothing_known()), foreign=True), Applied)
    with pytest.raises(TooLong):
        owner.apply(Replica(doc).updates_since(nothing_known()), foreign=True, new=True)
    for part in portions(doc, VersionVector()):
        assert isinstance(owner.apply(part, foreign=True, new=True), Applied)
    assert owner.version().vector != nothing_known()
    assert len(owner.settled().get_tree("t").nodes()) == TREE_BESIDE_OPERATIONS_MAX + 2


def test_an_owner_takes_each_part_of_a_document_of_many_peers() -> None:
    """Two limits' worth of peers and one more are three parts."""
    doc = LoroDoc()
    for peer in range(2 * UPDATE_PEERS_MAX + 1):
        doc.peer_id = peer + 1
        doc.get_map("m").insert("by", peer)
        doc.commit()
    owner = Replica(lazy=True)
    parts = portions(doc, VersionVector())
    assert len(parts) == 3
    for part in parts:
        assert isinstance(owner.apply(part, foreign=True), Applied)
    assert owner.value() == doc.get_deep_value()
