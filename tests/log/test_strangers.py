"""Files that carry a segment's name and are not it: named, passed over, never waited for."""

from pathlib import Path

import pytest

from lorogo_log import BlockingLog, CorruptionError, LogOptions, Reader


def three_segments(path: Path) -> list[Path]:
    with BlockingLog(path, LogOptions()) as log:
        for part in range(3):
            for number in range(4):
                log.append(part * 4 + number)
            log.rotate()
    return sorted(path.glob("*.seg"))


def read_all(path: Path) -> tuple[list[int], list[CorruptionError]]:
    """What is served, and what was reported on the way."""
    values: list[int] = []
    damage: list[CorruptionError] = []
    cursor = Reader.open(path).cursor()
    for _ in range(20):
        try:
            for batch in cursor:
                values += [record.value for record in batch.records()]
            return values, damage
        except CorruptionError as error:
            damage.append(error)
    raise AssertionError("the cursor goes round in circles")


def test_a_segment_under_anothers_name_is_reported_and_the_rest_is_served(tmp_path: Path) -> None:
    """A renamed segment is corruption of that place in the log; the cursor goes on behind it."""
    first, second, third = three_segments(tmp_path / "log")
    number, _, rest = second.name.partition("-")
    second.rename(second.with_name(f"{int(number) + 1:020d}-{rest}"))
    values, damage = read_all(tmp_path / "log")
    assert values == [0, 1, 2, 3, 8, 9, 10, 11]
    assert [("renamed" in str(error)) for error in damage] == [True]
    assert first.exists()
    assert third.exists()


def test_a_link_to_nowhere_is_reported_and_the_rest_is_served(tmp_path: Path) -> None:
    """A name that is listed and cannot be opened is not waited for."""
    _, second, _ = three_segments(tmp_path / "log")
    second.unlink()
    second.symlink_to(tmp_path / "nowhere")
    values, damage = read_all(tmp_path / "log")
    assert values == [0, 1, 2, 3, 8, 9, 10, 11]
    assert len(damage) == 1
    with pytest.raises(CorruptionError, match="is not there"):
        raise damage[0]
