"""The data in NATS beside a document's snapshot: its facts, its dated versions, the tables of servers."""

import json
from collections.abc import Iterable

from lorogo_protocol.errors import LorogoError
from lorogo_server.intake import history
from lorogo_server.snapshot_metadata import FORMAT, SnapshotMetadata
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_NAMES = (
    "format",
    "position",
    "cutoff",
    "frontiers",
    "trim",
    "dated",
    "lease",
    "generation",
    "deleted_ns",
    "erased_ns",
)


def _versions(text: str) -> None:
    found = history.decode(text)
    assert history.decode(history.encode(found)) == found


def _facts(source: Source) -> None:
    metadata = {"format": FORMAT}
    for _ in range(source.below(8)):
        metadata[source.pick(_NAMES)] = source.text()
    SnapshotMetadata.parse(metadata)


def run(data: bytes) -> None:
    """The first byte chooses."""
    source = Source(data)
    match source.byte() % 3:
        case 0:
            _versions(source.rest().decode("utf-8", "surrogateescape"))
        case 1:
            _versions(json.dumps([[source.value(), source.value(), source.value()] for _ in range(3)]))
        case _:
            _facts(source)


def seeds() -> Iterable[bytes]:
    versions = [history.DatedVersion(1, b"\x01", 2), history.DatedVersion(3, b"", 4)]
    yield b"\0" + history.encode(versions).encode()
    yield b"\0" + b"[" * 2000
    yield b"\0" + b'[[1e999, "", 0]]'
    yield b"\x01" + bytes([2, 0, 1, 0, 5, 0, 4, *b"YWI=", 2, 0, 3, 0])
    yield b"\x02" + b"\x04" + b"\x01\x0212" + b"\x03\x04YWI=" + b"\x05\x02[]" + b"\x06\x03 1 "


TARGET = Target(run, seeds, (LorogoError,))
