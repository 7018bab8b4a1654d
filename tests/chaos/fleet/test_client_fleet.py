"""The writers of a drill: who waits for an ACK, and since when; and real ones, without any NATS."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from lorogo_chaos.fleet import client_fleet as fleets
from lorogo_chaos.fleet.client_fleet import ClientFleet, UnackedEdits
from lorogo_chaos.fleet.event_log import Kind, WriterEvent
from lorogo_chaos.fleet.traces import made
from lorogo_chaos.processes.stack import ChaosStack
from tests.stillness import stand_still


class _NoStack(ChaosStack):
    """A folder, and lines that lead nowhere."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    async def link(self, name: str) -> str:
        return "nats://127.0.0.1:1"


def writers_of(folder: Path, documents: Sequence[str], count: int) -> ClientFleet:
    return ClientFleet(
        _NoStack(folder), documents, writers=count, traces=[made(10)], edits_per_second=1.0, seed=1
    )


def waiting(*events: tuple[Kind, float, str, int]) -> UnackedEdits:
    one = UnackedEdits()
    for kind, at, document, number in events:
        one.add(WriterEvent(kind, at, document, number))
    return one


def test_a_document_waits_until_what_was_written_before_is_acked() -> None:
    """Later edits do not count: a run under load recovers, too."""
    one = waiting(("wrote", 1, "a", 1), ("wrote", 2, "b", 2), ("wrote", 5, "a", 3))
    assert one.documents(0.5) == set()
    assert one.documents(4) == {"a", "b"}
    one.add(WriterEvent("acked", 6, "a", 1))
    assert one.documents(4) == {"b"}
    assert one.documents(6) == {"a", "b"}
    assert (one.acked, one.acked_at, one.acked_documents) == (1, 6, {"a"})


def test_a_wait_ends_with_the_last_ack_of_what_was_written_before() -> None:
    """Without waiting edits, the wait ends with the first later ACK, which proves that a server answers."""
    one = waiting(("wrote", 1, "a", 1), ("wrote", 2, "b", 2), ("acked", 3, "a", 1))
    assert one.ends_wait(3) == 3
    for event in (("wrote", 4, "a", 3), ("acked", 5, "a", 3), ("acked", 6, "b", 2), ("wrote", 7, "a", 4)):
        one.add(WriterEvent(*event))
    one.add(WriterEvent("acked", 8, "a", 4))
    assert one.ends_wait(3) == 6
    assert one.ends_wait(6.5) == 8
    assert one.ends_wait(9) == 9


def test_an_ack_of_nothing_is_none() -> None:
    """A new session reports everything as ACKed, which is no ACK of an edit."""
    one = waiting(("acked", 3, "a", 0))
    assert (one.acked, one.acked_at, one.acked_documents) == (0, 0.0, set())


def test_what_was_dropped_waits_no_longer_and_is_not_acked() -> None:
    """A session that failed took it along."""
    one = waiting(("wrote", 1, "a", 1), ("wrote", 2, "a", 2), ("dropped", 3, "a", 2))
    assert one.documents(9) == set()
    assert one.acked == 0
    assert one.acked_documents == set()


async def test_who_has_nothing_to_edit_is_not_waited_for(tmp_path: Path) -> None:
    """A drill with more writers than documents recovers like any other."""
    async with writers_of(tmp_path, ["a"], 3) as fleet:
        assert fleet.running == [0, 1, 2]
        assert fleet.without_ack(0.0) == [0, 1]


async def test_an_ended_writer_is_started_again(tmp_path: Path) -> None:
    """The fleet restarts a writer that ended or whose start failed, because its missing edits would stay
    undetected.
    """
    async with writers_of(tmp_path, ["a", "b"], 2) as fleet:
        await fleet.kill(0)
        assert fleet.running == [1]
        assert await fleet.restart_ended() == [0]
        assert fleet.running == [0, 1]
        assert await fleet.restart_ended() == []


async def test_a_writer_that_is_gone_with_its_store_does_not_rest(tmp_path: Path) -> None:
    """No client opened its store: the stored edits are not lost, and not verified."""
    async with writers_of(tmp_path, [], 2) as fleet:
        await fleet.kill_all()
        assert await fleet.drain(1.0) == [0]
        assert fleet.has_store(0)
        assert not fleet.has_store(1)


async def test_a_writer_without_digests_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica of such a writer was not compared."""
    async with writers_of(tmp_path, ["a", "b"], 2) as fleet:
        assert await fleet.record_digests() == []
        monkeypatch.setattr(fleets, "_REPLY_SECONDS", 0.5)
        (paused,) = fleet.pids["writer-2"]
        stand_still(paused)
        assert await fleet.record_digests() == [1]
