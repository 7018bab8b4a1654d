"""Journals made by hand: real logs with real Loro updates, at times that a test chooses."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import msgpack
from loro import ExportMode, LoroDoc

from lorogo_log import BlockingLog, LogOptions
from lorogo_log.format.batch import pack_value
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import Record, UpdateRecord
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.digest import digest

SECOND = 1_000_000_000
START = 1_794_000_000 * SECOND  # 2026-11-06T21:20:00Z
TERM = "first"  # of the owner that accepted the updates


@dataclass(frozen=True)
class Made:
    """An update as a server would journal it."""

    document_id: str
    at_ns: int
    record: UpdateRecord


@dataclass
class Author:
    """One person's replica of one document, who edits and hands out updates."""

    document_id: str
    peer: int
    doc: LoroDoc = field(default_factory=LoroDoc)

    def __post_init__(self) -> None:
        self.doc.peer_id = self.peer

    def type(self, text: str, at: int | None = None, name: str = "text") -> bytes:
        """Insert text (at the end by default) and return the update."""
        before = self.doc.oplog_vv
        body = self.doc.get_text(name)
        body.insert(body.len_unicode if at is None else at, text)
        self.doc.commit()
        return self.doc.export(ExportMode.Updates(before))


def made(
    document_id: str,
    payload: bytes,
    at_ns: int,
    *,
    sequence: int,
    log_id: str = "",
    epoch: int = 1,
    generation: int = 0,
) -> Made:
    """An update with all values of a journal record."""
    record = UpdateRecord(
        epoch=epoch,
        sequence=sequence,
        log_id=log_id or f"log-{sequence}",
        digest=digest(payload),
        lease=7,
        generation=generation,
        spans=crdt.spans(payload),
        payload=payload,
        term=TERM,
    )
    return Made(document_id, at_ns, record)


def session(
    documents: int, updates: int, *, seed: int = 1, peers: int = 2, step_ns: int = SECOND
) -> list[Made]:
    """Updates of some people in some documents, one after another, as one stream holds them."""
    rng = random.Random(seed)
    authors = {
        f"doc-{number:04d}": [
            Author(f"doc-{number:04d}", 1000 * (number + 1) + peer) for peer in range(peers)
        ]
        for number in range(documents)
    }
    found = []
    for sequence in range(1, updates + 1):
        document_id = rng.choice(list(authors))
        writer, *others = rng.sample(authors[document_id], peers)
        payload = writer.type(f"{sequence} ", rng.randint(0, writer.doc.get_text("text").len_unicode))
        for other in others:
            other.doc.import_(payload)
        found.append(made(document_id, payload, START + sequence * step_ns, sequence=sequence))
    return found


def texts(updates: list[Made]) -> dict[str, str]:
    """The text of each document when all of them are applied: the reference."""
    docs: dict[str, LoroDoc] = {}
    for one in updates:
        docs.setdefault(one.document_id, LoroDoc()).import_(one.record.payload)
    return {document_id: doc.get_text("text").to_string() for document_id, doc in docs.items()}


class Journal:
    """A log in a directory, as a server's partition is."""

    def __init__(self, path: Path, *, segment_bytes: int = 1 << 20, log_id: bytes | None = None) -> None:
        self.path = path
        self._log = BlockingLog(path, LogOptions(segment_bytes=segment_bytes, log_id=log_id))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()

    def add(self, *updates: Made) -> None:
        for start in range(0, len(updates), 64):
            some = updates[start : start + 64]
            self._log.writer.append(
                [one.document_id.encode() for one in some],
                [pack_value(records.encode(one.record)) for one in some],
                [one.at_ns for one in some],
                wait_seconds=30,
            )

    def record(self, document_id: str, record: Record, at_ns: int) -> None:
        self._log.append(records.encode(record), key=document_id.encode(), ts=at_ns)

    def raw(self, key: bytes, value: bytes, at_ns: int) -> None:
        self._log.writer.append([key], [value], [at_ns], wait_seconds=30)

    def seal(self) -> None:
        self._log.rotate()

    def segments(self) -> list[Path]:
        return sorted(self.path.glob("*.seg"))


def journal(path: Path, updates: list[Made], *, segment_bytes: int = 1 << 20, sealed: bool = False) -> Path:
    """A journal with these updates."""
    with Journal(path, segment_bytes=segment_bytes) as made_:
        made_.add(*updates)
        if sealed:
            made_.seal()
    return path


def with_payload(one: Made, payload: bytes) -> Made:
    """The same record with other bytes: its digest is wrong now."""
    return replace(one, record=replace(one.record, payload=payload))


def unpacked(value: bytes) -> object:
    return msgpack.unpackb(value)
