"""Tables: for people in a terminal, and for whatever reads a pipe."""

import sys

import pytest
from rich.console import Console

from lorogo_cli.render import output


@pytest.mark.parametrize("terminal", [False, True])
def test_a_table_without_names_has_no_header(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first line is its first row, and no empty one."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(output, "Console", lambda: Console(width=40, no_color=True, force_terminal=False))
    output.say_table(("", ""), [("edits", "2")])
    assert capsys.readouterr().out.split("\n")[0].split() == ["edits", "2"]
    output.say_table(("NAME", ""), [("edits", "2")])
    assert capsys.readouterr().out.split("\n")[0].split() == ["NAME"]
