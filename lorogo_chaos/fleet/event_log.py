"""What a writer notes of its life: one JSON line for each thing, on the disk's way before it goes on.

The file of a life begins with who it is. A mark names one edit: `WRITER.LIFE.NUMBER`; it lies in the list
`marks` of the document beside the text that was edited, so that a lost edit is missing there, and one that
was applied twice is there twice. A last line that was torn by a kill says nothing and is passed over.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

MARKS = "marks"  # the list of a document
BODY = "body"  # its text

Kind = Literal["wrote", "stored", "acked", "dropped", "trouble", "seen"]
_KINDS: tuple[Kind, ...] = ("wrote", "stored", "acked", "dropped", "trouble", "seen")


@dataclass(frozen=True, slots=True)
class WriterEvent:
    """One thing that happened to a document."""

    kind: Kind
    at: float  # of the machine's monotonic clock, which all processes share
    document: str
    number: int = 0  # of the edit; with `stored`, `acked` and `dropped`: this one and all before it
    words: str = ""  # of trouble; with `seen`: the digest of the replica


@dataclass
class WriterRun:
    """A writer from its start to its end."""

    writer: int
    life: int
    stored: bool  # whether it has a local store
    began_at: float
    notes: list[WriterEvent] = field(default_factory=list)
    ended_at: float | None = None  # killed, or gone; None: it still runs

    def mark(self, number: int) -> str:
        return mark(self.writer, self.life, number)


def mark(writer: int, life: int, number: int) -> str:
    """What names an edit in the document."""
    return f"{writer}.{life}.{number}"


class EventLog:
    """Where a writer notes; a line is in the kernel's hands when a call returns."""

    def __init__(self, path: Path, *, writer: int, life: int, stored: bool) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._clock: Callable[[], float] = time.monotonic
        self._line(["life", self._clock(), writer, life, stored])

    def note(self, kind: Kind, document: str, number: int = 0, words: str = "") -> None:
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
    """Follows the file of one life as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._torn = b""
        self.life: WriterRun | None = None  # None: nothing is noted yet

    def more(self) -> list[WriterEvent]:
        """What was noted since the last call; it is in `life.notes` as well."""
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
                self.life = WriterRun(int(values[2]), int(values[3]), bool(values[4]), float(values[1]))
            elif self.life is not None and values[0] in _KINDS:
                found.append(_note(values))
        if self.life is not None:
            self.life.notes += found
        return found


def read(path: Path) -> WriterRun | None:
    """The whole life that a file tells of; None if it tells of none."""
    reading = EventLogReader(path)
    reading.more()
    return reading.life


def _values(lines: list[bytes]) -> Iterator[list[Any]]:
    for line in lines:
        values = json.loads(line)
        assert isinstance(values, list)
        yield values


def _note(values: list[Any]) -> WriterEvent:
    kind, at, document, number, *words = values
    return WriterEvent(kind, float(at), str(document), int(number), str(words[0]) if words else "")
