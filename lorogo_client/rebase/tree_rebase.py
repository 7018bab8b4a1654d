"""Putting our edits of a tree on what others made of it: by nodes, by where each was and where it is now.

Loro's own diff of a tree does not do for that. It cannot be put on a tree that lacks a parent, or where a
move makes a circle, and nothing can be left out of it. And where others' operations come later than ours,
it takes theirs back and makes them again: a copy would replace each node that they made.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from loro import LoroTree, TreeID


class Node(NamedTuple):
    """A TreeID that can be looked up."""

    peer: int
    counter: int

    def id(self) -> TreeID:
        return TreeID(self.peer, self.counter)


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """Where a node is; siblings are sorted by their positions (fractional indexes)."""

    parent: Node | None
    position: str


Places = dict[Node, NodePlacement]  # of all nodes that are there: parents first, siblings in their order


@dataclass(frozen=True, slots=True)
class TreeEdits:
    """Nodes that are new or elsewhere, as in `Places`, and the topmost of those that are gone."""

    made: frozenset[Node]
    placed: Places
    gone: list[Node]


def places(tree: LoroTree) -> Places:
    return {
        _node(node.id): NodePlacement(_node(node.parent) if node.parent else None, node.fractional_index)
        for node in tree.get_nodes(with_deleted=False)
    }


def tree_edits(before: Places, after: Places) -> TreeEdits:
    """What makes the one of the other."""
    gone = before.keys() - after.keys()
    return TreeEdits(
        frozenset(after.keys() - before.keys()),
        {node: place for node, place in after.items() if before.get(node) != place},
        [node for node, place in before.items() if node in gone and place.parent not in gone],
    )


def graft(edits: TreeEdits, tree: LoroTree) -> dict[Node, Node]:
    """Put them on the tree; what the nodes are called that were made in it, by their names in the edits.

    What is below a node that is not there goes with it, and a move that would make a circle is left out.
    A move outlives the deletion of its node, but where nothing is known of the node there is none to move.
    """
    made: dict[Node, Node] = {}
    # as they were given: Loro makes new ones in between, which say nothing of what else we put there
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
    """The nodes below each parent in their order: Loro is asked for them once, however many there are."""

    def __init__(self, tree: LoroTree, positions: dict[Node, str]) -> None:
        self._tree = tree
        self._positions = positions
        self._below: dict[Node | None, list[Node]] = {}

    def index(self, parent: Node | None, position: str) -> int:
        """Where somebody with that position belongs: behind those like it."""
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
    """Whether it is the other one, or below it."""
    while node is not None and node != other:
        node = tree.parent(node)
    return node is not None
