"""A replica's disk: frames mirrored as they are, segments put in place, contradictions put aside. May block.

One thread at a time calls what changes it (the door sees to that). Nothing here knows of sockets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

from lorogo_log import limits
from lorogo_log.core import BlockingLog, LogOptions
from lorogo_log.errors import (
    CorruptionError,
    DamageError,
    FormatError,
    LogError,
    LogFailedError,
    StaleEpochError,
)
from lorogo_log.format import names
from lorogo_log.format.batch import EncodedFrame
from lorogo_log.format.layout import REWRITTEN, Footer, SegmentHeader
from lorogo_log.recovery.recovery import RecoveryMode, keep_broken, list_segments
from lorogo_log.recovery.sealed_segments import cleaning
from lorogo_log.replication.replica_adopt import Read, copied, go_on_in, staged, unused
from lorogo_log.replication.replica_check import (
    HOLDS_LESS,
    ConflictError,
    DivergedError,
    check_frame,
    footer_of,
    keep_replaced,
    repair_install,
    verify_part,
)
from lorogo_log.replication.replica_rules import Piece
from lorogo_log.storage.disk import Directory, File, Storage, identity, write_all
from lorogo_log.storage.replica_state import ReplicaState, ensure_state, save_state
from lorogo_log.storage.segment import Segment
from lorogo_log.transfer.catalog import ORDER_SECONDS, catalog
from lorogo_log.transfer.wire import EPOCH_MAX, PeerError, SegmentEntry, Welcome
from lorogo_log.write.engine import LogHead
from lorogo_log.write.policy import WriteFailure


class ReplicaStore:
    """The log of a replica, opened for mirroring."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: LogOptions,
        *,
        storage: Storage | None = None,
        on_damage: Callable[[DamageError], None] | None = None,
        forward: Callable[[int], Any] | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if options.recovery is RecoveryMode.SALVAGE:
            raise ValueError("a replica does not salvage: what is damaged is fetched from its coordinator")
        self.core = BlockingLog(
            path,
            replace(options, mirror=True, compress=False, failure=_waiting(options.failure)),
            storage=storage,
            on_damage=on_damage,
            forward=forward,
        )
        with ExitStack() as undo:
            undo.callback(self.core.close)
            self.state: ReplicaState = ensure_state(self.core.directory, random_bytes)
            undo.pop_all()
        self._coordinator = (self.state.incarnation, self.state.node)
        self._seen = {place.name for place in list_segments(self.directory)}
        if self.core.recovered.log_id is None and self.state.log_id != bytes(16):
            self.core.writer.engine.log_id = self.state.log_id
        #: names of what was put aside because another history won
        self.diverged: list[str] = []

    @property
    def directory(self) -> Directory:
        return self.core.directory

    @property
    def head(self) -> LogHead:
        """Where the log ends."""
        return self.core.writer.engine.head

    @property
    def epoch(self) -> int:
        """The newest epoch that was promised or written."""
        return max(self.state.epoch, self.head.epoch)

    @property
    def log_id(self) -> bytes:
        """The log's identity; zeros while no segment here tells it."""
        return self.core.writer.engine.log_id if self._begun() else bytes(16)

    def _begun(self) -> bool:
        """Whether the log's identity is known: told by a segment that was found, or by a coordinator."""
        return self.state.log_id != bytes(16) or self.core.recovered.log_id is not None

    def close(self) -> None:
        self.core.close()

    def accept(self, welcome: Welcome) -> None:
        """Follow a coordinator of this log; promised on the disk when this returns.

        Raises StaleEpochError (an older epoch), ConflictError (another one of the same epoch, or one that has
        lost what it had), FormatError (another log).
        """
        if welcome.epoch < self.epoch:
            raise StaleEpochError(
                f"epoch {welcome.epoch} is older than {self.epoch}: a newer coordinator has taken over"
            )
        if welcome.epoch > EPOCH_MAX:
            raise PeerError(f"epoch {welcome.epoch} is above every bound")
        engine = self.core.writer.engine
        if self._begun():
            if (welcome.log_id, welcome.partition) != (engine.log_id, engine.partition):
                raise FormatError(f"{self.directory.path} is a replica of another log")
        elif welcome.partition != engine.partition:
            raise FormatError(f"{self.directory.path} is for partition {engine.partition}")
        known = self.state.incarnation != bytes(16)
        if known and welcome.epoch == self.state.epoch and welcome.incarnation != self.state.incarnation:
            raise ConflictError(
                f"epoch {welcome.epoch} was promised to another coordinator: one of the two must take over"
                " anew, with a higher epoch"
            )
        if (
            known
            and welcome.incarnation != self.state.incarnation
            and welcome.node == self.state.node
            and welcome.prior_epoch <= self.head.epoch
            and welcome.prior_offset < self.head.end_offset
        ):
            # it streams only what is on its disk, so once it had this
            raise ConflictError(
                f"the coordinator has lost what it had: its log ended at {welcome.prior_offset}, the one here"
                f" at {self.head.end_offset}; take over from this replica, or repair the coordinator"
            )
        engine.log_id = welcome.log_id
        self._coordinator = (welcome.incarnation, welcome.node)
        self.promise(welcome.epoch)

    def promise(self, epoch: int) -> None:
        """Take no frames of an older epoch any more; on the disk when this returns."""
        incarnation, node = self._coordinator
        log_id = self.core.writer.engine.log_id
        newer = epoch > self.state.epoch
        if newer or (epoch == self.state.epoch and (incarnation, log_id) != self._promised()):
            state = replace(self.state, epoch=epoch, incarnation=incarnation, node=node, log_id=log_id)
            save_state(self.directory, state)
            self.state = state

    def _promised(self) -> tuple[bytes, bytes]:
        return self.state.incarnation, self.state.log_id

    def catalog(self) -> list[SegmentEntry]:
        """The segments here."""
        return catalog(self.core)

    # -- frames -----------------------------------------------------------------------------------

    def apply(self, pieces: Sequence[Piece]) -> int:
        """Write frames that continue the log, synced once per segment; the last durable sequence.

        Everything is checked before anything is written.
        """
        if not pieces:
            return self.core.writer.durable
        expected, epoch = self.head.next_sequence, self.head.epoch
        empty = not self.core.writer.engine.active.records()
        checked: list[tuple[EncodedFrame, set[bytes]]] = []
        for piece in pieces:
            if piece.segment is not None:
                self._check_header(piece.segment, expected, spare=empty)
                expected, empty = piece.segment.first_sequence, True
            checked.append(check_frame(piece, expected, epoch))
            expected, epoch = piece.frame.last_sequence + 1, piece.frame.epoch
            empty = empty and not piece.frame.count
        self.promise(epoch)
        start = 0
        for end in range(1, len(pieces) + 1):
            if end == len(pieces) or pieces[end].segment is not None:
                self._mirror(pieces[start].segment, checked[start:end])
                start = end
        if self._detached():  # (as long as a sync takes, this is nothing)
            name = self.core.writer.engine.active.name
            raise CorruptionError(f"{self.directory.path}/{name}", 0, "the file that is written has no name")
        return self.core.writer.durable

    def _check_header(self, header: SegmentHeader, expected: int, *, spare: bool) -> None:
        """A segment of this log that begins with the next sequence (one without records takes one)."""
        engine = self.core.writer.engine
        if (header.log_id, header.partition, header.flags) != (engine.log_id, engine.partition, 0):
            raise PeerError("the segment belongs to another log")
        if not expected <= header.first_sequence <= expected + spare:
            raise DivergedError(
                f"a segment that begins with sequence {header.first_sequence}, not {expected}"
            )

    def _mirror(
        self, header: SegmentHeader | None, frames: Sequence[tuple[EncodedFrame, set[bytes]]]
    ) -> None:
        head = self.head
        if header is not None:
            if (header.first_offset, header.chain) != (head.end_offset, head.chain):
                raise DivergedError("the segment does not continue this log")
            self._seen.add(names.segment_name(header.first_sequence, header.first_time))
        done: Future[Any] = self.core.mirror(header, frames)
        try:
            done.result(limits.CLOSE_SECONDS)
        except ValueError as error:
            raise DivergedError(str(error)) from None

    # -- segments ---------------------------------------------------------------------------------

    def resume(self, entry: SegmentEntry, have: SegmentEntry | None) -> int:
        """How much of a sealed segment's file is here already, in its `.part` file, which then exists.

        A local segment whose frames are its beginning saves fetching them again; the hash decides.
        """
        name = entry.name + names.PART
        if name in self.directory.list():
            file = self.directory.open(name)
            try:
                if file.size() <= entry.size:
                    return file.size()
            finally:
                file.close()
            self.directory.remove(name)
        part = self.directory.create(name)
        try:
            if have is None:
                return 0
            file = self.directory.open(have.name)
            try:
                return _copy(file, part, min(have.position, entry.position), name)
            finally:
                file.close()
        finally:
            part.close()

    def part(self, entry: SegmentEntry) -> File:
        """The `.part` file, to write what is fetched into."""
        return self.directory.open(entry.name + names.PART, write=True)

    def discard(self, entry: SegmentEntry) -> None:
        """Forget what was fetched: it was not the segment."""
        with suppress(FileNotFoundError):
            self.directory.remove(entry.name + names.PART)

    def sweep(self, wanted: Sequence[SegmentEntry]) -> None:
        """Remove `.part` files of segments that nobody wants any more (a repair wants the damaged ones)."""
        keep = {entry.name + names.PART for entry in wanted}
        keep |= {damage.path.rpartition("/")[2] + names.PART for damage in self.core.damage}
        for name in self.directory.list():
            if names.is_part(name) and name not in keep:
                with suppress(FileNotFoundError):
                    self.directory.remove(name)

    def install(self, entry: SegmentEntry) -> None:
        """Check a fetched segment whole, give it its name, and stand behind it.

        It must continue what is here; what it replaces must be its beginning, or is kept as `.broken`.
        """
        header = verify_part(self.directory, entry, self.core)
        self._joined(header)
        kept = keep_replaced(self.core, entry)
        if kept:
            self.diverged.append(kept)
        self.promise(entry.epoch)
        engine = self.core.writer.engine
        with cleaning(self.directory):
            if engine.active.header is not None:
                self.rotate()  # what was mirrored of it (if it is the same segment) is in the fetched file
            self.directory.rename(entry.name + names.PART, entry.name)
            self.directory.sync()
            self._seen.add(entry.name)
            self._stand(entry.name)

    def _joined(self, header: SegmentHeader) -> None:
        """A segment that follows the last one here without a gap must say so."""
        before = [
            place for place in list_segments(self.directory) if place.first_sequence < header.first_sequence
        ]
        if not before:
            return
        segment = Segment.open(self.directory, before[-1].name)
        try:
            footer = segment.footer
        finally:
            segment.close()
        last, end, chain = self.head.next_sequence - 1, self.head.end_offset, self.head.chain
        active = self.core.writer.engine.active.header
        if active is None or active.first_sequence != segment.header.first_sequence:
            if footer is None:
                return
            last, end, chain = footer.last_sequence, footer.end_offset, footer.chain_out
        if header.first_sequence <= last or header.first_offset < end:
            raise DivergedError("the fetched segment overlaps the one before it")
        if header.first_offset == end and header.chain != chain:
            raise DivergedError("the fetched segment does not follow the one before it (chain)")

    def fill(self, entry: SegmentEntry) -> None:
        """Put a fetched segment where one is missing between others."""
        repair_install(self.core, entry)
        self._seen.add(entry.name)

    def suspect(self, entry: SegmentEntry) -> None:
        """Report a segment that holds less than the coordinator's: it is repaired as a damaged one is."""
        path = f"{self.directory.path}/{entry.name}"
        self.core.reader.report(CorruptionError(path, entry.position, HOLDS_LESS))

    def vanished(self) -> bool:
        """Whether the file of a segment that was here is gone, also of the one that is being written."""
        return not self._seen <= set(self.directory.list()) or self._detached()

    def _detached(self) -> bool:
        """Whether the file that is being written is not the one that has its name."""
        engine = self.core.writer.engine
        active = engine.active
        if active.header is None:
            return False
        try:
            file = self.directory.open(active.name)
        except FileNotFoundError:
            return active is engine.active  # (else it was rotated meanwhile)
        try:
            here, there = getattr(active.file, "fileno", None), getattr(file, "fileno", None)
            if here is None or there is None:
                return False
            return identity(here()) != identity(there()) and active is engine.active
        except OSError:
            return False  # rotated, sealed and closed meanwhile
        finally:
            file.close()

    def reconcile(self) -> None:
        """Before a comparison: stand where the files end; what went into a file without a name is lost.

        A log that cannot stand there stops: it would acknowledge what nobody can read.
        """
        self._seen &= set(self.directory.list())
        if self.core.writer.engine.active.header is None:
            self.rotate()  # what was finished, by a full disk for one, is sealed before it is compared
        active = self.core.writer.engine.active
        detached = self._detached()
        if active.header is not None and not detached:
            return
        if detached:
            with cleaning(self.directory):
                self.rotate()
                if active.name in self.directory.list():  # somebody's other file
                    self._set_aside(active.name)
        listing = list_segments(self.directory)
        footer = footer_of(self.directory, listing[-1].name) if listing else None
        if listing and footer is None:
            if detached:
                self._stop(f"{active.name} is gone, and {listing[-1].name} before it is not whole")
        elif (footer.end_offset if footer is not None else 0) != self.head.end_offset:
            # (above: a full disk came between a segment's name and the move behind it)
            self._stand(listing[-1].name if listing else None)

    def _stop(self, why: str) -> None:
        def stop() -> None:
            raise LogFailedError(f"{self.directory.path}: the log has stopped: {why}")

        self.core.writer.command(stop).result(ORDER_SECONDS)

    def sound_to(self) -> int | None:
        """The last sequence before the first damage that is known here; None if there is none."""
        firsts = [
            parsed[0]
            for damage in list(self.core.damage)
            if (parsed := names.parse_segment(damage.path.rpartition("/")[2])) is not None
        ]
        return min(firsts) - 1 if firsts else None

    def adopt(self, entry: SegmentEntry) -> None:
        """Go on in a segment that was found at open: its frames go into a new file, which takes its name.

        Both files have the same frames, so a crash in between loses nothing; and the rule holds that nothing
        is written into a segment found at open. Damage met here is reported, and stops nothing.
        """
        with cleaning(self.directory):
            segment = Segment.open(self.directory, entry.name)
            try:
                if segment.damage is not None or segment.header.flags & REWRITTEN:
                    raise DivergedError(f"{entry.name} cannot be continued")
                copy = copied(self.directory, segment, entry.name, self.head.end_offset, foreign=False)
            except CorruptionError as damage:
                self.core.reader.report(damage)
                raise
            finally:
                segment.close()
            go_on_in(self.core, copy, entry.name)

    def replace_open(
        self, entry: SegmentEntry, contradicting: Sequence[SegmentEntry], read: Read
    ) -> list[str]:
        """As `replace`, by a segment that is still written at the other side: its frames so far."""
        staged(self.directory, entry, read)
        part = entry.name + names.PART
        segment = Segment.open(self.directory, part)
        try:
            header = segment.header
            if segment.damage is not None or header.checksum != entry.header_checksum:
                raise PeerError("the segment's header changed")
            self._check_header(header, entry.first_sequence, spare=False)
            self._joined(header)
            with cleaning(self.directory):
                copy = copied(self.directory, segment, entry.name, entry.end_offset, foreign=True)
                try:
                    self.promise(entry.epoch)
                    self.rotate()
                    kept = [self._away(one) for one in contradicting[:-1]]
                    kept.append(self._keep(entry))
                except (LogError, OSError):
                    unused(self.directory, copy)
                    raise
                go_on_in(self.core, copy, entry.name)
                self._forget(entry)
                self._seen.add(entry.name)
        finally:
            segment.close()
            self.discard(entry)
        return kept

    def aside(self, entries: Sequence[SegmentEntry]) -> list[str]:
        """Put segments (the newest ones, newest first) aside as `.broken`, and stand before them."""
        with cleaning(self.directory):
            self.rotate()
            kept = [self._away(entry) for entry in entries]
            listing = list_segments(self.directory)
            self._stand(listing[-1].name if listing else None)
        return kept

    def replace(self, entry: SegmentEntry, contradicting: Sequence[SegmentEntry]) -> list[str]:
        """Put a fetched segment in place of the oldest of these, and the newer ones (newest first) aside.

        The beginning of that segment may have been acknowledged: it is on this disk all the time.
        """
        self._joined(verify_part(self.directory, entry, self.core))
        self.promise(entry.epoch)
        with cleaning(self.directory):
            self.rotate()
            kept = [self._away(one) for one in contradicting[:-1]]
            kept.append(self._keep(entry))
            self.directory.rename(entry.name + names.PART, entry.name)
            self.directory.sync()
            self._forget(entry)
            self._seen.add(entry.name)
            self._stand(entry.name)
        return kept

    def _keep(self, entry: SegmentEntry) -> str:
        return self._copy_aside(entry.name)

    def _copy_aside(self, name: str) -> str:
        file = self.directory.open(name)
        try:
            kept = keep_broken(self.directory, name, file, 0)
        finally:
            file.close()
        self.diverged.append(kept)
        return kept

    def _away(self, entry: SegmentEntry) -> str:
        return self._set_aside(entry.name)

    def _set_aside(self, name: str) -> str:
        kept = self._copy_aside(name)
        self.directory.remove(name)
        self.directory.sync()
        self._seen.discard(name)
        self.core.forget_damage(name)  # the damage of a file that is gone is no damage any more
        return kept

    def _forget(self, entry: SegmentEntry) -> None:
        self.core.forget_damage(entry.name)

    def rotate(self) -> None:
        """Finish the segment that is being written, if it has frames (an epoch alone is one too)."""
        self.core.writer.finish().result(ORDER_SECONDS)

    def jump(self, entry: SegmentEntry, header: SegmentHeader) -> None:
        """Stand at the beginning of a segment behind a gap: what came before it is kept nowhere any more."""
        head = LogHead(
            entry.first_sequence, entry.first_offset, header.chain, self.head.epoch, header.first_time
        )
        if head.next_sequence < self.head.next_sequence or self.core.writer.engine.active.header is not None:
            raise DivergedError("the log would go back")
        self._set(head)

    def _stand(self, name: str | None) -> None:
        """Let the writer go on behind this sealed segment."""
        head = LogHead()
        if name is not None:
            segment = Segment.open(self.directory, name)
            try:
                footer = segment.footer
                if footer is None:
                    raise CorruptionError(segment.path, 0, "the segment is not sealed")
                head = _after(footer)
            finally:
                segment.close()
        self._set(head)

    def _set(self, head: LogHead) -> None:
        writer = self.core.writer

        def move() -> None:
            writer.engine.head = head
            writer.durable = head.next_sequence - 1
            writer.epoch = head.epoch

        writer.command(move, writes=False).result(ORDER_SECONDS)


def _waiting(failure: WriteFailure) -> WriteFailure:
    """A full disk is waited out, whether a caller wants to know of it or not."""
    return failure if failure.full is not None else replace(failure, full=lambda _: None)


def _after(footer: Footer) -> LogHead:
    return LogHead(
        footer.last_sequence + 1, footer.end_offset, footer.chain_out, footer.epoch, footer.high_time
    )


def _copy(file: File, into: File, size: int, path: str) -> int:
    at = 0
    while at < size:
        chunk = file.pread(min(limits.READ_BYTES, size - at), at)
        if not chunk:
            break
        at += write_all(into, [chunk], at, path)
    return at
