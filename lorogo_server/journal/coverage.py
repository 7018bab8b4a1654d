"""What the journal covers already, per document: a hint that saves writing things twice.

It may be old or missing; it is never ahead of what is on the disk, and never beyond an update that
waits for something (docs/JOURNAL.md, "The ledger").
"""

from dataclasses import dataclass

import msgpack
import xxhash

from lorogo_log import Directory, LogError, read_file, replace_file
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_NAME = "ledger"
_FORMAT = 2
_CHECK_BYTES = 8


@dataclass(frozen=True, slots=True)
class CoverageEntry:
    """What the journal holds of one document."""

    base: str = ""  # the digest of a snapshot whose content is covered, or which tombstone is; "": none
    epoch: int = 0
    sequence: int = 0  # every accepted update of the WAL up to here, in that epoch,
    time_ns: int = 0  # if it was stored up to then: a WAL made anew counts from 1 again

    def has(self, epoch: int, sequence: int, time_ns: int) -> bool:
        """Whether an update at that place of the WAL, stored then, is in the journal."""
        return epoch == self.epoch and sequence <= self.sequence and time_ns <= self.time_ns


NOTHING = CoverageEntry()


class JournalCoverage:
    """The entries of one journal, which is known by the ids of its logs."""

    def __init__(self, log_ids: tuple[bytes, ...], entries: dict[str, CoverageEntry] | None = None) -> None:
        self.log_ids = log_ids
        self.changed = False
        self._entries = entries or {}

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, document_id: str) -> CoverageEntry:
        """What is covered; nothing, if we do not know."""
        return self._entries.get(document_id, NOTHING)

    def set(self, document_id: str, covered: CoverageEntry) -> None:
        self._entries[document_id] = covered
        self.changed = True

    def forget(self, document_id: str | None = None) -> None:
        """Believe nothing any more of that document, or of any."""
        if document_id is None:
            self._entries.clear()
        else:
            self._entries.pop(document_id, None)
        self.changed = True

    def encode(self) -> bytes:
        """As it is written: a checksum, then msgpack."""
        rows = [(name, one.base, one.epoch, one.sequence, one.time_ns) for name, one in self._entries.items()]
        body: bytes = msgpack.packb([_FORMAT, list(self.log_ids), rows])
        return bytes(xxhash.xxh64(body).digest()) + body


def decode(data: bytes, log_ids: tuple[bytes, ...]) -> JournalCoverage:
    """The ledger in those bytes; an empty one if they are damaged, or of another journal."""
    check, body = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    if len(check) == _CHECK_BYTES and xxhash.xxh64(body).digest() == check:
        form, of, rows = msgpack.unpackb(body)
        if form == _FORMAT and tuple(of) == log_ids:
            return JournalCoverage(log_ids, {name: CoverageEntry(*covered) for name, *covered in rows})
    return JournalCoverage(log_ids)


def read(directory: Directory, log_ids: tuple[bytes, ...]) -> JournalCoverage:
    """The ledger in a folder; an empty one if there is none that we can believe."""
    try:
        data = read_file(directory, _NAME)
    except (OSError, LogError):
        return JournalCoverage(log_ids)
    return decode(data, log_ids)


def write(directory: Directory, data: bytes) -> None:
    """Replace it, whole or not at all; when this returns, no crash brings the old one back."""
    replace_file(directory, _NAME, data)
