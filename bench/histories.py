"""Documents with a history, for the pipeline's benchmarks: real Loro updates, journalled like a server's.

A few hundred different histories are generated; each document gets one of them. An update types some words,
deletes some, or sometimes pastes text: 100 to 400 bytes, some larger.
"""

import base64
import random
import string
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import msgpack
from loro import ExportMode, LoroDoc

from lorogo_log import BlockingLog, LogOptions, Sync
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import UpdateRecord
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.digest import digest

START_NS = 1_794_000_000_000_000_000
_LETTERS = string.ascii_lowercase + "     "
_OPEN_AT_ONCE = 64  # documents that people work in at the same time
_FRAME = 64  # records that one commit of the journal takes
_PASTE = 0.02  # of the updates have a long piece of text
_EMPTY_BYTES, _EDIT_BYTES = 140, 11  # what an update takes, and each edit in it, roughly


@dataclass(frozen=True, slots=True)
class History:
    """The updates of one document, and the text that they make."""

    updates: tuple[tuple[bytes, str, tuple[tuple[int, int, int], ...]], ...]  # payload, digest, spans
    text: str


def typed(updates: int, payload_bytes: int, seed: int) -> History:
    """Return a history by two users who see each other's edits; `payload_bytes` is about an update's size."""
    rng = random.Random(seed)
    edits = max(0.1, (payload_bytes - _EMPTY_BYTES) / _EDIT_BYTES)
    people = [LoroDoc(), LoroDoc()]
    for one in people:
        one.peer_id = rng.getrandbits(63)
    found = []
    for _ in range(updates):
        writer, reader = rng.sample(people, 2)
        before = writer.oplog_vv
        text = writer.get_text("text")
        for _ in range(1 + int(rng.expovariate(1 / edits))):
            length = text.len_unicode
            place = rng.randint(max(0, length - 200), length)
            if place > 20 and rng.random() < 0.2:
                text.delete(place - 5, rng.randint(1, 5))
            else:
                text.insert(place, "".join(rng.choices(_LETTERS, k=rng.randint(1, 12))))
        if rng.random() < _PASTE:
            text.insert(text.len_unicode, "".join(rng.choices(_LETTERS, k=rng.randint(500, 4000))))
        writer.commit()
        payload = writer.export(ExportMode.Updates(before))
        reader.import_(payload)
        found.append((payload, digest(payload), crdt.spans(payload)))
    return History(tuple(found), people[0].get_text("text").to_string())


def many(histories: int, updates: int, payload_bytes: int) -> list[History]:
    """Return different histories, generated on all cores."""
    with ProcessPoolExecutor(mp_context=get_context("forkserver")) as pool:
        return list(pool.map(partial(typed, updates, payload_bytes), range(histories), chunksize=8))


def records_of(
    histories: list[History], documents: int, *, seed: int = 1
) -> Iterator[tuple[str, UpdateRecord]]:
    """Yield every update of the documents, several of which are edited at the same time."""
    rng = random.Random(seed)
    sequences = count(1)
    waiting = iter(range(documents))
    opened: list[tuple[str, Iterator[tuple[bytes, str, tuple[tuple[int, int, int], ...]]]]] = []
    while True:
        while len(opened) < _OPEN_AT_ONCE and (number := next(waiting, None)) is not None:
            opened.append((f"document-{number:06d}", iter(histories[number % len(histories)].updates)))
        if not opened:
            return
        place = rng.randrange(len(opened))
        document_id, updates = opened[place]
        one = next(updates, None)
        if one is None:
            opened[place] = opened[-1]
            opened.pop()
            continue
        payload, digest, spans = one
        log_id = base64.urlsafe_b64encode(rng.randbytes(16)).decode()[:21]
        yield document_id, UpdateRecord(1, next(sequences), log_id, digest, 41, 0, spans, payload)


def write_journal(
    folder: Path, found: Iterator[tuple[str, UpdateRecord]], *, partitions: int, bytes_max: int | None = None
) -> int:
    """Write a journal of these records, up to `bytes_max`; return their number."""
    pack = msgpack.Packer().pack
    with ExitStack() as stack:
        logs = [
            _Partition(stack.enter_context(BlockingLog(folder / f"{number:02d}", LogOptions(sync=Sync.os()))))
            for number in range(partitions)
        ]
        for number, (document_id, record) in enumerate(found):
            if number % 1000 == 0 and bytes_max is not None and sum(log.size for log in logs) >= bytes_max:
                break
            key = document_id.encode()
            logs[zlib.crc32(key) % partitions].add(key, pack(records.encode(record)), number)
        return sum(log.finish() for log in logs)


class _Partition:
    """A log that is written commit by commit, with a record every hundredth of a second."""

    def __init__(self, log: BlockingLog) -> None:
        self._log = log
        self._waiting: list[tuple[bytes, bytes, int]] = []
        self._written = 0

    @property
    def size(self) -> int:
        return self._log.stats().end_offset

    def add(self, key: bytes, value: bytes, number: int) -> None:
        self._waiting.append((key, value, START_NS + number * 10_000_000))
        if len(self._waiting) == _FRAME:
            self._commit()

    def finish(self) -> int:
        """Seal the log, like one in an archive; return its number of records."""
        if self._waiting:
            self._commit()
        self._log.rotate()
        return self._written

    def _commit(self) -> None:
        keys, values, times = zip(*self._waiting, strict=True)
        self._log.writer.append(list(keys), list(values), list(times), wait_seconds=60)
        self._written += len(keys)
        self._waiting.clear()
