"""Check of a snapshot before an import creates a document: refuses bytes that do not decode.

The owner decodes the snapshot only after the document exists. Forged bytes can crash the process that
decodes them (docs/decisions/0004), so a child process decodes them, not the app or the gateway.
"""

import asyncio
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from lorogo_client.errors import SessionClosed
from lorogo_protocol.errors import InvalidUpdate
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.secret_files import without_secrets
from lorogo_transport.stores import snapshot_decoder
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

PROGRAM: Final = "from lorogo_transport.stores.snapshot_decoder import main; main()"
_AT_ONCE: Final = 2
_SECONDS: Final = 60.0  # for a child process; its CPU limit is lower
#: signals caused by the bytes; other signals (killed by a user, out of memory) do not prove anything about
#: them
_NATIVE: Final = frozenset({-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL})


class SnapshotChecks:
    """Checks snapshots for one client, at most two at once."""

    def __init__(self, program: str = PROGRAM) -> None:
        self._program = program
        self._closed = False
        self._threads = ThreadPoolExecutor(
            _AT_ONCE, "lorogo-snapshot"
        )  # each thread waits for a child process

    async def check(self, payload: bytes) -> None:
        """Raise Refused if every server would refuse the snapshot, whatever its settings.

        If no child process can be started, the check passes and the owner decides.
        """
        if self._closed:
            raise SessionClosed("the client is closed")
        asked = partial(_check, payload, self._program)
        await asyncio.get_running_loop().run_in_executor(self._threads, asked)

    def close(self) -> None:
        """Start no more checks."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def _check(payload: bytes, program: str) -> None:
    try:
        crdt.check_snapshot_frame(payload)
    except InvalidUpdate as error:
        raise _invalid(str(error)) from None
    if getattr(sys, "frozen", False) or not sys.executable:  # the executable is the app itself
        return
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-c", program],
            input=payload,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
            env={
                **without_secrets(os.environ),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # an app may have added to it
                "RUST_BACKTRACE": "0",
            },
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("cannot check a snapshot before sending it", problem=str(error), bytes=len(payload))
        return
    _judge(ended.returncode, ended.stdout)


def _judge(code: int, outcome: bytes) -> None:
    if code == -signal.SIGXCPU:
        seconds = snapshot_decoder.CPU_SECONDS
        raise Refused(Reason.TOO_LARGE, f"decoding the snapshot takes more than {seconds} s of CPU")
    if code in _NATIVE:
        raise _invalid(f"decoding it ends the process ({signal.Signals(-code).name})")
    kind, _, why = outcome.partition(b" ")
    if code == 0 and kind == snapshot_decoder.LONG:
        raise Refused(Reason.TOO_LARGE, why.decode(errors="replace"))
    if code == 0 and kind == snapshot_decoder.INVALID:
        raise _invalid(why.decode(errors="replace"))
    if code or kind != snapshot_decoder.FINE:
        log.warning("the snapshot check process failed", code=code)


def _invalid(why: str) -> Refused:
    return Refused(Reason.INVALID_UPDATE, f"not a whole Loro snapshot: {why}")
