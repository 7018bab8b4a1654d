"""Rebase of unsaved edits onto a state with another history, by a diff merged with remote edits.

A diff contains positions, and remote edits before a position shift it or remove its place.
Loro merges such edits only along a common history, which no longer exists. So this module builds one: on
a copy of the old document, at the base of the local edits, every text and list that they touched is changed
into its current remote content, as if a remote peer had done that. Loro merges both sides; the effect of
the local edits is then the diff. Trees in both documents are merged by their nodes (`tree_rebase`).
"""

from dataclasses import dataclass
from itertools import count

from loro import (
    ID,
    ContainerID,
    ContainerType,
    Diff,
    DiffBatch,
    Frontiers,
    ListDiffItem,
    LoroDoc,
    TreeExternalDiff,
    TreeID,
    ValueOrContainer,
)

from lorogo_client.rebase.diff_normalisation import emptying_diffs, normalise
from lorogo_client.rebase.sequence_alignment import align_list, align_movable_list, align_text
from lorogo_client.rebase.tree_rebase import Node, TreeEdits, apply_tree_edits, places, tree_edits
from lorogo_protocol.loro import crdt

_WITH_POSITIONS = (ContainerType.Text, ContainerType.List, ContainerType.MovableList)


@dataclass(frozen=True, slots=True)
class UnsavedEdits:
    """Edits to apply to a document: edits of its trees, and diffs of other touched containers."""

    trees: dict[ContainerID, TreeEdits]
    diffs: list[tuple[ContainerID, Diff]]
    touched: set[ContainerID]
    renamed: dict[ContainerID, ContainerID]  # containers created under another id than in their diff


def edits_since(old: LoroDoc, base: Frontiers, fresh: LoroDoc) -> UnsavedEdits:
    """Return the edits of `old` on top of `base`, for `apply_edits()` on `fresh`. Raises CrdtError."""
    with crdt.guard():
        diffs = old.diff(base, old.oplog_frontiers).get_diff()
        touched = _touched(old, base)
        shared = [container for container in sorted(touched, key=str) if _has(fresh, container)]
        trees = [container for container in shared if isinstance(_type(container), ContainerType.Tree)]
        lists = [container for container in shared if isinstance(_type(container), _WITH_POSITIONS)]
        if not lists and not trees:
            return UnsavedEdits({}, diffs, touched, {})
        bridge = old.fork()
        after = [places(bridge.get_tree(tree)) for tree in trees]
        bridge.set_detached_editing(True)
        bridge.checkout(base)
        before = [places(bridge.get_tree(tree)) for tree in trees]
        if lists:
            # the lowest free peer id: deterministic, and it loses against local edits of the same Lamport
            # time
            taken = crdt.counters(old.oplog_vv.encode())
            bridge.peer_id = next(peer for peer in count(1) if peer not in taken)
            for container in lists:
                if _has(bridge, container):
                    _align(container, bridge, fresh)
            bridge.commit()
            diffs = bridge.diff(bridge.state_frontiers, bridge.oplog_frontiers).get_diff()
        edits = UnsavedEdits(dict(zip(trees, map(tree_edits, before, after), strict=True)), [], touched, {})
        stayed = {
            _meta(node) for was, now in zip(before, after, strict=True) for node in was.keys() & now.keys()
        }
        _collect(edits, diffs, stayed, bridge, fresh)
        return edits


def apply_edits(fresh: LoroDoc, edits: UnsavedEdits) -> None:
    """Apply the edits except those in containers that were removed; commits nothing. Raises CrdtError."""
    with crdt.guard():
        renamed = dict(edits.renamed)
        for tree, of_tree in edits.trees.items():
            if not _has(fresh, tree):
                continue  # it was removed with a node of another tree
            made = apply_tree_edits(of_tree, fresh.get_tree(tree))
            renamed |= {_meta(node): _meta(new) for node, new in made.items()}
        fresh.apply_diff(_placed(edits, renamed, fresh))


def _collect(
    edits: UnsavedEdits,
    diffs: list[tuple[ContainerID, Diff]],
    stayed: set[ContainerID],
    bridge: LoroDoc,
    fresh: LoroDoc,
) -> None:
    """Add the diffs to the edits; of a container that is only recreated, add only its new content."""
    put_back = set[ContainerID]()
    for container, diff in diffs:  # parents come first
        if container in edits.trees:
            put_back |= _made(diff) & stayed
        elif container not in put_back or not _has(fresh, container):
            edits.diffs.append((container, diff))
        else:
            put_back |= {inside for inside in _made(diff) if _has(bridge, inside)}
            if container in edits.touched:
                news, renamed = normalise(container, diff, bridge)
                edits.diffs.extend((container, new) for new in news)
                edits.renamed.update(renamed)
    # a container that is recreated empty has no diff
    for container in (put_back & edits.touched) - {named for named, _ in diffs}:
        if _has(fresh, container):
            edits.diffs.extend((container, new) for new in emptying_diffs(container, bridge))


def _touched(old: LoroDoc, base: Frontiers) -> set[ContainerID]:
    """Return the containers edited since `base`: a diff also names containers that it only recreates."""
    since = old.frontiers_to_vv(base)
    assert since is not None
    return {
        container
        for span in old.oplog_vv.sub_iter(since)
        for container in old.get_changed_containers_in(
            ID(span.peer, span.counter.start), span.counter.end - span.counter.start
        )
    }


def _has(doc: LoroDoc, container: ContainerID) -> bool:
    """True if the document has the container and it is not removed."""
    return isinstance(container, ContainerID.Root) or doc.get_path_to_container(container) is not None


def _type(container: ContainerID) -> ContainerType:
    assert isinstance(container, ContainerID.Root | ContainerID.Normal)
    return container.container_type


def _align(container: ContainerID, bridge: LoroDoc, fresh: LoroDoc) -> None:
    match _type(container):
        case ContainerType.Text():
            align_text(bridge.get_text(container), fresh.get_text(container))
        case ContainerType.List():
            align_list(bridge.get_list(container), fresh.get_list(container))
        case ContainerType.MovableList():
            align_movable_list(bridge.get_movable_list(container), fresh.get_movable_list(container))


def _placed(edits: UnsavedEdits, renamed: dict[ContainerID, ContainerID], fresh: LoroDoc) -> DiffBatch:
    """Drop the edits in removed containers: they have no place, and Loro may raise."""
    placed, made = DiffBatch(), renamed.keys() - edits.renamed.keys()  # created with their parents
    named = {new: old for old, new in edits.renamed.items()}
    for container, diff in edits.diffs:  # parents come first
        if container in made or (container in edits.touched and _has(fresh, container)):
            placed.push(renamed.get(container, container), diff)
            made |= {named.get(one, one) for one in _made(diff)}
    return placed


def _made(diff: Diff) -> set[ContainerID]:
    """Return the containers that the diff creates."""
    match diff:
        case Diff.List(diff=items):
            inserted = [
                value for item in items if isinstance(item, ListDiffItem.Insert) for value in item.insert
            ]
        case Diff.Map(diff=delta):
            inserted = [value for value in delta.updated.values() if value is not None]
        case Diff.Tree(diff=tree_delta):
            return {
                _meta(item.target)
                for item in tree_delta.diff
                if isinstance(item.action, TreeExternalDiff.Create)
            }
        case _:
            return set()
    return {value.container.id for value in inserted if isinstance(value, ValueOrContainer.Container)}


def _meta(node: Node | TreeID) -> ContainerID:
    return ContainerID.Normal(node.peer, node.counter, ContainerType.Map())
