"""Search for updates that block a server: the longest callback of the event loop for each shape.

    python bench/shapes.py [--only NAME] [--sizes 20000,100000] [--seconds 60]

Each shape is many edits; an update is admitted as an owner admits a new one (`admission.admit`), then the
document is read. Places:

    empty, full  one update of the edits, into an empty document or a full one
    beside       the same into a full document with concurrent edits
    behind       the full document has the edits; an update of a writer who has none of them
    typed        the same, and the edits came in many updates
    unmerged     the edits in 20 updates, whose writer never imports one concurrent edit

Loro's cost depends on the order of the peers, so late writers are four. A row has the size of the update,
whether it is accepted, and the longest callback (CPU of the thread, so that other programs do not count).
`refused` names the reason: the sandbox, for its decoding time, or the owner's. Each case is its own process.
Exit code 1: a callback is longer than the limit (docs/PROTOCOL.md). Takes ten minutes.
"""

import argparse
import asyncio
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from loro import ExpandType, ExportMode, LoroDoc, LoroMap, LoroText, VersionVector

from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages import chunks
from lorogo_protocol.messages.chunks import MemoryBudget
from lorogo_protocol.position import Position
from lorogo_server.intake.admission import admit
from lorogo_server.intake.decisions import (
    RefusedUpdate,
)
from lorogo_server.intake.history import History
from lorogo_server.intake.intake import (
    Intake,
)
from lorogo_server.sandbox.child_process import ChildProcesses
from lorogo_server.sandbox.decode_sandbox import skip_validation
from lorogo_server.sandbox.sandbox_worker import DECODE_SECONDS
from lorogo_server.settings import ServerSettings
from lorogo_transport.ports import StoredMessage

STRETCH_SECONDS = 0.25
_PLACES = ("empty", "full", "beside", "behind", "typed", "unmerged")
_RNG_SEED = 1
_LATE_PEERS = (7, 9, 10, 11)
_PORTION = 10  # edits of an update in `typed`
_PORTIONS = 20  # updates in `unmerged`


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


def typing(doc: LoroDoc, count: int) -> None:
    text = doc.get_text("text")
    for _ in range(count):
        text.insert(text.len_unicode, "ab")


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
    if text.len_unicode < 1000:
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
    for number in range(len(items), 1000):
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
    nodes = [*tree.nodes(), *(tree.create() for _ in range(1000 - len(tree.nodes())))][:1000]
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


def mesh(doc: LoroDoc, count: int) -> None:
    """Write two edits of each of many peers, the second with knowledge of all first ones."""
    for _ in range(2):
        before, updates = doc.oplog_vv, []
        for peer in range(count // 200):
            own = doc.fork()
            own.peer_id = 2000 + peer
            own.get_map("map").insert("key", peer)
            own.commit()
            updates.append(update_of(own, before))
        doc.import_batch(updates)


SHAPES: dict[str, Callable[[LoroDoc, int], None]] = {
    shape.__name__.replace("_", " "): shape
    for shape in (
        *(
            pushes,
            prepends,
            paste,
            typing,
            letters,
            scattered,
            deletions,
            undo,
            marks,
            one_key,
            many_keys,
            counter,
        ),
        *(nested, containers, texts, roots, movable_pushes, moves, wide_tree, deep_tree, tree_moves),
        *(small_changes, peers, mesh),
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


class Case(NamedTuple):
    """The document before, what it gets without being measured, and the updates that are measured."""

    snapshot: bytes | None
    before: list[bytes]
    updates: list[bytes]


def written(shape: str, count: int, place: str) -> Case:
    """Write the updates of a case."""
    snapshot = None if place == "empty" else full()
    writer, other = LoroDoc(), LoroDoc()
    writer.peer_id = other.peer_id = 8
    for one in (writer, other):
        if snapshot is not None:
            one.import_(snapshot)
    before = writer.oplog_vv
    portions = {"typed": count // _PORTION, "unmerged": _PORTIONS}.get(place, 1)
    edits = []
    for _ in range(portions):
        at = writer.oplog_vv
        SHAPES[shape](writer, count // portions)
        writer.commit()
        edits.append(update_of(writer, at))
    if place in ("behind", "typed"):
        return Case(snapshot, edits, [late_edit(other, peer) for peer in _LATE_PEERS])
    if place == "beside":
        other.peer_id = 7
        for shape_beside in (letters, pushes, one_key, movable_pushes, wide_tree):
            shape_beside(other, 100)
        other.commit()
        return Case(snapshot, [update_of(other, before)], edits)
    if place == "unmerged":
        return Case(snapshot, [late_edit(other, 7)], edits)
    return Case(snapshot, [], edits)


def late_edit(doc: LoroDoc, peer: int) -> bytes:
    """Return an edit of each container, made on the document by a peer of its own."""
    own = doc.fork()
    own.peer_id = peer
    own.get_text("text").insert(min(500, own.get_text("text").len_unicode), "x")
    for shape in (pushes, one_key, movable_pushes, wide_tree, counter):
        shape(own, 1)
    own.commit()
    return update_of(own, doc.oplog_vv)


def measured(pipe: Connection, shape: str, count: int, place: str) -> None:
    """Measure a case; send its facts one by one, so that a killed case has partial results."""
    case = written(shape, count, place)
    pipe.send(("bytes", max(map(len, case.updates))))
    for update in (*case.before, *case.updates):
        began = time.thread_time()
        crdt.try_decoding(update)
        if time.thread_time() - began > DECODE_SECONDS:
            pipe.send(("refused", "sandbox"))
            return
    lasted, callbacks = _measure_callbacks(), list[float]()
    for updates in [case.updates] if place == "unmerged" else [[one] for one in case.updates]:
        replica = Replica(lazy=True)
        if case.snapshot is not None:
            replica.adopt(case.snapshot)
        if reason := asyncio.run(admitted(replica, case.before)):
            pipe.send(("refused", f"{reason} before"))
            return
        begin = len(lasted)
        if reason := asyncio.run(admitted(replica, updates)):
            pipe.send(("refused", reason))
        callbacks += lasted[begin:]
    pipe.send(("worst", max(callbacks)))
    pipe.send(("total", sum(callbacks)))
    pipe.send(("callbacks", len(callbacks)))


def _measure_callbacks() -> list[float]:
    """Return a list that gets the CPU seconds of each callback of the event loop."""
    lasted = list[float]()
    run = asyncio.Handle._run  # noqa: SLF001  # asyncio reports slow callbacks by wall time only

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        lasted.append(time.thread_time() - began)

    asyncio.Handle._run = timed  # type: ignore[assignment,method-assign]  # noqa: SLF001
    return lasted


async def admitted(replica: Replica, updates: Sequence[bytes]) -> str:
    """Admit the updates and read the document; return the reason of the last refusal, or ""."""
    merge = partial(ChildProcesses().merge, "shapes")
    intake = Intake(replica, History(), ServerSettings(), head=Position(1), deleted=False, merge=merge)
    intake.share(MemoryBudget(1 << 30), lambda _: False)
    intake.go_live()
    sequence, reason = 0, ""
    for number, update in enumerate(updates):
        for part in chunks.split(update, f"id{number}", chunk_bytes_max=128 * 1024):
            sequence += 1
            message = StoredMessage("shapes", sequence, sequence, part.data, part.headers())
            for effect in await admit(intake, message, 0.0, validate=skip_validation):
                if isinstance(effect, RefusedUpdate):
                    reason = effect.reason.value
            await asyncio.sleep(0)
    replica.settled()
    return reason


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
        took = f"{1e3 * worst:7.0f} {1e3 * total:7.0f} {facts['callbacks']:9}"
    else:
        took = "      -       -         -"
    if ended or (not kept and worst is None):
        outcome = "not built in time" if "bytes" not in facts else "NOT DONE IN TIME"
        kept = "bytes" not in facts
    print(f"{shape:15} {count:8} {place:8} {size:>9} {took}  {outcome}{'' if kept else '  <--'}", flush=True)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", metavar="NAME", help="shapes with this in their name")
    parser.add_argument("--sizes", default="20000,100000", help="edits of an update")
    parser.add_argument("--seconds", type=float, default=60.0, help="at most for one case")
    options = parser.parse_args()
    print("shape              edits place        bytes   worst   total callbacks (ms of CPU)")
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
