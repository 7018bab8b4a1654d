"""Search for updates that block a server: the longest callback of the event loop for each shape.

    python bench/shapes.py [--only NAME] [--sizes 20000,100000] [--seconds 30]
    python bench/shapes.py --unmerged 20,50

Each shape is one update with many edits, imported as an owner imports a new one (`Replica.apply`, then
`settling`): into an empty document, into a full one, and into a full one with concurrent edits. A row has its
size, whether it is accepted, and the longest time without a return to the loop (CPU of the thread, so that
other programs do not count). `refused` names the reason: the sandbox, for its decoding time, or a limit of
operations. Each case is a separate process. Exit code 1: a callback is longer than the limit
(docs/PROTOCOL.md). Takes a few minutes.
"""

import argparse
import multiprocessing
import random
import string
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from loro import ExpandType, ExportMode, LoroDoc, LoroMap, LoroText, VersionVector

from lorogo_protocol.errors import TooLong, TooManyPeers
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Replica
from lorogo_server.sandbox.decode_sandbox import DECODE_SECONDS

STRETCH_SECONDS = 0.25
_PLACES = ("empty", "full", "beside")
_RNG_SEED = 1
_PASTE = 10 * 1024


def pushes(doc: LoroDoc, count: int) -> None:
    items = doc.get_list("list")
    for number in range(count):
        items.push(number)


def prepends(doc: LoroDoc, count: int) -> None:
    items = doc.get_list("list")
    for number in range(count):
        items.insert(0, number)


def paste(doc: LoroDoc, count: int) -> None:
    doc.get_text("text").insert(0, "x" * (10 * count))


def letters(doc: LoroDoc, count: int) -> None:
    text = doc.get_text("text")
    for _ in range(count):
        text.insert(0, "a")


def scattered(doc: LoroDoc, count: int) -> None:
    text, rng = doc.get_text("text"), random.Random(_RNG_SEED)
    for _ in range(count):
        text.insert(rng.randrange(text.len_unicode + 1), "a")


def deletions(doc: LoroDoc, count: int) -> None:
    text, rng = doc.get_text("text"), random.Random(_RNG_SEED)
    text.insert(0, "x" * count)
    for left in range(count, 0, -1):
        text.delete(rng.randrange(left), 1)


def undo(doc: LoroDoc, count: int) -> None:
    text = doc.get_text("text")
    for _ in range(count // 2):
        text.insert(0, "ab")
        text.delete(0, 2)


def marks(doc: LoroDoc, count: int) -> None:
    text, rng = doc.get_text("text"), random.Random(_RNG_SEED)
    doc.config_default_text_style(ExpandType.After)
    text.insert(0, "x" * 1000)
    for number in range(count // 10):
        at = rng.randrange(900)
        text.mark(at, at + rng.randrange(1, 100), f"k{number % 2}", number)


def one_key(doc: LoroDoc, count: int) -> None:
    entries = doc.get_map("map")
    for number in range(count):
        entries.insert("key", number)


def many_keys(doc: LoroDoc, count: int) -> None:
    entries = doc.get_map("map")
    for number in range(count):
        entries.insert(str(number), number)


def counter(doc: LoroDoc, count: int) -> None:
    for _ in range(count):
        doc.get_counter("counter").increment(1)


def nested(doc: LoroDoc, count: int) -> None:
    entries = doc.get_map("map")
    for _ in range(min(count, 5_000)):  # writing it takes the square
        inner = entries.insert_container("a", LoroMap())
        assert isinstance(inner, LoroMap)
        entries = inner


def containers(doc: LoroDoc, count: int) -> None:
    items = doc.get_list("list")
    for _ in range(count):
        items.push_container(LoroMap())


def texts(doc: LoroDoc, count: int) -> None:
    entries = doc.get_map("map")
    for number in range(count // 2):
        text = entries.insert_container(str(number), LoroText())
        assert isinstance(text, LoroText)
        text.insert(0, "a")


def roots(doc: LoroDoc, count: int) -> None:
    for number in range(count):
        doc.get_map(f"root{number}").insert("a", 1)


def movable_pushes(doc: LoroDoc, count: int) -> None:
    items = doc.get_movable_list("cards")
    for number in range(count):
        items.push(number)


def moves(doc: LoroDoc, count: int) -> None:
    items, rng = doc.get_movable_list("cards"), random.Random(_RNG_SEED)
    for number in range(1000):
        items.push(number)
    for _ in range(count):
        items.mov(rng.randrange(1000), rng.randrange(1000))


def wide_tree(doc: LoroDoc, count: int) -> None:
    tree = doc.get_tree("tree")
    for _ in range(count):
        tree.create()


def deep_tree(doc: LoroDoc, count: int) -> None:
    tree, node = doc.get_tree("tree"), None
    for _ in range(count):
        node = tree.create(node)


def tree_moves(doc: LoroDoc, count: int) -> None:
    tree, rng = doc.get_tree("tree"), random.Random(_RNG_SEED)
    nodes = [tree.create() for _ in range(1000)]
    for _ in range(count):
        node, parent = sorted(rng.sample(range(1000), 2))
        tree.mov(nodes[parent], nodes[node])  # below an older one: never a cycle


def small_changes(doc: LoroDoc, count: int) -> None:
    doc.set_change_merge_interval(0)
    for number in range(count // 10):
        doc.get_text("text").insert(0, "a")
        doc.set_next_commit_message(str(number))
        doc.commit()


def peers(doc: LoroDoc, count: int) -> None:
    """Write edits of 100 peers that take turns."""
    before = doc.peer_id
    for peer in range(1, 101):
        doc.peer_id = 1000 + peer
        for _ in range(count // 100):
            doc.get_list("list").push(peer)
        doc.commit()
    doc.peer_id = before


SHAPES: dict[str, Callable[[LoroDoc, int], None]] = {
    shape.__name__.replace("_", " "): shape
    for shape in (
        *(pushes, prepends, paste, letters, scattered, deletions, undo, marks, one_key, many_keys, counter),
        *(nested, containers, texts, roots, movable_pushes, moves, wide_tree, deep_tree, tree_moves),
        *(small_changes, peers),
    )
}


def update_of(doc: LoroDoc, since: VersionVector) -> bytes:
    return bytes(doc.export(ExportMode.Updates(since)))


def full() -> bytes:
    """Return a snapshot of a document with all container types."""
    doc = LoroDoc()
    doc.peer_id = 1
    for shape in (paste, pushes, many_keys, movable_pushes, wide_tree):
        shape(doc, 2_000)
    doc.commit()
    return bytes(doc.export(ExportMode.Snapshot()))


def written(shape: str, count: int, place: str) -> tuple[bytes | None, list[bytes], bytes]:
    """Return the document before, the concurrent edits, and the update."""
    snapshot = None if place == "empty" else full()
    doc, other = LoroDoc(), LoroDoc()
    doc.peer_id, other.peer_id = 7, 8
    for one in (doc, other):
        if snapshot is not None:
            one.import_(snapshot)
    before = doc.oplog_vv
    SHAPES[shape](doc, count)
    doc.commit()
    if place != "beside":
        return snapshot, [], update_of(doc, before)
    for shape_beside in (letters, pushes, one_key, movable_pushes, wide_tree):
        shape_beside(other, 100)
    other.commit()
    return snapshot, [update_of(other, before)], update_of(doc, before)


def measured(pipe: Connection, shape: str, count: int, place: str) -> None:
    """Measure a case; send its facts one by one, so that a killed case has partial results."""
    snapshot, beside, update = written(shape, count, place)
    pipe.send(("bytes", len(update)))
    began = time.thread_time()
    crdt.try_decoding(update)
    if time.thread_time() - began > DECODE_SECONDS:
        pipe.send(("refused", "sandbox"))
        return
    replica = Replica(lazy=True) if snapshot is None else Replica.from_snapshot(snapshot, lazy=True)
    for one in beside:
        replica.apply(one)
    replica.settled()
    stretches, began = [], time.thread_time()
    try:
        replica.apply(update, foreign=True, new=True, settle=False)
    except (TooLong, TooManyPeers):
        pipe.send(("refused", "limit"))
    for _ in replica.settling():
        stretches.append(time.thread_time() - began)
        began = time.thread_time()
    stretches.append(time.thread_time() - began)
    pipe.send(("worst", max(stretches)))
    pipe.send(("total", sum(stretches)))
    pipe.send(("stretches", len(stretches)))


def unmerged(pipe: Connection, pastes: int, peer: int) -> None:
    """Measure the last of contiguous pastes whose writer never imports one concurrent paste of peer 8."""
    doc, other, rng = LoroDoc(), LoroDoc(), random.Random(_RNG_SEED)
    doc.import_(full())
    other.import_(full())
    doc.peer_id, other.peer_id = peer, 8
    replica, before = Replica.from_snapshot(full(), lazy=True), doc.oplog_vv
    other.get_text("text").insert(1000, "".join(rng.choices(string.ascii_letters, k=_PASTE)))
    other.commit()
    replica.apply(update_of(other, before))
    text = doc.get_text("text")
    for number in range(pastes):
        if number == pastes - 1 and number:
            replica.apply(update_of(doc, before))
            replica.settled()
            before = doc.oplog_vv
        text.insert(text.len_unicode, "".join(rng.choices(string.ascii_letters, k=_PASTE)))
        doc.commit()
    pipe.send(stretches_of(replica, update_of(doc, before)))


def stretches_of(replica: Replica, update: bytes) -> list[float]:
    """Import an update; return the CPU seconds between two returns to the loop."""
    stretches, began = [], time.thread_time()
    replica.apply(update, foreign=True, new=True, settle=False)
    for _ in replica.settling():
        stretches.append(time.thread_time() - began)
        began = time.thread_time()
    return [*stretches, time.thread_time() - began]


def print_unmerged(pastes: int) -> None:
    """Print a row for both orders of the two peer ids, since Loro's cost depends on it."""
    for peer in (7, 9):
        listening, pipe = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.Process(target=unmerged, args=(pipe, pastes, peer))
        process.start()
        pipe.close()
        try:
            took = listening.recv()
            print(f"paste {pastes:4} of peer {peer} beside 8 {1e3 * max(took):7.0f} {1e3 * sum(took):7.0f}")
        finally:
            process.join()


def case(shape: str, count: int, place: str, seconds: float) -> bool:
    """Print a row; return whether the limit was kept."""
    listening, pipe = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=measured, args=(pipe, shape, count, place))
    process.start()
    pipe.close()
    process.join(seconds)
    if ended := process.is_alive():
        process.kill()
        process.join()
    facts: dict[str, float | str] = {}
    try:
        while listening.poll():
            name, value = listening.recv()
            facts[name] = value
    except EOFError:
        pass
    size, worst = facts.get("bytes", "?"), facts.get("worst")
    outcome = f"refused ({facts['refused']})" if "refused" in facts else "taken"
    kept = "refused" in facts or (isinstance(worst, float) and worst <= STRETCH_SECONDS)
    if isinstance(worst, float) and isinstance(total := facts["total"], float):
        took = f"{1e3 * worst:7.0f} {1e3 * total:7.0f} {facts['stretches']:5}"
    else:
        took = "      -       -     -"
    if ended or (not kept and worst is None):
        outcome = "not built in time" if "bytes" not in facts else "NOT DONE IN TIME"
        kept = "bytes" not in facts
    print(f"{shape:15} {count:8} {place:7} {size:>9} {took}  {outcome}{'' if kept else '  <--'}", flush=True)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", metavar="NAME", help="shapes with this in their name")
    parser.add_argument("--sizes", default="20000,100000", help="edits of an update")
    parser.add_argument("--seconds", type=float, default=30.0, help="at most for one case")
    parser.add_argument(
        "--unmerged", default="", metavar="PASTES", help="only the exception of docs/PROTOCOL.md: 20,50"
    )
    options = parser.parse_args()
    if options.unmerged:
        for pastes in options.unmerged.split(","):
            print_unmerged(int(pastes))
        return 0
    print("shape              edits place       bytes   worst   total stretches (ms of CPU)")
    kept = [
        case(shape, int(count), place, options.seconds)
        for shape in SHAPES
        if options.only in shape
        for count in options.sizes.split(",")
        for place in _PLACES
    ]
    print(f"{len(kept)} cases, {kept.count(False)} above {1e3 * STRETCH_SECONDS:.0f} ms")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
