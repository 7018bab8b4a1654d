"""What a restore says of damage, of erased documents and of times before the first edit."""

from pathlib import Path

import nanoid
import pytest

from lorogo_server import Server, ServerSettings
from lorogo_server.recovery.restore_run import (
    NothingAsOld,
    NotRestored,
    RestoreReport,
    RestoreRequest,
    restore,
)
from lorogo_server.recovery.restore_sources import SourceDamage, SourceSegment, find
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.clock import SystemClock
from tests.server.support import QUICK, Probe, Writer

DOCUMENTS = 6


async def written(folder: Path, nats: MemoryNats, *, erase: str = "") -> Path:
    """The segment of a server that stopped, with one record per document."""
    async with Server(nats.connect(), QUICK, data=folder), Probe(nats.connect()) as probe:
        for number in range(DOCUMENTS):
            await probe.start(f"doc{number}")
            await probe.accept(f"doc{number}", Writer().type(f"content number {number}"))
        if erase:
            await probe.call("delete", erase, purge=True)
    return min((folder / "journal" / "00").glob("*.seg"))


async def restored(
    folder: Path, nats: MemoryNats, *places: Path, wanted: RestoreRequest | None = None
) -> RestoreReport:
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    sources = [source for place in places for source in find(str(place))]
    return await restore(
        nats.connect(),
        sources,
        wanted or RestoreRequest(),
        settings=ServerSettings(),
        clock=SystemClock(),
        new_id=lambda: str(nanoid.generate()),
        scratch=scratch,
    )


def hurt(segment: Path, number: int) -> bytes:
    """Flip a bit in a document's record; returns the bytes of before."""
    whole = segment.read_bytes()
    at = whole.index(f"content number {number}".encode())
    segment.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
    return whole


@pytest.mark.parametrize("ends_before", [2, 4, None], ids=["long before", "just before", "whole"])
async def test_damage_is_mended_only_by_a_copy_that_reaches_beyond_it(
    tmp_path: Path, ends_before: int | None
) -> None:
    """A lagging copy has a segment of the same name, and ends before the damage: what was lost is told."""
    segment = await written(tmp_path / "data", MemoryNats())
    whole = hurt(segment, 4)
    copy = tmp_path / "copy" / "00"
    copy.mkdir(parents=True)
    end = None if ends_before is None else whole.index(f"content number {ends_before}".encode()) - 80
    (copy / segment.name).write_bytes(whole[:end])
    report = await restored(tmp_path, MemoryNats(), segment.parent, copy)
    names = {one.document for one in report.outcomes}
    assert report.complete is (ends_before is None)
    assert bool(report.repaired) is (ends_before is None)
    assert bool(report.damage) is (ends_before is not None)
    assert ("doc4" in names) is (ends_before is None)


@pytest.mark.parametrize(
    ("until", "last", "sealed", "covers"),
    [
        (7, 7, False, True),
        (7, 6, True, False),
        (None, 9, True, True),
        (None, 9, False, False),
        (None, 4, True, False),
    ],
)
def test_a_copy_covers_damage_if_it_reads_to_its_end(
    until: int | None, last: int, sealed: bool, covers: bool
) -> None:
    """Where nothing reads behind the damage, nobody knows its end: then only a sealed copy is known to be
    whole, and only if it reaches beyond the place.
    """
    assert SourceSegment(b"log", last, sealed).covers(SourceDamage("segment", after=4, until=until)) is covers


async def test_an_erased_document_is_not_restored_under_another_id(tmp_path: Path) -> None:
    """It is refused with a sentence and nothing is written: the other id stays free."""
    nats = MemoryNats()
    await written(tmp_path / "data", nats, erase="doc1")
    with pytest.raises(NotRestored, match="doc1 was erased"):
        await restored(tmp_path, nats, tmp_path / "data", wanted=RestoreRequest(document="doc1", to="other"))
    async with Server(nats.connect(), QUICK, data=tmp_path / "two"), Probe(nats.connect()) as probe:
        await probe.start("other")
        await probe.accept("other", Writer().type("a document of its own"))


async def test_a_time_before_the_first_edit_is_told_as_that(tmp_path: Path) -> None:
    """The document exists, but not yet then: its first record is named, and nothing is written."""
    nats = MemoryNats()
    segment = await written(tmp_path / "data", MemoryNats())
    wanted = RestoreRequest(document="doc1", at_ns=1_000_000_000)
    with pytest.raises(NothingAsOld, match="doc1 has nothing as old as that") as caught:
        await restored(tmp_path, nats, segment.parent, wanted=wanted)
    assert caught.value.first_ns > 1_000_000_000
    with pytest.raises(NotRestored, match="none of these journals has a document 'nobody'"):
        await restored(tmp_path, nats, segment.parent, wanted=RestoreRequest(document="nobody"))
