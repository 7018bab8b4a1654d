"""Process side of the decode sandbox: a parent that forks workers, and a worker that decodes updates.

The *parent* has loaded all modules, decodes nothing, and forks the *worker*. When an update ends the worker,
the parent reports the exit and forks the next worker. The fork takes a few milliseconds; a new Python
interpreter takes some tenths of a second.

    server -> worker   bytes (4) | careful (1) | bounded (1) | count (4) | length (4) of each update | updates
    parent -> server   "."                               once: the parent has loaded its modules
    worker -> server   "."                               every update decodes, or Loro raises an error
    parent -> server   "!" | code (4) | requested (8) | valid (4)
                                                         an update ended the worker: exit code, bytes of the
                                                         failed allocation, number of updates decoded before

Only one exchange is under way at a time, so the pipe is empty when a worker ends. The end of input ends the
worker and the parent.
"""

import mmap
import os
import re
import resource
import signal
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import CrdtPanic

#: CPU seconds for decoding one update. The server needs as long for the import, and its loop stops meanwhile.
DECODE_SECONDS = 0.15
_WORK_SECONDS = 300  # then a worker ends itself, in case the server and the parent are gone
_REQUEST = struct.Struct("<I??I")
_END = struct.Struct("<ciQI")
_FINE = struct.Struct("<I")
_LENGTH_BYTES = 4
_DONE, _ENDED = b".", b"!"
REPLY_BYTES_MAX = _END.size
_PIECE_BYTES = 64 * 1024
#: Memory that must be available; otherwise a crash without a message may come from a lack of memory.
_ROOM_BYTES, _ROOM_PER_BYTE = 256 << 20, 16
#: Rust's abort message at the end of stderr: an earlier panic message may quote content of the update. The
#: line repeats if the allocation for printing the message fails as well.
_ABORT_MESSAGE = re.compile(
    rb"(?:\A|\n)((?:memory allocation of \d{1,20} bytes failed\n)+)"
    rb"(?:(?:note:|skipping backtrace) [^\n]*\n)?\Z"
)
_STDERR_BYTES_MAX = 4096
_PANIC_MARK = b"\n\0\n"  # output before it belongs to an earlier update


class WorkerExit(NamedTuple):
    """Exit of a worker that was decoding an update: exit code and size of the failed allocation, if any."""

    code: int
    requested_bytes: int = 0


def request(updates: Sequence[bytes], *, careful: bool, bounded: bool) -> bytes:
    """Encode a request. `careful`: check free memory first. `bounded`: end after `DECODE_SECONDS`."""
    lengths = [len(update) for update in updates]
    head = _REQUEST.pack(sum(lengths), careful, bounded, len(lengths))
    return b"".join((head, struct.pack(f"<{len(lengths)}I", *lengths), *updates))


def parse_reply(reply: bytes, count: int) -> tuple[int, WorkerExit | None]:
    """Return the number of decoded updates of a request of `count`, and the exit over the next one."""
    if reply == _DONE:
        return count, None
    _, code, requested, valid_count = _END.unpack(reply)
    return valid_count, WorkerExit(code, requested)


# --- the process ----------------------------------------------------------------------------------

_IDLE, _READING, _DECODING = range(3)


def main() -> None:
    """Entry point of the parent process, which forks one worker after another."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected, core dumps are useless
    # Shared memory: phase of the worker and number of decoded updates, readable after a crash.
    doing = mmap.mmap(-1, 1 + _FINE.size)
    with suppress(BrokenPipeError):
        os.write(1, _DONE)
        while _run_worker(doing):
            pass


def _run_worker(doing: mmap.mmap) -> bool:
    """Run one worker to its end; return True if the parent shall fork another."""
    doing[0] = _IDLE
    parent = os.getpid()
    stderr_in, stderr_out = os.pipe()
    worker = os.fork()
    if not worker:
        os.dup2(stderr_out, 2)
        os.close(stderr_in)
        os.close(stderr_out)
        _work(doing, parent)
    os.close(stderr_out)
    stderr = _read_stderr_end(stderr_in)
    os.close(stderr_in)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    if not code or doing[0] == _READING:  # end of input, or a partial update is left in the pipe
        return False
    if doing[0] == _DECODING:
        (valid_count,) = _FINE.unpack_from(doing, 1)
        os.write(1, _END.pack(_ENDED, code, requested_bytes(code, stderr), valid_count))
    return True


def _read_stderr_end(fd: int) -> bytes:
    """Read the worker's stderr until it ends; return the last bytes."""
    stderr = b""
    while piece := os.read(fd, _PIECE_BYTES):
        stderr = (stderr + piece)[-_STDERR_BYTES_MAX:]
    return stderr


def requested_bytes(code: int, stderr: bytes) -> int:
    """Return the size of the failed allocation that aborted the process; 0 if stderr reports none."""
    found = _ABORT_MESSAGE.search(stderr.rpartition(_PANIC_MARK)[2])
    if code != -signal.SIGABRT or found is None:
        return 0
    return min(max(int(number) for number in re.findall(rb"\d+", found[1])), (1 << 64) - 1)


def _work(doing: mmap.mmap, parent: int) -> NoReturn:
    """Run the worker: decode updates until the input ends."""
    code = 1
    try:
        with suppress(BrokenPipeError):
            while (request := _read_request(doing)) is not None and os.getppid() == parent:
                updates, careful, bounded = request
                _FINE.pack_into(doing, 1, 0)
                doing[0] = _DECODING
                signal.alarm(_WORK_SECONDS)
                signal.setitimer(signal.ITIMER_PROF, DECODE_SECONDS if bounded else 0.0)
                for number, update in enumerate(updates, 1):
                    _decode(update, careful)
                    _FINE.pack_into(doing, 1, number)
                signal.alarm(0)
                signal.setitimer(signal.ITIMER_PROF, 0.0)
                doing[0] = _IDLE
                os.write(1, _DONE)
        code = 0
    finally:
        os._exit(code)  # skip the parent's cleanup handlers


def _decode(update: bytes, careful: bool) -> None:
    """Decode an update and ignore errors; a forged one crashes the process."""
    if careful:
        mmap.mmap(-1, _ROOM_BYTES + _ROOM_PER_BYTE * len(update)).close()
    try:
        crdt.try_decoding(update)
    except CrdtPanic:
        os.write(2, _PANIC_MARK)
    except CrdtError:  # the server raises it again at the import, and sends the NACK
        pass


def _read_request(doing: mmap.mmap) -> tuple[list[bytes], bool, bool] | None:
    """Read one request: updates, `careful` (check free memory first) and `bounded`; None at the end.

    The server sends one request at a time.
    """
    data, wanted, careful, bounded, count = bytearray(), _REQUEST.size, False, False, 0
    while len(data) < wanted:
        piece = os.read(0, _PIECE_BYTES)
        if not piece:
            return None
        doing[0] = _READING
        data += piece
        if len(data) >= _REQUEST.size:
            size, careful, bounded, count = _REQUEST.unpack_from(data)
            wanted = _REQUEST.size + _LENGTH_BYTES * count + size
    lengths = struct.unpack_from(f"<{count}I", data, _REQUEST.size)
    updates, begin = [], _REQUEST.size + _LENGTH_BYTES * count
    for length in lengths:
        updates.append(bytes(memoryview(data)[begin : begin + length]))
        begin += length
    return updates, careful, bounded
