"""Warnings of a server about problems outside of it."""

import logging
import shutil
from pathlib import Path

import pytest

from lorogo_log import BlockingLog, FileStorage
from lorogo_protocol.position import Position
from lorogo_server import InvalidSettings, Server, ServerSettings
from lorogo_server.journal.disk_journal import JournalStopped
from lorogo_server.ownership.epoch import EpochWitness, recalled, remember
from lorogo_testing.memory_nats import MemoryNats
from tests.server.journal.test_replicated import fleet
from tests.server.support import QUICK, Probe, Writer, replicas_of, until


async def test_a_wrong_secret_is_a_warning_once_and_in_the_statistics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of a server that cannot copy has the reason, and not every two seconds."""
    with caplog.at_level(logging.WARNING, logger="lorogo_server.journal.replication"):
        async with fleet(tmp_path) as world:
            await world.server("one", journal_secret="open sesame")
            stranger = await world.server("two", journal_secret="guess")

            async def reported() -> bool:
                return bool(stranger.stats()["copies_trouble"]) and "is not replicated" in caplog.text

            await until(reported)
            for _ in range(3):
                replicas_of(stranger)._log_problems()
    warnings = [words for words in caplog.messages if "is not replicated" in words]
    assert any("server='one'" in words for words in warnings)
    assert len(set(warnings)) == len(warnings)


async def test_damage_that_reconciliation_finds_is_in_the_statistics(tmp_path: Path) -> None:
    """Also in the journal of a worker that is gone, which no open log would tell of."""
    nats = MemoryNats()
    async with Probe(nats.connect()) as probe:
        async with Server(nats.connect(), QUICK, data=tmp_path / "worker-0"):
            await probe.start("doc")
            await probe.accept("doc", Writer().type("content of a worker that is gone"))
            await probe.start("other")
            await probe.accept("other", Writer().type("more"))
        shutil.copytree(tmp_path / "worker-0" / "journal", tmp_path / "worker-7" / "journal")
        (segment,) = (tmp_path / "worker-7" / "journal" / "00").glob("*.seg")
        data = bytearray(segment.read_bytes())
        data[data.index(b"content of a worker")] ^= 0x40
        segment.write_bytes(data)
        async with Server(nats.connect(), QUICK, data=tmp_path / "worker-0") as server:

            async def found() -> bool:
                return server.stats()["journals_damaged"] == ["worker-7/journal/00"]

            await until(found)


async def test_a_start_that_fails_forgets_nothing(tmp_path: Path) -> None:
    """The end of the WAL is recorded unchanged by a server that could not open its journal."""
    directory = FileStorage().directory(tmp_path / "journal", create=True)
    known = EpochWitness(Position(7, 4711, 5), 3)
    remember(directory, known)
    with BlockingLog(tmp_path / "journal" / "00"), pytest.raises(JournalStopped):
        await Server(MemoryNats().connect(), QUICK, data=tmp_path).__aenter__()
    assert recalled(directory) == known


async def test_an_archive_that_can_never_work_is_refused(tmp_path: Path) -> None:
    """An unknown protocol, or whose driver is not installed: one sentence instead of a start."""
    url = "nothing://backup"
    settings = ServerSettings(archive=url)
    with pytest.raises(InvalidSettings, match=f"the archive {url} cannot be used here"):
        await Server(MemoryNats().connect(), settings, data=tmp_path).__aenter__()


async def test_an_archive_that_takes_nothing_is_reported_before_there_is_anything_to_ship(
    tmp_path: Path,
) -> None:
    """A file is written there and read back when the server starts."""
    (tmp_path / "file").write_text("not a folder")
    settings = ServerSettings(archive=f"file://{tmp_path}/file/archive")
    async with Server(MemoryNats().connect(), settings, data=tmp_path / "data") as server:

        async def reported() -> bool:
            return str(server.stats()["archive"]).startswith("behind: ")

        await until(reported)
