"""Loro updates that were changed on their way, with a checksum that fits again: only our errors come out.

The checksum is XXH32 of everything behind it. Without it, no change would get further than the first line.
"""

from collections.abc import Iterable
from functools import cache

import xxhash
from loro import ExportMode, LoroDoc, LoroMap, LoroText, VersionVector

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Applied, CrdtPanic, Reach, Replica, Unready
from lorogo_server.values.parts import MapPart, fill
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_SEED = 0x4F524F4C  # "LORO"


def forged(blob: bytes) -> bytes:
    """The blob with the checksum of what it holds now."""
    if len(blob) < 22:
        return blob
    return blob[:16] + xxhash.xxh32(blob[20:], seed=_SEED).intdigest().to_bytes(4, "little") + blob[20:]


@cache
def _base() -> bytes:
    doc = LoroDoc()
    doc.peer_id = 1
    doc.get_text("t").insert(0, "hello")
    doc.get_map("m").insert("k", 1)
    doc.commit()
    return doc.export(ExportMode.Snapshot())


def _import(update: bytes, *, lazy: bool) -> None:
    replica = Replica.from_snapshot(_base(), lazy=lazy)
    before = replica.version()
    try:
        done = replica.apply(update, foreign=True)
        replica.settled()
    except CrdtPanic:
        return  # the document is not used any more, as documented
    except CrdtError:
        assert replica.version() == before, "whole or not at all"
        return
    if isinstance(done, Unready):
        assert replica.version() == before, "whole or not at all"
        return
    assert isinstance(done, Applied)
    assert replica.covers(update)
    try:
        again = replica.apply(update, foreign=True)
        whole = Replica.from_snapshot(replica.snapshot())
    except CrdtPanic:
        return
    assert again == Applied(new=False), "twice is once"
    assert crdt.counters(whole.version().vector) == crdt.counters(replica.version().vector)


def _look(update: bytes) -> None:
    crdt.change_count(update)
    for look in (_reach, Replica().covers, Replica().takes, crdt.counters):
        try:
            look(update)
        except CrdtError:
            continue
    try:
        replica = Replica.from_snapshot(update, foreign=True)
        replica.version()
    except CrdtError:
        return


def _reach(update: bytes) -> None:
    reach = Reach(crdt.nothing_known())
    reach.add(update)
    assert reach.covers(update)
    assert reach.includes(reach.encode())


def _versions(data: bytes) -> None:
    replica = Replica.from_snapshot(_base())
    for ask in (
        replica.vector_of,
        replica.operations_at,
        replica.includes,
        replica.updates_since,
        replica.can_serve_since,
        replica.at,
        replica.shallow_snapshot,
    ):
        try:
            ask(data)
        except CrdtPanic:
            replica = Replica.from_snapshot(_base())
        except CrdtError:
            continue


def run(data: bytes) -> None:
    """The first byte chooses."""
    source = Source(data)
    match source.byte() % 6:
        case 0:
            _import(source.rest(), lazy=False)
        case 1 | 2:
            _import(forged(source.rest()), lazy=False)
        case 3:
            _import(forged(source.rest()), lazy=True)
        case 4:
            _look(forged(source.rest()))
        case _:
            _versions(source.rest())


def _changed() -> LoroDoc:
    doc = LoroDoc()
    doc.peer_id = 2
    doc.import_(_base())
    doc.get_text("t").insert(5, " world")
    doc.get_text("t").delete(0, 2)
    doc.get_text("t").mark(0, 3, "bold", True)
    doc.get_list("l").insert(0, [1, "x", None, 2.5, b"ab"])
    fill(doc.get_map("m").insert_container("inner", LoroMap()), MapPart({"a": {"b": [1]}}))
    fill(doc.get_map("m").insert_container("text", LoroText()), "é😀")
    doc.get_movable_list("v").insert(0, "a")
    doc.get_movable_list("v").insert(1, "b")
    doc.get_movable_list("v").mov(0, 1)
    doc.get_counter("c").increment(1.5)
    tree = doc.get_tree("tree")
    root = tree.create()
    tree.create(root)
    doc.commit()
    return doc


def seeds() -> Iterable[bytes]:
    doc = _changed()
    base = LoroDoc()
    base.import_(_base())
    blobs = [
        doc.export(ExportMode.Updates(base.oplog_vv)),
        doc.export(ExportMode.Updates(VersionVector())),
        doc.export(ExportMode.Snapshot()),
        doc.export(ExportMode.ShallowSnapshot(base.oplog_frontiers)),
    ]
    for number, blob in enumerate(blobs):
        yield b"\0" + blob
        yield bytes([1 + number % 3]) + blob
        yield b"\x04" + blob
    yield b"\x05" + doc.oplog_vv.encode()
    yield b"\x05" + base.oplog_frontiers.encode()


TARGET = Target(run, seeds, (), bytes_max=2048)
