"""Wrapper of Loro: translates its errors, and offers a `Replica` with atomic imports.

Loro's Python errors are bare `BaseException`s, and a panic inside it is a `PanicException`: both
pass through every `except Exception`. `guard()` translates them to `CrdtError`s. Other properties of Loro:

- an import may be *pending*: nothing, or only a part, was applied. A `Replica` checks the dependencies of an
  update before the import, so that an update is applied completely or not at all.
- a document loaded from a shallow snapshot refuses edits that depend on trimmed history.
- Loro holds the interpreter's lock while it works: an import blocks every thread. Its time grows with
  the update's peers times its changes, except for a snapshot into an empty document.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import xxhash
from loro import (
    ID,
    ContainerID,
    EncodedBlobMode,
    ExportMode,
    Frontiers,
    ImportBlobMetadata,
    LoroDoc,
    LoroList,
    LoroMap,
    LoroMovableList,
    LoroText,
    LoroTree,
    VersionVector,
)

from lorogo_protocol.errors import (
    CrdtError,
    HistoryTrimmed,
    InvalidUpdate,
    OperationIdsReused,
    TooFarBehind,
    TooLong,
    TooManyPeers,
)
from lorogo_protocol.limits import (
    EDITS_BESIDE_MAX,
    EDITS_MAX,
    MERGED_OPERATIONS_MAX,
    RUN_BESIDE_OPERATIONS_MAX,
    SNAPSHOT_MERGED_OPERATIONS_MAX,
    TREE_BESIDE_OPERATIONS_MAX,
    TREE_REPLAY_STEPS_MAX,
    UNSTEPPED_OPERATIONS_MAX,
    UPDATE_PEER_CHANGES_MAX,
    UPDATE_PEERS_MAX,
)
from lorogo_protocol.loro import blocks, merge_cost, operation_ids, steps, tree_replay
from lorogo_protocol.loro.frontiers import heads

_UNSETTLED_BYTES_MAX = 16 * 1024  # of updates in a lazy replica's history that are not in its state
MARKS_MAX = 500  # of texts, imported since the document was encoded: their cost grows with the square
_REPLAY_TOGETHER = 1000  # updates between two state computations: a long run of text has quadratic cost
_ORDERED = frozenset({blocks.LIST, blocks.TEXT})  # edits of maps and counters merge quickly
_UNSTEPPED = frozenset({blocks.TREE, blocks.MOVABLE_LIST})
# The header of an export: magic, 12 zero bytes, xxh32 of the bytes after the checksum, and the mode.
_MAGIC = b"loro"
_MAGIC_SEED = int.from_bytes(b"LORO", "little")
_HEADER_BYTES = 22
_SNAPSHOT_MODE = 3
_TRIMMED = ("not included in the shallow history", "before the shallow history's start")


class CrdtPanic(CrdtError):
    """Loro panicked: discard the document in memory."""

    code = "crdt-panic"


class SlowImport(CrdtError):
    """Importing the update may take long; it passed the checks, and nothing was applied."""

    code = "slow-import"

    def __init__(self, *, behind: bool) -> None:
        """`behind`: the document has changes that the update's writer had not."""
        super().__init__("importing the update may take long")
        self.behind = behind


class UnclearPanic(CrdtPanic):
    """Loro panicked over one of several updates: only a load that validates each of them finds it."""


def _ours(error: BaseException) -> CrdtError | None:
    """Translate an error of Loro; return None for other errors."""
    if type(error).__name__ == "PanicException":
        return CrdtPanic(str(error))
    if type(error) is not BaseException:
        return None
    text = str(error)
    if any(mark in text for mark in _TRIMMED):
        return HistoryTrimmed(text)
    if "Decode error" in text or "decode" in text.lower():
        return InvalidUpdate(text)
    return CrdtError(text)


@contextmanager
def guard() -> Iterator[None]:
    """Translate Loro's errors to CrdtError, InvalidUpdate, HistoryTrimmed or CrdtPanic."""
    try:
        yield
    except BaseException as error:
        if (ours := _ours(error)) is None:
            raise
        raise ours from None


@contextmanager
def reading() -> Iterator[None]:
    """Translate as `guard()`, but an unspecific error becomes InvalidUpdate; for reading foreign bytes."""
    try:
        with guard():
            yield
    except CrdtError as error:
        if type(error) is CrdtError:
            raise InvalidUpdate(str(error)) from None
        raise


@dataclass(frozen=True, slots=True)
class Version:
    """Version of a replica, in Loro's own encodings."""

    frontiers: bytes
    vector: bytes


@dataclass(frozen=True, slots=True)
class Applied:
    """The complete update is in the document; `new` is False if it was there before."""

    new: bool
    #: added changes: (peer, first counter, counter after the last) of each peer
    spans: tuple[tuple[int, int, int], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Unready:
    """The update depends on missing changes; nothing was applied."""


class Replica:
    """A LoroDoc with atomic imports and translated errors.

    A `lazy` replica imports small updates into its history only, and computes the state at a read
    (`settled()`) or after enough updates. Servers use it: imports are many times faster with many concurrent
    editors. The pending part stays small, because computing one long run of text has quadratic cost
    (docs/decisions/0004). A long run of one peer is computed in steps, with linear cost, if other peers wrote
    little concurrently.
    """

    def __init__(self, doc: LoroDoc | None = None, *, lazy: bool = False) -> None:
        self.doc: LoroDoc = LoroDoc() if doc is None else doc
        self.lazy = lazy
        self._unsettled_updates = self._unsettled_bytes = 0
        self._unsettled_operations = self._unsettled_edits = 0
        self._edits = self._marks = 0  # imported since the document was encoded

    @classmethod
    def from_snapshot(cls, snapshot: bytes, *, lazy: bool = False, foreign: bool = False) -> "Replica":
        """Return a replica with the content of the snapshot. Raises as `apply` does."""
        replica = cls(lazy=lazy)
        with reading():
            if foreign:
                replica._check_width(LoroDoc.decode_import_blob_meta(snapshot, False))
            status = replica.doc.import_(snapshot)
        if status.pending is not None:
            raise InvalidUpdate("the snapshot is incomplete")
        return replica

    def apply(
        self,
        update: bytes,
        origin: str = "",
        *,
        foreign: bool = False,
        accepted: bool = False,
        new: bool = False,
        defer: bool = False,
        settle: bool = True,
    ) -> Applied | Unready:
        """Import an update completely or not at all. Raises InvalidUpdate, HistoryTrimmed, CrdtPanic.

        Args:
            foreign: Check the limits (raises TooManyPeers), and, unless `accepted`, that its operation ids
                are unique (raises OperationIdsReused).
            accepted: A server accepted the update before.
            new: No server can have accepted it yet: it must also be quick to compute (raises TooLong,
                TooFarBehind).
            defer: Do not start an import that may take long (raises SlowImport).
            settle: Compute the state if it is due; otherwise the caller does, by `settling()`.
        """
        try:  # inlined `reading()`, which costs as much as the import of a keystroke
            applied = self._apply(update, origin, foreign, accepted, new, defer)
            if settle and self.is_due:
                self._settle_what_is_in()
            return applied
        except CrdtError:
            raise
        except BaseException as error:
            if (ours := _ours(error)) is None:
                raise
            raise (InvalidUpdate(str(ours)) if type(ours) is CrdtError else ours) from None

    def _apply(
        self, update: bytes, origin: str, foreign: bool, accepted: bool, new: bool, defer: bool
    ) -> Applied | Unready:
        doc = self.doc
        needs = LoroDoc.decode_import_blob_meta(update, False)
        if (
            foreign and needs.change_num > UPDATE_PEERS_MAX
        ):  # every peer has a change, so fewer changes cannot exceed the limits
            self._check_width(needs)
            if _skips_decoding(needs) and doc.oplog_vv.includes_vv(needs.partial_end_vv):
                return Applied(False)  # the sandbox has not decoded it, and it adds nothing
        if self._missing(needs) is not None:
            return Unready()  # before the ids are compared: a missing dependency may have them
        if foreign and not accepted and self._is_repetition(update, needs):
            return Applied(False)
        if self.lazy or defer:
            contents = blocks.contents(update)
            length = steps.operations(needs.partial_end_vv.sub_iter(needs.partial_start_vv))
            large = len(update) >= _UNSETTLED_BYTES_MAX or length > steps.STEP_OPERATIONS
            if new:
                self._check_short(needs, contents)
                if large:
                    self._check_time(needs, contents)
            if defer and self._is_slow(update, needs, contents):
                raise SlowImport(behind=not merge_cost.is_on_heads(doc, needs))
            self._edits, self._marks = self._edits + contents.edits, self._marks + contents.marks
            if self.lazy:
                self._prepare(needs, len(update), contents, large=large)
            if self.doc.is_detached():
                self._unsettled_edits += contents.edits
        status = doc.import_with(update, origin) if origin else doc.import_(update)
        if status.pending is not None:
            # All declared dependencies were present, yet Loro keeps a part pending and would apply it
            # later by itself. Only a fresh document drops it.
            raise CrdtPanic("the update declares wrong dependencies")
        added = status.success.inner()
        spans = tuple([(peer, first, end) for peer, (first, end) in added.items()])
        if self._unsettled_bytes:
            self._unsettled_operations += sum(end - first for _, first, end in spans)
        return Applied(bool(added), spans)

    def check_ids(self, update: bytes) -> None:
        """Raise OperationIdsReused if the document has other content under the update's operation ids."""
        with reading():
            meta = LoroDoc.decode_import_blob_meta(update, False)
            if self._missing(meta) is None:
                self._check_ids(update, meta)

    def _is_repetition(self, update: bytes, meta: ImportBlobMetadata) -> bool:
        """Return True if the document has the complete update. Raises OperationIdsReused.

        The caller then skips the import: it would decode the update again, and a panic over another update
        would be attributed to this one, although it was accepted before.
        """
        same = self._check_ids(update, meta)
        if same is False or not self.doc.oplog_vv.includes_vv(meta.partial_end_vv):
            return False
        return same or self.covers(update)

    def _check_ids(self, update: bytes, meta: ImportBlobMetadata) -> bool | None:
        """Compare the content under the operation ids that both have. Raises OperationIdsReused.

        True: equal. None: no shared ids, or not comparable, which counts as equal (trimmed history, movable
        lists after a long one). False: the update does not decode, and the import reports the reason.
        """
        if not (shared := operation_ids.overlap(self.doc, meta)):
            return None
        same: bool | None = False
        for exact in (False, True):
            try:
                with guard():
                    found = operation_ids.contradicts(self.doc, update, meta, shared, exact=exact)
            except CrdtError:
                continue
            if found:
                raise OperationIdsReused(
                    "the document has other content under the update's operation ids: use a new peer id"
                )
            if found is False:
                return True
            same = None
        return same

    def takes(self, update: bytes) -> bool:
        """Return True if the update is within the limits of a `foreign` one."""
        try:
            with reading():
                self._check_width(LoroDoc.decode_import_blob_meta(update, False))
        except TooManyPeers:
            return False
        return True

    def _check_width(self, needs: ImportBlobMetadata) -> None:
        """Raise TooManyPeers if the import would take too long."""
        if not (why := _width(needs)):
            return
        have = self.doc.oplog_vv
        quick = have.includes_vv(needs.partial_end_vv) or (_whole(needs) and have.encode() == nothing_known())
        if not quick:
            raise TooManyPeers(why)

    def missing(self, update: bytes) -> tuple[int, int] | None:
        """Return an operation (peer, counter) that the update depends on and that is not here; None: all are.

        Raises InvalidUpdate.
        """
        with reading():
            return self._missing(LoroDoc.decode_import_blob_meta(update, False))

    def _missing(self, needs: ImportBlobMetadata) -> tuple[int, int] | None:
        have = self.doc.oplog_vv
        if have.includes_vv(needs.partial_end_vv):
            return None  # the document has the complete update
        match needs.mode:
            case EncodedBlobMode.Snapshot | EncodedBlobMode.OutdatedSnapshot:
                return None
            case EncodedBlobMode.ShallowSnapshot if have.encode() == nothing_known():
                return None
            case _ if not have.includes_vv(needs.partial_start_vv):
                span = needs.partial_start_vv.sub_iter(have)[0]
                return span.peer, span.counter.end - 1
            case _ if needs.start_frontiers.encode() == self.doc.oplog_frontiers.encode():
                return None  # the common case: it builds on the current heads
            case _:
                absent = (head for head in heads(needs.start_frontiers) if not have.includes_id(head))
                return next(((head.peer, head.counter) for head in absent), None)

    def _is_long_run(self, needs: ImportBlobMetadata) -> bool:
        """Return True if it is a run of one peer, longer than a step, with few concurrent operations."""
        if needs.mode != EncodedBlobMode.Updates:
            return False
        missing = needs.partial_end_vv.sub_iter(needs.partial_start_vv)
        if len(missing) != 1 or (length := steps.operations(missing)) <= steps.STEP_OPERATIONS:
            return False
        here = self.doc.oplog_frontiers.encode()
        begins = needs.start_frontiers.encode()
        if begins == here:
            return True
        known = self._known(begins)
        return known is not None and steps.is_little(self.doc, self.doc.oplog_vv, known, length)

    def _is_slow(self, update: bytes, needs: ImportBlobMetadata, contents: blocks.Contents) -> bool:
        """Return True if the import may take more than about 0.1 s."""
        if self.doc.oplog_vv.includes_vv(needs.partial_end_vv):
            return False
        return self._marks + contents.marks > MARKS_MAX or merge_cost.is_slow(
            self.doc, needs, contents, len(update), self._edits
        )

    def _check_short(self, needs: ImportBlobMetadata, contents: blocks.Contents) -> None:
        """Raise TooLong or TooFarBehind for small updates that may take long: of trees, and snapshots."""
        have = self.doc.oplog_vv
        if needs.mode != EncodedBlobMode.Updates:
            length = steps.operations(needs.partial_end_vv.sub_iter(have))
            if length > SNAPSHOT_MERGED_OPERATIONS_MAX and have.encode() != nothing_known():
                raise TooLong(
                    f"the snapshot adds {length} operations to a document with content, above the limit of"
                    f" {SNAPSHOT_MERGED_OPERATIONS_MAX}; send the changes as updates"
                )
        if blocks.TREE not in contents.kinds or have.includes_vv(needs.partial_end_vv):
            return
        if merge_cost.is_on_heads(self.doc, needs):
            return
        one = len(needs.partial_end_vv.sub_iter(needs.partial_start_vv)) == 1
        begins = self.doc.frontiers_to_vv(needs.start_frontiers) if one else VersionVector()
        most = TREE_REPLAY_STEPS_MAX
        if begins is not None and tree_replay.replay_steps(self.doc, begins, most) > most:
            raise TooFarBehind(
                "the update changes a tree concurrently with many operations on deep nodes;"
                " sync, then make the change again"
            )

    def _check_time(self, needs: ImportBlobMetadata, contents: blocks.Contents) -> None:
        """Raise TooLong if computing the state takes long and cannot run in steps."""
        have = self.doc.oplog_vv
        if needs.mode != EncodedBlobMode.Updates or have.includes_vv(needs.partial_end_vv):
            return
        if contents.edits > EDITS_MAX:
            raise TooLong(
                f"the update has {contents.edits} edits, above the limit of {EDITS_MAX};"
                " split the change into smaller commits"
            )
        missing = needs.partial_end_vv.sub_iter(needs.partial_start_vv)
        length = steps.operations(missing)
        begins = self.doc.frontiers_to_vv(needs.start_frontiers) if len(missing) == 1 else VersionVector()
        beside = 0 if begins is None else steps.operations(have.sub_iter(begins))
        if not contents.kinds.isdisjoint(_UNSTEPPED):
            merges = beside and blocks.TREE in contents.kinds  # Loro takes the square of the depth
            most = TREE_BESIDE_OPERATIONS_MAX if merges else UNSTEPPED_OPERATIONS_MAX
            if length > most:
                raise TooLong(
                    f"the update has {length} operations, above the limit of {most} for changes of trees and"
                    " movable lists; split the change into smaller commits"
                )
        if beside and contents.edits > EDITS_BESIDE_MAX and not contents.kinds.isdisjoint(_ORDERED):
            raise TooLong(
                f"the update has {contents.edits} edits concurrent with {beside} operations, above the limit"
                f" of {EDITS_BESIDE_MAX}; sync, then split the change into smaller commits"
            )
        if length <= MERGED_OPERATIONS_MAX:
            return
        if len(missing) > 1:
            raise TooLong(
                f"the update has {length} operations of several peers, above the limit of"
                f" {MERGED_OPERATIONS_MAX}; send smaller updates, or a snapshot into a new document"
            )
        if beside > MERGED_OPERATIONS_MAX or (beside and length > RUN_BESIDE_OPERATIONS_MAX):
            raise TooLong(
                f"the update has {length} operations concurrent with {beside}, above the limit;"
                " sync, then split the change into smaller commits"
            )

    def _prepare(
        self, needs: ImportBlobMetadata, size: int, contents: blocks.Contents, *, large: bool
    ) -> None:
        """Prepare a lazy replica for an import: detach it for a small update, settle it for a large one.

        A large update that is one long run is imported detached as well, and settled in steps. Trees are not:
        attaching a detached document takes the square of the tree's depth.
        """
        kinds = contents.kinds
        # Loro imports a shallow snapshot only into an attached document.
        whole = needs.mode == EncodedBlobMode.ShallowSnapshot or blocks.TREE in kinds
        if whole or large:
            self.settled()
            if whole or blocks.MOVABLE_LIST in kinds or not self._is_long_run(needs):
                return
        if not self.doc.is_detached():
            self.doc.detach()
        self._unsettled_updates += 1
        self._unsettled_bytes += size

    @property
    def is_due(self) -> bool:
        """True if the state must be computed now, because the pending part of the history is large."""
        if self._unsettled_bytes >= _UNSETTLED_BYTES_MAX:
            return True
        return self._unsettled_operations > steps.STEP_OPERATIONS  # deletions are small in bytes

    def settling(self) -> Generator[None, None, None]:
        """Compute the state if `is_due`, and yield between two steps.

        Raises CrdtPanic if the last update is the cause, UnclearPanic if another one may be. The version is
        the new one from the first step on. `settled()` between two steps runs the remaining steps.
        """
        if not self.is_due:
            return
        panic = UnclearPanic if self._unsettled_updates > 1 else CrdtPanic
        try:
            with guard():
                yield from self._steps()
        except CrdtError as error:  # only a fresh document drops the update from the history
            raise panic(str(error)) from None

    def _settle_what_is_in(self) -> None:
        for _ in self.settling():
            pass

    def _steps(self) -> Iterator[None]:
        doc = self.doc
        if doc.is_detached():
            if self._unsettled_operations > steps.STEP_OPERATIONS:
                scattered = self._unsettled_edits > self._unsettled_operations // 10
                yield from steps.walk(doc, steps.STEP_EDITS if scattered else steps.STEP_OPERATIONS)
            doc.attach()
        self._nothing_unsettled()

    def _nothing_unsettled(self) -> None:
        self._unsettled_updates = self._unsettled_bytes = self._unsettled_operations = 0
        self._unsettled_edits = 0

    def adopt(self, snapshot: bytes) -> tuple[tuple[int, int, int], ...]:
        """Replace the document by a later snapshot of it; return what that adds, as `Applied.spans`."""
        doc = Replica.from_snapshot(snapshot).doc
        with guard():
            before = self.doc.oplog_vv
            if not doc.oplog_vv.includes_vv(before):
                raise CrdtPanic("the snapshot lacks changes of the document")
            added = doc.oplog_vv.sub_iter(before)
        self.doc, self._edits, self._marks = doc, 0, 0
        self._nothing_unsettled()
        return tuple((span.peer, span.counter.start, span.counter.end) for span in added)

    def settled(self) -> LoroDoc:
        """Return the document with a current state. Raises UnclearPanic if it has a forged update."""
        if self.lazy:
            try:
                with guard():
                    for _ in self._steps():
                        pass
            except CrdtPanic as error:
                raise UnclearPanic(str(error)) from None
        return self.doc

    def covers(self, update: bytes) -> bool:
        """Return True if the document has every change of the update."""
        with reading():
            meta = LoroDoc.decode_import_blob_meta(update, True)  # True: also verify its checksum
            return bool(self.doc.oplog_vv.includes_vv(meta.partial_end_vv))

    def edited_roots(self, peer: int) -> bytes:
        """Edit each root container as the peer, and return the update. For a copy that is thrown away."""
        with guard():
            doc, before = self.settled(), self.doc.oplog_vv
            doc.peer_id = peer
            roots = doc.get_value()
            assert isinstance(roots, dict)
            for root in roots.values():
                match doc.get_container(root) if isinstance(root, ContainerID) else None:
                    case LoroText() as text:
                        text.insert(0, "x")
                    case LoroList() | LoroMovableList() as items:
                        items.insert(0, 0)
                    case LoroTree() as tree:
                        tree.create()
                    case LoroMap() as entries:
                        entries.insert("", 0)
                    case _:
                        pass
            doc.get_map("edited").insert("", 0)
            doc.commit()
            return doc.export(ExportMode.Updates(before))

    def version(self) -> Version:
        """Return the version, including uncommitted edits."""
        with guard():
            return Version(self.doc.oplog_frontiers.encode(), self.doc.oplog_vv.encode())

    def frontiers(self) -> bytes:
        """Return the encoded heads."""
        with guard():
            return self.doc.oplog_frontiers.encode()

    def vector_of(self, frontiers: bytes) -> bytes | None:
        """Return the version vector of heads; None if the oplog does not have them."""
        with guard():
            wanted = self._known(frontiers)
            vector = None if wanted is None else self.doc.frontiers_to_vv(wanted)
            return None if vector is None else vector.encode()

    def operations_at(self, frontiers: bytes) -> int | None:
        """Return the number of operations up to these heads, including trimmed ones; None if unknown."""
        vector = self.vector_of(frontiers)
        return None if vector is None else sum(counters(vector).values())

    def _known(self, frontiers: bytes) -> Frontiers | None:
        """Decode heads; return None if one is missing: Loro panics over it, and stays broken."""
        wanted = Frontiers.decode(frontiers)
        have = self.doc.oplog_vv
        known = all(head.counter >= 0 and have.includes_id(head) for head in heads(wanted))
        return wanted if known else None

    def includes(self, vector: bytes) -> bool:
        """Return True if the replica has all changes of the vector."""
        with guard():
            return bool(self.doc.oplog_vv.includes_vv(VersionVector.decode(vector)))

    def updates_since(self, vector: bytes) -> bytes:
        """Export the changes that the vector lacks, as one update."""
        with guard():
            return self.doc.export(ExportMode.Updates(VersionVector.decode(vector)))

    def can_serve_since(self, vector: bytes) -> bool:
        """Return True if a replica at that vector can apply `updates_since`: no needed history is trimmed."""
        with guard():
            if not self.doc.is_shallow():
                return True
            return bool(VersionVector.decode(vector).includes_vv(self.doc.shallow_since_vv))

    def snapshot(self) -> bytes:
        """Export the document with its history."""
        with guard():
            return self.settled().export(ExportMode.Snapshot())

    def shallow_snapshot(self, frontiers: bytes) -> bytes:
        """Export the state with history from these heads on (from the last single head before them)."""
        with guard():
            return self.settled().export(ExportMode.ShallowSnapshot(Frontiers.decode(frontiers)))

    def trimmed(self) -> bytes:
        """Return the version vector before which history is trimmed; the empty one if it is complete."""
        with guard():
            return self.doc.shallow_since_vv.encode()

    @property
    def shallow(self) -> bool:
        """True if history was trimmed."""
        with guard():
            return bool(self.doc.is_shallow())

    def at(self, frontiers: bytes) -> "Replica":
        """Return a read-only copy as of these heads. Raises HistoryTrimmed if they are unknown."""
        copy = self.fork()
        copy.check_out(frontiers)  # fork_at is not implemented on shallow documents
        return copy

    def revert_to(self, frontiers: bytes) -> None:
        """Restore the content of these heads by a new change."""
        with guard():
            wanted = self._known(frontiers)
            if wanted is None or self.doc.frontiers_to_vv(wanted) is None:
                raise HistoryTrimmed("that version is not in this document's history")
            self.settled().revert_to(wanted)
            self.doc.commit()

    def write_as(self, peer: int) -> None:
        """Set the peer id of later changes, for a copy in a forked process."""
        with guard():
            self.settled().peer_id = peer

    @property
    def operations(self) -> int:
        """Number of operations, including trimmed ones."""
        with guard():
            return steps.operations(self.doc.oplog_vv.sub_iter(VersionVector()))

    def check_out(self, frontiers: bytes) -> None:
        """Check out these heads in this replica. Raises HistoryTrimmed if they are unknown."""
        with guard():
            wanted = self._known(frontiers)
            if wanted is None or self.doc.frontiers_to_vv(wanted) is None:
                raise HistoryTrimmed("that version is not in this document's history")
            self.settled().checkout(wanted)

    def fork(self) -> "Replica":
        """Return an independent copy."""
        with guard():
            return Replica(self.settled().fork())

    def value(self) -> object:
        """Return the document as plain Python values."""
        with guard():
            return self.settled().get_deep_value()


def replayed(updates: Iterable[bytes]) -> Replica | None:
    """Return a replica of many updates, imported one after another without checks.

    None if an update depends on a later or missing one. Raises InvalidUpdate, HistoryTrimmed, CrdtPanic,
    without the update that caused it.
    """
    doc = LoroDoc()
    with reading():
        doc.detach()
        for number, update in enumerate(updates, 1):
            if doc.import_(update).pending is not None:
                return None
            if number % _REPLAY_TOGETHER == 0:
                doc.attach()
                doc.detach()
        doc.attach()
    return Replica(doc)


def history_json(replica: Replica) -> str:
    """Export every change of the replica in Loro's JSON format."""
    with guard():
        doc = replica.settled()
        return str(doc.export_json_updates(doc.shallow_since_vv, doc.oplog_vv))


def is_version(frontiers: bytes) -> bool:
    """Return True if the bytes encode at least one head and have no trailing data."""
    try:
        with guard():
            decoded = Frontiers.decode(frontiers)
            return bool(heads(decoded)) and decoded.encode() == frontiers
    except CrdtError:
        return False


def vector_of(ends: Mapping[int, int]) -> bytes:
    """Return the version vector with these ends, by peer."""
    vector = VersionVector()
    for peer, end in ends.items():
        vector.set_end(ID(peer, end))
    return bytes(vector.encode())


def nothing_known() -> bytes:
    """Return the version vector of an empty replica."""
    return b"\x00"


def no_frontiers() -> bytes:
    """Return the frontiers of an empty replica."""
    return b"\x00"


def vector_items(vector: bytes) -> tuple[tuple[int, int], ...]:
    """Return the sorted entries of a version vector: equal vectors may have different encodings."""
    with guard():
        found = VersionVector.decode(vector).sub_iter(VersionVector())
        return tuple(sorted((span.peer, span.counter.end) for span in found))


def spans(update: bytes) -> tuple[tuple[int, int, int], ...]:
    """Return the changes of the update: (peer, first counter, counter after the last) of each peer."""
    with reading():
        meta = LoroDoc.decode_import_blob_meta(update, False)
        found = meta.partial_end_vv.sub_iter(meta.partial_start_vv)
        return tuple((span.peer, span.counter.start, span.counter.end) for span in found)


def ends(update: bytes) -> bytes:
    """Return the version vector of the update's changes: a document that includes it has all of them."""
    with reading():
        return LoroDoc.decode_import_blob_meta(update, False).partial_end_vv.encode()


def too_wide(update: bytes) -> bool:
    """Return True if the update exceeds the limits of peers and changes."""
    with reading():
        return bool(_width(LoroDoc.decode_import_blob_meta(update, False)))


def _width(meta: ImportBlobMetadata) -> str:
    """Return which limit of peers and changes is exceeded, as a message; "" if none."""
    changes = meta.change_num
    if changes <= UPDATE_PEERS_MAX:
        return ""  # every peer has a change
    peers = len(meta.partial_end_vv.sub_iter(meta.partial_start_vv))
    if peers > UPDATE_PEERS_MAX:
        return f"the update has changes of {peers} peers, above the limit of {UPDATE_PEERS_MAX}"
    if peers * changes > UPDATE_PEER_CHANGES_MAX:
        most = UPDATE_PEER_CHANGES_MAX // peers
        return f"the update has {changes} changes, above the limit of {most} for {peers} peers"
    return ""


def _whole(meta: ImportBlobMetadata) -> bool:
    """Return True for a snapshot, which Loro imports quickly into an empty document."""
    return meta.mode in (EncodedBlobMode.Snapshot, EncodedBlobMode.ShallowSnapshot)


def _skips_decoding(meta: ImportBlobMetadata) -> bool:
    """Return True if `try_decoding` reads only the metadata: no server imports such a wide update."""
    return not _whole(meta) and bool(_width(meta))


def check_snapshot_frame(payload: bytes) -> None:
    """Raise InvalidUpdate unless the header is that of a snapshot with a right checksum.

    It reads the frame only: a forged snapshot passes, but cannot crash the process here.
    """
    if payload[:4] != _MAGIC or len(payload) < _HEADER_BYTES:
        raise InvalidUpdate("Loro's header is missing")
    if int.from_bytes(payload[20:_HEADER_BYTES], "big") != _SNAPSHOT_MODE:
        raise InvalidUpdate("Loro's header is that of another kind of export")
    checksum = int.from_bytes(payload[16:20], "little")
    if xxhash.xxh32_intdigest(memoryview(payload)[20:], _MAGIC_SEED) != checksum:
        raise InvalidUpdate("the checksum is wrong")


def try_decoding(update: bytes) -> None:
    """Decode foreign bytes as an import does. Raises CrdtError.

    A forged update may crash the process, which cannot be caught (docs/decisions/0004).
    """
    with reading():
        meta = LoroDoc.decode_import_blob_meta(update, False)
        if meta.change_num > UPDATE_PEERS_MAX and _skips_decoding(meta):
            return
        doc = LoroDoc()
        doc.detach()  # import the history only: decoding happens there, and the state costs more
        doc.import_(update)


def change_count(update: bytes) -> int | None:
    """Return the number of changes in the update; None if it does not decode."""
    try:
        with guard():
            return int(LoroDoc.decode_import_blob_meta(update, False).change_num)
    except CrdtError:
        return None


def counters(vector: bytes) -> dict[int, int]:
    """Decode a version vector: by peer, the counter after its last change."""
    with reading():
        return {
            span.peer: span.counter.end for span in VersionVector.decode(vector).sub_iter(VersionVector())
        }


class Reach:
    """Version vector of forwarded updates, without a document.

    Reading an update's metadata takes about 6 us, and 0.13 us for each of its changes.
    """

    def __init__(self, vector: bytes) -> None:
        """Start at a version vector. Raises InvalidUpdate."""
        with reading():
            self._vector = VersionVector.decode(vector)

    def add(self, update: bytes) -> None:
        """Add the changes of an update. Raises InvalidUpdate."""
        try:
            self._vector.merge(LoroDoc.decode_import_blob_meta(update, False).partial_end_vv)
        except BaseException as error:
            if _ours(error) is None:
                raise
            raise InvalidUpdate(str(error)) from None

    def covers(self, update: bytes) -> bool:
        """Return True if every change of the update was added. Raises InvalidUpdate."""
        with reading():
            end = LoroDoc.decode_import_blob_meta(update, False).partial_end_vv
            return bool(self._vector.includes_vv(end))

    def includes(self, vector: bytes) -> bool:
        """Return True if it has all changes of the vector. Raises InvalidUpdate."""
        with reading():
            return bool(self._vector.includes_vv(VersionVector.decode(vector)))

    def merge(self, vector: bytes) -> None:
        """Add the changes of a version vector. Raises InvalidUpdate."""
        with reading():
            self._vector.merge(VersionVector.decode(vector))

    def encode(self) -> bytes:
        """Return the encoded version vector."""
        with guard():
            return self._vector.encode()
