"""Epoch of the WAL: detects that JetStream lost messages and reused their sequences.

JetStream acknowledges a message before it syncs. After a crash it may have fewer messages and use their
sequences again. The key `_kv_epoch` has a counter with one known position. A server that finds that the
stream contradicts the position raises the counter, and every host then reads its subject again.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from lorogo_log import Directory, LogError, read_file, replace_file
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.wire import LaterWire, later
from lorogo_protocol.position import Position
from lorogo_transport.errors import OutcomeUnknown, StreamMissing, WrongLastSequence
from lorogo_transport.ports import StoredMessage, StreamState, Transport
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TRIES = 8
_WITNESS = "epoch"
_HELD_MAX = 16


@dataclass(frozen=True, slots=True)
class EpochWitness:
    """A position that a stream had; a stream that contradicts it lost messages."""

    position: Position
    created_ns: int = 0  # creation time of that stream; 0: unknown


class EpochTracker:
    """This server's view of the epoch; `check()` compares it with the stream."""

    def __init__(self, transport: Transport) -> None:
        self._wal = transport.stream(subjects.WAL_STREAM)
        self._statuses = transport.stream(subjects.STATUS_STREAM)
        self._known = EpochWitness(Position(1))
        self._checking = asyncio.Lock()
        self._doubts = self._settled = 0
        self._held: list[EpochWitness] = []  # of lost connections, not compared since
        self._on_change: Callable[[], None] = lambda: None

    @property
    def current(self) -> int:
        return self._known.position.epoch

    @property
    def known(self) -> EpochWitness:
        """The witness to `recall()` after a restart."""
        return self._known

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call this function in every later `check()` that finds another epoch."""
        self._on_change = on_change

    def recall(self, known: EpochWitness) -> None:
        """Set the witness that this server had before its restart, or one above all epochs of the journals.

        NATS may have lost the epoch record as well: then the next epoch is above this one, instead of the
        first one again.
        """
        if _is_later(known.position, self._known.position):
            self._known = known

    def doubt(self) -> None:
        """Keep the known position until it is compared with the stream, since the connection was lost.

        A stream that lost messages may grow beyond the position meanwhile, and later positions would hide it.
        """
        self._doubts += 1
        if self._known.position.sequence and self._known not in self._held:
            self._held.append(self._known)
            del self._held[_HELD_MAX // 2 : -_HELD_MAX // 2]  # keep the oldest and the newest

    @property
    def in_doubt(self) -> bool:
        """True until the stream is compared after a lost connection: sequences may be reused."""
        return self._doubts != self._settled

    def saw(self, position: Position) -> None:
        """Note a processed WAL message of this epoch; the newest one is the known position."""
        known = self._known
        if position.epoch == known.position.epoch and position.sequence > known.position.sequence:
            self._known = EpochWitness(position, known.created_ns)

    async def check(self) -> bool:
        """Compare with the stream and the epoch record; return True if the epoch changed for this server."""
        async with self._checking:
            known, before = self._known, self.current
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
            after = wanted.position
            if after.epoch != before:
                # No loss if this server is new, or if the stream still has the known position.
                lost = bool(known.position.sequence) and await self._contradicts(
                    known, await self._wal.state()
                )
                tell = log.warning if lost else log.info
                tell("epoch changed", before=before, now=after.epoch, sequence=after.sequence)
            self._known, self._settled = wanted, doubts
            self._held = [witness for witness in self._held if witness not in held]
            if after.epoch != before:
                self._on_change()
            return after.epoch != before

    async def _judge(self, recorded: EpochWitness | None) -> EpochWitness:
        """Return the wanted epoch record: the highest epoch, one higher if the stream lost messages."""
        known = [self._known, *self._held, *([] if recorded is None else [recorded])]
        epoch = max(one.position.epoch for one in known)  # positions of older epochs are void
        witnesses = {one for one in known if one.position.epoch == epoch}
        mine = max(witnesses, key=lambda one: (one.position.sequence, one.position.time_ns))
        state = await self._wal.state()
        last = await self._wal.get(state.last_sequence) if state.last_sequence else None
        if any([await self._contradicts(witness, state) for witness in witnesses]):
            log.error(
                "JetStream lost acknowledged messages of the WAL",
                known_sequence=mine.position.sequence,
                last_sequence=state.last_sequence,
                epoch=epoch + 1,
            )
            time_ns = 0 if last is None else last.time_ns
            return EpochWitness(Position(epoch + 1, state.last_sequence, time_ns), state.created_ns)
        if last is not None and last.sequence > mine.position.sequence:
            return EpochWitness(Position(epoch, last.sequence, last.time_ns), state.created_ns)
        return replace(mine, created_ns=state.created_ns)

    async def _contradicts(self, known: EpochWitness, state: StreamState) -> bool:
        sequence, time_ns = known.position.sequence, known.position.time_ns
        if state.last_sequence < sequence:
            return True
        if sequence and known.created_ns and state.created_ns and known.created_ns != state.created_ns:
            return True
        if not sequence or not time_ns:
            return False
        there = await self._wal.get(sequence)
        return there is not None and there.time_ns != time_ns


def _is_later(one: Position, other: Position) -> bool:
    """Return True for a later epoch, or a later position in the same epoch."""
    return (one.epoch, one.sequence) > (other.epoch, other.sequence)


async def recorded(transport: Transport) -> int:
    """Return the epoch in the status bucket; 1 without a record or a bucket."""
    try:
        known = _decode(await transport.stream(subjects.STATUS_STREAM).last(subjects.EPOCH_KEY))
    except StreamMissing:
        return 1
    return 1 if known is None else known.position.epoch


def remember(directory: Directory, known: EpochWitness) -> None:
    """Write the witness for `recalled()` atomically, unless the stored one is higher."""
    old = recalled(directory)
    if old is not None and _is_later(old.position, known.position):
        return
    replace_file(directory, _WITNESS, _encode(known))


def recalled(directory: Directory) -> EpochWitness | None:
    """Return the stored witness; None if it is missing or unreadable."""
    try:
        return _parsed(read_file(directory, _WITNESS))
    except (OSError, LogError):
        return None


def _encode(known: EpochWitness) -> bytes:
    record = {**asdict(known.position), "created_ns": known.created_ns}
    return json.dumps(record, separators=(",", ":")).encode()


def _decode(stored: StoredMessage | None) -> EpochWitness | None:
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


def _parsed(data: bytes) -> EpochWitness | None:
    try:
        body = json.loads(data)
        numbers = int(body["epoch"]), int(body["sequence"]), int(body["time_ns"])
        return EpochWitness(Position(*numbers), int(body.get("created_ns", 0)))
    except (ValueError, KeyError, TypeError):
        return None
