"""The current input of a fuzzing process, in shared memory: `run.py` reads it when the process is gone or
stuck.
"""

import mmap
import struct
from pathlib import Path
from typing import Self

_HEAD = struct.Struct("<QI")


class Slate:
    """The number of inputs tried so far, and the present one."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    @classmethod
    def create(cls, path: Path, bytes_max: int) -> Self:
        path.write_bytes(bytes(_HEAD.size + bytes_max))
        return cls(path)

    def write(self, executions: int, data: bytes) -> None:
        _HEAD.pack_into(self._map, 0, executions, len(data))
        self._map[_HEAD.size : _HEAD.size + len(data)] = data

    @property
    def executions(self) -> int:
        return int(_HEAD.unpack_from(self._map)[0])

    @property
    def data(self) -> bytes:
        size = _HEAD.unpack_from(self._map)[1]
        return self._map[_HEAD.size : _HEAD.size + size]

    def close(self) -> None:
        self._map.close()
