"""docs/SCALING.md shows the results of tools/scaling.py, and the results match its sentences."""

from dataclasses import replace
from pathlib import Path

import pytest

from tools import scaling


def test_the_page_has_the_tables_of_the_program() -> None:
    assert scaling.main(["--check"]) == 0


def test_a_page_with_other_tables_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = scaling.PAGE.read_text(encoding="utf-8").replace("| cells | 1 |", "| cells | 2 |")
    page = tmp_path / "SCALING.md"
    page.write_text(other, encoding="utf-8")
    monkeypatch.setattr(scaling, "PAGE", page)
    assert scaling.main(["--check"]) == 1


def test_twice_the_people_need_twice_the_servers_and_no_more_memory_of_nats() -> None:
    """NATS indexes every existing document, open or not."""
    load, costs = scaling.ScalingLoad(), scaling.Costs()
    once, twice = scaling.needs(load, costs), scaling.needs(replace(load, editors=2 * load.editors), costs)
    assert twice.server_cores == pytest.approx(2 * once.server_cores)
    assert twice.server_bytes == pytest.approx(2 * once.server_bytes)
    assert twice.nats_bytes == once.nats_bytes


def test_a_load_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """30 editors in 10 documents, 6 of them typing twice a second."""
    found = scaling.needs(scaling.ScalingLoad(documents=10, editors=30), scaling.Costs())
    assert (found.open_documents, found.updates, found.deliveries) == (10, 12, 48)
    assert found.server_cores * 0.6e6 == pytest.approx(12 * (161 + 166) + 10 / 1200 * 1012 + 10 * 13.1)
    assert (found.streams, found.cells) == (1, 1)
    assert scaling.main(["--documents", "10", "--editors", "30"]) == 0
    assert "| documents open | 10 |" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["0", "-1", "nan", "inf", "much"])
def test_what_is_no_number_is_refused(word: str) -> None:
    with pytest.raises(SystemExit):
        scaling.main(["--editors", word])


@pytest.mark.parametrize("words", ["--per-document 0.5", "--typing 1.5", "--use 2", "--use 0"])
def test_what_cannot_be_is_refused_with_its_bounds(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Half an editor would get deliveries below zero."""
    with pytest.raises(SystemExit):
        scaling.main(words.split())
    assert f"{words} is not between " in capsys.readouterr().err
