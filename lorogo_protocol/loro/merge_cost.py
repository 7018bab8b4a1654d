"""Estimates Loro's cost of importing an update, before the import (docs/decisions/0004).

A concurrent update: Loro replays everything since the last version that both sides have. A contiguous run
costs the square of its pieces: parts of 256 characters, or edits that were imported one by one. Marks of a
text cost the square of their number.

An update of many peers: each dependency of a change costs as much as there are peers.
"""

from loro import ID, EncodedBlobMode, Frontiers, ImportBlobMetadata, LoroDoc, VersionVector

from lorogo_protocol.loro import blocks, steps
from lorogo_protocol.loro.tree_replay import SAMPLES, content, sampled

PIECES_MAX = 1_500  # about 0.1 s
_OPERATIONS_A_PIECE = 50  # 75,000 single deletions, or characters of one run, take as long
_MARK_ENDS_MAX = 6_000  # of 3,000 marks
_MOVABLE_OPERATIONS_MAX = (
    50_000  # of a document whose movable list the update changes: Loro reads its history
)
_EDITS_MAX = 50_000  # imported since the document was encoded: the first merge after them takes as long
_BESIDE_MAX = 64  # peers with concurrent changes, and their number times the length of the version vector:
_VECTOR_BYTES_MAX = 200_000  # above them, the update counts as slow
_DEPENDENCY_BYTES = 8  # at least, in an update
_ENTRIES_MAX = 4_000_000  # an update's dependencies times its peers: about 0.1 s

_Spans = list[tuple[int, int, int]]  # peer, first counter, counter after the last


def is_slow(
    doc: LoroDoc, update: ImportBlobMetadata, contents: blocks.Contents, size: int, edits: int
) -> bool:
    """Return True if the import may take more than about 0.1 s.

    `edits`: those imported since the document was encoded, which are separate pieces in memory.
    """
    if update.mode != EncodedBlobMode.Updates and not doc.len_ops:
        return False  # a snapshot into an empty document
    if update.change_num * size > _ENTRIES_MAX and _dependencies(update, size) > _ENTRIES_MAX:
        return True
    own = steps.operations(update.partial_end_vv.sub_iter(update.partial_start_vv))
    if (everything := doc.len_ops + own) <= PIECES_MAX:
        return False
    if is_on_heads(doc, update):
        return False
    apart = edits + doc.len_changes
    if _pieces(everything, apart) <= PIECES_MAX and everything <= _MARK_ENDS_MAX:
        return False
    if (
        edits > _EDITS_MAX
        or not _has_one_start(update)
        or (replayed := _replayed(doc, update.start_frontiers)) is None
    ):
        return True
    if blocks.MOVABLE_LIST in contents.kinds and everything > _MOVABLE_OPERATIONS_MAX:
        return True
    length = sum(end - first for _, first, end in replayed)
    if _pieces(length + own, apart) > PIECES_MAX:
        return True
    if length <= _MARK_ENDS_MAX or blocks.TEXT not in contents.kinds:
        return False
    ends = sum(_is_mark_end(doc, peer, counter) for peer, counter in sampled(doc, replayed))
    return ends * length > _MARK_ENDS_MAX * SAMPLES


def is_on_heads(doc: LoroDoc, update: ImportBlobMetadata) -> bool:
    """Return True if every change of the update was made on the document's version."""
    if not doc.len_ops:
        return True
    return _has_one_start(update) and update.start_frontiers.encode() == doc.oplog_frontiers.encode()


def _has_one_start(update: ImportBlobMetadata) -> bool:
    """Return True if all changes include `start_frontiers`: heads hide the older start of another peer."""
    peers = len(update.partial_end_vv.sub_iter(update.partial_start_vv))
    return update.mode == EncodedBlobMode.Updates and peers <= 1


def _dependencies(update: ImportBlobMetadata, size: int) -> int:
    """Return an upper bound of the dependencies of an update's changes, times its peers."""
    peers = len(update.partial_end_vv.sub_iter(update.partial_start_vv))
    return peers * min(size // _DEPENDENCY_BYTES, peers * update.change_num)


def _pieces(operations: int, apart: int) -> int:
    return operations // _OPERATIONS_A_PIECE + min(operations, apart)


def _is_mark_end(doc: LoroDoc, peer: int, counter: int) -> bool:
    return content(doc, peer, counter).get("type") in ("mark", "mark_end")


def _replayed(doc: LoroDoc, start: Frontiers) -> _Spans | None:
    """Return the document's operations since the last common version; None if they are unclear."""
    have, begins = doc.oplog_vv, doc.frontiers_to_vv(start)
    if begins is None:
        return None  # trimmed
    beside = have.sub_iter(begins)
    if len(beside) > _BESIDE_MAX or len(beside) * len(have.encode()) > _VECTOR_BYTES_MAX:
        return None
    first: dict[int, int] = {}
    ends: dict[int, int] = {}
    for common in [begins, *(_before(doc, ID(span.peer, span.counter.start)) for span in beside)]:
        for span in have.sub_iter(common):
            first[span.peer] = min(span.counter.start, first.get(span.peer, span.counter.start))
            ends[span.peer] = span.counter.end
    return [(peer, at, ends[peer]) for peer, at in first.items()]


def _before(doc: LoroDoc, operation: ID) -> VersionVector:
    """Return the version that the operation was made on."""
    change = doc.get_change(operation)
    if change is None:
        return doc.shallow_since_vv  # trimmed: nothing before it can be replayed
    inside = operation.counter > change.id.counter
    made_on = Frontiers.from_ids([ID(operation.peer, operation.counter - 1)]) if inside else change.deps
    return doc.frontiers_to_vv(made_on) or doc.shallow_since_vv
