"""The edits that writers replay."""

import gzip
import json
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_chaos.fleet import traces
from lorogo_chaos.fleet.traces import BadTrace

SEQUENTIAL = {
    "startContent": "",
    "endContent": "ab",
    "txns": [{"patches": [[0, 0, "x"], [0, 1, "a"]]}, {"patches": [[1, 0, "b"]]}],
}
CONCURRENT = {"kind": "concurrent", "endContent": "", "txns": [{"parents": [], "patches": []}]}


def put(folder: Path, name: str, body: object) -> None:
    (folder / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(body).encode()))


def test_a_folder_gives_its_sequential_traces(tmp_path: Path) -> None:
    """Concurrent ones and other files are left out."""
    put(tmp_path, "one", SEQUENTIAL)
    put(tmp_path, "two", CONCURRENT)
    (tmp_path / "README.md").write_text("traces")
    (found,) = traces.of_folder(tmp_path)
    assert found.name == "one"
    assert found.patches == [(0, 0, "x"), (0, 1, "a"), (1, 0, "b")]
    assert found.end_content == "ab"


def test_a_folder_without_any_is_refused(tmp_path: Path) -> None:
    """A named folder must have traces: the synthetic one is no substitute."""
    with pytest.raises(BadTrace, match=r"no \.json\.gz"):
        traces.of_folder(tmp_path)
    put(tmp_path, "two", CONCURRENT)
    (tmp_path / "torn.json.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(BadTrace, match="none that can be replayed"):
        traces.of_folder(tmp_path)


def test_without_a_folder_there_is_a_made_one() -> None:
    """Its patches lead to its end, as those of a real one do."""
    (made,) = traces.of_folder(None)
    text = ""
    for position, deleted, inserted in made.patches:
        text = text[:position] + inserted + text[position + deleted :]
    assert text == made.end_content


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 30))
def test_a_patch_fits_into_any_text(position: int, deleted: int, length: int) -> None:
    """Others edit the same text: a patch must never reach beyond its end."""
    at, gone, inserted = traces.fitted((position, deleted, "x"), length)
    assert 0 <= at <= length
    assert at + gone <= length
    assert inserted == "x"
    if position + deleted <= length:
        assert (at, gone) == (position, deleted)


def test_a_trace_goes_round() -> None:
    """Long drills need more edits than a trace has."""
    patches = [(0, 0, "a"), (0, 0, "b"), (0, 0, "c")]
    assert "".join(one[2] for one in islice(traces.around(patches, 5), 4)) == "cabc"
