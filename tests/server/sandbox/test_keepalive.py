"""Leases survive a busy server, and only a busy one."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from lorogo_protocol.status import Up
from lorogo_server.sandbox.keepalive import (
    KeepaliveProcess,
    KeepaliveSettings,
    KeepaliveState,
    cpu_seconds,
    renew_all,
)
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.clock import SystemClock
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.ports import StreamSpec
from lorogo_transport.stores.statuses import Statuses
from lorogo_transport.stores.topology import specs
from tests.server.support import until

SETTINGS = KeepaliveSettings("nats://x", "server-1", 1, 3.0)


@pytest.mark.parametrize(
    ("silence", "cpu_before", "cpu_now", "renews"),
    [
        (0.1, 1.0, 2.0, False),
        (2.0, 1.0, 2.0, True),
        (2.0, 2.0, 2.0, False),
        (2.0, 1.0, None, False),
    ],
    ids=["beats", "silent and busy", "silent and idle", "stopped or dead"],
)
def test_it_helps_a_busy_server_only(
    silence: float, cpu_before: float, cpu_now: float | None, renews: bool
) -> None:
    """Silence alone is not enough: a server that does not compute must lose its documents."""
    state = KeepaliveState(SETTINGS, now=100.0)
    state.must_renew(100.0, cpu_before)
    assert state.must_renew(100.0 + silence, cpu_now) is renews


def test_it_helps_for_a_minute_at_most() -> None:
    """A server that computes for ever loses its documents in the end."""
    state = KeepaliveState(SETTINGS, now=0.0)
    helped = [now for now in range(1, 200) if state.must_renew(float(now), cpu_seconds=float(now))]
    assert helped
    assert max(helped) < 70
    state.handle_line("", 200.0)
    state.must_renew(200.5, 200.5)
    assert state.must_renew(202.0, 202.0)


async def test_no_secret_of_ours_is_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings come by its standard input."""
    monkeypatch.setenv("LOROGO_NATS_SEED", "s3cret")
    keepalive = KeepaliveProcess("nats://127.0.0.1:9")
    await keepalive.start("server-1", 3.0)
    try:
        assert keepalive._process is not None
        place = Path(f"/proc/{keepalive._process.pid}/environ")
        async with asyncio.timeout(10):  # empty until the process has become the keepalive process
            while not (environment := place.read_bytes()):  # noqa: ASYNC110, ASYNC240  # of the kernel
                await asyncio.sleep(0.01)
    finally:
        await keepalive.stop()
    assert b"PATH=" in environment
    assert b"s3cret" not in environment


async def test_it_renews_only_what_is_still_the_servers() -> None:
    """Another's token, another server, a removed key: left alone."""
    world = MemoryNats()
    transport = world.connect()
    for spec in specs():
        assert isinstance(spec, StreamSpec)
        await transport.ensure(spec)
    statuses = Statuses(transport)
    mine = await statuses.write("mine", Up("server-1", 1), expected_revision=0, server="server-1", lease=7)
    other = await statuses.write("lost", Up("server-2", 1), expected_revision=0, server="server-2", lease=8)
    state = KeepaliveState(SETTINGS, now=0.0)
    for line in ("+mine 7", "+lost 3", "+gone 4", "+dropped 5", "-dropped"):
        state.handle_line(line, 0.0)
    assert await renew_all(transport, state, SystemClock(), lambda: True) == 1
    entry = await statuses.read("mine")
    assert entry is not None
    assert entry.revision > mine
    assert entry.token == 7
    kept = await statuses.read("lost")
    assert kept is not None
    assert kept.revision == other


_BUSY = """
import asyncio, sys, time
from lorogo_server.sandbox.keepalive import KeepaliveProcess

async def main():
    pulse = KeepaliveProcess(sys.argv[1])
    await pulse.start("server-1", 0.5)
    pulse.hold("doc", 7)
    beating = asyncio.create_task(pulse.run())
    await asyncio.sleep(1)
    print("busy", flush=True)
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        pass
    print("free", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_process_that_blocks_its_loop_keeps_its_lease_and_a_stopped_one_does_not(
    nats_server: EmbeddedNats,
) -> None:
    """The real process, on real NATS: renewed while computing, not while stopped, gone when we are gone."""
    async with await connect(nats_server.url, name="test") as transport:
        for spec in specs():
            await transport.ensure(spec)
        statuses = Statuses(transport)
        before = await statuses.read("doc")
        first = await statuses.write(
            "doc",
            Up("server-1", time.time_ns()),
            expected_revision=0 if before is None else before.revision,
            server="server-1",
            lease=7,
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _BUSY, nats_server.url, "4", stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(30):
                assert await process.stdout.readline() == b"busy\n"

                async def renewed() -> bool:
                    entry = await statuses.read("doc")
                    return entry is not None and entry.revision > first

                await until(renewed)
                assert await process.stdout.readline() == b"free\n"
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.3)
            stopped_at = await statuses.read("doc")
            assert cpu_seconds(process.pid) is None
            await asyncio.sleep(2)  # time in which a deceived keepalive process would renew
            assert await statuses.read("doc") == stopped_at
        finally:
            process.kill()
            await process.wait()


def test_the_settings_line_is_what_the_process_reads() -> None:
    """Both ends agree on the first line."""
    line = json.dumps({"nats": "n", "server_id": "s", "server_pid": os.getpid(), "renew_seconds": 1.0})
    assert KeepaliveSettings(**json.loads(line)).server_id == "s"
    assert cpu_seconds(os.getpid()) is not None
