"""The durable state of a replicated log's member: its identity, and the coordinator that it follows.

A replica that has accepted a coordinator of epoch 7 never again takes frames from one of epoch 6, nor from
another one of epoch 7, even after a restart before the first frame of epoch 7. A coordinator writes the same
file about itself before it welcomes a replica. 128 bytes, replaced as a whole: temp, fsync, rename,
directory fsync.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c

from lorogo_log.errors import CorruptionError
from lorogo_log.format import names
from lorogo_log.storage.disk import Directory
from lorogo_log.storage.small_files import replace_file

MAGIC = b"LGREPL\r\n"
_STATE = struct.Struct("<8s16sQ16s16s16s44x")
STATE_BYTES = _STATE.size + 4
assert STATE_BYTES == 128
#: A takeover goes to the next multiple of this, a restart one up, so that restarts never lift the old
#: coordinator above its successor.
TAKEOVER_STEP = 1 << 20


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A member's identity and promise."""

    replica_id: bytes
    epoch: int = 0
    #: the opening of a log that has that epoch, and the id of its directory; zeros: none yet
    incarnation: bytes = bytes(16)
    node: bytes = bytes(16)
    #: the log of this member, also when no segment identifies it; zeros: unknown
    log_id: bytes = bytes(16)

    def pack(self) -> bytes:
        head = _STATE.pack(MAGIC, self.replica_id, self.epoch, self.incarnation, self.node, self.log_id)
        return head + crc32c(head).to_bytes(4, "little")

    def next_epoch(self, written: int) -> int:
        """Return the epoch for appending to this directory: above every promised and written one."""
        newest = max(self.epoch, written)
        if self.node in {bytes(16), self.replica_id}:
            return newest + 1
        return (newest // TAKEOVER_STEP + 1) * TAKEOVER_STEP


def load_state(directory: Directory) -> ReplicaState | None:
    """Return the saved state, or None. Raises CorruptionError: a lost promise must not go unnoticed."""
    try:
        file = directory.open(names.REPLICA_STATE)
    except FileNotFoundError:
        return None
    try:
        data = file.pread(STATE_BYTES, 0)
    finally:
        file.close()
    if len(data) != STATE_BYTES or crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise CorruptionError(
            f"{directory.path}/{names.REPLICA_STATE}", 0, "the replica's state does not check"
        )
    return ReplicaState(*_STATE.unpack_from(data)[1:])


def save_state(directory: Directory, state: ReplicaState) -> None:
    """Save the state; durable when this returns."""
    replace_file(directory, names.REPLICA_STATE, state.pack(), draft=names.TEMPORARY)


def ensure_state(directory: Directory, random_bytes: Callable[[int], bytes]) -> ReplicaState:
    """Return the saved state, or a new one."""
    state = load_state(directory)
    if state is None:
        state = ReplicaState(random_bytes(16))
        save_state(directory, state)
    return state
