"""An interrupted run is still verified, or reports that it is not."""

import asyncio
import os
import signal
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lorogo_chaos import fault_run, final_check
from lorogo_chaos.fault_run import FaultRun, FaultRunSettings
from lorogo_chaos.fleet.client_fleet import ClientFleet
from lorogo_chaos.processes.stack import ChaosStack
from lorogo_chaos.verdict import FinalContents
from lorogo_cli.connect.runtime import stop_signals
from tests.chaos.incarnations import incarnation


class _Crowd:
    """Writers that had one edit ACKed, and rest at once."""

    documents = ("a",)
    acked = frozenset({"a"})
    incarnations = (incarnation(("wrote", 1, "a", 1), ("acked", 2, "a", 1)),)

    async def drain(self, seconds: float) -> list[int]:
        return []

    async def record_digests(self) -> list[int]:
        return []

    async def kill_all(self) -> None:
        pass

    def read_events(self) -> None:
        pass


class _Process:
    """A server or a node; notes that it was killed."""

    pid = None

    def __init__(self) -> None:
        self.killed = 0

    async def kill(self) -> None:
        self.killed += 1


async def _interrupted(
    monkeypatch: pytest.MonkeyPatch, *, ready: bool, read: bool = True
) -> tuple[FaultRun, list[_Process], list[str]]:
    """A drill whose end comes after Ctrl-C; everything starts again, and can be read, or not."""

    async def wait_ready() -> None:
        if not ready:
            await asyncio.Event().wait()

    async def read_all(url: str, documents: Sequence[str], seconds: float) -> dict[str, FinalContents | None]:
        return {"a": FinalContents(("0.1.1",), "d") if read else None}

    async def failed(url: str, documents: Sequence[str], seconds: float) -> list[str]:
        return []

    monkeypatch.setattr(final_check, "read_all", read_all)
    monkeypatch.setattr(final_check, "failed", failed)
    monkeypatch.setattr(fault_run, "_SHORT_RESTART_SECONDS", 0.05)
    processes = [_Process(), _Process()]
    stack: Any = SimpleNamespace(
        servers=processes[:1], nodes=processes[1:], direct_url="", wait_ready=wait_ready
    )
    stop = asyncio.Event()
    stop.set()
    reported: list[str] = []
    one = FaultRun(FaultRunSettings(documents=1), [], progress=reported.append, stop=stop)
    fleet = cast(ClientFleet, _Crowd())
    await one._first_acks(fleet)
    await one._end(cast(ChaosStack, stack), fleet)
    return one, processes, reported


async def test_an_interrupted_drill_restarts_everything_before_it_judges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what is on disks counts, also then; and no fault is announced."""
    one, processes, reported = await _interrupted(monkeypatch, ready=True)
    assert [process.killed for process in processes] == [1, 1]
    assert one.outcome.good
    assert not any("faults begin" in words for words in reported)


async def test_a_restart_that_does_not_end_in_time_verifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted drill waits for it with a deadline."""
    one, _, _ = await _interrupted(monkeypatch, ready=False)
    assert one.outcome.unfinished
    assert not one.outcome.good


async def test_a_reading_that_does_not_end_in_time_verifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One document that was not given is enough."""
    one, _, _ = await _interrupted(monkeypatch, ready=True, read=False)
    assert one.outcome.unfinished
    assert not one.outcome.good


async def test_a_second_signal_counts_once() -> None:
    """The first signal requests the end, the second forces it, and a third has no effect."""
    called: list[str] = []
    with stop_signals(again=lambda: called.append("again")) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        await stop.wait()
        assert called == []
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(100):
                await asyncio.sleep(0)
    assert called == ["again"]
