"""Fetch good copies of damaged segments from a replica (or a coordinator) of the log."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from lorogo_cli.errors import CommandError, brief, one_line
from lorogo_cli.log.found import LogListing
from lorogo_log.errors import CorruptionError, FormatError, LogError
from lorogo_log.format import names
from lorogo_log.format.layout import REWRITTEN
from lorogo_log.recovery import sealed_segments
from lorogo_log.recovery.broken import create_temporary, remove_temporary
from lorogo_log.recovery.recovery import reseal
from lorogo_log.storage.disk import Directory, write_all
from lorogo_log.storage.segment import Segment, scan
from lorogo_log.transfer.segment_transfer import SegmentClient
from lorogo_log.transfer.wire import SegmentEntry

_SECONDS = 30.0
_PIECE_BYTES = 1 << 20


def parse_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT; an IPv6 host is in brackets. Raises CommandError."""
    host, colon, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
    if not colon or not host or not 0 < number < 1 << 16:
        raise CommandError(f"{brief(text)} is not an address: write HOST:PORT, as in 10.0.0.5:7400")
    return host.removeprefix("[").removesuffix("]"), number


class ReplicaSource:
    """A connection to a replica of the log."""

    def __init__(self, address: str, here: LogListing, secret: bytes | None = None) -> None:
        self._address = address
        where = parse_address(address)
        log_id, partition = identity_of(here)
        with self._translating():
            self._client = SegmentClient(
                where, timeout=_SECONDS, log_id=log_id, partition=partition, secret=secret
            )
            try:
                entries = self._client.catalog()
            except (OSError, LogError, struct.error):
                self._client.close()
                raise
        self._entries = {entry.name: entry for entry in entries if not entry.damaged}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def has(self, name: str, last_sequence: int = 0) -> bool:
        """Return whether it has a good copy of a segment up to this sequence, sealed or not."""
        entry = self._entries.get(name)
        return entry is not None and entry.last_sequence >= max(last_sequence, entry.first_sequence)

    def between(self, first: int, last: int) -> list[SegmentEntry]:
        """Return its good segments that lie completely in a gap of this log."""
        return [
            entry
            for entry in self._entries.values()
            if entry.sealed and first <= entry.first_sequence and entry.last_sequence <= last
        ]

    def behind(self, name: str) -> list[SegmentEntry]:
        """Return its segments after a common one, as long as each follows the one before."""
        found: list[SegmentEntry] = []
        before = self._entries.get(name)
        for entry in sorted(self._entries.values(), key=lambda one: one.first_sequence):
            if before is None or entry.first_sequence <= before.first_sequence:
                continue
            if (entry.first_offset, entry.chain_before) != (before.end_offset, before.chain):
                break
            if entry.last_sequence >= entry.first_sequence:
                found.append(entry)
            before = entry
        return found

    def install(self, here: LogListing, name: str) -> None:
        """Replace our segment, kept as `.broken`, by its copy. Raises CommandError; ours stays then."""
        entry = self._entries[name]
        _require_fit(here, entry)
        good = _good_part(here, entry)
        try:
            if entry.sealed:
                sealed_segments.install(here.directory, name, self._pieces(entry, entry.size, good))
            else:
                self._install_open(here.directory, entry, good)
        except (CorruptionError, FormatError) as error:
            raise CommandError(f"the copy at {self._address} is damaged, too: {one_line(error)}") from None

    def _install_open(self, directory: Directory, entry: SegmentEntry, good: bytes) -> None:
        """Copy the present content of a segment that the replica still writes, and seal it here."""
        temporary = f"{entry.name}.open{names.TEMPORARY}"
        file = create_temporary(directory, temporary)
        try:
            try:
                at = 0
                for piece in self._pieces(entry, entry.position, good):
                    at += write_all(file, [piece], at, temporary)
                file.sync()
            finally:
                file.close()
            segment = Segment.open(directory, temporary)
            try:
                seen = scan(segment)
                if seen.bad or seen.torn or seen.end != entry.position or segment.damage is not None:
                    raise CorruptionError(segment.path, seen.end, seen.torn or "frames are missing")
                reseal(directory, segment, seen)
            finally:
                segment.close()
            sealed_segments.install(directory, entry.name, _file_pieces(directory, temporary))
        finally:
            remove_temporary(directory, temporary)

    def _pieces(self, entry: SegmentEntry, size: int, good: bytes) -> Iterator[bytes]:
        """Read the replica's file, which must start with our good bytes."""
        at = 0
        while at < size:
            with self._translating():
                piece = self._client.read(entry, at=at, size=min(_PIECE_BYTES, size - at))
            if not piece:
                raise CommandError(
                    f"{self._address} ended the transfer in the middle of {entry.name}: try again"
                )
            mine = good[at : at + len(piece)]
            if piece[: len(mine)] != mine:
                raise CommandError(f"{entry.name} of the replica has other records: it is a different log")
            yield piece
            at += len(piece)

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Translate errors of the network."""
        try:
            yield
        except OSError as error:
            why = error.strerror or one_line(error)
            raise CommandError(f"no replica answers at {self._address}: {why}") from None
        except (LogError, struct.error) as error:
            raise CommandError(f"the replica at {self._address} failed: {one_line(error)}") from None


def identity_of(here: LogListing) -> tuple[bytes, int]:
    """Return the log id and partition from a good segment's header; zeros if there is none."""
    for entry in here.entries:
        try:
            segment = Segment.open(here.directory, entry.name)
        except (CorruptionError, FormatError, FileNotFoundError):
            continue
        segment.close()
        if segment.damage is None:
            return segment.header.log_id, segment.header.partition
    return bytes(16), 0


def _file_pieces(directory: Directory, name: str) -> Iterator[bytes]:
    file = directory.open(name)
    try:
        at = 0
        while piece := file.pread(_PIECE_BYTES, at):
            yield piece
            at += len(piece)
    finally:
        file.close()


def _good_part(here: LogListing, entry: SegmentEntry) -> bytes:
    """Return the bytes before the first damage, if the copy must start with the same bytes; else b""."""
    try:
        segment = Segment.open(here.directory, entry.name)
    except (CorruptionError, FormatError, FileNotFoundError):
        return b""
    try:
        header = segment.header
        if segment.damage is not None or entry.rewritten or header.flags & REWRITTEN:
            return b""
        seen = scan(segment, keys=False)
        end = min([seen.end, *(position for position, *_ in seen.bad)])
        return segment.file.pread(end, 0)
    finally:
        segment.close()


def _require_fit(here: LogListing, entry: SegmentEntry) -> None:
    """Check that the copy fits between the segments before and after it. Raises CommandError."""
    before = [one for one in here.entries if one.first_sequence < entry.first_sequence]
    after = [one for one in here.entries if one.first_sequence > entry.first_sequence]
    if before and (segment := _peek(here, before[-1].name)) is not None and segment.footer is not None:
        footer = segment.footer
        joins = footer.end_offset == entry.first_offset
        if footer.last_sequence >= entry.first_sequence or (joins and footer.chain_out != entry.chain_before):
            raise CommandError(
                f"{entry.name} of the replica does not follow {segment.name}: it is a different log"
            )
    if after and (segment := _peek(here, after[0].name)) is not None:
        header = segment.header
        joins = segment.damage is None and header.first_offset == entry.end_offset
        if entry.last_sequence >= header.first_sequence or (joins and header.chain != entry.chain):
            raise CommandError(
                f"{entry.name} of the replica does not lead to {segment.name}: it is a different log"
            )


def _peek(here: LogListing, name: str) -> Segment | None:
    """Return a segment for its header and footer; None if they cannot be compared."""
    try:
        segment = Segment.open(here.directory, name)
    except (CorruptionError, FormatError, FileNotFoundError):
        return None
    segment.close()
    return segment
