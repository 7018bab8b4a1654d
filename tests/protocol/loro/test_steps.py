"""Long runs of one peer, worked out in steps: the same state as at once, and only where it pays."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loro import LoroDoc, VersionVector

from lorogo_protocol.errors import InvalidUpdate, TooFarBehind, TooLong
from lorogo_protocol.loro import crdt, operation_ids, steps, tree_replay
from lorogo_protocol.loro.crdt import Applied, Replica, nothing_known, vector_items
from tests.protocol.support import everything, replica, text, typed

_ACTS = st.lists(
    st.tuples(
        st.integers(0, 2),  # who
        st.sampled_from(("insert", "delete", "push", "set", "move", "sync", "commit")),
        st.integers(0, 60),
        st.integers(1, 30),
    ),
    max_size=40,
)


def _act(writer: Replica, what: str, at: int, much: int) -> None:
    """One edit of a text, a movable list or a map."""
    body, cards = writer.doc.get_text("t"), writer.doc.get_movable_list("l")
    match what:
        case "insert":
            body.insert(at % (body.len_unicode + 1), "xyz"[at % 3] * much)
        case "delete" if body.len_unicode:
            at %= body.len_unicode
            body.delete(at, min(much, body.len_unicode - at))
        case "push":
            cards.push(much)
        case "move" if len(cards):
            cards.mov(at % len(cards), much % len(cards))
        case "set":
            writer.doc.get_map("m").insert(str(at % 5), much)
        case "commit":
            writer.doc.commit()


@given(acts=_ACTS)
def test_what_is_worked_out_in_steps_is_the_same(acts: list[tuple[int, str, int, int]]) -> None:
    """Import in steps, even in too small ones, gives the same document for every mix of writers."""
    writers = [replica(peer) for peer in (1, 2, 3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "STEP_OPERATIONS", 3)
        patch.setattr(steps, "STEP_EDITS", 3)
        patch.setattr(crdt, "_UNSETTLED_BYTES_MAX", 150)
        reader, sent = Replica(lazy=True), nothing_known()
        for who, what, at, much in [*acts, (0, "sync", 0, 1), (1, "sync", 0, 1), (2, "sync", 0, 1)]:
            writer = writers[who]
            if what != "sync":
                _act(writer, what, at, much)
                continue
            writer.doc.commit()
            assert isinstance(reader.apply(writer.updates_since(sent)), Applied)
            sent = reader.version().vector
            assert isinstance(writer.apply(reader.updates_since(writer.version().vector)), Applied)
        whole = replica(9, everything(reader))
        assert reader.value() == whole.value()
        assert vector_items(reader.version().vector) == vector_items(whole.version().vector)
        assert Replica.from_snapshot(reader.snapshot()).value() == whole.value()


def _walk(doc: LoroDoc) -> None:
    for _ in steps.walk(doc, steps.STEP_OPERATIONS):
        pass


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_OPERATIONS", 1_000)


@pytest.mark.usefixtures("small_steps")
def test_a_long_run_of_one_peer_is_worked_out_in_steps() -> None:
    """A paste into a text that is there: Loro alone takes its square. The last step is for who attaches."""
    base = typed(replica(1), "hello")
    for first in (True, False):  # it begins a change, or goes on in one that is here in part
        writer = replica(2, base)
        here = [base] if first else [base, typed(writer, "a")]
        update = typed(writer, "x" * 3_500)
        doc = replica(9, *here).doc
        doc.detach()
        doc.import_(update)
        _walk(doc)
        assert crdt.counters(doc.state_vv.encode())[2] == (3_000 if first else 3_001)
        doc.attach()
        assert doc.get_text("t").to_string() == text(writer)


@pytest.mark.usefixtures("small_steps")
def test_little_that_others_wrote_beside_it_is_taken_back_first() -> None:
    """From each step Loro would begin again where they parted. It is the same document in the end."""
    base = typed(replica(1), "hello")
    first = replica(2, base)
    update, beside = typed(first, "x" * 3_500), typed(replica(3, base), "y")
    first.apply(beside)
    merged = replica(2, base, update, beside)
    update_merged = update, typed(merged, "z" * 500)  # and goes on where both are
    alone = typed(replica(4), "a" * 3_500)  # by a writer with an empty document
    for there, missing, reached in (
        ([base, beside], [update], {1: 5, 2: 3_000}),
        ([base, beside], [*update_merged], {1: 5, 2: 3_000}),
        ([base, beside], [alone], {4: 3_000}),
        ([base], [update, beside], {1: 5}),  # of both at once there is no run
        ([base, typed(replica(3, base), "y" * 4_000)], [update], {1: 5, 3: 4_000}),  # more than the run
    ):
        doc = replica(9, *there).doc
        doc.detach()
        for one in missing:
            doc.import_(one)
        _walk(doc)
        assert crdt.counters(doc.state_vv.encode()) == reached
        doc.attach()
        assert doc.get_deep_value() == replica(8, *there, *missing).value()


@pytest.mark.usefixtures("small_steps")
def test_a_read_between_two_steps_ends_the_walk() -> None:
    """An attached document has its state."""
    writer = replica(1)
    doc = LoroDoc()
    doc.detach()
    doc.import_(typed(writer, "x" * 3_500))
    walk = steps.walk(doc, steps.STEP_OPERATIONS)
    next(walk)
    doc.attach()
    assert list(walk) == []
    assert doc.get_text("t").to_string() == text(writer)


def test_a_run_beside_trimmed_history_is_worked_out_at_once() -> None:
    """Edits cannot be undone back to a version that is trimmed."""
    writer, other = replica(1), replica(2)
    base = [typed(writer, letter) for letter in "ab"]
    for update in base:
        other.apply(update)
    typed(other, "y")
    shallow = Replica.from_snapshot(other.shallow_snapshot(other.frontiers()))
    parted = replica(3, base[0]).doc.oplog_frontiers
    assert not steps.is_little(shallow.doc, shallow.doc.oplog_vv, parted, 1_000)
    assert steps.is_little(other.doc, other.doc.oplog_vv, parted, 1_000)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", ["tree", "cards"])
def test_trees_and_movable_lists_are_worked_out_at_once(kind: str) -> None:
    """Loro reads all of them at each step: 100,000 nodes took 4 s in steps, a quarter of that at once."""
    base = typed(replica(1), "hello")
    writer = replica(2, base)
    before = writer.version().vector
    for number in range(2_500):
        if kind == "tree":
            writer.doc.get_tree("tree").create()
        else:
            writer.doc.get_movable_list("cards").push(number)
    writer.doc.commit()
    doc = replica(9, base).doc
    doc.detach()
    doc.import_(writer.updates_since(before))
    _walk(doc)
    assert crdt.counters(doc.state_vv.encode()) == {1: 5}
    doc.attach()
    assert doc.get_deep_value() == writer.value()


@pytest.mark.usefixtures("small_steps")
def test_who_merged_others_often_is_worked_out_at_once() -> None:
    """The parts between are short, and at each merge Loro begins where they parted."""
    base = typed(replica(1), "hello")
    other, writer = replica(3, base), replica(2, base)
    theirs, before = [], writer.version().vector
    for _ in range(steps._MERGES_MAX + 2):
        typed(writer, "x" * 500)
        theirs.append(typed(other, "y"))
        writer.apply(theirs[-1])
    doc = replica(9, base, *theirs).doc
    doc.detach()
    doc.import_(writer.updates_since(before))
    state = doc.state_vv.encode()
    _walk(doc)
    assert doc.state_vv.encode() == state


def test_a_long_run_takes_steps_in_a_lazy_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Into an empty document as well, beside others, and however few bytes it has."""
    walked: list[int] = []
    walk = steps.walk

    def watched(doc: LoroDoc, step: int) -> Iterator[None]:
        walked.append(doc.len_ops)
        return walk(doc, step)

    monkeypatch.setattr(steps, "walk", watched)
    large = typed(replica(1), "a" * 20_000)
    reader = Replica(lazy=True)
    reader.apply(large)
    assert (walked, reader.doc.is_detached()) == ([20_000], False)
    writer = replica(2, large)
    reader.apply(typed(writer, "b" * 20_000), foreign=True)
    assert (walked, reader.doc.is_detached()) == ([20_000, 40_000], False)
    reader.apply(typed(replica(3, large), "c" * 20_000))
    assert (len(walked), reader.doc.is_detached()) == (3, False)
    small = replica(4, everything(reader))
    vector_before = small.version().vector
    small.doc.get_text("t").delete(0, 30_000)  # many operations in a few bytes
    small.doc.commit()
    reader.apply(small.updates_since(vector_before))
    assert (len(walked), reader.doc.is_detached()) == (4, False)
    assert reader.settled().get_text("t").to_string() == text(small)
    paster, beside = replica(5, everything(reader)), replica(6, everything(reader))
    pasted = typed(paster, "d" * 20_000)
    reader.apply(typed(beside, "e"))
    reader.apply(pasted, foreign=True)
    assert (len(walked), reader.doc.is_detached()) == (5, False)
    beside.apply(pasted)
    assert reader.settled().get_text("t").to_string() == text(beside)


def test_a_tree_is_worked_out_at_once() -> None:
    """However small the update is: to attach a detached document, Loro takes the square of a tree's depth."""
    writer, reader = replica(1), Replica(lazy=True)
    node = None
    for _ in range(200):
        node = writer.doc.get_tree("tree").create(node)
    writer.doc.commit()
    reader.apply(everything(writer))
    assert not reader.doc.is_detached()
    assert reader.value() == writer.value()


def _pushed(writer: Replica, kind: str, number: int) -> bytes:
    before = writer.version().vector
    for _ in range(number):
        if kind == "tree":
            writer.doc.get_tree("tree").create()
        elif kind == "movable list":
            writer.doc.get_movable_list("cards").push(1)
        else:
            writer.doc.get_list("list").push(1)
    writer.doc.commit()
    return writer.updates_since(before)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP_OPERATIONS", 10)
    monkeypatch.setattr(crdt, "UNSTEPPED_OPERATIONS_MAX", 50)
    monkeypatch.setattr(crdt, "TREE_BESIDE_OPERATIONS_MAX", 20)
    monkeypatch.setattr(crdt, "EDITS_BESIDE_MAX", 30)
    monkeypatch.setattr(crdt, "MERGED_OPERATIONS_MAX", 100)
    monkeypatch.setattr(crdt, "RUN_BESIDE_OPERATIONS_MAX", 200)
    monkeypatch.setattr(crdt, "SNAPSHOT_MERGED_OPERATIONS_MAX", 20)
    monkeypatch.setattr(crdt, "TREE_REPLAY_STEPS_MAX", 1_000)


def _refused(reader: Replica, update: bytes) -> bool:
    before = reader.version()
    try:
        reader.apply(update, foreign=True, new=True)
    except (TooFarBehind, TooLong):
        assert reader.version() == before
        assert isinstance(reader.apply(update, foreign=True), Applied)  # a load takes it
        return True
    return False


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("kind", ["tree", "movable list", "list"])
@pytest.mark.parametrize("number", [50, 60])
def test_a_new_update_of_a_tree_or_a_movable_list_is_bounded(kind: str, number: int) -> None:
    """Steps do not make them quicker. What may have been ACKed is taken as before."""
    assert _refused(Replica(lazy=True), _pushed(replica(1), kind, number)) is (number > 50 and kind != "list")


@pytest.mark.parametrize(("number", "refused"), [(100, False), (101, True)])
def test_the_edits_of_a_new_update_are_bounded(
    monkeypatch: pytest.MonkeyPatch, number: int, refused: bool
) -> None:
    """Loro imports them into the history at once. What may have been ACKed is taken as before."""
    monkeypatch.setattr(crdt, "EDITS_MAX", 100)
    monkeypatch.setattr(steps, "STEP_OPERATIONS", 10)
    writer = replica(1)
    for key in range(number):
        writer.doc.get_map("map").insert(str(key), key)
    writer.doc.commit()
    assert _refused(Replica(lazy=True), everything(writer)) is refused


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(("first", "second", "refused"), [(50, 50, False), (60, 50, True)])
def test_a_new_update_of_several_peers_is_bounded(first: int, second: int, refused: bool) -> None:
    """Loro works it out at once."""
    one, other = replica(1), replica(2)
    _pushed(one, "list", first)
    one.apply(_pushed(other, "list", second))
    assert _refused(Replica(lazy=True), everything(one)) is refused


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(
    ("long", "beside", "refused"),
    [
        (1000, 0, False),
        (200, 1, False),
        (201, 1, True),
        (100, 1000, False),
        (101, 100, False),
        (101, 101, True),
    ],
)
def test_a_new_run_beside_others_is_bounded(long: int, beside: int, refused: bool) -> None:
    """Steps end where others wrote beside it; the merge is made at once."""
    base = typed(replica(1), "hello")
    reader = Replica(lazy=True)
    reader.apply(base)
    if beside:
        reader.apply(_pushed(replica(3, base), "list", beside))
    assert _refused(reader, _pushed(replica(2, base), "list", long)) is refused


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(
    ("kind", "number", "refused"),
    [
        ("tree", 20, False),
        ("tree", 21, True),
        ("movable list", 50, False),
        ("letters", 30, False),
        ("letters", 31, True),
    ],
)
def test_a_new_update_of_many_edits_beside_others_is_bounded(kind: str, number: int, refused: bool) -> None:
    """Loro takes the square of a tree's depth to merge it, and time with each edit of a text."""
    base = typed(replica(1), "hello" * 20)
    reader, writer = Replica(lazy=True), replica(2, base)
    reader.apply(base)
    reader.apply(typed(replica(3, base), "!"))
    if kind == "letters":
        before = writer.version().vector
        for at in range(number):
            writer.doc.get_text("t").insert(2 * at, "x")
        writer.doc.commit()
        update = writer.updates_since(before)
    else:
        update = _pushed(writer, kind, number)
    assert _refused(reader, update) is refused


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(
    ("depth", "wide", "refused"), [(20, False, False), (60, False, True), (60, True, False)]
)
def test_a_tree_edit_beside_edits_of_deep_nodes_is_refused(depth: int, wide: bool, refused: bool) -> None:
    """Loro repeats each of them, from the node to the root: nodes near the root cost little."""
    base = _pushed(replica(1), "tree", 1)
    one, other, reader = replica(2, base), replica(3, base), Replica(lazy=True)
    node = None
    for _ in range(depth):
        created = one.doc.get_tree("tree").create(node)
        node = None if wide else created
    one.doc.commit()
    reader.apply(everything(one))
    assert _refused(reader, _pushed(other, "tree", 1)) is refused


@pytest.mark.parametrize("letters", [2, 200])
def test_operations_of_other_containers_cost_a_tree_nothing(letters: int) -> None:
    """Only those of nodes are repeated. The estimate samples the operations of every peer."""
    base = _pushed(replica(1), "tree", 1)
    doc = replica(9, base, typed(replica(2, base), "x" * letters), typed(replica(3, base), "y" * letters)).doc
    begins = VersionVector.decode(replica(4, base).version().vector)
    assert tree_replay.replay_steps(doc, begins, 10) == 0
    assert tree_replay.replay_steps(doc, begins, 10_000_000) == 2 * letters * doc.len_ops


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(
    ("length", "empty", "refused"), [(20, False, False), (21, False, True), (21, True, False)]
)
def test_a_new_snapshot_into_a_document_with_content_is_bounded(
    length: int, empty: bool, refused: bool
) -> None:
    """Loro merges it at once; into an empty document it takes little time."""
    reader = Replica(lazy=True)
    if not empty:
        reader.apply(typed(replica(1), "hello"))
    writer = replica(2)
    _pushed(writer, "list", length)
    assert _refused(reader, writer.snapshot()) is refused


@pytest.mark.parametrize("how", ["compared", "too much to compare", "trimmed"])
def test_a_repetition_is_not_imported_again(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """It was accepted before: no panic over another update is blamed on it. Junk is still junk."""
    writer = replica(1)
    update = typed(writer, "hello")
    typed(writer, "!")
    reader = Replica.from_snapshot(
        writer.shallow_snapshot(writer.frontiers()) if how == "trimmed" else writer.snapshot(), lazy=True
    )
    if how == "too much to compare":
        monkeypatch.setattr(operation_ids, "contradicts", lambda *_, **__: None)
    prepared: list[bool] = []
    monkeypatch.setattr(Replica, "_prepare", lambda *_, **__: prepared.append(True))
    assert reader.apply(update, foreign=True, new=True) == Applied(False)
    assert not prepared
    junk = update[:-1] + bytes([update[-1] ^ 1])
    with pytest.raises(InvalidUpdate):
        reader.apply(junk, foreign=True, new=True)


def test_scattered_edits_take_smaller_steps() -> None:
    """Letters that are each an edit of their own cost more than a run: they stop more often."""
    long, counts = 3 * steps.STEP_OPERATIONS, []
    for scattered in (True, False):
        writer, reader = replica(1), Replica(lazy=True)
        body = writer.doc.get_text("t")
        if scattered:
            for _ in range(long):
                body.insert(0, "x")
        else:
            body.insert(0, "x" * long)
        writer.doc.commit()
        reader.apply(everything(writer), foreign=True, new=True, settle=False)
        counts.append(len(list(reader.settling())))
    # the last step is for attach
    assert counts == [(long - 1) // steps.STEP_EDITS, (long - 1) // steps.STEP_OPERATIONS]


def test_a_long_run_of_a_movable_list_is_not_detached() -> None:
    """Loro reads the whole list at each step, so the import computes it at once."""
    writer, reader = replica(1), Replica(lazy=True)
    update = _pushed(writer, "movable list", steps.STEP_OPERATIONS + 1)
    reader.apply(update, foreign=True, new=True, settle=False)
    assert not reader.doc.is_detached()
    assert reader.value() == writer.value()
