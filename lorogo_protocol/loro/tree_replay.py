"""Estimates Loro's cost of importing a concurrent tree operation, before the import.

Loro undoes each tree operation that the writer had not seen, and applies it again. Each time it walks from
the node to the root, so a chain of nodes costs the square of its depth.
"""

import json
from collections.abc import Iterator
from hashlib import blake2b

from loro import ID, ContainerType, CounterSpan, IdSpan, LoroDoc, LoroTree, TreeID, VersionVector

SAMPLES = 32


def replay_steps(doc: LoroDoc, begins: VersionVector, most: int) -> int:
    """Estimate the number of steps to a root for an operation that depends on `begins`.

    Samples operations by a digest of the document's heads. Counting ends at `most` steps.
    """
    spans = [(span.peer, span.counter.start, span.counter.end) for span in doc.oplog_vv.sub_iter(begins)]
    total = sum(end - first for _, first, end in spans)
    if total * doc.len_ops <= most:
        return total * doc.len_ops
    found, samples = 0, min(SAMPLES, total)
    for peer, counter in sampled(doc, spans):
        found += _depth(doc, peer, counter, most * samples // total + 1 - found)
        if found * total > most * samples:
            break
    return found * total // samples


def sampled(doc: LoroDoc, spans: list[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield up to SAMPLES operations of the spans: peer and counter."""
    heads, total = doc.oplog_frontiers.encode(), sum(end - first for _, first, end in spans)
    for sample in range(min(SAMPLES, total)):
        digest = blake2b(heads + bytes([sample]), digest_size=8).digest()
        yield _operation(spans, int.from_bytes(digest, "big") % total)


def _operation(spans: list[tuple[int, int, int]], number: int) -> tuple[int, int]:
    """Return peer and counter of the operation with that index over all spans."""
    later = iter(spans)
    peer, first, end = next(later)
    while number >= end - first:
        number -= end - first
        peer, first, end = next(later)
    return peer, first + number


def content(doc: LoroDoc, peer: int, counter: int) -> dict[str, object]:
    """Return an operation as in Loro's JSON format."""
    (change,) = json.loads(doc.export_json_in_id_span(IdSpan(peer, CounterSpan(counter, counter + 1))))
    return dict(change["ops"][0]["content"])


def _depth(doc: LoroDoc, peer: int, counter: int, most: int) -> int:
    """Return the current depth of a tree operation's node, up to `most`; 0 for other operations."""
    changed = doc.get_changed_containers_in(ID(peer, counter), 1)
    trees = [one for one in changed if isinstance(one.container_type, ContainerType.Tree)]  # type: ignore[attr-defined]
    if not trees or not isinstance(tree := doc.get_container(trees[0]), LoroTree):
        return 0
    at, _, by = str(content(doc, peer, counter)["target"]).partition("@")
    node: TreeID | None = TreeID(int(by), int(at))
    depth = 0
    while node is not None and depth < most and tree.contains(node):
        node, depth = tree.parent(node), depth + 1
    return depth
