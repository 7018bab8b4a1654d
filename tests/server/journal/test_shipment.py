"""Sealed segments on shared storage, and restores from there."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lorogo_log import BlockingLog, LogOptions
from lorogo_log.recovery.sealed_segments import clean
from lorogo_server.journal.archive import ArchiveError, ArchiveStorage
from lorogo_server.journal.shipment import MANIFEST, Manifest, PartitionArchive, ShipmentMismatch, to_ship
from lorogo_server.recovery.restore_sources import find
from tests.cli.support import lorogo, refused, said, said_json

_names = itertools.count()


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/archive"
    return f"memory://archive-{next(_names)}"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[BlockingLog]:
    """A log with two sealed segments and one that is open."""
    with BlockingLog(tmp_path / "journal" / "00", LogOptions(segment_bytes=1 << 20)) as log:
        for _ in range(2):
            log.append_many((b"a", ["x", 1, n]) for n in range(50))
            log.append_many((b"b", ["x", 1, n]) for n in range(50))
            log.rotate()
        log.append(["x", 1, 100], key=b"a")
        seal(log, 2)
        yield log


def seal(log: BlockingLog, count: int) -> None:
    """Wait until that many segments are sealed; rotation seals in another thread."""
    deadline = time.monotonic() + 10
    while sum(info.sealed for info in log.segments()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def ship(shelf: PartitionArchive, log: BlockingLog) -> list[str]:
    names = [info.name for info in to_ship(shelf, log.reader)]
    assert all(shelf.put(log.directory, name) for name in names)
    return names


def test_sealed_segments_arrive_whole_and_once(url: str, journal: BlockingLog) -> None:
    """Sealed segments are copied with a manifest; a second run, and another process, copy nothing more."""
    shelf = PartitionArchive(ArchiveStorage(url), "server", "00")
    names = ship(shelf, journal)
    assert len(names) == 2
    assert ship(shelf, journal) == []
    assert ship(PartitionArchive(ArchiveStorage(url), "server", "00"), journal) == []
    for name in names:
        there = b"".join(shelf.archive.read(f"server/00/{name}"))
        file = journal.directory.open(name)
        assert there == file.pread(file.size(), 0)
        manifest = Manifest.parse(shelf.archive.read_small(f"server/00/{name}{MANIFEST}"))
        assert manifest is not None
        assert manifest.size == len(there)


def test_a_restore_reads_an_archive_like_a_journal(url: str, journal: BlockingLog) -> None:
    """Every record of the shipped segments is found below the URL, and by document."""
    ship(PartitionArchive(ArchiveStorage(url), "server", "00"), journal)
    (source,) = find(url)
    assert len(list(source.records())) == 200
    assert {record.key for record in source.records("b")} == {b"b"}
    assert len(list(source.records("b"))) == 100
    assert not source.damage


def test_a_copy_that_was_broken_off_is_made_again(
    url: str, journal: BlockingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a copy has no manifest, so it is not taken for one."""
    write = ArchiveStorage.write

    def half(archive: ArchiveStorage, name: str, pieces: Iterator[bytes]) -> None:
        write(archive, name, iter([next(pieces)[:1000]]))
        raise ArchiveError("the store went away")

    shelf = PartitionArchive(ArchiveStorage(url), "server", "00")
    first = to_ship(shelf, journal.reader)[0].name
    with monkeypatch.context() as patch:
        patch.setattr(ArchiveStorage, "write", half)
        with pytest.raises(ArchiveError):
            shelf.put(journal.directory, first)
    again = PartitionArchive(ArchiveStorage(url), "server", "00")
    assert first not in again.known()
    assert first in ship(again, journal)
    assert len(list(find(url)[0].records())) == 200


def test_a_store_that_changes_bytes_is_found_out(
    url: str, journal: BlockingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that does not read back as written does not count as shipped."""
    read = ArchiveStorage.read

    def flipped(archive: ArchiveStorage, name: str) -> Iterator[bytes]:
        for piece in read(archive, name):
            yield b"X" + piece[1:]

    shelf = PartitionArchive(ArchiveStorage(url), "server", "00")
    monkeypatch.setattr(ArchiveStorage, "read", flipped)
    with pytest.raises(ShipmentMismatch):
        ship(shelf, journal)
    assert PartitionArchive(ArchiveStorage(url), "server", "00").known() == {}


def test_a_rewritten_segment_replaces_its_copy(url: str, journal: BlockingLog) -> None:
    """A segment cleaned here is cleaned there with the next shipping."""
    shelf = PartitionArchive(ArchiveStorage(url), "server", "00")
    names = ship(shelf, journal)
    clean(journal.directory, lambda _, record: record.key == b"a")
    assert ship(shelf, journal) == names
    assert {record.key for record in find(url)[0].records()} == {b"b"}


def test_a_store_without_a_driver_is_one_sentence() -> None:
    """An unknown scheme, or one whose package is not installed, is an error with the missing package."""
    with pytest.raises(ArchiveError, match="nowhere://x"):
        ArchiveStorage("nowhere://x")


@pytest.mark.parametrize("url", ["nowhere://ann:geheim@host/x", "ftp://ann:geheim@127.0.0.1:1/x"])
def test_a_password_is_in_nothing_that_is_said(url: str) -> None:
    """Sentences about a store go to logs, statuses and dashboards: whether it cannot be or is only away."""
    with pytest.raises(ArchiveError) as raised:
        ArchiveStorage(url)
    assert "geheim" not in str(raised.value)
    assert "://...@" in str(raised.value)


def test_the_command_ships_by_hand(tmp_path: Path) -> None:
    """`lorogo log ship` copies a server's journal under its id, and goes on where it was."""
    worker = tmp_path / "data" / "worker-0"
    with BlockingLog(worker / "journal" / "00") as log:
        log.append_many((b"a", ["x", 1, n]) for n in range(50))
    url = f"file://{tmp_path}/archive"
    anonymous = lorogo("log", "ship", str(tmp_path / "data"), url, cwd=tmp_path)
    assert "set it with --server" in refused(anonymous)
    (worker / "server-id").write_text("server-1\n")
    first = said_json(lorogo("log", "ship", str(tmp_path / "data"), url, "--json", cwd=tmp_path))
    assert (first["copied"], first["there"], first["left"]) == (1, 0, 0)
    again = said(lorogo("log", "ship", str(worker), url, cwd=tmp_path))
    assert "0 segments copied" in again
    assert "1 already in the archive" in again
    assert [source.name for source in find(url)] == [f"{url}/server-1/00"]
