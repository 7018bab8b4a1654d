"""What a member of a replicated log must remember beside the log: who it is, and whom it has promised to.

A replica that has met a coordinator of epoch 7 never again takes frames from one of epoch 6, nor from
another one of epoch 7, even if it was restarted before the first frame of epoch 7 came. A coordinator writes
the same file about itself, before it welcomes anybody. 128 bytes, replaced as a whole: temp, fsync, rename,
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
#: A takeover goes to the next multiple of this, a restart only one up: however often the old coordinator is
#: restarted, it does not get above its successor.
TAKEOVER_STEP = 1 << 20


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A member's identity and promise."""

    replica_id: bytes
    epoch: int = 0
    #: which opening of a log has that epoch, and whose directory it is; zeros: nobody yet
    incarnation: bytes = bytes(16)
    node: bytes = bytes(16)
    #: which log this is a member of, also when no segment can tell it any more; zeros: not known yet
    log_id: bytes = bytes(16)

    def pack(self) -> bytes:
        head = _STATE.pack(MAGIC, self.replica_id, self.epoch, self.incarnation, self.node, self.log_id)
        return head + crc32c(head).to_bytes(4, "little")

    def next_epoch(self, written: int) -> int:
        """The epoch to open this directory with, for appending: above all that was promised or written."""
        newest = max(self.epoch, written)
        if self.node in {bytes(16), self.replica_id}:
            return newest + 1
        return (newest // TAKEOVER_STEP + 1) * TAKEOVER_STEP


def load_state(directory: Directory) -> ReplicaState | None:
    """What was saved; None if nothing was. Raises CorruptionError: a promise is not forgotten silently."""
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
    """Durable when this returns."""
    replace_file(directory, names.REPLICA_STATE, state.pack(), draft=names.TEMPORARY)


def ensure_state(directory: Directory, random_bytes: Callable[[int], bytes]) -> ReplicaState:
    """The saved state, or a new one."""
    state = load_state(directory)
    if state is None:
        state = ReplicaState(random_bytes(16))
        save_state(directory, state)
    return state
