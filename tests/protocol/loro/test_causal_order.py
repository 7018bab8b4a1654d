"""Causal order of updates."""

import random

import pytest
from loro import ExportMode, LoroDoc

from lorogo_protocol.loro import causal_order, crdt
from lorogo_protocol.loro.crdt import Applied, Replica


def chains(writers: int, updates: int, rng: random.Random) -> tuple[list[bytes], LoroDoc]:
    """Updates of writers that see each other's now and then, in causal order; and the document with all."""
    docs, made, all_of_them = [LoroDoc() for _ in range(writers)], list[bytes](), LoroDoc()
    for _ in range(updates):
        doc = rng.choice(docs)
        if rng.random() < 0.3:
            doc.import_(all_of_them.export(ExportMode.Updates(doc.oplog_vv)))
        before = doc.oplog_vv
        doc.get_text("body").insert(0, "x")
        doc.commit()
        made.append(doc.export(ExportMode.Updates(before)))
        all_of_them.import_(made[-1])
    return made, all_of_them


@pytest.mark.parametrize("seed", range(5))
def test_every_order_is_applied_whole(seed: int) -> None:
    """Whatever the order of the updates, each is yielded once, after its dependencies."""
    rng = random.Random(seed)
    made, wanted = chains(3, 60, rng)
    rng.shuffle(made)
    replica, done = Replica(), 0
    for update in filter(None, causal_order.ready(replica, [(update, update) for update in made])):
        assert isinstance(replica.apply(update), Applied)
        done += 1
    assert done == len(made)
    assert crdt.counters(replica.version().vector) == crdt.counters(wanted.oplog_vv.encode())


def test_an_update_without_its_dependencies_is_not_yielded() -> None:
    """Those that do not depend on it are."""
    (first, second), _ = chains(1, 2, random.Random(1))
    (other,), _ = chains(1, 1, random.Random(2))
    found = causal_order.ready(Replica(), [(second, "second"), (other, "other")])
    assert list(found) == [None, "other"]
    assert first != other


def test_a_long_chain_in_reverse_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each update is examined once per dependency: thousands of them do not take millions of steps."""
    made, _ = chains(1, 2000, random.Random(3))
    replica, missing, asked = Replica(lazy=True), Replica.missing, [0]

    def counted(one: Replica, update: bytes) -> tuple[int, int] | None:
        asked[0] += 1
        return missing(one, update)

    monkeypatch.setattr(Replica, "missing", counted)
    for update in filter(None, causal_order.ready(replica, [(update, update) for update in reversed(made)])):
        replica.apply(update)
    assert replica.operations == 2000
    assert asked[0] <= 2 * len(made)
