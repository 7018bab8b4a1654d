"""Epoch of the WAL: detects that JetStream lost messages and reused their sequences.

JetStream acknowledges a message before it syncs. After a crash it may have fewer messages and use their
sequences again. The key `_kv_epoch` has a counter with one known position. A server that finds that the
stream contradicts the position raises the counter, and every host then reads its subject again.
"""

import asyncio
import json
from dataclasses import dataclass, replace

from lorogo_log import Directory, LogError, read_file, replace_file
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.wire import LaterWire, later
from lorogo_transport.errors import OutcomeUnknown, StreamMissing, WrongLastSequence
from lorogo_transport.ports import StoredMessage, StreamState, Transport
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TRIES = 8
_WITNESS = "epoch"
_HELD_MAX = 16


@dataclass(frozen=True, slots=True)
class KnownPosition:
    """A position of the stream in an epoch."""

    epoch: int
    sequence: int
    time_ns: int  # 0: unknown
    created_ns: int = 0  # creation time of that stream; 0: unknown


class EpochTracker:
    """This server's view of the epoch; `check()` compares it with the stream."""

    def __init__(self, transport: Transport) -> None:
        self._wal = transport.stream(subjects.WAL_STREAM)
        self._statuses = transport.stream(subjects.STATUS_STREAM)
        self._known = KnownPosition(1, 0, 0)
        self._checking = asyncio.Lock()
        self._doubts = self._settled = 0
        self._held: list[KnownPosition] = []  # positions from lost connections, not compared since

    @property
    def current(self) -> int:
        return self._known.epoch

    @property
    def known(self) -> KnownPosition:
        """The position to `recall()` after a restart."""
        return self._known

    def recall(self, known: KnownPosition) -> None:
        """Set the position that this server knew before its restart.

        NATS may have lost the epoch record as well: then the next epoch is above all epochs in the journal,
        instead of the first one again.
        """
        if (known.epoch, known.sequence) > (self._known.epoch, self._known.sequence):
            self._known = known

    def doubt(self) -> None:
        """Keep the known position until it is compared with the stream, since the connection was lost.

        A stream that lost messages may grow beyond the position meanwhile, and later positions would hide it.
        """
        self._doubts += 1
        if self._known.sequence and self._known not in self._held:
            self._held.append(self._known)
            del self._held[_HELD_MAX // 2 : -_HELD_MAX // 2]  # keep the oldest and the newest

    @property
    def in_doubt(self) -> bool:
        """True until the stream is compared after a lost connection: sequences may be reused."""
        return self._doubts != self._settled

    def saw(self, sequence: int, time_ns: int) -> None:
        """Note a processed WAL message; the newest one is the known position."""
        if sequence > self._known.sequence:
            known = self._known
            self._known = KnownPosition(known.epoch, sequence, time_ns, known.created_ns)

    async def check(self) -> bool:
        """Compare with the stream and the epoch record; return True if the epoch changed for this server."""
        async with self._checking:
            known, before = self._known, self._known.epoch
            doubts, held = self._doubts, tuple(self._held)
            for _ in range(_TRIES):
                stored = await self._statuses.last(subjects.EPOCH_KEY)
                recorded = _decode(stored)
                wanted = await self._judge(recorded)
                revision = 0 if stored is None else stored.sequence
                if wanted == recorded:
                    break
                try:
                    await self._statuses.append(subjects.EPOCH_KEY, _encode(wanted), expected_last=revision)
                    break
                except (WrongLastSequence, OutcomeUnknown):
                    continue
            else:
                raise OutcomeUnknown("cannot determine the epoch")
            if wanted.epoch != before:
                # No loss if this server is new, or if the stream still has the known position.
                lost = bool(known.sequence) and await self._contradicts(known, await self._wal.state())
                tell = log.warning if lost else log.info
                tell("epoch changed", before=before, now=wanted.epoch, sequence=wanted.sequence)
            self._known, self._settled = wanted, doubts
            self._held = [witness for witness in self._held if witness not in held]
            return wanted.epoch != before

    async def raise_above(self, epoch: int) -> None:
        """Start an epoch above all epochs in journals, for a stream recreated after a loss."""
        async with self._checking:
            for _ in range(_TRIES):
                stored = await self._statuses.last(subjects.EPOCH_KEY)
                recorded = _decode(stored) or self._known
                if recorded.epoch > epoch:
                    self._known = recorded
                    return
                wanted = KnownPosition(epoch + 1, recorded.sequence, recorded.time_ns)
                revision = 0 if stored is None else stored.sequence
                try:
                    await self._statuses.append(subjects.EPOCH_KEY, _encode(wanted), expected_last=revision)
                except (WrongLastSequence, OutcomeUnknown):
                    continue
                self._known = wanted
                return
            raise OutcomeUnknown("cannot raise the epoch")

    async def _judge(self, recorded: KnownPosition | None) -> KnownPosition:
        """Return the wanted epoch record: the highest epoch, one higher if the stream lost messages."""
        mine = self._known
        known = [mine, *self._held] if recorded is None else [mine, *self._held, recorded]
        newest = max(one.epoch for one in known)  # positions of older epochs are void
        witnesses = {one for one in known if one.epoch == newest}
        mine = max(witnesses, key=lambda one: (one.sequence, one.time_ns))
        state = await self._wal.state()
        last = await self._wal.get(state.last_sequence) if state.last_sequence else None
        if any([await self._contradicts(witness, state) for witness in witnesses]):
            log.error(
                "JetStream lost acknowledged messages of the WAL",
                known_sequence=mine.sequence,
                last_sequence=state.last_sequence,
                epoch=mine.epoch + 1,
            )
            time_ns = 0 if last is None else last.time_ns
            return KnownPosition(mine.epoch + 1, state.last_sequence, time_ns, state.created_ns)
        if last is not None and last.sequence > mine.sequence:
            return KnownPosition(mine.epoch, last.sequence, last.time_ns, state.created_ns)
        return replace(mine, created_ns=state.created_ns)

    async def _contradicts(self, known: KnownPosition, state: StreamState) -> bool:
        if state.last_sequence < known.sequence:
            return True
        if known.sequence and known.created_ns and state.created_ns and known.created_ns != state.created_ns:
            return True
        if not known.sequence or not known.time_ns:
            return False
        there = await self._wal.get(known.sequence)
        return there is not None and there.time_ns != known.time_ns


async def recorded(transport: Transport) -> int:
    """Return the epoch in the status bucket; 1 without a record or a bucket."""
    try:
        known = _decode(await transport.stream(subjects.STATUS_STREAM).last(subjects.EPOCH_KEY))
    except StreamMissing:
        return 1
    return 1 if known is None else known.epoch


def remember(directory: Directory, known: KnownPosition) -> None:
    """Write the position for `recalled()` atomically, unless the stored one is higher."""
    old = recalled(directory)
    if old is not None and (old.epoch, old.sequence) > (known.epoch, known.sequence):
        return
    replace_file(directory, _WITNESS, _encode(known))


def recalled(directory: Directory) -> KnownPosition | None:
    """Return the stored position; None if it is missing or unreadable."""
    try:
        return _parsed(read_file(directory, _WITNESS))
    except (OSError, LogError):
        return None


def _encode(known: KnownPosition) -> bytes:
    return json.dumps(
        {
            "epoch": known.epoch,
            "sequence": known.sequence,
            "time_ns": known.time_ns,
            "created_ns": known.created_ns,
        },
        separators=(",", ":"),
    ).encode()


def _decode(stored: StoredMessage | None) -> KnownPosition | None:
    if stored is None:
        return None
    _check_wire(stored.data)
    known = _parsed(stored.data)
    if known is None:
        log.warning("malformed epoch record, writing it again", record=stored.data[:100])
    return known


def _check_wire(data: bytes) -> None:
    """Raise LaterWire if servers of a later version use this NATS: this version must not write."""
    try:
        theirs = json.loads(data).get("wire")
    except (ValueError, AttributeError):
        return  # malformed
    if problem := later(theirs, "another server on this NATS", advice="start a later version of lorogo"):
        raise LaterWire(problem)


def _parsed(data: bytes) -> KnownPosition | None:
    try:
        body = json.loads(data)
        numbers = int(body["epoch"]), int(body["sequence"]), int(body["time_ns"])
        return KnownPosition(*numbers, int(body.get("created_ns", 0)))
    except (ValueError, KeyError, TypeError):
        return None
