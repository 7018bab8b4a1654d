"""The event log of a writer's incarnation: one JSON line per event, written before the writer continues.

The first line identifies the writer and its incarnation. A mark names one edit: `WRITER.INCARNATION.NUMBER`.
Marks are in the list `marks` of the document, beside the edited text: a lost edit is missing there, and an
edit applied twice is there twice. A last line that a kill cut short is ignored.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

MARKS = "marks"  # a list of the document
BODY = "body"  # its text

Kind = Literal["wrote", "stored", "acked", "dropped", "trouble", "seen"]
_KINDS: tuple[Kind, ...] = ("wrote", "stored", "acked", "dropped", "trouble", "seen")


@dataclass(frozen=True, slots=True)
class WriterEvent:
    """One event of a document."""

    kind: Kind
    at: float  # of the machine's monotonic clock, which all processes share
    document: str
    number: int = 0  # of the edit; with `stored`, `acked` and `dropped`: this one and all before it
    words: str = ""  # of an error; with `seen`: the digest of the replica


@dataclass
class WriterRun:
    """One incarnation of a writer, from its start to its end."""

    writer: int
    incarnation: int
    stored: bool  # whether it has a local store
    began_at: float
    events: list[WriterEvent] = field(default_factory=list)
    ended_at: float | None = None  # killed, or ended; None: it runs

    def mark(self, number: int) -> str:
        return mark(self.writer, self.incarnation, number)


def mark(writer: int, incarnation: int, number: int) -> str:
    """Return the mark of an edit in the document."""
    return f"{writer}.{incarnation}.{number}"


class EventLog:
    """Appends a writer's events; the kernel has the line when a call returns."""

    def __init__(self, path: Path, *, writer: int, incarnation: int, stored: bool) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._clock: Callable[[], float] = time.monotonic
        self._line(["life", self._clock(), writer, incarnation, stored])

    def record(self, kind: Kind, document: str, number: int = 0, words: str = "") -> None:
        line: list[object] = [kind, self._clock(), document, number]
        self._line([*line, words] if words else line)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _line(self, values: list[object]) -> None:
        data = json.dumps(values, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self._file, data) :]


class EventLogReader:
    """Reads the file of one incarnation as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._torn = b""
        self.incarnation: WriterRun | None = None  # None: the file is empty

    def read_new(self) -> list[WriterEvent]:
        """Return the events since the last call; they are in `incarnation.events`, too."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._torn = (self._torn + data).split(b"\n")
        found: list[WriterEvent] = []
        for values in _values(lines):
            if values[0] == "life":
                self.incarnation = WriterRun(
                    int(values[2]), int(values[3]), bool(values[4]), float(values[1])
                )
            elif self.incarnation is not None and values[0] in _KINDS:
                found.append(_note(values))
        if self.incarnation is not None:
            self.incarnation.events += found
        return found


def read(path: Path) -> WriterRun | None:
    """Return the incarnation in a file; None if the file is empty."""
    reading = EventLogReader(path)
    reading.read_new()
    return reading.incarnation


def _values(lines: list[bytes]) -> Iterator[list[Any]]:
    for line in lines:
        values = json.loads(line)
        assert isinstance(values, list)
        yield values


def _note(values: list[Any]) -> WriterEvent:
    kind, at, document, number, *words = values
    return WriterEvent(kind, float(at), str(document), int(number), str(words[0]) if words else "")
