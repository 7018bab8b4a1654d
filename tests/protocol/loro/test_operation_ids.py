"""Operation ids that stand for other content in an update than in the document."""

import random

import pytest
from loro import CounterSpan, ExportMode, IdSpan, LoroDoc, LoroMap, VersionVector

from lorogo_protocol.errors import OperationIdsReused
from lorogo_protocol.loro import operation_ids
from lorogo_protocol.loro.crdt import Replica


def edited(doc: LoroDoc, rng: random.Random) -> None:
    """Make one edit of any kind."""
    text, items = doc.get_text("t"), doc.get_list("l")
    movable = doc.get_movable_list("movable")
    match rng.randrange(8):
        case 0:
            text.insert(rng.randrange(len(text) + 1), "héy😀")
        case 1 if len(text) > 4:
            text.delete(1, 3)
        case 2:
            doc.get_map("m").insert(str(rng.randrange(5)), rng.random())
        case 3:
            inner = items.insert_container(0, LoroMap())
            assert isinstance(inner, LoroMap)
            inner.insert("a", 1)
        case 4:
            doc.get_tree("tree").create()
        case 5:
            movable.push(rng.random())
        case 6 if len(movable) > 1:
            movable.mov(0, len(movable) - 1)
            movable.set(0, rng.random())
        case _:
            items.insert(0, rng.randrange(9))
    doc.commit()


def crowd(seed: int, peers: int = 3) -> LoroDoc:
    """A document that several peers have edited, and merged now and then."""
    rng = random.Random(seed)
    docs = [LoroDoc() for _ in range(peers)]
    for number, doc in enumerate(docs):
        doc.peer_id = 100 + number
    for _ in range(60):
        doc, other = rng.choice(docs), rng.choice(docs)
        edited(doc, rng)
        if other is not doc and rng.random() < 0.3:
            other.import_(doc.export(ExportMode.Updates(other.oplog_vv)))
    for other in docs[1:]:
        docs[0].import_(other.export(ExportMode.Updates(docs[0].oplog_vv)))
    return docs[0]


def twin(text: str) -> LoroDoc:
    doc = LoroDoc()
    doc.peer_id = 7
    doc.get_text("t").insert(0, text)
    doc.commit()
    return doc


def everything(doc: LoroDoc) -> bytes:
    return doc.export(ExportMode.Updates(VersionVector()))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_in_the_document_never_contradicts_it(seed: int) -> None:
    """Any part of a document's history, however it is cut, has the content that the document has."""
    doc, rng = crowd(seed), random.Random(seed)
    for _ in range(20):
        span = rng.choice(doc.oplog_vv.sub_iter(VersionVector()))
        first = rng.randrange(span.counter.end)
        part = IdSpan(span.peer, CounterSpan(first, rng.randrange(first + 1, span.counter.end + 1)))
        Replica(doc).check_ids(doc.export(ExportMode.UpdatesInRange([part])))
    Replica(doc).check_ids(everything(doc))
    Replica(doc).check_ids(doc.export(ExportMode.Snapshot()))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("hello", "other"), ("hello", "hello, and more"), ("aaaa", "aaab"), ("a" * 20_000, "b")],
)
def test_other_content_under_the_same_ids_is_found(ours: str, theirs: str) -> None:
    """An update whose operations are here with other content is refused; one that goes on is not."""
    replica = Replica(twin(ours))
    update = everything(twin(theirs))
    if theirs.startswith(ours):
        replica.check_ids(update)
    else:
        with pytest.raises(OperationIdsReused, match="new peer id"):
            replica.check_ids(update)


def test_a_run_that_was_cut_differently_is_the_same() -> None:
    """Letters that were typed one by one are those that came as one run."""
    typed = LoroDoc()
    typed.peer_id = 7
    for at, letter in enumerate("hello"):
        typed.get_text("t").insert(at, letter)
        typed.commit()
    Replica(twin("hello")).check_ids(everything(typed))
    Replica(typed).check_ids(everything(twin("hello")))


def test_trimmed_history_counts_as_equal() -> None:
    """Operations that the document no longer keeps cannot be compared."""
    doc = twin("hello")
    doc.get_text("t").insert(5, "!")
    doc.commit()
    shallow = Replica(doc).shallow_snapshot(Replica(doc).frontiers())
    Replica.from_snapshot(shallow).check_ids(everything(twin("other")))


def test_a_dependency_that_the_document_lacks_contradicts_it() -> None:
    """Operations that the document has cannot depend on operations that it lacks."""
    other = LoroDoc()
    other.peer_id = 8
    other.get_text("t").insert(0, "other")
    other.commit()
    theirs = LoroDoc()
    theirs.peer_id = 7
    theirs.import_(everything(other))
    theirs.get_text("t").insert(5, "hello")
    theirs.commit()
    update = theirs.export(ExportMode.UpdatesInRange([IdSpan(7, CounterSpan(0, 5))]))
    with pytest.raises(OperationIdsReused):
        Replica(twin("hello")).check_ids(update)
    waiting = twin("hel")  # the update adds something, so its dependency may only be late
    Replica(waiting).check_ids(update)


def test_an_update_that_begins_in_trimmed_history_counts_as_equal() -> None:
    """The dependencies of its first operation are not known any more."""
    doc = twin("hello")
    shallow = Replica(doc).shallow_snapshot(Replica(doc).frontiers())
    doc.get_text("t").insert(5, " there")
    doc.commit()
    replica = Replica.from_snapshot(shallow)
    replica.apply(everything(doc))
    replica.check_ids(doc.export(ExportMode.UpdatesInRange([IdSpan(7, CounterSpan(2, 11))])))


@pytest.mark.parametrize("bound", ["_PEERS_MAX", "_BELOW_MAX"])
def test_a_comparison_above_its_bounds_is_not_made(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """Then equal ids count as equal content: with few peers and little history the difference is found."""
    ours, theirs = crowd(1), crowd(1)
    for doc, card in ((ours, 1), (theirs, 2)):
        doc.peer_id = 7
        doc.get_movable_list("movable").push(0)
        doc.get_movable_list("movable").set(0, card)
        doc.commit()
    update = theirs.export(ExportMode.UpdatesInRange([IdSpan(7, CounterSpan(0, 2))]))
    with pytest.raises(OperationIdsReused):
        Replica(ours).check_ids(update)
    monkeypatch.setattr(operation_ids, bound, 1)
    Replica(ours).check_ids(update)
