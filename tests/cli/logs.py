"""Small logs for the tests of `lorogo log`, and the command run in this process."""

import json
from pathlib import Path
from typing import Any

import pytest

from lorogo_cli.app import run
from lorogo_log import BlockingLog, LogOptions
from lorogo_log.format.layout import SEGMENT_HEADER_BYTES
from lorogo_log.recovery.recovery import list_segments
from lorogo_log.storage.disk import DiskDirectory
from lorogo_log.storage.segment import Segment

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
NAMES = [b"doc-0", b"doc-1", b"doc-2"]


def write(path: Path, count: int, *, segment_bytes: int = 4096, first: int = 0) -> None:
    """A log of `count` records, one per second, one frame each, closed properly."""
    with BlockingLog(path, LogOptions(segment_bytes=segment_bytes, ahead_bytes=0)) as log:
        for number in range(first, first + count):
            log.append({"n": number}, key=NAMES[number % 3], ts=START + number * SECOND)


def segments(path: Path) -> list[Path]:
    """Its segments, in order."""
    return [path / entry.name for entry in list_segments(DiskDirectory(path))]


def frames(segment: Path) -> list[tuple[int, int]]:
    """The start and the end of each frame of a segment."""
    opened = Segment.open(DiskDirectory(segment.parent), segment.name)
    reading = opened.frames(SEGMENT_HEADER_BYTES, opened.end)
    places = []
    while reading.position < opened.end:
        start = reading.position
        reading.next()
        if reading.position == start:
            break
        places.append((start, reading.position))
    opened.close()
    return places


def flip(file: Path, at: int) -> None:
    """Turn one bit around."""
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def tree(path: Path) -> dict[str, bytes]:
    """Every byte of a directory; locks have none."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.suffix != ".lock"}


class Cli:
    """`lorogo log ...`, without a process of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str | Path) -> int:
        self._capsys.readouterr()
        code = run(["log", *map(str, arguments)])
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.err
        assert "unexpected error" not in self.err
        return code

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        assert self(*arguments, "--json") == code, (self.out, self.err)
        return json.loads(self.out)

    def lines(self, *arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
        assert self(*arguments) == code, (self.out, self.err)
        return [json.loads(text) for text in self.out.splitlines()]

    def refused(self, *arguments: str | Path) -> str:
        """The one sentence of a command that could not do it."""
        assert self(*arguments) == 2, (self.out, self.err)
        assert self.out == ""
        assert self.err.startswith("lorogo: "), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("lorogo: ").rstrip("\n")
