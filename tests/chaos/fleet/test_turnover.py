"""Writers that leave a document after so many edits, and begin the next."""

import asyncio
from pathlib import Path

from lorogo_chaos.fault_run import FaultRun, FaultRunSettings
from lorogo_chaos.fleet.client_fleet import ClientFleet
from lorogo_chaos.fleet.traces import made
from lorogo_chaos.fleet.writer import following
from lorogo_chaos.processes.stack import ChaosStack, ChaosStackSettings


def test_documents_follow_each_other() -> None:
    """The name of a document has its number in the order."""
    assert [following("chaos-7"), following("chaos-7_2"), following("chaos-7_9")] == [
        "chaos-7_2",
        "chaos-7_3",
        "chaos-7_10",
    ]


async def test_a_writer_continues_where_its_previous_incarnation_ended(tmp_path: Path) -> None:
    """The writer sends its unACKed edits again, and does not restart at the first document."""
    async with ChaosStack(ChaosStackSettings(servers=1, folder=tmp_path / "stack")) as stack:
        fleet = ClientFleet(
            stack, ["a"], writers=1, traces=[made(100)], edits_per_second=200, seed=1, edits_each=3
        )
        async with fleet:
            async with asyncio.timeout(60):
                while "a_4" not in fleet.acked:
                    await asyncio.sleep(0.05)
                    fleet.read_events()
            await fleet.kill(0)
            (before,) = fleet.current
            assert before not in {"a", "a_2", "a_3"}
            await fleet.start(0)
            async with asyncio.timeout(60):
                while not fleet.acked:
                    await asyncio.sleep(0.05)
                    fleet.read_events()
            assert not await fleet.drain(30)
            assert {event.document for event in fleet.incarnations[1].events if event.kind == "wrote"} >= {
                before
            }
            assert "a" not in {event.document for event in fleet.incarnations[1].events}
            assert {"a", "a_2", "a_3", "a_4"} <= set(fleet.documents)


async def test_all_documents_are_verified_also_those_left_behind() -> None:
    """The verdict speaks of every edit, wherever it was made."""
    settings = FaultRunSettings(
        servers=1, documents=1, writers=2, faults=1, edits_each=3, only=("writer-kill",), edits_per_second=60
    )
    outcome = await FaultRun(settings, [made(100)]).run()
    assert outcome.verdict.acked > 6
    assert not outcome.verdict.lost
    assert not outcome.verdict.unread
    assert not outcome.verdict.differing
