"""The course of a drill, decided without a process: what may strike, and when it ends."""

import asyncio
from typing import Any

import pytest

from lorogo_chaos.errors import FaultUnavailable
from lorogo_chaos.fault_run import FaultRun, FaultRunSettings
from lorogo_chaos.faults.plan import FaultChoice
from lorogo_chaos.verdict import FaultRecord


def test_what_needs_a_cluster_is_left_out_before_anything_is_started() -> None:
    """With the option that gives one; the others strike."""
    one = FaultRun(FaultRunSettings(only=("partition", "server-kill")), [])
    assert [choice.name for choice in one._choices()] == ["server-kill"]
    assert one.outcome.left_out == {"partition": "needs a cluster: --nats three"}


def test_if_nothing_is_left_the_reason_is_named() -> None:
    """The error appears before the stack starts."""
    one = FaultRun(FaultRunSettings(only=("leader-change",)), [])
    with pytest.raises(FaultUnavailable, match="leader-change needs a cluster: --nats three"):
        one._choices()
    cluster = FaultRun(FaultRunSettings(only=("leader-change",), nodes=3), [])
    assert [choice.name for choice in cluster._choices()] == ["leader-change"]


@pytest.mark.parametrize(
    ("only", "words"),
    [(("journal-flip", "wal-flip"), "--only names both: name one side"), ((), "--only selects the others")],
)
def test_the_reason_for_a_spared_side_fits_the_options(only: tuple[str, ...], words: str) -> None:
    """After --only with faults of both sides, the reason does not recommend --only."""
    one = FaultRun(FaultRunSettings(only=only, nodes=3), [])
    one._choices()
    assert one.outcome.left_out
    assert all(why.endswith(words) for why in one.outcome.left_out.values())


async def test_the_pause_between_faults_ends_with_the_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drill of six seconds with a fault every hour does not take an hour."""
    one: Any = FaultRun(FaultRunSettings(faults=0, minutes=0.1, every_seconds=3600), [])
    pauses: list[float] = []

    async def inject(*_: object) -> bool:
        one.outcome.fault_records.append(FaultRecord("a", "", 0, 0, 0))
        return True

    async def nothing(*_: object) -> None:
        await asyncio.sleep(0)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        one._stop.set()

    for name, do in (("_inject_one", inject), ("_restart_some", nothing), ("_pause", pause)):
        monkeypatch.setattr(one, name, do)
    await one._inject_all(None, None, [FaultChoice("a")])
    assert len(pauses) == 1
    assert pauses[0] <= 6.0
