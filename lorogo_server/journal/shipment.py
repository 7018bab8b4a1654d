"""Sealed segments, copied to shared storage: verified, resumable, and again when they were rewritten.

    URL/{server id}/{partition}/{segment}         the file as it is on the disk
    URL/{server id}/{partition}/{segment}.json    its manifest, written when the copy has been read back

A segment with a manifest that names its digest is there; anything else is copied (again). So a crash at
any moment costs one copy, and a store needs neither rename nor append.
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
    """What the archive says of one segment."""

    size: int
    sha256: str  # of the whole file
    digest: str  # the segment's own, which changes when it is rewritten

    def render(self) -> bytes:
        return json.dumps({"size": self.size, "sha256": self.sha256, "digest": self.digest}).encode()

    @classmethod
    def parse(cls, data: bytes | None) -> "Manifest | None":
        """None if there is none, or none that we can read: then the segment is copied again."""
        try:
            body = json.loads(data or b"")
            return cls(int(body["size"]), str(body["sha256"]), str(body["digest"]))
        except (ValueError, KeyError, TypeError):
            return None


class ShipmentMismatch(ArchiveError):
    """What reads back from the archive is not what was written."""

    code = "not-shipped"


class PartitionArchive:
    """The place of one partition in the archive. Every call may block; raises ArchiveError."""

    def __init__(self, archive: ArchiveStorage, server_id: str, partition: str) -> None:
        self.archive = archive
        self.prefix = f"{server_id}/{partition}"
        self._known: dict[str, str] | None = None  # segment -> the digest that is there

    def has(self, info: SegmentInfo) -> bool:
        """Whether the archive has that segment, as it is now."""
        return info.digest is not None and self.known().get(info.name) == info.digest.hex()

    def known(self) -> dict[str, str]:
        """Every segment that is whole in the archive, with its digest."""
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

    def forget(self) -> None:
        """Ask the archive again."""
        self._known = None

    def put(
        self,
        directory: Directory,
        name: str,
        *,
        on_bytes: Callable[[int], None] = lambda _: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Copy one sealed segment and read it back; False if it is gone or not sealed."""
        try:
            segment = Segment.open(directory, name)  # this file, whatever is renamed over it meanwhile
        except (FileNotFoundError, LogError):
            return False  # gone, or damaged: a damaged copy helps nobody who could have a good one
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


def to_ship(shelf: PartitionArchive, reader: Reader) -> list[SegmentInfo]:
    """Sealed segments that the archive does not have as they are now, oldest first."""
    return [info for info in reader.segments() if info.sealed and not shelf.has(info)]
