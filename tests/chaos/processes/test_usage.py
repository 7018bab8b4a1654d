"""Memory and open files of processes: who grows, by a rule that is written down."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lorogo_chaos.processes.usage import (
    UsageRecorder,
    UsageSample,
    UsageTrail,
    growth,
    growth_of_all,
    measure,
    role_of,
)

MIB = 1 << 20


def trail(memory: list[int], files: list[int], *, every: float = 10.0) -> UsageTrail:
    """One sample after the other."""
    pairs = zip(memory, files, strict=True)
    samples = [UsageSample(at * every, size * MIB, count) for at, (size, count) in enumerate(pairs)]
    return UsageTrail("server-1", 7, samples)


@pytest.mark.parametrize(
    ("memory", "files", "words"),
    [
        ([100] * 100, [50] * 100, "no growth"),
        ([50 * at for at in range(3)] + [150] * 100, [50] * 103, "no growth"),  # warm-up
        ([100] * 50 + [107] * 50, [50] * 100, "no growth"),  # less than 8 MiB
        ([1000] * 50 + [1050] * 50, [50] * 100, "no growth"),  # less than 10 %
        ([100] * 50 + [500] + [100] * 50, [50] * 101, "no growth"),  # a peak that went away
        ([100 + at for at in range(100)], [50] * 100, "grows by 78.0 MiB"),
        ([100] * 100, [50] * 50 + [70] * 50, "grows by 20 open files"),
        ([100] * 50 + [120] * 50, [50] * 50 + [70] * 50, "grows by 20.0 MiB and 20 open files"),
        ([100] * 20, [50] * 20, "too short"),
    ],
)
def test_growth_is_judged_by_the_medians_of_the_first_and_the_last_fifth(
    memory: list[int], files: list[int], words: str
) -> None:
    """After the warm-up of 30 s, and only for a process that lived five minutes longer."""
    found = growth(trail(memory, files))
    assert found.words == words
    assert found.grows == words.startswith("grows")


def test_a_restart_begins_a_new_line() -> None:
    """The same name with another process number is another line; one that is gone gets no more samples."""
    alive = {1: 10, 2: 20}
    usage = UsageRecorder(
        lambda pid, at: UsageSample(at, alive[pid] * MIB, 5) if pid in alive else None,
        lambda pid: "keepalive",
    )
    usage.sample({"server-1": [1, 2]}, 0.0)
    del alive[1]
    alive[3] = 30
    usage.sample({"server-1": [1, 2]}, 1.0)
    usage.sample({"server-1": [3, 2]}, 2.0)
    found = [(one.name, one.pid, one.memory_end // MIB, one.seconds) for one in usage.growths()]
    assert found == [
        ("server-1", 1, 10, 0.0),
        ("server-1", 3, 30, 0.0),
        ("server-1, all 2 incarnations", 0, 30, 2.0),
        ("server-1 keepalive", 2, 20, 2.0),
    ]


def test_what_is_restarted_often_is_judged_over_all_its_lives() -> None:
    """Each life without its warm-up: a leak that outlives a restart, in files or streams, is seen."""
    incarnations = [
        UsageTrail(
            "server-1", pid, [UsageSample(pid * 100.0 + age, size * MIB, 50) for age in range(0, 60, 2)]
        )
        for pid, size in enumerate(range(100, 300, 20))
    ]
    assert {growth(one).words for one in incarnations} == {"too short"}
    found = growth_of_all("server-1", incarnations)
    assert (found.name, found.words) == ("server-1, all 10 incarnations", "grows by 160.0 MiB")


def test_a_slope_is_given_per_hour() -> None:
    """One MiB in ten seconds is 360 in an hour."""
    found = growth(trail([100 + at for at in range(100)], [50] * 100))
    assert found.memory_per_hour == pytest.approx(360 * MIB)


def test_helpers_are_named_by_what_they_are_for() -> None:
    """Their order changes: another one in the same place must not look like one that grew."""
    roles = {2: "keepalive", 3: "sandbox"}
    usage = UsageRecorder(
        lambda pid, at: UsageSample(at, (10 if pid == 2 else 90) * MIB, 5), roles.__getitem__
    )
    for at in range(0, 1000, 10):
        usage.sample({"server-1": [1, 2, 3] if at < 500 else [1, 3, 2]}, float(at))
    found = {one.name: (one.memory_end // MIB, one.words) for one in usage.growths()}
    assert found["server-1 keepalive"] == (10, "no growth")
    assert found["server-1 sandbox"] == (90, "no growth")
    assert role_of(os.getpid()) in {"helper", "sandbox", "keepalive"}


def test_our_own_process_can_be_measured() -> None:
    """And one that there is not is None."""
    sample = measure(os.getpid(), time.monotonic())
    assert sample is not None
    assert sample.memory_bytes > MIB
    assert sample.files is None or sample.files > 2
    assert measure(2**22 + 1, 0.0) is None


def test_samples_are_bounded() -> None:
    """However long a drill takes."""
    one = trail([1], [1])
    for at in range(20_000):
        one.add(UsageSample(float(at), MIB, 1))
    assert len(one.samples) <= 4_001
    assert one.samples[-1].at == 19_999


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="helpers are distinguished by /proc")
def test_a_helpers_own_child_is_distinguished_from_the_helper() -> None:
    """Their memory differs: in one line they would look like one process that jumps."""
    child = "import sys  # sandbox_worker\nprint(flush=True); sys.stdin.read()"
    parent = (
        "import subprocess, sys  # sandbox_worker\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=sys.stdin)\n"
        "print(child.pid, flush=True); child.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as helper:
        assert helper.stdout is not None
        found = [helper.stdout.readline(), helper.stdout.readline()]  # both run what they were given
        child_pid = int("".join(found))
        assert (role_of(helper.pid), role_of(child_pid)) == ("sandbox", "sandbox child")
        assert helper.stdin is not None
        helper.stdin.close()


def test_helpers_that_run_side_by_side_are_numbered() -> None:
    """They are no lives of one; after a restart the next ones follow them, each in its place."""
    alive = {1, 2, 3}
    usage = UsageRecorder(
        lambda pid, at: UsageSample(at, pid * MIB, 5) if pid in alive else None, lambda pid: "sandbox"
    )
    usage.sample({"server-1": [1, 2, 3]}, 0.0)
    assert [one.name for one in usage.growths()] == ["server-1", "server-1 sandbox", "server-1 sandbox 2"]
    alive.symmetric_difference_update({2, 4})  # one is a zombie, and another takes its place
    usage.sample({"server-1": [1, 2, 3, 4]}, 1.0)
    found = [(one.name, one.pid) for one in usage.growths()]
    assert found[1:] == [
        ("server-1 sandbox", 2),
        ("server-1 sandbox", 4),
        ("server-1 sandbox, all 2 incarnations", 0),
        ("server-1 sandbox 2", 3),
    ]


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="elsewhere ps tells no memory of it")
def test_a_zombie_is_not_measured() -> None:
    """A zombie has ended and was not waited for: zero memory and zero files are no measurement."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert measure(child.pid, 0.0) is None
