"""Journals replayed by the code of `lorogo restore`: what an audit compares the live system with."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from lorogo_log import BlockingLog
from lorogo_log import Record as Stored
from lorogo_pipeline.audit.comparison import JournalDocument
from lorogo_pipeline.audit.difference import BadRecord, Difference, damaged_segment
from lorogo_pipeline.decode import content
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.journal.records import ANSWERS_KEY, DocumentRecord, Record, UpdateRecord, encode
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.digest import digest
from lorogo_server.journal.record_sorter import decode
from lorogo_server.recovery.restore import gather, rebuild
from lorogo_server.recovery.restore_sources import find

NOW = 2_000_000_000_000_000_000


def replay(journals: Path, document_id: str | None = None) -> dict[str, JournalDocument]:
    """Every document that the journals below a folder have, or one."""
    found: dict[str, list[tuple[Stored, str]]] = {}
    for source in find(str(journals)):
        for record in source.records(document_id):
            if record.key == ANSWERS_KEY:
                continue
            found.setdefault(record.key.decode(), []).append((record, source.name))
    return {name: _folded(name, stored) for name, stored in found.items()}


def again(journals: Path) -> Callable[[str], "asyncio.Future[JournalDocument | None]"]:
    """For `audit(again=...)`."""

    def read(document_id: str) -> JournalDocument | None:
        return replay(journals, document_id).get(document_id)

    return lambda document_id: asyncio.ensure_future(asyncio.to_thread(read, document_id))


def damage(journals: Path) -> list[Difference]:
    """The unreadable parts of the journals below a folder."""
    unreadable = []
    for source in find(str(journals)):
        for _ in source.records():
            pass
        unreadable += [
            damaged_segment(f"{source.name}/{one.segment}", why) for why, one in source.damage.items()
        ]
    return unreadable


def copied(journals: Path, to: Path, change: Callable[[str, Record], Record | None]) -> Path:
    """The same records in another log, changed by hand on the way; None: left out."""
    for number, source in enumerate(find(str(journals))):
        with BlockingLog(to / f"{number:02d}") as log:
            for stored in source.records():
                record = decode(stored.payload)
                if record is None:
                    continue  # about a server
                if (changed := change(stored.key.decode(), record)) is not None:
                    log.append(encode(changed), key=stored.key, ts=stored.time)
    return to


def _folded(name: str, stored: list[tuple[Stored, str]]) -> JournalDocument:
    def fetch(place: int) -> DocumentRecord | None:
        return decode(stored[place][0].payload)

    made = [(fetch(place), f"{log} at {record.sequence}") for place, (record, log) in enumerate(stored)]
    whole = {_identity(record) for record, where in made if _bad(record, where) is None}
    bad = tuple(
        one for record, where in made if (one := _bad(record, where)) and _identity(record) not in whole
    )
    gathered = gather([(record.time, place) for place, (record, _) in enumerate(stored)], fetch)
    if gathered.erased_ns:
        return JournalDocument(name, "erased", gathered.terms.generation)
    rebuilt = rebuild(gathered, fetch, now_ns=NOW)
    here, value = rebuilt.replica.version(), content.read(rebuilt.replica)
    return JournalDocument(
        name,
        "deleted" if gathered.deleted_ns else "live",
        gathered.terms.generation,
        crdt.counters(here.vector),
        here.frontiers,
        content.content_hash(value),
        content.canonical(value),
        "; ".join(f"{count} x {why}" for why, count in rebuilt.left.items()),
        bad,
    )


def _bad(record: Record | None, where: str) -> BadRecord | None:
    if not isinstance(record, UpdateRecord):
        return None
    if digest(record.payload) != record.digest:
        return BadRecord(record.log_id, where)
    try:
        crdt.spans(record.payload)
    except CrdtError as error:
        return BadRecord(record.log_id, where, str(error))
    return None


def _identity(record: Record | None) -> object:
    return (record.log_id, record.digest) if isinstance(record, UpdateRecord) else None
