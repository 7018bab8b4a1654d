"""Output of the command: colours and spinners in a terminal, plain text and JSON elsewhere.

Results go to stdout, everything else to stderr.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lorogo_cli.render.values import show_json

_STATES = {"UP": "green", "STARTING": "yellow", "DOWN": "dim", "ERROR": "bold red"}


def say(text: str) -> None:
    """Print a result as a line of plain text."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Print a remark to stderr, in a terminal only."""
    if sys.stderr.isatty():
        Console(stderr=True, highlight=False).print(text, style="dim", markup=False)


def tell(words: str) -> None:
    """Print a line to stderr, also for scripts."""
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def say_json(value: object, *, pretty: bool = False) -> None:
    """Print a JSON value: on one line, or with `pretty` indented, with colours in a terminal."""
    if pretty and sys.stdout.isatty():
        Console().print_json(show_json(value))
    else:
        say(show_json(value, pretty=pretty))


def say_result(facts: object, words: str, *, as_json: bool) -> None:
    """Print a result: facts for scripts, or words for people."""
    if as_json:
        say_json(facts)
    else:
        say(words)


def say_facts(facts: Mapping[str, object] | Sequence[tuple[str, object]]) -> None:
    """Print names and values, a line each."""
    for name, value in facts.items() if isinstance(facts, Mapping) else facts:
        say(f"{name + ':':<14}{value}")


def say_row(*cells: tuple[str, object]) -> None:
    """Print a table of one row: the name and the value of each column."""
    columns, row = zip(*cells, strict=True)
    say_table(columns, [row])


def say_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, state: int | None = None) -> None:
    """Print a table; a terminal shows the column `state` in colours. Empty column names: no header."""
    named = any(columns)
    texts = [[str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        # no width limit: scripts and pagers get every character
        widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
        for row in (columns, *texts) if named else texts:
            say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    table = Table(box=None, show_header=named, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for text in texts:
        cells = [Text(cell) for cell in text]
        if state is not None:
            cells[state].stylize(_STATES.get(text[state], ""))
        table.add_row(*cells)
    Console().print(table)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner during long work, in a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(Text(what)):
        yield


@contextmanager
def progress_bar(*, in_bytes: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function (name, done, total) that shows progress, in a terminal only."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich import progress

    name = progress.TextColumn("{task.description}")
    shown = (name, progress.BarColumn(), progress.DownloadColumn(), progress.TransferSpeedColumn())
    columns = shown if in_bytes else progress.Progress.get_default_columns()
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, progress.TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield show


@contextmanager
def byte_progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of further bytes done, and shows them."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        show(what, done, total)

    with progress_bar(in_bytes=True) as show:
        yield advance
