"""A journal that was put back to an older state, and went on from there: it uses sequences again."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lorogo_pipeline.decode.segments import find_segments, gaps
from lorogo_pipeline.pipeline import Pipeline, Settings, build
from tests.pipeline.journals import Journal, session
from tests.pipeline.lakes import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPDATES = session(3, 20)


@pytest.fixture
def pasts(tmp_path: Path) -> tuple[Path, Path]:
    """One journal twice: it went on from a backup; the other is what it was before, as an archive has it."""
    now, backup, before = tmp_path / "now", tmp_path / "backup", tmp_path / "before"
    with Journal(now) as journal:
        journal.add(*UPDATES[:10])
        journal.seal()
    shutil.copytree(now, backup)
    with Journal(now) as journal:
        journal.add(*UPDATES[10:15])
        journal.seal()
    now.rename(before)
    backup.rename(now)
    with Journal(now) as journal:
        journal.add(*UPDATES[15:])
        journal.seal()
    return now, before


def pipeline(spark: "SparkSession", lake: Path, *journals: Path) -> Pipeline:
    return build(spark, Settings(str(lake), tuple(map(str, journals)), buckets=2))


def ids(lake: Path) -> list[str]:
    return sorted(row["log_id"] for row in rows_of(lake, "updates"))


def test_what_came_after_the_backup_is_read(
    spark: "SparkSession", tmp_path: Path, pasts: tuple[Path, Path]
) -> None:
    """A segment with the sequences of one that was read before, and other records, is read, too."""
    now, before = pasts
    lake = tmp_path / "lake"
    pipeline(spark, lake, before).ingest()
    done = pipeline(spark, lake, now).ingest()
    assert (done.segments, done.known, done.updates) == (1, 1, 5)
    assert ids(lake) == sorted(one.record.log_id for one in UPDATES)
    assert pipeline(spark, lake, now).ingest().segments == 0


def test_both_pasts_at_once(spark: "SparkSession", tmp_path: Path, pasts: tuple[Path, Path]) -> None:
    """Segments that begin alike at other times are no copies of each other; nothing seems to be missing."""
    now, before = pasts
    assert [one.first_sequence for one in find_segments([str(now), str(before)])] == [1, 11, 11]
    assert gaps(find_segments([str(now), str(before)])) == []
    done = pipeline(spark, tmp_path / "lake", now, before).ingest()
    assert (done.updates, done.damage) == (20, [])
    assert ids(tmp_path / "lake") == sorted(one.record.log_id for one in UPDATES)


def test_pasts_that_begin_alike(spark: "SparkSession", tmp_path: Path) -> None:
    """The same update may be journalled again after a backup was put back: what follows it still differs."""
    now, before = tmp_path / "now", tmp_path / "before"
    for place, rest in ((now, UPDATES[15:]), (before, UPDATES[10:15])):
        log_id = b"the same journal"
        with Journal(place, log_id=log_id) as journal:
            journal.add(*UPDATES[:10], *rest)
            journal.seal()
    assert len(find_segments([str(now), str(before)])) == 2
    done = pipeline(spark, tmp_path / "lake", now, before).ingest()
    assert (done.updates, done.repeated, done.damage) == (20, 10, [])
    assert ids(tmp_path / "lake") == sorted(one.record.log_id for one in UPDATES)
