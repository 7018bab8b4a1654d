"""The parts of a page of docs/ that tests compare with the code: commands to type, rows of tables."""

import re
import shlex
from typing import Any

import typer

from lorogo_cli.app import app


def commands(text: str) -> list[list[str]]:
    """Every `lorogo ...` that stands in an indented line, in words; each once."""
    lines = re.findall(r"^    (lorogo [^#&\n]+)", text, re.MULTILINE)
    return [shlex.split(line) for line in dict.fromkeys(line.strip() for line in lines)]


def unknown_options(words: list[str]) -> set[str]:
    """The options of a command line that its command does not have. Asserts that there is such a command."""
    command: Any = typer.main.get_command(app)
    root, rest = command, words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    assert command is not root
    known = {name for parameter in command.params for name in parameter.opts}
    return {word for word in rest if word.startswith("--")} - known


def table(text: str, head: str) -> list[list[str]]:
    """The cells of the table that begins with this line, without its head."""
    begin = text.index(f"{head}\n") + len(head) + 1
    rows = text[begin:].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
