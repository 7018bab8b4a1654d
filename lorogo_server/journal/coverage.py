"""Journal coverage per document: a hint that avoids duplicate records after a load.

It may be old or missing. It is never ahead of the disk, and never beyond a message that a later load could
accept (docs/JOURNAL.md, "Coverage").
"""

from dataclasses import astuple, dataclass

import msgpack
import xxhash

from lorogo_log import Directory, LogError, read_file, replace_file
from lorogo_protocol.position import NOWHERE, Position
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_NAME = "ledger"
_FORMAT = 2
_CHECK_BYTES = 8


@dataclass(frozen=True, slots=True)
class CoverageEntry:
    """Coverage of one document."""

    base: str = ""  # digest of a snapshot whose content is covered, or id of a covered tombstone; "": none
    position: Position = NOWHERE  # the journal has every accepted update up to it


NOTHING = CoverageEntry()


class JournalCoverage:
    """Coverage of all documents in one journal, which the ids of its logs identify."""

    def __init__(self, log_ids: tuple[bytes, ...], entries: dict[str, CoverageEntry] | None = None) -> None:
        self.log_ids = log_ids
        self.changed = False
        self._entries = entries or {}

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, document_id: str) -> CoverageEntry:
        """Return the coverage of a document; empty if unknown."""
        return self._entries.get(document_id, NOTHING)

    def set(self, document_id: str, covered: CoverageEntry) -> None:
        self._entries[document_id] = covered
        self.changed = True

    def forget(self, document_id: str | None = None) -> None:
        """Remove the coverage of a document, or of all."""
        if document_id is None:
            self._entries.clear()
        else:
            self._entries.pop(document_id, None)
        self.changed = True

    def encode(self) -> bytes:
        """Encode as a checksum followed by msgpack."""
        rows = [(name, one.base, *astuple(one.position)) for name, one in self._entries.items()]
        body: bytes = msgpack.packb([_FORMAT, list(self.log_ids), rows])
        return bytes(xxhash.xxh64(body).digest()) + body


def decode(data: bytes, log_ids: tuple[bytes, ...]) -> JournalCoverage:
    """Decode coverage; return an empty one if the bytes are damaged or belong to another journal."""
    check, body = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    if len(check) == _CHECK_BYTES and xxhash.xxh64(body).digest() == check:
        form, of, rows = msgpack.unpackb(body)
        if form == _FORMAT and tuple(of) == log_ids:
            return JournalCoverage(
                log_ids, {name: CoverageEntry(base, Position(*position)) for name, base, *position in rows}
            )
    return JournalCoverage(log_ids)


def read(directory: Directory, log_ids: tuple[bytes, ...]) -> JournalCoverage:
    """Read the coverage in a folder; return an empty one if it is missing or invalid."""
    try:
        data = read_file(directory, _NAME)
    except (OSError, LogError):
        return JournalCoverage(log_ids)
    return decode(data, log_ids)


def write(directory: Directory, data: bytes) -> None:
    """Replace the file atomically and durably."""
    replace_file(directory, _NAME, data)
