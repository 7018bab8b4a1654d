"""Where an installed segment may stand, and what happens where two files claim one place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lorogo_log import BlockingLog, CorruptionError, FormatError, LogOptions, Reader, RecoveryMode
from lorogo_log.errors import LogError
from lorogo_log.recovery import sealed_segments


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.seg"))


def values(path: Path) -> list[object]:
    read = Reader.open(path).read(damaged="skip")
    return [record.value for batch in read for record in batch.records()]


def tree(path: Path) -> dict[str, bytes]:
    """Every byte, but of what the writer prepares in the background."""
    names = sorted(file.name for file in path.iterdir() if not file.name.startswith("prepared-"))
    return {name: (path / name).read_bytes() for name in names}


def write(path: Path, *rows: object) -> Path:
    """One more segment; its file."""
    with BlockingLog(path) as log:
        for row in rows:
            log.append(row)
    return segments(path)[-1]


def two_histories(tmp_path: Path) -> tuple[Path, Path]:
    """A log and its backup, both of which went on."""
    one, two = tmp_path / "one", tmp_path / "two"
    write(one, "a", "b", "c")
    shutil.copytree(one, two)
    write(one, "d1", "e1")
    write(one, "f1")
    write(two, "d2", "e2", "f2")
    return one, two


def refused(log: BlockingLog, file: Path, match: str) -> None:
    where = Path(log.directory.path)
    before = tree(where)
    with pytest.raises(FormatError, match=match):
        log.install(file.name, [file.read_bytes()])
    assert tree(where) == before


def test_nothing_is_installed_at_or_behind_the_head(tmp_path: Path) -> None:
    """A sequence that this log is still to give is not taken by a file: it would be given twice."""
    write(tmp_path / "one", "a")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    later = write(tmp_path / "one", "b", "c")
    with BlockingLog(tmp_path / "two") as log:
        refused(log, later, "used twice")
        assert log.append("mine") == 2
    assert values(tmp_path / "two") == ["a", "mine"]


def test_a_shorter_copy_is_not_installed(tmp_path: Path) -> None:
    """What is good here and not in the copy stays: a copy taken too early is refused."""
    path, early = tmp_path / "log", tmp_path / "early"
    with BlockingLog(path) as log:
        for number in range(3):
            log.append(number)
        shutil.copytree(path, early)
        with BlockingLog(early):
            pass
        for number in range(3, 6):
            log.append(number)
        log.rotate()
        log.append("next")
        refused(log, segments(early)[0], "ends elsewhere|does not lead")
    assert values(path) == [0, 1, 2, 3, 4, 5, "next"]


def test_another_history_is_not_installed(tmp_path: Path) -> None:
    """A segment must follow the one before it, lead to the one after it, and be alone with its sequence."""
    one, two = two_histories(tmp_path)
    other = segments(two)[1]
    with BlockingLog(one) as log:
        refused(log, other, "begins with the same record")
        segments(one)[1].unlink()
        refused(log, other, "does not lead to")
    third = write(two, "g2")
    missing = write(one, "g1")
    write(one, "h1")
    missing.unlink()
    with BlockingLog(one) as log:
        refused(log, third, "does not follow")


def test_a_missing_segment_is_installed(tmp_path: Path) -> None:
    """The right one goes back into its gap, whether its neighbours were cleaned or not."""
    one, _ = two_histories(tmp_path)
    file = segments(one)[1]
    data = file.read_bytes()
    file.unlink()
    with BlockingLog(one) as log:
        log.clean(lambda _, record: record.value in {"a", "f1"})
        assert log.install(file.name, [data]).records == 2
        assert log.install(file.name, [data]).records == 2, "and over itself"
    assert values(one) == ["b", "c", "d1", "e1"]


def test_a_cleaned_copy_does_not_replace_what_is_good(tmp_path: Path) -> None:
    """Records that are good here must be in the copy; one with more than is left here is taken."""
    one, _ = two_histories(tmp_path)
    shutil.copytree(one, tmp_path / "cleaned")
    file = segments(one)[1]
    with BlockingLog(tmp_path / "cleaned") as log, BlockingLog(one) as whole:
        assert log.clean(lambda _, record: record.value == "d1").dropped == 1
        refused(whole, tmp_path / "cleaned" / file.name, "record 4 is good here")
        assert log.install(file.name, [file.read_bytes()]).records == 2
    assert values(tmp_path / "cleaned") == values(one)


# -- two files with one first sequence ----------------------------------------------------------------------


@pytest.mark.parametrize("time", [5, 1 << 62])
def test_the_file_that_fits_is_served_and_the_other_named(tmp_path: Path, time: int) -> None:
    """Of two files that begin with one sequence neither is hidden: both are named, and the chain decides."""
    one, two = two_histories(tmp_path)
    wrong = segments(two)[1]
    right = segments(one)[1]
    twin = one / f"{4:020d}-{time:020d}.seg"
    twin.write_bytes(wrong.read_bytes())
    with pytest.raises(CorruptionError, match=f"{twin.name}.*same record as {right.name}"):
        list(Reader.open(one).read())
    assert values(one) == ["a", "b", "c", "d1", "e1", "f1"]
    with BlockingLog(one) as log:
        assert [damage.path for damage in log.damage] == [str(twin)]
        assert right.name in log.damage[0].reason
        assert [report.name for report in log.scrub() if report.damage] == [twin.name]
        assert log.lookup(4).value == "d1"
        refused(log, right, "begins with the same record")
    with pytest.raises(LogError, match="same record"):
        BlockingLog(one, LogOptions(recovery=RecoveryMode.STRICT))
    assert twin.read_bytes() == wrong.read_bytes()


def test_what_a_hidden_newest_file_gave_is_not_given_again(tmp_path: Path) -> None:
    """The log goes on behind the longer of two, whichever is served."""
    one, two = two_histories(tmp_path)
    for file in segments(one)[2:]:
        file.unlink()
    shutil.copy(segments(two)[1], one)
    with BlockingLog(one) as log:
        assert len(log.damage) == 1
        assert log.append("x") == 7
    assert len(list(sealed_segments.scrub(Reader.open(one).directory))) == 4
