"""Sorts records by document in temporary files, so that a restore needs little memory.

The journals are read once, from beginning to end, and every record goes into the file of its document's
hash. Then one file at a time is processed, document by document; payloads are fetched when needed.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgpack
import xxhash

from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import DocumentRecord, MalformedRecord

_HEADER = struct.Struct("<HIq")  # bytes of the id, bytes of the payload, time
_FILE_BYTES = 16 << 20  # intended size of one file
_FILES_MAX = 200  # open at once
_MARKS = 7  # the first items of a record, with epoch and lease
_MARKS_BYTES = 512  # bytes before a record's payload


class SortFiles:
    """Temporary files in a folder that the caller removes."""

    def __init__(self, folder: Path, bytes_expected: int) -> None:
        count = max(1, min(_FILES_MAX, bytes_expected // _FILE_BYTES + 1))
        self._paths = [folder / f"{number:03d}" for number in range(count)]
        self._files: list[BinaryIO] = [path.open("wb") for path in self._paths]
        self.records = 0
        self.epoch = self.lease = 0  # the highest in any record

    def add(self, key: bytes, time_ns: int, payload: bytes) -> None:
        """Write one record to the file of its document."""
        into = self._files[xxhash.xxh64_intdigest(key) % len(self._files)]
        into.write(_HEADER.pack(len(key), len(payload), time_ns))
        into.write(key)
        into.write(payload)
        self.records += 1
        epoch, lease = _marks(payload)
        self.epoch, self.lease = max(self.epoch, epoch), max(self.lease, lease)

    def close(self) -> None:
        """Finish writing, so that the files can be read."""
        for file in self._files:
            file.close()

    def documents(self) -> Iterator["DocumentRecords"]:
        """Yield the records of one document after another."""
        for path in self._paths:
            with path.open("rb") as file:
                for key, places in sorted(_index(file).items()):
                    yield DocumentRecords(key.decode(errors="replace"), file, places)
            path.unlink()


class DocumentRecords:
    """Records of one document: (time, offset) of each, and their content on demand."""

    def __init__(self, document_id: str, file: BinaryIO, places: list[tuple[int, int]]) -> None:
        self.document_id = document_id
        self.places = places
        self._file = file

    def fetch(self, place: int) -> DocumentRecord | None:
        """Return the record; None if its kind is unknown or not about a document. Raises MalformedRecord."""
        self._file.seek(place)
        key_bytes, payload_bytes, _ = _HEADER.unpack(self._file.read(_HEADER.size))
        payload = self._file.read(key_bytes + payload_bytes)[key_bytes:]
        return decode(payload)


def decode(payload: bytes) -> DocumentRecord | None:
    """Decode the payload of a log record about a document. Raises MalformedRecord."""
    try:
        value = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedRecord(f"it is not msgpack: {error}") from None
    return records.decode_document(value)


def _index(file: BinaryIO) -> dict[bytes, list[tuple[int, int]]]:
    found: dict[bytes, list[tuple[int, int]]] = {}
    place = 0
    while header := file.read(_HEADER.size):
        key_bytes, payload_bytes, time_ns = _HEADER.unpack(header)
        key = file.read(key_bytes)
        file.seek(payload_bytes, 1)
        found.setdefault(key, []).append((time_ns, place))
        place += _HEADER.size + key_bytes + payload_bytes
    return found


def _marks(payload: bytes) -> tuple[int, int]:
    """Return epoch and lease of a record, or 0 for a missing one, without decoding its payload."""
    unpacker = msgpack.Unpacker(None, max_buffer_size=0)
    unpacker.feed(payload[:_MARKS_BYTES])
    try:
        items = [unpacker.unpack() for _ in range(min(unpacker.read_array_header(), _MARKS))]
    except (ValueError, msgpack.UnpackException):
        return 0, 0  # malformed: `decode` reports it
    match items:
        case ["u", records.LAYOUT, int(epoch), _, _, _, int(lease)]:
            return epoch, lease
        case ["b", records.LAYOUT, int(epoch), _, int(lease), *_]:
            return epoch, lease
        case ["d" | "e", records.LAYOUT, _, _, int(lease), *_]:
            return 0, lease
        case ["t", records.LAYOUT, _, _, _, _, int(lease)]:
            return 0, lease
        case _:
            return 0, 0
