"""What a replica must remember beside its log: who it is, and the newest epoch that it has promised to.

A replica that has met a coordinator of epoch 7 never again takes frames from one of epoch 6, even if it was
restarted before the first frame of epoch 7 came. 64 bytes, replaced as a whole: temp, fsync, rename,
directory fsync.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c

from lorogo_log import names
from lorogo_log.errors import CorruptionError
from lorogo_log.storage import Directory, write_all

MAGIC = b"LGREPL\r\n"
_STATE = struct.Struct("<8s16sQ28x")
STATE_BYTES = _STATE.size + 4


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A replica's identity and promise."""

    replica_id: bytes
    epoch: int = 0

    def pack(self) -> bytes:
        head = _STATE.pack(MAGIC, self.replica_id, self.epoch)
        return head + crc32c(head).to_bytes(4, "little")


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
    _, replica_id, epoch = _STATE.unpack_from(data)
    return ReplicaState(replica_id, epoch)


def save_state(directory: Directory, state: ReplicaState) -> None:
    """Durable when this returns."""
    temporary = names.REPLICA_STATE + names.TEMPORARY
    if temporary in directory.list():
        directory.remove(temporary)
    file = directory.create(temporary)
    try:
        write_all(file, [state.pack()], 0, temporary)
        file.sync()
    finally:
        file.close()
    directory.rename(temporary, names.REPLICA_STATE)
    directory.sync()


def ensure_state(directory: Directory, random_bytes: Callable[[int], bytes]) -> ReplicaState:
    """The saved state, or a new one."""
    state = load_state(directory)
    if state is None:
        state = ReplicaState(random_bytes(16))
        save_state(directory, state)
    return state
