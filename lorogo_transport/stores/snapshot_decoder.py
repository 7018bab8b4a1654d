"""A child process that decodes one snapshot and exits: forged bytes can crash only this process.

    stdin   the snapshot
    stdout  "." if a server would import it; else "long" or "invalid", a space, and the reason

`lorogo_client/delivery/snapshot_check.py` starts it. It imports little, so that it starts in about 50 ms.
"""

import os
import resource
import sys
from contextlib import suppress
from typing import Final

from lorogo_protocol.errors import CrdtError, TooLong, TooManyPeers
from lorogo_protocol.loro.crdt import Replica

#: the limit, enforced by SIGXCPU; a server refuses snapshots that take it 0.15 s
CPU_SECONDS: Final = 10
#: memory limit: an operation takes one or two bytes in a snapshot, and about a hundred in memory
_MEMORY_BYTES, _MEMORY_PER_BYTE = 2 << 30, 64

FINE: Final = b"."
LONG, INVALID = b"long", b"invalid"


def main() -> None:
    """Decode the snapshot on stdin, and write the outcome to stdout."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    payload = sys.stdin.buffer.read()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _MEMORY_BYTES + _MEMORY_PER_BYTE * len(payload)
    if soft == resource.RLIM_INFINITY or wanted < soft:
        with suppress(ValueError, OSError):  # macOS rejects some values
            resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    outcome = memoryview(outcome_of(payload))
    while outcome:
        outcome = outcome[os.write(1, outcome) :]
    os._exit(0)  # skip the cleanup: it could fail after a panic in Loro


def outcome_of(payload: bytes) -> bytes:
    """Return the outcome for the snapshot."""
    try:
        # As the owner does: once to check that it is complete, once into the document, within the limits.
        Replica.from_snapshot(payload, foreign=True)
        Replica(lazy=True).apply(payload, foreign=True, new=True)
    except (TooLong, TooManyPeers) as error:
        return LONG + b" " + str(error).encode()
    except CrdtError as error:
        return INVALID + b" " + str(error).encode(errors="replace")
    return FINE
