"""The border to Loro: the one module that catches its errors, and a `Replica` without its oddities.

Loro's Python errors are bare `BaseException`s, and a panic inside it is a `PanicException`: both
would pass through every `except Exception`. `guard()` turns them into ours. What else is odd:

- an import may be *pending*: nothing, or only a part, was applied. A `Replica` looks at what an
  update needs before it imports, so that an update is applied whole or not at all.
- a document loaded from a shallow snapshot refuses edits that depend on what was trimmed.
- Loro holds the interpreter's lock while it works: an import blocks every thread. Its time grows with
  the update's peers times its changes, except for a snapshot into an empty document.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import xxhash
from loro import (
    EncodedBlobMode,
    ExportMode,
    Frontiers,
    ImportBlobMetadata,
    LoroDoc,
    VersionVector,
)

from lorogo_protocol import blocks, operation_ids, steps, tree_replay
from lorogo_protocol.errors import (
    CrdtError,
    HistoryTrimmed,
    InvalidUpdate,
    OperationIdsReused,
    TooLong,
    TooManyPeers,
)
from lorogo_protocol.frontiers import heads
from lorogo_protocol.limits import (
    EDITS_BESIDE_MAX,
    EDITS_MAX,
    MARKS_MAX,
    MERGED_OPERATIONS_MAX,
    RUN_BESIDE_OPERATIONS_MAX,
    SNAPSHOT_MERGED_OPERATIONS_MAX,
    TREE_BESIDE_OPERATIONS_MAX,
    TREE_REPLAY_STEPS_MAX,
    UNSTEPPED_MARKS_MAX,
    UNSTEPPED_OPERATIONS_MAX,
    UPDATE_PEER_CHANGES_MAX,
    UPDATE_PEERS_MAX,
)

_UNSETTLED_BYTES_MAX = 16 * 1024  # of updates that a lazy replica has not worked out
_REPLAY_TOGETHER = 1000  # updates between two workings-out: one long run of text costs its square
_ORDERED = frozenset({blocks.LIST, blocks.TEXT})  # to merge edits of maps and counters takes little
_UNSTEPPED = frozenset({blocks.TREE, blocks.MOVABLE_LIST})
# The header of an export: magic, 12 bytes of zero, xxh32 of all that follows the checksum, and the mode.
_MAGIC = b"loro"
_MAGIC_SEED = int.from_bytes(b"LORO", "little")
_HEADER_BYTES = 22
_SNAPSHOT_MODE = 3
_TRIMMED = ("not included in the shallow history", "before the shallow history's start")


class CrdtPanic(CrdtError):
    """Loro panicked: the document in memory must not be used any more."""

    code = "crdt-panic"


class UnclearPanic(CrdtPanic):
    """Loro panicked over one of several updates: only a load that tries each of them finds which."""


def _ours(error: BaseException) -> CrdtError | None:
    """Our error for one of Loro's; None if it is not Loro's."""
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
    """Turn whatever Loro raises inside into CrdtError, InvalidUpdate, HistoryTrimmed or CrdtPanic."""
    try:
        yield
    except BaseException as error:
        if (ours := _ours(error)) is None:
            raise
        raise ours from None


@contextmanager
def reading() -> Iterator[None]:
    """As `guard()`, around foreign bytes: what Loro has no better word for is InvalidUpdate."""
    try:
        with guard():
            yield
    except CrdtError as error:
        if type(error) is CrdtError:
            raise InvalidUpdate(str(error)) from None
        raise


@dataclass(frozen=True, slots=True)
class Version:
    """Where a replica stands, in Loro's own encodings."""

    frontiers: bytes
    vector: bytes


@dataclass(frozen=True, slots=True)
class Applied:
    """The whole update is in the document; `new` is False if all of it was there before."""

    new: bool
    #: what it added: (peer, first counter, the counter behind the last) of each peer
    spans: tuple[tuple[int, int, int], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Unready:
    """The update depends on changes that are not here; nothing was applied."""


class Replica:
    """A LoroDoc whose imports are whole or nothing, and whose errors are ours.

    A `lazy` one takes small updates into its history only, and works the state out when somebody
    reads it (`settled()`) or enough has come together. That is what a server wants: imports are then
    many times faster when many people edit at once. Only small portions wait, because working out
    one long run of text costs its square (docs/decisions/0004). What one peer wrote in one go is worked
    out in steps, if others wrote little beside it, and costs no more than its length.
    """

    def __init__(self, doc: LoroDoc | None = None, *, lazy: bool = False) -> None:
        self.doc: LoroDoc = LoroDoc() if doc is None else doc
        self.lazy = lazy
        self._unsettled_updates = self._unsettled_bytes = 0
        self._unsettled_operations = self._unsettled_edits = self._unsettled_marks = 0

    @classmethod
    def from_snapshot(cls, snapshot: bytes, *, lazy: bool = False, foreign: bool = False) -> "Replica":
        """A replica that holds exactly what the snapshot holds. Raises as `apply` does."""
        replica = cls(lazy=lazy)
        with reading():
            if foreign:
                replica._check_width(LoroDoc.decode_import_blob_meta(snapshot, False))
            status = replica.doc.import_(snapshot)
        if status.pending is not None:
            raise InvalidUpdate("the snapshot is not whole")
        return replica

    def apply(
        self,
        update: bytes,
        origin: str = "",
        *,
        foreign: bool = False,
        accepted: bool = False,
        new: bool = False,
        settle: bool = True,
    ) -> Applied | Unready:
        """Import an update whole, or not at all. Raises InvalidUpdate, HistoryTrimmed, CrdtPanic.

        A `foreign` one must be within the limits: TooManyPeers; and, unless a server `accepted` it, have
        operation ids of its own: OperationIdsReused. A `new` one, which no server can have accepted yet,
        must also be quick to work out: TooLong. Without `settle`, the caller works the state out by
        `settling()`.
        """
        try:  # as `reading()`, which would cost as much as the import of a keystroke
            applied = self._apply(update, origin, foreign, accepted, new)
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
        self, update: bytes, origin: str, foreign: bool, accepted: bool, new: bool
    ) -> Applied | Unready:
        doc = self.doc
        needs = LoroDoc.decode_import_blob_meta(update, False)
        if foreign and needs.change_num > UPDATE_PEERS_MAX:  # else it is not wide: every peer has a change
            self._check_width(needs)
            if _untasted(needs) and doc.oplog_vv.includes_vv(needs.partial_end_vv):
                return Applied(False)  # nobody has tried to decode it, and there is nothing to gain
        if not self._has_what_it_needs(needs):
            return Unready()  # before its ids are compared: what it waits for may explain them
        if foreign and not accepted and self._is_repetition(update, needs):
            return Applied(False)
        if self.lazy:
            contents = blocks.contents(update)
            length = steps.operations(needs.partial_end_vv.sub_iter(needs.partial_start_vv))
            large = len(update) >= _UNSETTLED_BYTES_MAX or length > _mark_step(contents.marks)
            if new:
                self._check_short(needs, contents)
                if large:
                    self._check_time(needs, contents)
            self._prepare(needs, len(update), contents, large=large)
            if self.doc.is_detached():
                self._unsettled_edits += contents.edits
                self._unsettled_marks += contents.marks
        status = doc.import_with(update, origin) if origin else doc.import_(update)
        if status.pending is not None:
            # What it said it needs was here, and yet a part waits inside Loro, which would
            # apply it by itself one day. Only a fresh document forgets that.
            raise CrdtPanic("the update lies about what it depends on")
        added = status.success.inner()
        spans = tuple([(peer, first, end) for peer, (first, end) in added.items()])
        if self._unsettled_bytes:
            self._unsettled_operations += sum(end - first for _, first, end in spans)
        return Applied(bool(added), spans)

    def check_ids(self, update: bytes) -> None:
        """Raises OperationIdsReused if the document has other content under the update's operation ids."""
        with reading():
            meta = LoroDoc.decode_import_blob_meta(update, False)
            if self._has_what_it_needs(meta):
                self._check_ids(update, meta)

    def _is_repetition(self, update: bytes, meta: ImportBlobMetadata) -> bool:
        """Whether the document has all of it. Raises OperationIdsReused.

        Then it is not imported: that would decode it once more, and a panic over another update would be
        blamed on it, although it was accepted before.
        """
        same = self._check_ids(update, meta)
        if same is False or not self.doc.oplog_vv.includes_vv(meta.partial_end_vv):
            return False
        return same or self.covers(update)

    def _check_ids(self, update: bytes, meta: ImportBlobMetadata) -> bool | None:
        """Return whether the document has the same under the ids that both have. Raises OperationIdsReused.

        None: it cannot be compared and counts as equal (trimmed history, movable lists on top of a long one).
        False: the update does not decode; the import gives the reason.
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
                    "the document has other content under its operation ids: start over under a new peer id"
                )
            if found is False:
                return True
            same = None
        return same

    def takes(self, update: bytes) -> bool:
        """Whether the limits let the update in, if it were `foreign`."""
        try:
            with reading():
                self._check_width(LoroDoc.decode_import_blob_meta(update, False))
        except TooManyPeers:
            return False
        return True

    def _check_width(self, needs: ImportBlobMetadata) -> None:
        """Raises TooManyPeers if importing it would take too long."""
        if not (why := _width(needs)):
            return
        have = self.doc.oplog_vv
        quick = have.includes_vv(needs.partial_end_vv) or (_whole(needs) and have.encode() == nothing_known())
        if not quick:
            raise TooManyPeers(why)

    def _has_what_it_needs(self, needs: ImportBlobMetadata) -> bool:
        have = self.doc.oplog_vv
        if have.includes_vv(needs.partial_end_vv):
            return True  # all of it is here already
        match needs.mode:
            case EncodedBlobMode.Snapshot | EncodedBlobMode.OutdatedSnapshot:
                return True
            case EncodedBlobMode.ShallowSnapshot if have.encode() == nothing_known():
                return True
            case _ if not have.includes_vv(needs.partial_start_vv):
                return False
            case _ if needs.start_frontiers.encode() == self.doc.oplog_frontiers.encode():
                return True  # it goes on where we are, as most do: no need to look at each head
            case _:
                return all(have.includes_id(head) for head in heads(needs.start_frontiers))

    def _is_long_run(self, needs: ImportBlobMetadata, step: int) -> bool:
        """Whether it is one peer's, and longer than a step, with little of others beside it."""
        if needs.mode != EncodedBlobMode.Updates:
            return False
        missing = needs.partial_end_vv.sub_iter(needs.partial_start_vv)
        if len(missing) != 1 or (length := steps.operations(missing)) <= step:
            return False
        here = self.doc.oplog_frontiers.encode()
        begins = needs.start_frontiers.encode()
        if begins == here:
            return True
        known = self._known(begins)
        return known is not None and steps.is_little(self.doc, self.doc.oplog_vv, known, length)

    def _check_short(self, needs: ImportBlobMetadata, contents: blocks.Contents) -> None:
        """As `_check_time`, of what may take long in few bytes: marks, trees, and snapshots."""
        have = self.doc.oplog_vv
        if needs.mode != EncodedBlobMode.Updates:
            length = steps.operations(needs.partial_end_vv.sub_iter(have))
            if length > SNAPSHOT_MERGED_OPERATIONS_MAX and have.encode() != nothing_known():
                raise TooLong(
                    f"it is a snapshot and adds {length} operations to a document with content: at most"
                    f" {SNAPSHOT_MERGED_OPERATIONS_MAX} are taken at once; send the changes as updates"
                )
        if contents.marks > UNSTEPPED_MARKS_MAX:
            most = MARKS_MAX if self._is_long_run(needs, 0) else UNSTEPPED_MARKS_MAX
            if contents.marks > most:
                raise TooLong(
                    f"it holds {contents.marks} marks of texts: at most {most} are taken at once;"
                    " sync, then split the change into smaller commits"
                )
        if blocks.TREE not in contents.kinds or have.includes_vv(needs.partial_end_vv):
            return
        if needs.start_frontiers.encode() == self.doc.oplog_frontiers.encode():
            return
        begins = self.doc.frontiers_to_vv(needs.start_frontiers)
        most = TREE_REPLAY_STEPS_MAX
        if begins is not None and tree_replay.replay_steps(self.doc, begins, most) > most:
            raise TooLong(
                "it changes a tree beside many operations on deep nodes that its writer had not seen;"
                " sync, then make the change again"
            )

    def _check_time(self, needs: ImportBlobMetadata, contents: blocks.Contents) -> None:
        """Raises TooLong if working it out takes long and cannot be done in steps (docs/decisions/0004)."""
        have = self.doc.oplog_vv
        if needs.mode != EncodedBlobMode.Updates or have.includes_vv(needs.partial_end_vv):
            return
        if contents.edits > EDITS_MAX:
            raise TooLong(
                f"it holds {contents.edits} edits: at most {EDITS_MAX} are taken at once;"
                " split the change into smaller commits"
            )
        missing = needs.partial_end_vv.sub_iter(needs.partial_start_vv)
        length = steps.operations(missing)
        begins = self.doc.frontiers_to_vv(needs.start_frontiers)
        beside = 0 if begins is None else steps.operations(have.sub_iter(begins))
        if not contents.kinds.isdisjoint(_UNSTEPPED):
            merges = beside and blocks.TREE in contents.kinds  # Loro takes the square of the depth
            most = TREE_BESIDE_OPERATIONS_MAX if merges else UNSTEPPED_OPERATIONS_MAX
            if length > most:
                raise TooLong(
                    f"it holds {length} operations and changes a tree or a movable list: at most {most} are"
                    " taken at once; split the change into smaller commits"
                )
        if beside and contents.edits > EDITS_BESIDE_MAX and not contents.kinds.isdisjoint(_ORDERED):
            raise TooLong(
                f"it holds {contents.edits} edits beside {beside} operations that its writer had not seen:"
                f" at most {EDITS_BESIDE_MAX} are taken at once; sync, then split it into smaller commits"
            )
        if length <= MERGED_OPERATIONS_MAX:
            return
        if len(missing) > 1:
            raise TooLong(
                f"it holds {length} operations of several peers: at most {MERGED_OPERATIONS_MAX} are taken at"
                " once; send the changes in smaller updates, or a snapshot into a new document"
            )
        if beside > MERGED_OPERATIONS_MAX or (beside and length > RUN_BESIDE_OPERATIONS_MAX):
            raise TooLong(
                f"it holds {length} operations beside {beside} that its writer had not seen;"
                " sync, then split the change into smaller commits"
            )

    def _prepare(
        self, needs: ImportBlobMetadata, size: int, contents: blocks.Contents, *, large: bool
    ) -> None:
        """Before an import into a lazy replica: detached for a small update, settled for a large one.

        A large one that is one long run comes in detached, too: it is settled in steps. Not a tree's: to
        attach a detached document, Loro takes the square of the tree's depth.
        """
        kinds, step = contents.kinds, _mark_step(contents.marks)
        # Loro takes a shallow snapshot only when attached.
        whole = needs.mode == EncodedBlobMode.ShallowSnapshot or blocks.TREE in kinds
        if whole or large:
            self.settled()
            if whole or blocks.MOVABLE_LIST in kinds or not self._is_long_run(needs, step):
                return
        if not self.doc.is_detached():
            self.doc.detach()
        self._unsettled_updates += 1
        self._unsettled_bytes += size

    @property
    def is_due(self) -> bool:
        """Whether so much waits in the history that the state must be worked out now."""
        if self._unsettled_bytes >= _UNSETTLED_BYTES_MAX:
            return True
        # deletions and marks have few bytes
        return self._unsettled_operations > _mark_step(self._unsettled_marks)

    def settling(self) -> Generator[None, None, None]:
        """Work the state out if `is_due`, and yield between two steps.

        Raises CrdtPanic if the last update is the culprit, UnclearPanic if another one may be.
        The version is the new one from the first step on. `settled()` between two steps does the rest.
        """
        if not self.is_due:
            return
        panic = UnclearPanic if self._unsettled_updates > 1 else CrdtPanic
        try:
            with guard():
                yield from self._steps()
        except CrdtError as error:  # an update is in the history that only a fresh document forgets
            raise panic(str(error)) from None

    def _settle_what_is_in(self) -> None:
        for _ in self.settling():
            pass

    def _steps(self) -> Iterator[None]:
        doc = self.doc
        if doc.is_detached():
            if self._unsettled_operations > (step := _mark_step(self._unsettled_marks)):
                scattered = self._unsettled_edits > self._unsettled_operations // 10
                yield from steps.walk(doc, min(step, steps.STEP_EDITS) if scattered else step)
            doc.attach()
        self._unsettled_updates = self._unsettled_bytes = self._unsettled_operations = 0
        self._unsettled_edits = self._unsettled_marks = 0

    def settled(self) -> LoroDoc:
        """The document with its state worked out. Raises UnclearPanic if a forged update is in it."""
        if self.lazy:
            try:
                with guard():
                    for _ in self._steps():
                        pass
            except CrdtPanic as error:
                raise UnclearPanic(str(error)) from None
        return self.doc

    def covers(self, update: bytes) -> bool:
        """Whether every change in the update is in the document."""
        with reading():
            meta = LoroDoc.decode_import_blob_meta(update, True)  # nothing else looks at its checksum here
            return bool(self.doc.oplog_vv.includes_vv(meta.partial_end_vv))

    def version(self) -> Version:
        """Where the replica stands, edits that are not committed yet included."""
        with guard():
            return Version(self.doc.oplog_frontiers.encode(), self.doc.oplog_vv.encode())

    def frontiers(self) -> bytes:
        """The heads, encoded."""
        with guard():
            return self.doc.oplog_frontiers.encode()

    def vector_of(self, frontiers: bytes) -> bytes | None:
        """The version vector of heads that the oplog knows; None if it does not."""
        with guard():
            wanted = self._known(frontiers)
            vector = None if wanted is None else self.doc.frontiers_to_vv(wanted)
            return None if vector is None else vector.encode()

    def operations_at(self, frontiers: bytes) -> int | None:
        """How many operations ever led to these heads, trimmed ones included; None if they are not known."""
        vector = self.vector_of(frontiers)
        return None if vector is None else sum(counters(vector).values())

    def _known(self, frontiers: bytes) -> Frontiers | None:
        """The heads, if each is an operation that we have: Loro panics over others, and stays broken."""
        wanted = Frontiers.decode(frontiers)
        have = self.doc.oplog_vv
        known = all(head.counter >= 0 and have.includes_id(head) for head in heads(wanted))
        return wanted if known else None

    def includes(self, vector: bytes) -> bool:
        """Whether the replica has everything that the vector names."""
        with guard():
            return bool(self.doc.oplog_vv.includes_vv(VersionVector.decode(vector)))

    def updates_since(self, vector: bytes) -> bytes:
        """What the replica has and the vector has not, as one update."""
        with guard():
            return self.doc.export(ExportMode.Updates(VersionVector.decode(vector)))

    def can_serve_since(self, vector: bytes) -> bool:
        """Whether `updates_since` can be applied by a replica at that vector: nothing it needs is trimmed."""
        with guard():
            if not self.doc.is_shallow():
                return True
            return bool(VersionVector.decode(vector).includes_vv(self.doc.shallow_since_vv))

    def snapshot(self) -> bytes:
        """Everything, history included."""
        with guard():
            return self.settled().export(ExportMode.Snapshot())

    def shallow_snapshot(self, frontiers: bytes) -> bytes:
        """The state, with history from these heads on (from the last single head before, if unmerged)."""
        with guard():
            return self.settled().export(ExportMode.ShallowSnapshot(Frontiers.decode(frontiers)))

    def trimmed(self) -> bytes:
        """The version vector before which there is no history; the empty one if all of it is here."""
        with guard():
            return self.doc.shallow_since_vv.encode()

    @property
    def shallow(self) -> bool:
        """Whether history was trimmed."""
        with guard():
            return bool(self.doc.is_shallow())

    def at(self, frontiers: bytes) -> "Replica":
        """A read-only copy as of these heads. Raises HistoryTrimmed if they are not known."""
        copy = self.fork()
        copy.check_out(frontiers)  # fork_at is not implemented on shallow documents
        return copy

    def revert_to(self, frontiers: bytes) -> None:
        """Bring the content back to these heads, as a new change."""
        with guard():
            wanted = self._known(frontiers)
            if wanted is None or self.doc.frontiers_to_vv(wanted) is None:
                raise HistoryTrimmed("that version is not in this document's history")
            self.settled().revert_to(wanted)
            self.doc.commit()

    def write_as(self, peer: int) -> None:
        """Give its next changes another peer id: for the copy of a replica that a forked process has."""
        with guard():
            self.settled().peer_id = peer

    @property
    def operations(self) -> int:
        """How many operations it ever had, trimmed ones included."""
        with guard():
            return steps.operations(self.doc.oplog_vv.sub_iter(VersionVector()))

    def check_out(self, frontiers: bytes) -> None:
        """Show the content as of these heads, here. Raises HistoryTrimmed if they are not known."""
        with guard():
            wanted = self._known(frontiers)
            if wanted is None or self.doc.frontiers_to_vv(wanted) is None:
                raise HistoryTrimmed("that version is not in this document's history")
            self.settled().checkout(wanted)

    def fork(self) -> "Replica":
        """An independent copy."""
        with guard():
            return Replica(self.settled().fork())

    def value(self) -> object:
        """The whole document as plain Python values."""
        with guard():
            return self.settled().get_deep_value()


def _mark_step(marks: int) -> int:
    """The operations of a step, where so many of them are marks: a mark has a beginning and an end."""
    if marks <= steps.STEP_MARKS:
        return steps.STEP_OPERATIONS
    return 2 * min(steps.STEP_MARKS, max(1, steps.STEP_MARK_PAIRS // marks))


def replayed(updates: Iterable[bytes]) -> Replica | None:
    """A replica of many updates, imported one after another as quickly as Loro can.

    None if one of them builds on what does not come before it. Raises InvalidUpdate, HistoryTrimmed,
    CrdtPanic: then nobody can say which update it was.
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
    """Every change that the replica has, in Loro's JSON form."""
    with guard():
        doc = replica.settled()
        return str(doc.export_json_updates(doc.shallow_since_vv, doc.oplog_vv))


def is_version(frontiers: bytes) -> bool:
    """Whether the bytes name at least one head, and nothing beside it."""
    try:
        with guard():
            decoded = Frontiers.decode(frontiers)
            return bool(heads(decoded)) and decoded.encode() == frontiers
    except CrdtError:
        return False


def nothing_known() -> bytes:
    """The version vector of an empty replica."""
    return b"\x00"


def no_frontiers() -> bytes:
    """The frontiers of an empty replica."""
    return b"\x00"


def vector_items(vector: bytes) -> tuple[tuple[int, int], ...]:
    """What a version vector says, in order: two that say the same may be encoded differently."""
    with guard():
        found = VersionVector.decode(vector).sub_iter(VersionVector())
        return tuple(sorted((span.peer, span.counter.end) for span in found))


def spans(update: bytes) -> tuple[tuple[int, int, int], ...]:
    """Which changes the update holds: (peer, first counter, the counter behind the last) of each peer."""
    with reading():
        meta = LoroDoc.decode_import_blob_meta(update, False)
        found = meta.partial_end_vv.sub_iter(meta.partial_start_vv)
        return tuple((span.peer, span.counter.start, span.counter.end) for span in found)


def too_wide(update: bytes) -> bool:
    """Whether it is above the limits of an update's peers and changes."""
    with reading():
        return bool(_width(LoroDoc.decode_import_blob_meta(update, False)))


def _width(meta: ImportBlobMetadata) -> str:
    """What is above a limit, as a sentence; "" if nothing is."""
    changes = meta.change_num
    if changes <= UPDATE_PEERS_MAX:
        return ""  # every peer has a change
    peers = len(meta.partial_end_vv.sub_iter(meta.partial_start_vv))
    if peers > UPDATE_PEERS_MAX:
        return f"it holds changes of {peers} peers, at most {UPDATE_PEERS_MAX} are taken at once"
    if peers * changes > UPDATE_PEER_CHANGES_MAX:
        most = UPDATE_PEER_CHANGES_MAX // peers
        return f"it holds {changes} changes of {peers} peers, at most {most} of so many are taken at once"
    return ""


def _whole(meta: ImportBlobMetadata) -> bool:
    """Whether it is a snapshot, which Loro takes into an empty document quickly, however wide it is."""
    return meta.mode in (EncodedBlobMode.Snapshot, EncodedBlobMode.ShallowSnapshot)


def _untasted(meta: ImportBlobMetadata) -> bool:
    """Whether `try_decoding` reads no more than this of it: no server imports it, it would take too long."""
    return not _whole(meta) and bool(_width(meta))


def check_snapshot_frame(payload: bytes) -> None:
    """Raise InvalidUpdate unless the header names a snapshot and its checksum fits the bytes.

    It reads the frame only: a forged snapshot passes, and cannot end the process here.
    """
    if payload[:4] != _MAGIC or len(payload) < _HEADER_BYTES:
        raise InvalidUpdate("Loro's header is missing")
    if int.from_bytes(payload[20:_HEADER_BYTES], "big") != _SNAPSHOT_MODE:
        raise InvalidUpdate("Loro's header names another kind of export")
    checksum = int.from_bytes(payload[16:20], "little")
    if xxhash.xxh32_intdigest(memoryview(payload)[20:], _MAGIC_SEED) != checksum:
        raise InvalidUpdate("the checksum does not fit the bytes")


def try_decoding(update: bytes) -> None:
    """All that Loro does to foreign bytes before they are in a document. Raises CrdtError.

    A forged update may end the process here, which nothing can catch (docs/decisions/0004).
    """
    with reading():
        meta = LoroDoc.decode_import_blob_meta(update, False)
        if meta.change_num > UPDATE_PEERS_MAX and _untasted(meta):
            return
        doc = LoroDoc()
        doc.detach()  # the history only: the state costs more, and is worked out from what was decoded
        doc.import_(update)


def change_count(update: bytes) -> int | None:
    """How many changes the update holds; None if it does not decode."""
    try:
        with guard():
            return int(LoroDoc.decode_import_blob_meta(update, False).change_num)
    except CrdtError:
        return None


def counters(vector: bytes) -> dict[int, int]:
    """A version vector, read: of each peer the counter behind its last change."""
    with reading():
        return {
            span.peer: span.counter.end for span in VersionVector.decode(vector).sub_iter(VersionVector())
        }


class Reach:
    """How far updates go that were passed on: a version vector that grows, without a document.

    Reading an update's end takes about 6 us, and more with the number of its changes (0.13 us each).
    """

    def __init__(self, vector: bytes) -> None:
        """Raises InvalidUpdate."""
        with reading():
            self._vector = VersionVector.decode(vector)

    def add(self, update: bytes) -> None:
        """Everything in the update was passed on, too. Raises InvalidUpdate."""
        try:
            self._vector.merge(LoroDoc.decode_import_blob_meta(update, False).partial_end_vv)
        except BaseException as error:
            if _ours(error) is None:
                raise
            raise InvalidUpdate(str(error)) from None

    def covers(self, update: bytes) -> bool:
        """Whether everything in the update was passed on. Raises InvalidUpdate."""
        with reading():
            end = LoroDoc.decode_import_blob_meta(update, False).partial_end_vv
            return bool(self._vector.includes_vv(end))

    def includes(self, vector: bytes) -> bool:
        """Whether it goes as far as the vector. Raises InvalidUpdate."""
        with reading():
            return bool(self._vector.includes_vv(VersionVector.decode(vector)))

    def merge(self, vector: bytes) -> None:
        """Everything that the vector names was passed on. Raises InvalidUpdate."""
        with reading():
            self._vector.merge(VersionVector.decode(vector))

    def encode(self) -> bytes:
        """The vector."""
        with guard():
            return self._vector.encode()
