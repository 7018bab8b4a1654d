"""Copies sealed segments to shared storage, verified and resumable; copies a rewritten segment again.

    URL/{server id}/{partition}/{segment}         the file as it is on the disk
    URL/{server id}/{partition}/{segment}.json    its manifest, written when the copy has been read back

The archive has a segment if a manifest has its digest; any other segment is copied again. So a crash costs
one copy at most, and the store needs neither rename nor append.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lorogo_log import Directory, LogError, Reader, SegmentInfo
from lorogo_log.storage.segment import Segment
from lorogo_server.journal.archive import PIECE_BYTES, ArchiveError, ArchiveStorage

MANIFEST = ".json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Manifest of one segment in the archive."""

    size: int
    sha256: str  # of the whole file
    digest: str  # the segment's own digest, which changes when it is rewritten

    def render(self) -> bytes:
        return json.dumps({"size": self.size, "sha256": self.sha256, "digest": self.digest}).encode()

    @classmethod
    def parse(cls, data: bytes | None) -> "Manifest | None":
        """Parse a manifest; return None if it is missing or invalid, so that the segment is copied again."""
        try:
            body = json.loads(data or b"")
            return cls(int(body["size"]), str(body["sha256"]), str(body["digest"]))
        except (ValueError, KeyError, TypeError):
            return None


class ShipmentMismatch(ArchiveError):
    """The data that reads back from the archive differs from the data written."""

    code = "not-shipped"


class PartitionArchive:
    """One partition in the archive. Every call may block and may raise ArchiveError."""

    def __init__(self, archive: ArchiveStorage, server_id: str, partition: str) -> None:
        self.archive = archive
        self.prefix = f"{server_id}/{partition}"
        self._known: dict[str, str] | None = None  # segment -> its digest in the archive

    def has(self, info: SegmentInfo) -> bool:
        """Return True if the archive has the current version of the segment."""
        return info.digest is not None and self.known().get(info.name) == info.digest.hex()

    def known(self) -> dict[str, str]:
        """Return every complete segment in the archive, with its digest."""
        if self._known is None:
            files = self.archive.files(self.prefix)
            known = {}
            for name, size in files.items():
                file = name.rpartition("/")[2]
                if not file.endswith(".seg") or name + MANIFEST not in files:
                    continue
                manifest = Manifest.parse(self.archive.read_small(name + MANIFEST))
                if manifest is not None and manifest.size == size:
                    known[file] = manifest.digest
            self._known = known
        return self._known

    def put(
        self,
        directory: Directory,
        name: str,
        *,
        on_bytes: Callable[[int], None] = lambda _: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Copy one sealed segment and read it back; return False if it is gone, damaged or not sealed."""
        try:
            segment = Segment.open(directory, name)  # stays open even if another file is renamed over it
        except (FileNotFoundError, LogError):
            return False  # gone or damaged: a damaged copy is useless
        try:
            if segment.footer is None or segment.damage is not None:
                return False
            size, digest = segment.file.size(), segment.footer.digest.hex()
            there = hashlib.sha256()

            def pieces() -> Iterator[bytes]:
                for at in range(0, size, PIECE_BYTES):
                    if stopped():
                        raise ArchiveError("the server stops")
                    piece = segment.file.pread(min(PIECE_BYTES, size - at), at)
                    there.update(piece)
                    on_bytes(len(piece))
                    yield piece

            target = f"{self.prefix}/{name}"
            self.archive.write(target, pieces())
            self._read_back(target, size, there.hexdigest())
            manifest = Manifest(size, there.hexdigest(), digest).render()
            self.archive.write(target + MANIFEST, iter([manifest]))
            self.known()[name] = digest
            return True
        finally:
            segment.close()

    def _read_back(self, target: str, size: int, sha256: str) -> None:
        back, count = hashlib.sha256(), 0
        for piece in self.archive.read(target):
            back.update(piece)
            count += len(piece)
        if count != size or back.hexdigest() != sha256:
            raise ShipmentMismatch(f"{self.archive.url}/{target} does not read back as it was written")


def to_ship(partition_archive: PartitionArchive, reader: Reader) -> list[SegmentInfo]:
    """Return the sealed segments whose current version is not in the archive, oldest first."""
    return [info for info in reader.segments() if info.sealed and not partition_archive.has(info)]
