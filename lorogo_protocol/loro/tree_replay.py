"""Estimates Loro's cost of importing a concurrent tree operation, before the import.

Loro undoes each tree operation that the writer had not seen, and applies it again. Each time it walks from
the node to the root, so a chain of nodes costs the square of its depth.
"""

import json
from hashlib import blake2b

from loro import ID, ContainerType, CounterSpan, IdSpan, LoroDoc, LoroTree, TreeID, VersionVector

_SAMPLES = 32


def replay_steps(doc: LoroDoc, begins: VersionVector, most: int) -> int:
    """Estimate the number of steps to a root for an operation that depends on `begins`.

    Samples operations by a digest of the document's heads. Counting ends at `most` steps.
    """
    spans = [(span.peer, span.counter.start, span.counter.end) for span in doc.oplog_vv.sub_iter(begins)]
    total = sum(end - first for _, first, end in spans)
    if total * doc.len_ops <= most:
        return total * doc.len_ops
    heads, found, samples = doc.oplog_frontiers.encode(), 0, min(_SAMPLES, total)
    for sample in range(samples):
        digest = blake2b(heads + bytes([sample]), digest_size=8).digest()
        number = int.from_bytes(digest, "big") % total
        found += _depth(doc, *_operation(spans, number), most * samples // total + 1 - found)
        if found * total > most * samples:
            break
    return found * total // samples


def _operation(spans: list[tuple[int, int, int]], number: int) -> tuple[int, int]:
    """Return peer and counter of the operation with that index over all spans."""
    later = iter(spans)
    peer, first, end = next(later)
    while number >= end - first:
        number -= end - first
        peer, first, end = next(later)
    return peer, first + number


def _depth(doc: LoroDoc, peer: int, counter: int, most: int) -> int:
    """Return the current depth of a tree operation's node, up to `most`; 0 for other operations."""
    changed = doc.get_changed_containers_in(ID(peer, counter), 1)
    trees = [one for one in changed if isinstance(one.container_type, ContainerType.Tree)]  # type: ignore[attr-defined]
    if not trees or not isinstance(tree := doc.get_container(trees[0]), LoroTree):
        return 0
    (change,) = json.loads(doc.export_json_in_id_span(IdSpan(peer, CounterSpan(counter, counter + 1))))
    at, _, by = change["ops"][0]["content"]["target"].partition("@")
    node: TreeID | None = TreeID(int(by), int(at))
    depth = 0
    while node is not None and depth < most and tree.contains(node):
        node, depth = tree.parent(node), depth + 1
    return depth
