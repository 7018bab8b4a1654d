"""Rebase of local edits of a tree onto a remote version, node by node: old and new placement of each.

Loro's own diff of a tree is not sufficient. It cannot be applied to a tree that lacks a parent or where a
move creates a cycle, and no part of it can be omitted. And where remote operations are later than local
ones, it undoes and repeats them: a copy would replace each node that they created.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from loro import LoroTree, TreeID


class Node(NamedTuple):
    """A hashable TreeID."""

    peer: int
    counter: int

    def id(self) -> TreeID:
        return TreeID(self.peer, self.counter)


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """A node's parent and position; siblings are sorted by position (fractional index)."""

    parent: Node | None
    position: str


Places = dict[Node, NodePlacement]  # of all existing nodes: parents first, siblings in order


@dataclass(frozen=True, slots=True)
class TreeEdits:
    """Created and moved nodes, as in `Places`, and the topmost deleted nodes."""

    made: frozenset[Node]
    placed: Places
    gone: list[Node]


def places(tree: LoroTree) -> Places:
    return {
        _node(node.id): NodePlacement(_node(node.parent) if node.parent else None, node.fractional_index)
        for node in tree.get_nodes(with_deleted=False)
    }


def tree_edits(before: Places, after: Places) -> TreeEdits:
    """Return the edits that turn `before` into `after`."""
    gone = before.keys() - after.keys()
    return TreeEdits(
        frozenset(after.keys() - before.keys()),
        {node: place for node, place in after.items() if before.get(node) != place},
        [node for node, place in before.items() if node in gone and place.parent not in gone],
    )


def apply_tree_edits(edits: TreeEdits, tree: LoroTree) -> dict[Node, Node]:
    """Apply the edits to the tree; return the ids of created nodes, by their ids in the edits.

    Nodes below a missing node are dropped with it, and a move that would create a cycle is skipped.
    A move wins over the deletion of its node, but a moved node that the tree never had is skipped.
    """
    made: dict[Node, Node] = {}
    # the original positions: Loro assigns new ones in between, which do not order later insertions
    positions = {node: place.position for node, place in places(tree).items()}
    siblings = _Siblings(tree, positions)
    for node, place in edits.placed.items():
        parent = None if place.parent is None else made.get(place.parent, place.parent)
        below = None if parent is None else parent.id()
        if below is not None and not _is_there(tree, below):
            continue
        if _is_there(tree, node.id()):
            if not _is_within(tree, below, node.id()):
                siblings.leave(node)
                index = siblings.index(parent, place.position)
                tree.mov_to(node.id(), index, below)
                siblings.join(parent, index, node, place.position)
        elif node in edits.made or tree.contains(node.id()):
            index = siblings.index(parent, place.position)
            made[node] = _node(tree.create_at(index, below))
            siblings.join(parent, index, made[node], place.position)
    for node in edits.gone:
        if _is_there(tree, node.id()):
            tree.delete(node.id())
    return made


class _Siblings:
    """The children of each parent in order, read from Loro once per parent."""

    def __init__(self, tree: LoroTree, positions: dict[Node, str]) -> None:
        self._tree = tree
        self._positions = positions
        self._below: dict[Node | None, list[Node]] = {}

    def index(self, parent: Node | None, position: str) -> int:
        """Return the insertion index for a position: after equal ones."""
        return bisect_right(self._of(parent), position, key=self._positions.__getitem__)

    def join(self, parent: Node | None, index: int, node: Node, position: str) -> None:
        self._of(parent).insert(index, node)
        self._positions[node] = position

    def leave(self, node: Node) -> None:
        parent = self._tree.parent(node.id())
        self._of(None if parent is None else _node(parent)).remove(node)

    def _of(self, parent: Node | None) -> list[Node]:
        if parent not in self._below:
            children = self._tree.children(None if parent is None else parent.id())
            self._below[parent] = [_node(child) for child in children or []]
        return self._below[parent]


def _node(node: TreeID) -> Node:
    return Node(node.peer, node.counter)


def _is_there(tree: LoroTree, node: TreeID) -> bool:
    return tree.contains(node) and not tree.is_node_deleted(node)


def _is_within(tree: LoroTree, node: TreeID | None, other: TreeID) -> bool:
    """True if `node` is `other` or below it."""
    while node is not None and node != other:
        node = tree.parent(node)
    return node is not None
