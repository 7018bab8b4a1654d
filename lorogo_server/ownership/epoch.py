"""The epoch of the WAL: whether its sequences still mean what they meant.

JetStream acknowledges before it syncs. After a crash it may come back with fewer messages and use
their sequences again. The key `_kv_epoch` holds a counter with one known position; whoever sees that
the stream contradicts it raises the counter, and every host then reads its subject again.
"""

import asyncio
import json
from dataclasses import dataclass, replace

from lorogo_log import Directory, LogError, read_file, replace_file
from lorogo_protocol import subjects
from lorogo_protocol.wire import LaterWire, later
from lorogo_transport.errors import OutcomeUnknown, StreamMissing, WrongLastSequence
from lorogo_transport.ports import StoredMessage, StreamState, Transport
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TRIES = 8
_WITNESS = "epoch"
_HELD_MAX = 16


@dataclass(frozen=True, slots=True)
class KnownPosition:
    """A position that the stream has held, and the epoch in which it did."""

    epoch: int
    sequence: int
    time_ns: int  # 0: not known
    created_ns: int = 0  # when the stream was made that held it; 0: not known


class EpochTracker:
    """This server's view of the epoch; `check()` compares it with the stream."""

    def __init__(self, transport: Transport) -> None:
        self._wal = transport.stream(subjects.WAL_STREAM)
        self._statuses = transport.stream(subjects.STATUS_STREAM)
        self._known = KnownPosition(1, 0, 0)
        self._checking = asyncio.Lock()
        self._doubts = self._settled = 0
        self._held: list[KnownPosition] = []  # witnesses of connections that were lost, not compared since

    @property
    def current(self) -> int:
        return self._known.epoch

    @property
    def known(self) -> KnownPosition:
        """What to `recall()` after a restart."""
        return self._known

    def recall(self, known: KnownPosition) -> None:
        """What this server knew in an earlier life.

        NATS may have lost the record of the epoch, too: then the next one is above all that our journal
        speaks of, and not the first one again.
        """
        if (known.epoch, known.sequence) > (self._known.epoch, self._known.sequence):
            self._known = known

    def doubt(self) -> None:
        """The connection was lost: our witness is kept until it was compared with the stream.

        A stream that went back may grow beyond it until then: what we hear now would hide that.
        """
        self._doubts += 1
        if self._known.sequence and self._known not in self._held:
            self._held.append(self._known)
            del self._held[_HELD_MAX // 2 : -_HELD_MAX // 2]  # the oldest and the newest tell most

    @property
    def in_doubt(self) -> bool:
        """Whether the stream was not compared since the connection was lost: sequences may mean others."""
        return self._doubts != self._settled

    def saw(self, sequence: int, time_ns: int) -> None:
        """A message of the WAL that this server took: the newest is our witness."""
        if sequence > self._known.sequence:
            known = self._known
            self._known = KnownPosition(known.epoch, sequence, time_ns, known.created_ns)

    async def check(self) -> bool:
        """Compare with the stream and the other servers; True if the epoch changed for us."""
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
                raise OutcomeUnknown("the epoch could not be settled")
            if wanted.epoch != before:
                # A server that is new here, or a stream that still holds what we knew, has lost nothing.
                lost = bool(known.sequence) and await self._contradicts(known, await self._wal.state())
                tell = log.warning if lost else log.info
                tell("epoch changed", before=before, now=wanted.epoch, sequence=wanted.sequence)
            self._known, self._settled = wanted, doubts
            self._held = [witness for witness in self._held if witness not in held]
            return wanted.epoch != before

    async def raise_above(self, epoch: int) -> None:
        """Begin an epoch that no journal knows: for a stream that was made anew after a loss."""
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
            raise OutcomeUnknown("the epoch could not be raised")

    async def _judge(self, recorded: KnownPosition | None) -> KnownPosition:
        """What the record should say: the higher epoch, raised once more if the stream went back."""
        mine = self._known
        known = [mine, *self._held] if recorded is None else [mine, *self._held, recorded]
        newest = max(one.epoch for one in known)  # if others found out before us, ours are of the past
        witnesses = {one for one in known if one.epoch == newest}
        mine = max(witnesses, key=lambda one: (one.sequence, one.time_ns))
        state = await self._wal.state()
        last = await self._wal.get(state.last_sequence) if state.last_sequence else None
        if any([await self._contradicts(witness, state) for witness in witnesses]):
            log.error(
                "the WAL went backwards: JetStream lost messages that it had acknowledged",
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
    """The epoch that the status bucket tells of now; 1 if it tells of none, or there is no bucket yet."""
    try:
        known = _decode(await transport.stream(subjects.STATUS_STREAM).last(subjects.EPOCH_KEY))
    except StreamMissing:
        return 1
    return 1 if known is None else known.epoch


def remember(directory: Directory, known: KnownPosition) -> None:
    """Keep it for `recalled()`, whole or not at all; never something lower than what is there."""
    old = recalled(directory)
    if old is not None and (old.epoch, old.sequence) > (known.epoch, known.sequence):
        return
    replace_file(directory, _WITNESS, _encode(known))


def recalled(directory: Directory) -> KnownPosition | None:
    """What was remembered; None if there is nothing, or nothing that can be read."""
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
        log.warning("the epoch record does not parse; writing it again", record=stored.data[:100])
    return known


def _check_wire(data: bytes) -> None:
    """Raises LaterWire if servers of a later version have marked this NATS as theirs: we must not write."""
    try:
        theirs = json.loads(data).get("wire")
    except (ValueError, AttributeError):
        return  # not a record at all
    if problem := later(theirs, "a server that was here", advice="start lorogo of a later version"):
        raise LaterWire(problem)


def _parsed(data: bytes) -> KnownPosition | None:
    try:
        body = json.loads(data)
        numbers = int(body["epoch"]), int(body["sequence"]), int(body["time_ns"])
        return KnownPosition(*numbers, int(body.get("created_ns", 0)))
    except (ValueError, KeyError, TypeError):
        return None
