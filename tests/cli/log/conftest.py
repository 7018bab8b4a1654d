"""The commands of a log, in this process."""

from pathlib import Path

import pytest

from lorogo_cli.log import survey
from tests.cli.logs import Cli

COMMANDS = [
    ["ls"],
    ["verify"],
    ["dump"],
    ["tail"],
    ["repair"],
    ["repair", "--apply"],
    ["export", "--to", "x.parquet"],
]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command. Most tests have no writer, so a second survey need not wait for one."""
    monkeypatch.setattr(survey, "_LOOK_SECONDS", 0.0)
    return Cli(capsys)


@pytest.fixture(params=COMMANDS, ids=" ".join)
def command(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each command that reads a log, without its directory."""
    if request.param[0] == "export":
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    asked: list[str] = request.param
    return asked
