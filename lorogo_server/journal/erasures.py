"""`delete --purge`: every record of a document leaves the sealed segments of a journal, but for the erasure.

A server learns of an erasure when it carries it out, when it hears of it, and from the tombstones
(`erased_ns`) that it looks through when it starts and every hour: so one that was away does it when it
returns (docs/JOURNAL.md).
"""

import tempfile
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from lorogo_log import Directory, FileStorage, LogError, Record
from lorogo_log.format.names import parse_segment
from lorogo_log.maintenance.sealed_segments import clean
from lorogo_log.storage.segment import Segment
from lorogo_protocol.records import ErasedRecord, MalformedRecord
from lorogo_server.journal.archive import ArchiveStorage
from lorogo_server.journal.record_sorter import decode
from lorogo_server.journal.shipment import MANIFEST, PartitionArchive


class Erasures:
    """Which documents are erased, and which segments were looked through for them."""

    def __init__(self) -> None:
        self._keys: dict[bytes, None] = {}  # in the order in which they came
        self._looked: dict[str, tuple[bytes, int]] = {}  # segment -> its digest, of how many keys it is free
        self.records = 0  # removed since the start

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, document_ids: Iterable[str]) -> bool:
        """Whether any of them is new."""
        before = len(self._keys)
        self._keys.update(dict.fromkeys(document_id.encode() for document_id in document_ids))
        return len(self._keys) > before

    def drop(self, _: str, record: Record) -> bool:
        """For `clean`: whether the record goes."""
        if record.key not in self._keys:
            return False
        try:
            return not isinstance(decode(record.payload), ErasedRecord)
        except MalformedRecord:
            return True

    def may_hold(self, directory: Directory, name: str) -> bool:
        """Whether that segment may hold a record of an erased document, told by its index."""
        try:
            segment = Segment.open(directory, name)
        except (FileNotFoundError, LogError):
            return False
        try:
            if segment.footer is None:
                return False
            digest, free = self._looked.get(segment.path, (b"", 0))
            if digest != segment.footer.digest:
                free = 0
            if free == len(self._keys):
                return False
            keys = list(self._keys)  # the loop may add some while this thread looks
            index, newer = segment.index(), islice(keys, free, None)
            found = index is None or any(next(index.with_key(key), None) for key in newer)
            if not found:
                self._looked[segment.path] = (segment.footer.digest, len(keys))
            return found
        finally:
            segment.close()

    def looked(self, directory: Directory, name: str, keys: int) -> None:
        """That segment is free of the first so many keys now."""
        try:
            segment = Segment.open(directory, name)
        except (FileNotFoundError, LogError):
            return
        if segment.footer is not None:
            self._looked[segment.path] = (segment.footer.digest, keys)
        segment.close()

    def clean(self, directory: Directory) -> int:
        """Remove records from the sealed segments of one log; returns how many. Raises LogError, OSError."""
        suspects = [name for name in directory.list() if parse_segment(name)]
        suspects = [name for name in suspects if self.may_hold(directory, name)]
        if not suspects:
            return 0
        keys = len(self._keys)  # those that come meanwhile may be found, or not
        done = clean(directory, self.drop)
        for name in suspects:
            self.looked(directory, name, keys)
        self.records += done.dropped
        return done.dropped

    def clean_archive(self, shelf: PartitionArchive, local: Directory) -> int:
        """The same for what only the archive has; what is here too is shipped again. Raises ArchiveError."""
        here = set(local.list())
        folder = shelf.archive.folder(shelf.prefix)
        dropped = 0
        for name, digest in sorted(shelf.known().items()):
            asked = (bytes.fromhex(digest), len(self._keys))
            if name in here or self._looked.get(f"{folder.path}/{name}") == asked:
                continue  # no need to ask the archive for it again
            if self.may_hold(folder, name):
                keys = len(self._keys)
                dropped += self._clean_shipped(shelf, name)
                self.looked(folder, name, keys)
        self.records += dropped
        return dropped

    def _clean_shipped(self, shelf: PartitionArchive, name: str) -> int:
        """Fetch one segment, clean it, put it back."""
        with tempfile.TemporaryDirectory(prefix="lorogo-erase-") as temporary:
            _fetch(shelf.archive, f"{shelf.prefix}/{name}", Path(temporary) / name)
            directory = FileStorage().directory(temporary, create=False)
            done = clean(directory, self.drop)
            if done.dropped:
                shelf.archive.remove(f"{shelf.prefix}/{name}{MANIFEST}")
                shelf.put(directory, name)
            return done.dropped


def _fetch(archive: ArchiveStorage, name: str, path: Path) -> None:
    with path.open("wb") as file:
        for piece in archive.read(name):
            file.write(piece)
