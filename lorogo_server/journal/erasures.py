"""Erasure (`delete --purge`): removes a document's records from sealed segments, except the tombstone.

A server learns of an erasure when it executes one, from the message of another server, and from the
tombstones (`erased_ns`) that it reads at its start and every hour. So a server that was away erases the
records when it returns (docs/JOURNAL.md).
"""

import tempfile
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from lorogo_log import Directory, FileStorage, LogError, Record
from lorogo_log.format.names import parse_segment
from lorogo_log.recovery.sealed_segments import clean
from lorogo_log.storage.segment import Segment
from lorogo_protocol.journal.records import ErasedRecord, MalformedRecord
from lorogo_server.journal.archive import ArchiveStorage
from lorogo_server.journal.record_sorter import decode
from lorogo_server.journal.shipment import MANIFEST, PartitionArchive


class Erasures:
    """Erased documents, and the segments that are known to have no records of them."""

    def __init__(self) -> None:
        self._keys: dict[bytes, None] = {}  # in order of arrival
        self._clean: dict[
            str, tuple[bytes, int]
        ] = {}  # segment -> its digest, number of keys without records in it
        self.records = 0  # removed since the start

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, document_ids: Iterable[str]) -> bool:
        """Add documents; return True if any is new."""
        before = len(self._keys)
        self._keys.update(dict.fromkeys(document_id.encode() for document_id in document_ids))
        return len(self._keys) > before

    def drop(self, _: str, record: Record) -> bool:
        """Return True if `clean` must remove the record."""
        if record.key not in self._keys:
            return False
        try:
            return not isinstance(decode(record.payload), ErasedRecord)
        except MalformedRecord:
            return True

    def may_hold(self, directory: Directory, name: str) -> bool:
        """Return True if the segment's index shows that it may have a record of an erased document."""
        try:
            segment = Segment.open(directory, name)
        except (FileNotFoundError, LogError):
            return False
        try:
            if segment.footer is None:
                return False
            digest, free = self._clean.get(segment.path, (b"", 0))
            if digest != segment.footer.digest:
                free = 0
            if free == len(self._keys):
                return False
            keys = list(self._keys)  # a copy: the event loop may add keys meanwhile
            index, newer = segment.index(), islice(keys, free, None)
            found = index is None or any(next(index.with_key(key), None) for key in newer)
            if not found:
                self._clean[segment.path] = (segment.footer.digest, len(keys))
            return found
        finally:
            segment.close()

    def mark_clean(self, directory: Directory, name: str, keys: int) -> None:
        """Note that the segment has no records of the first `keys` keys."""
        try:
            segment = Segment.open(directory, name)
        except (FileNotFoundError, LogError):
            return
        if segment.footer is not None:
            self._clean[segment.path] = (segment.footer.digest, keys)
        segment.close()

    def clean(self, directory: Directory) -> int:
        """Remove records from one log's sealed segments; return their number. Raises LogError, OSError."""
        suspects = [name for name in directory.list() if parse_segment(name)]
        suspects = [name for name in suspects if self.may_hold(directory, name)]
        if not suspects:
            return 0
        keys = len(self._keys)  # keys added meanwhile may be missed
        done = clean(directory, self.drop)
        for name in suspects:
            self.mark_clean(directory, name, keys)
        self.records += done.dropped
        return done.dropped

    def clean_archive(self, partition_archive: PartitionArchive, local: Directory) -> int:
        """Remove records from segments that only the archive has; local segments are shipped again.

        Raises ArchiveError.
        """
        here = set(local.list())
        folder = partition_archive.archive.folder(partition_archive.prefix)
        dropped = 0
        for name, digest in sorted(partition_archive.known().items()):
            asked = (bytes.fromhex(digest), len(self._keys))
            if name in here or self._clean.get(f"{folder.path}/{name}") == asked:
                continue
            if self.may_hold(folder, name):
                keys = len(self._keys)
                dropped += self._clean_shipped(partition_archive, name)
                self.mark_clean(folder, name, keys)
        self.records += dropped
        return dropped

    def _clean_shipped(self, partition_archive: PartitionArchive, name: str) -> int:
        """Fetch one segment, clean it, and upload it again."""
        with tempfile.TemporaryDirectory(prefix="lorogo-erase-") as temporary:
            _fetch(partition_archive.archive, f"{partition_archive.prefix}/{name}", Path(temporary) / name)
            directory = FileStorage().directory(temporary, create=False)
            done = clean(directory, self.drop)
            if done.dropped:
                partition_archive.archive.remove(f"{partition_archive.prefix}/{name}{MANIFEST}")
                partition_archive.put(directory, name)
            return done.dropped


def _fetch(archive: ArchiveStorage, name: str, path: Path) -> None:
    with path.open("wb") as file:
        for piece in archive.read(name):
            file.write(piece)
