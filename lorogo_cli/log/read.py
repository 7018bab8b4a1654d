"""`lorogo log dump` and `tail`: print records, also while another process writes."""

import base64
import binascii
import re
import shlex
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lorogo_cli.errors import CommandError, brief
from lorogo_cli.log.errors import printing, warn
from lorogo_cli.log.found import LogListing, found
from lorogo_cli.log.values import human, line
from lorogo_cli.render.output import note
from lorogo_client.errors import InvalidMoment
from lorogo_client.versions import parse_time
from lorogo_log import Batch, CorruptionError, Cursor, End, FormatError, Record, TornError
from lorogo_log.storage.segment import Segment, scan

_POLL_SECONDS = 0.1
_NANOSECONDS = re.compile(r"[0-9]{16,19}")
_SEQUENCE_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """A filter of records."""

    from_seq: int | None = None
    from_time: int | None = None
    key: bytes | None = None
    limit: int | None = None


def wanted(
    from_seq: int | None, from_time: str | None, key: str | None, key_base64: str | None, limit: int | None
) -> RecordFilter:
    """Check the options and return them as a filter. Raises CommandError."""
    if from_seq is not None and from_time is not None:
        raise CommandError("--from-seq and --from-time contradict each other: use one of them")
    if key is not None and key_base64 is not None:
        raise CommandError("--key and --key-base64 contradict each other: use one of them")
    if from_seq is not None and from_seq > _SEQUENCE_MAX:
        raise CommandError(f"--from-seq {from_seq} is too large: the highest sequence is {_SEQUENCE_MAX}")
    chosen = None if key is None else key.encode("utf-8", "surrogateescape")
    if key_base64 is not None:
        try:
            chosen = base64.b64decode(key_base64, validate=True)
        except (binascii.Error, ValueError):
            raise CommandError(f"{brief(key_base64)} is not base64") from None
    return RecordFilter(from_seq, None if from_time is None else _moment(from_time), chosen, limit)


def _moment(text: str) -> int:
    if _NANOSECONDS.fullmatch(text.strip()):
        return int(text)
    try:
        return parse_time(text, now_ns=time.time_ns())
    except InvalidMoment:
        raise CommandError(
            f"{brief(text)} is not a time: write 2026-11-16T10:30, 10m for ten minutes ago, or nanoseconds"
        ) from None


class LogScan:
    """Reads batches of a log in order and skips damage, with a warning on stderr.

    Without `follow`, reading stops at the log's end as of the start, even if a writer appends more.
    """

    def __init__(
        self, here: LogListing, what: RecordFilter, warned: set[str] | None = None, *, word: str = "shown"
    ) -> None:
        self._word = word  # the verb in warnings
        self._here = here
        self._warned = set() if warned is None else warned  # warnings that are not repeated
        self._left = what.limit
        self.whole = True
        self._cursor: Cursor = here.reader.cursor(
            from_seq=what.from_seq, from_time=what.from_time, key=what.key
        )
        for file in here.blocking:
            self._warn(file.sentence())

    def close(self) -> None:
        self._cursor.close()

    def batches(self, *, follow: bool = False) -> Iterator[Batch]:
        """Yield batches up to the present end of the log; with `follow`, without end."""
        end = None if follow else last_sequence(self._here)
        while (self._left is None or self._left > 0) and (
            end is None or self._cursor.position.sequence <= end
        ):
            try:
                batch = self._cursor.next(following=follow)
            except End:
                if not follow:
                    return
                time.sleep(_POLL_SECONDS)
            except TornError as torn:
                if self._here.writer is None:  # else the writer has not finished the commit
                    self._warn(f"{torn}: a commit is incomplete or damaged; it is not {self._word}")
                return
            except CorruptionError as damage:
                where = shlex.quote(self._here.directory.path)
                next_step = f"`lorogo log verify {where}` shows the lost records"
                self._warn(f"{damage}; the rest is {self._word}; {next_step}")
            else:
                if self._left is not None:
                    if len(batch) > self._left:
                        batch = batch.select(batch.chosen[: self._left])
                    self._left -= len(batch)
                yield batch

    def records(self, *, follow: bool = False) -> Iterator[list[Record]]:
        """Yield the records of each batch."""
        for batch in self.batches(follow=follow):
            try:
                records = list(batch.records())
            except (ValueError, IndexError) as error:  # a frame with a good checksum and invalid columns
                self.bad(batch, error)
                continue
            yield records

    def bad(self, batch: Batch, error: Exception) -> None:
        """Warn about a frame with a good checksum and unusable content."""
        where = f"{self._here.directory.path}, the segment of {batch.segment}, at byte {batch.position}"
        self._warn(f"{where}: {error}; the rest is {self._word}")

    def _warn(self, sentence: str) -> None:
        self.whole = False
        if sentence not in self._warned:
            self._warned.add(sentence)
            warn(sentence)


def dump(path: Path, what: RecordFilter, *, as_json: bool) -> bool:
    """Print records as JSON lines; return whether nothing was damaged."""
    short = sys.stdout.isatty() and not as_json
    reading = LogScan(found(path), what)
    try:
        for records in reading.records():
            with printing(flush=False):
                for record in records:
                    sys.stdout.write(line(record, short=short) + "\n")
        with printing():
            pass
    finally:
        reading.close()
    return reading.whole


def tail(path: Path, count: int, what: RecordFilter, *, follow: bool, as_json: bool) -> bool:
    """Print the last records and, with `follow`, new ones; return whether nothing was damaged."""
    here = found(path)
    warned: set[str] = set()
    last, start, whole = _last(here, count, what, warned)
    _print(last, as_json=as_json)
    if not follow:
        return whole
    if not as_json:
        note(f"following {path}; Ctrl-C stops")
    reading = LogScan(here, replace(what, from_seq=start), warned)
    try:
        for records in reading.records(follow=True):
            _print(records, as_json=as_json)
    finally:
        reading.close()
    return whole and reading.whole


def _print(records: list[Record], *, as_json: bool) -> None:
    with printing():
        for record in records:
            sys.stdout.write((line(record, short=False) if as_json else human(record)) + "\n")


def _last(
    here: LogListing, count: int, what: RecordFilter, warned: set[str]
) -> tuple[list[Record], int, bool]:
    """Return the last records, the sequence to continue from, and whether nothing was damaged.

    The start is estimated from sequences, and moved back while it leaves too few records, for example with a
    key filter.
    """
    if not here.entries:
        return [], 0, True
    oldest, end = here.entries[0].first_sequence, last_sequence(here) or 0
    back = max(count, 1)
    while True:
        start = max(oldest, end - back + 1)
        reading = LogScan(here, replace(what, from_seq=start), warned)
        kept: deque[Record] = deque(maxlen=count)
        seen = end
        try:
            for records in reading.records():
                kept.extend(records)
                seen = max(seen, records[-1].sequence)
        finally:
            reading.close()
        if len(kept) == count or start == oldest:
            return list(kept), seen + 1, reading.whole
        back *= 16


def last_sequence(here: LogListing) -> int | None:
    """Return the last sequence, plus one if an incomplete commit follows; None if it is unknown."""
    if not here.entries:
        return None
    newest = here.entries[-1]
    try:
        segment = Segment.open(here.directory, newest.name)
    except (FileNotFoundError, CorruptionError, FormatError):
        return None
    try:
        if segment.footer is not None:
            return segment.footer.last_sequence
        seen = scan(segment)
        return seen.next_sequence if seen.torn else seen.next_sequence - 1
    finally:
        segment.close()
