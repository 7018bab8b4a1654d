"""Places of a lake: names that every library reads alike."""

from pathlib import Path

import pytest

from lorogo_pipeline.errors import BadOption
from lorogo_pipeline.tables.lake import Lake


@pytest.mark.parametrize("name", ["x[1]", "x{1}", "x*", "x?", "x%20y", "x\\y"])
def test_names_that_mean_something_else(tmp_path: Path, name: str) -> None:
    """A pattern to Spark or an escape to Delta is refused before anything is written."""
    with pytest.raises(BadOption, match="rename the folder"):
        Lake.open(str(tmp_path / name / "lake"), create=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a b", "ü", "x#y", "x,y", "x:y", "x'y", "x=y"])
def test_other_names(tmp_path: Path, name: str) -> None:
    """Spaces, commas and letters of any language are fine."""
    lake = Lake.open(str(tmp_path / name), create=True)
    lake.table("events").commit([], positions={"x": 1})
    assert lake.table("events").position("x") == 1
