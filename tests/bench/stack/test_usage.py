"""CPU and memory of a process with its children."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lorogo_bench.stack.usage import (
    NOT_KNOWN,
    family,
    forget_peaks,
    machine_busy_seconds,
    own_busy_seconds,
    usage,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc here")

BUSY = "import time\nwhile time.process_time() < 0.2: pass"
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', '''{BUSY}
print('done', flush=True)
input()'''], stdin=subprocess.PIPE)
input()
child.communicate(b'x')
input()
"""


def test_children_count_alive_and_ended() -> None:
    """The sum keeps the usage of a child that has ended and that its parent waited for."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "done\n"
        assert len(family(process.pid)) == 2
        alive = usage(process.pid)
        assert alive.cpu_seconds is not None and alive.cpu_seconds >= 0.2
        assert alive.memory_bytes is not None and alive.memory_peak_bytes is not None
        assert 0 < alive.memory_bytes <= alive.memory_peak_bytes
        process.stdin.write("x\n")
        process.stdin.flush()
        until = time.monotonic() + 20
        while len(family(process.pid)) > 1 and time.monotonic() < until:
            time.sleep(0.01)
        ended = usage(process.pid)
        assert ended.cpu_seconds is not None and ended.cpu_seconds >= 0.2
        process.stdin.write("x\n")
    assert usage(process.pid) == NOT_KNOWN


def test_a_process_that_is_not_there_is_not_known() -> None:
    """Not 0."""
    assert usage(None) == NOT_KNOWN


def test_the_machine_is_at_least_as_busy_as_we_are() -> None:
    """The machine's and the process's own seconds are both measured."""
    busy = machine_busy_seconds()
    assert busy is not None and busy > 0
    assert own_busy_seconds() > 0
    assert usage(os.getpid()).cpu_seconds is not None


def test_the_peak_memory_can_be_reset() -> None:
    """The peak is reset if the system supports it; otherwise it stays unchanged."""
    code = "x = bytearray(64 << 20); del x; print('done', flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "done\n"
        before = usage(process.pid).memory_peak_bytes
        forgotten = forget_peaks(process.pid)
        after = usage(process.pid).memory_peak_bytes
        assert before is not None and after is not None
        assert after < before - (32 << 20) if forgotten else after == before
        process.stdin.write("x\n")
    assert not forget_peaks(None)
