"""A damaged segment is fetched again from another process; until then lookups into it are answered there.

```python
repairer = Repairer()
async with Log.open(path, on_damage=repairer.damaged, forward=repairer.forward) as log:
    async with Coordinator(log, repairer=repairer) as coordinator:      # its replicas are the sources
        ...
```

One thread does the repairs, one segment after another; reads of everything else go on meanwhile. No asyncio.
"""

from __future__ import annotations

import struct
import threading
import time as clock
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from lorogo_log import limits
from lorogo_log.checks import shared_secret
from lorogo_log.core import BlockingLog
from lorogo_log.errors import DamageError, LogError
from lorogo_log.format.batch import Record
from lorogo_log.format.layout import FRAME_HEADER_BYTES, unpack_frame_header
from lorogo_log.format.names import parse_segment
from lorogo_log.recovery import sealed_segments
from lorogo_log.recovery.recovery import RecoveryMode
from lorogo_log.replication.replica_check import HOLDS_LESS, DivergedError, repair_install
from lorogo_log.replication.replica_fetch import Fetcher, fetch_into
from lorogo_log.replication.replica_rules import WantedSegment, lacks, same_history
from lorogo_log.storage.listing import list_segments
from lorogo_log.transfer.catalog import catalog
from lorogo_log.transfer.segment_transfer import SegmentClient
from lorogo_log.transfer.wire import SegmentEntry
from lorogo_log.transfer.wire_socket import Address

Sources = Callable[[], Sequence[Address]]


@dataclass(frozen=True, slots=True)
class Repaired:
    """One repair that was done."""

    name: str
    broken: str | None
    seconds: float
    source: Address


class Repairer:
    """Takes reports of damage, repairs, and forwards lookups meanwhile. All methods from any thread."""

    def __init__(
        self,
        sources: Sources | None = None,
        *,
        timeout: float = 10.0,
        retry_seconds: float = 1.0,
        secret: bytes | None = None,
        monotonic: Callable[[], float] = clock.monotonic,
    ) -> None:
        self.sources: Sources = sources or (lambda: ())
        self._timeout = timeout
        self._retry = retry_seconds
        self._secret = shared_secret(secret)
        self._monotonic = monotonic
        self._lock = threading.Condition()
        self._waiting: dict[str, DamageError] = {}
        self._core: BlockingLog | None = None
        self._fetcher: Fetcher | None = None
        self._thread: threading.Thread | None = None
        self._source: tuple[Address, ...] = ()
        self._closed = False
        self._idle: dict[Address, SegmentClient] = {}
        self.repaired: list[Repaired] = []
        #: why the last try failed
        self.trouble: Exception | None = None
        self.forwarded = 0

    # -- hooks of a log ---------------------------------------------------------------------------

    def damaged(self, damage: DamageError) -> None:
        """`on_damage` of a log."""
        name = damage.path.rpartition("/")[2]
        if parse_segment(name) is None:
            return
        with self._lock:
            self._waiting.setdefault(name, damage)
            self._lock.notify_all()

    def forward(self, sequence: int) -> Record | None:
        """`forward` of a log: the record from another process, None if nobody has it. May block."""
        core = self._core
        if core is None:
            return None
        for address in self.sources():
            with suppress(OSError, LogError, struct.error):
                record = self._ask(address, core, sequence)
                if record is not None:
                    self.forwarded += 1
                    return record
        return None

    def _ask(self, address: Address, core: BlockingLog, sequence: int) -> Record | None:
        """Over a connection that nobody uses now, or a new one; it is kept for the next lookup."""
        with self._lock:
            client = self._idle.pop(address, None)
        if client is not None:
            with suppress(OSError, LogError, struct.error):  # it may have been closed since
                record = _asked(core, client, sequence)
                self._keep(address, client)
                return record
            client.close()
        client = SegmentClient(
            address,
            timeout=self._timeout,
            log_id=core.writer.engine.log_id,
            partition=core.writer.engine.partition,
            secret=self._secret,
        )
        with ExitStack() as undo:
            undo.callback(client.close)
            record = _asked(core, client, sequence)
            undo.pop_all()
        self._keep(address, client)
        return record

    def _keep(self, address: Address, client: SegmentClient) -> None:
        with self._lock:
            if not self._closed and address not in self._idle:
                self._idle[address] = client
                return
        client.close()

    # -- life -------------------------------------------------------------------------------------

    def start(self, core: BlockingLog) -> None:
        """Begin to repair this log."""
        self._core = core
        self._fetcher = Fetcher(
            lambda: self._source,
            log_id=lambda: core.writer.engine.log_id,  # a new replica learns it later
            timeout=self._timeout,
            tries=2,
            secret=self._secret,
            partition=core.writer.engine.partition,
        )
        self._thread = threading.Thread(target=self._run, name="lorogo-log-repair", daemon=True)
        self._thread.start()

    def close(self, wait_seconds: float = limits.LOCK_SECONDS) -> None:
        """Stop; what is half fetched stays for the next time. Again: nothing."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
            idle = list(self._idle.values())
            self._idle.clear()
        for client in idle:
            client.close()
        if self._fetcher is not None:
            self._fetcher.close()
        if self._thread is not None:
            self._thread.join(wait_seconds)

    def pending(self) -> list[str]:
        """Segments that wait to be repaired."""
        with self._lock:
            return sorted(self._waiting)

    def wait(self, timeout: float) -> bool:
        """Whether everything reported so far was repaired within the time."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._waiting, timeout)

    def _run(self) -> None:
        while True:  # until closed
            with self._lock:
                self._lock.wait_for(lambda: self._closed or bool(self._waiting))
                if self._closed:
                    return
                names = list(self._waiting)
            done = [name for name in names if self._repair(name)]
            with self._lock:
                for name in done:
                    self._waiting.pop(name, None)
                self._lock.notify_all()
                if self._waiting and not self._closed:
                    self._lock.wait(self._retry)

    def _repair(self, name: str) -> bool:
        core, fetcher = self._core, self._fetcher
        assert core is not None and fetcher is not None
        began = self._monotonic()
        path = f"{core.directory.path}/{name}"
        if not any(known.path == path for known in core.damage):
            return True  # put aside or replaced meanwhile
        if name == core.writer.engine.active.name:
            self.trouble = LogError(f"{name} is being written: it is repaired when it is sealed")
            return False
        mine: SegmentEntry | None = None
        if _whole(core, name):
            if not _doubtful(core, path):
                core.forget_damage(name)  # reported late, by a reader of the replaced file
                return True
            mine = next((one for one in catalog(core) if one.name == name), None)
        self.trouble = LogError(f"{name}: no replica is connected")
        asked = failed = 0
        for address in self.sources():
            entry: SegmentEntry | None = None
            try:
                entry = self._find(fetcher, address, name)
                if mine is not None and (entry is None or not _more(mine, entry)):
                    asked += 1
                    continue
                if entry is None:
                    self.trouble = LogError(f"{name}: {address} has no good copy")
                    continue
                self._source = (address,)
                fetcher.fetch(fetch_into(core.directory), WantedSegment(entry))
                broken = repair_install(core, entry)
            except Exception as error:  # noqa: BLE001 - whatever a peer sends, repairs go on
                failed += 1
                self.trouble = error
                if isinstance(error, DivergedError) and entry is not None:
                    fetch_into(core.directory).discard(entry)  # its copy is none for this place
                if self._closed:
                    return False
                continue
            self.repaired.append(Repaired(name, broken, self._monotonic() - began, address))
            self.trouble = None
            return True
        if asked and (core.options.mirror or not failed):
            # nobody has more of it; a replica compares again, as long as there is a hole
            core.forget_damage(name)
            return True
        return False

    def _find(self, fetcher: Fetcher, address: Address, name: str) -> SegmentEntry | None:
        client = fetcher.client(address)
        try:
            for entry in client.catalog():
                if entry.name == name and entry.sealed and not entry.damaged:
                    return entry
            return None
        finally:
            fetcher.release(client)


def _asked(core: BlockingLog, client: SegmentClient, sequence: int) -> Record | None:
    """The record, if the other side has it and can be shown to have the same history up to it.

    One log id is not one history: a coordinator that was replaced may have other records of that sequence.
    """
    mine = [one for one in catalog(core) if one.first_sequence <= sequence]
    if not mine:
        return None
    # a lost header tells no offset: then all of its catalog is looked at
    for theirs in client.catalog(mine[-1].first_offset):
        if theirs.first_sequence == mine[-1].first_sequence:
            return client.lookup(sequence) if _proven(core, client, mine[-1], theirs, sequence) else None
    return None


def _proven(
    core: BlockingLog, client: SegmentClient, mine: SegmentEntry, theirs: SegmentEntry, sequence: int
) -> bool:
    """Whether two segments have the same frames up to where the shorter one ends, and that is far enough.

    A chain value vouches for all before it: at the end of both, or in the frame behind the shorter one's end.
    """
    if mine.chain == theirs.chain:
        room = mine.damaged  # the next one, begun behind damage, may have left room for what stood there
        same = theirs.end_offset == mine.end_offset or (room and theirs.end_offset < mine.end_offset)
        if same and mine.first_offset in {0, theirs.first_offset}:
            return True
    if mine.header_checksum != theirs.header_checksum or mine.rewritten or theirs.rewritten:
        return False
    shorter = min(mine, theirs, key=lambda one: one.end_offset)
    if not mine.first_sequence <= sequence <= shorter.last_sequence:
        return False
    if shorter is mine:
        data = client.read(theirs, at=mine.position, size=FRAME_HEADER_BYTES)
    else:
        file = core.directory.open(mine.name)
        try:
            data = file.pread(FRAME_HEADER_BYTES, theirs.position)
        finally:
            file.close()
    try:
        behind = unpack_frame_header(data)
    except ValueError:
        return False
    return (behind.offset, behind.chain) == (shorter.end_offset, shorter.chain)


def _doubtful(core: BlockingLog, path: str) -> bool:
    """Whether a segment that checks may hold less than it should: it was salvaged, or somebody has more."""
    if any(known.path == path and known.reason == HOLDS_LESS for known in core.damage):
        return True
    salvaged = core.options.recovery is RecoveryMode.SALVAGE
    return salvaged and any(known.path == path for known in core.recovered.damage)


def _more(mine: SegmentEntry, theirs: SegmentEntry) -> bool:
    """Whether another side's copy holds more than the one here."""
    if theirs.end_offset > mine.end_offset or theirs.records > mine.records:
        return True
    return same_history(mine, theirs) and lacks(mine, theirs)


def _whole(core: BlockingLog, name: str) -> bool:
    """Whether the segment that stands there now is sealed and checks."""
    entries = list_segments(core.directory)
    for number, entry in enumerate(entries):
        if entry.name == name:
            following = entries[number + 1] if number + 1 < len(entries) else None
            try:
                report = sealed_segments.verify(
                    core.directory, entry, newest=following is None, after=following
                )
            except (LogError, OSError):
                return False
            return report.sealed and not report.damage
    return False
