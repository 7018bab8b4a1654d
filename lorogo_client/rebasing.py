"""Putting edits on a state whose history is not ours: by a diff, merged with what others did meanwhile.

A diff speaks of positions, and positions mean another place once others have edited before them, or no
place at all. Loro merges such edits only along a common history, which is gone here. So we make one: on
a copy of the old document, at the base of our edits, every text and list that we touched is changed
into what it is now, as if somebody had done that; Loro merges both, and what our edits add to that is
the diff. A tree's diff speaks of nodes, not of positions, and is taken as it is: Loro refuses one that
moves a node below itself.
"""

from itertools import count

from loro import (
    ContainerID,
    ContainerType,
    Diff,
    DiffBatch,
    Frontiers,
    ListDiffItem,
    LoroDoc,
    LoroTree,
    TreeDiff,
    TreeExternalDiff,
    TreeID,
    ValueOrContainer,
)

from lorogo_client.aligning import align_list, align_movable_list, align_text
from lorogo_protocol import crdt


def edits_since(old: LoroDoc, base: Frontiers, fresh: LoroDoc) -> DiffBatch:
    """What `old` has on top of `base`, as a diff that `fresh` can apply. Raises CrdtError."""
    with crdt.guard():
        edits = old.diff(base, old.oplog_frontiers)
        moved = [container for container, diff in edits.get_diff() if _moved(container, diff, fresh)]
        if moved:
            bridge = old.fork()
            bridge.set_detached_editing(True)
            bridge.checkout(base)
            # the lowest peer that is free: no chance in it, and it yields to our edits where both are as old
            taken = crdt.counters(old.oplog_vv.encode())
            bridge.peer_id = next(peer for peer in count(1) if peer not in taken)
            for container in moved:
                _align(container, bridge, fresh)
            bridge.commit()
            edits = bridge.diff(bridge.state_frontiers, bridge.oplog_frontiers)
        return _placed(edits, fresh)


def _moved(container: ContainerID, diff: Diff, fresh: LoroDoc) -> bool:
    """Whether its diff speaks of positions in what both documents have."""
    return isinstance(diff, Diff.Text | Diff.List) and _has(fresh, container)


def _has(doc: LoroDoc, container: ContainerID) -> bool:
    """Whether it is there, and nobody removed it."""
    return isinstance(container, ContainerID.Root) or doc.get_path_to_container(container) is not None


def _align(container: ContainerID, bridge: LoroDoc, fresh: LoroDoc) -> None:
    assert isinstance(container, ContainerID.Root | ContainerID.Normal)
    match container.container_type:
        case ContainerType.Text():
            align_text(bridge.get_text(container), fresh.get_text(container))
        case ContainerType.List():
            align_list(bridge.get_list(container), fresh.get_list(container))
        case ContainerType.MovableList():
            align_movable_list(bridge.get_movable_list(container), fresh.get_movable_list(container))


def _placed(edits: DiffBatch, fresh: LoroDoc) -> DiffBatch:
    """Without edits inside of what others removed: there is no place for them, and Loro may raise."""
    placed, made = DiffBatch(), set[ContainerID]()
    for container, diff in edits.get_diff():  # parents come first
        if container in made or _has(fresh, container):
            placed.push(container, diff)
            made |= _made(container, diff, fresh)
    return placed


def _made(container: ContainerID, diff: Diff, fresh: LoroDoc) -> set[ContainerID]:
    """The containers that come into being with the diff."""
    match diff:
        case Diff.List(diff=items):
            inserted = [
                value for item in items if isinstance(item, ListDiffItem.Insert) for value in item.insert
            ]
        case Diff.Map(diff=delta):
            inserted = [value for value in delta.updated.values() if value is not None]
        case Diff.Tree(diff=delta):
            return _made_at_nodes(delta, fresh.get_tree(container))
        case _:
            return set()
    return {value.container.id for value in inserted if isinstance(value, ValueOrContainer.Container)}


def _made_at_nodes(delta: TreeDiff, tree: LoroTree) -> set[ContainerID]:
    """Of nodes that are new, or that others deleted and we moved; Loro makes none below one that is gone."""
    made = set[ContainerID]()
    for item in delta.diff:
        if isinstance(item.action, TreeExternalDiff.Create | TreeExternalDiff.Move):
            parent = item.action.parent
            if parent is None or _meta(parent) in made or _has_node(tree, parent):
                made.add(_meta(item.target))
    return made


def _has_node(tree: LoroTree, node: TreeID) -> bool:
    return tree.contains(node) and not tree.is_node_deleted(node)


def _meta(node: TreeID) -> ContainerID:
    return ContainerID.Normal(node.peer, node.counter, ContainerType.Map())
