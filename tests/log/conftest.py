"""A log on a disk, a log in memory, and a log without threads: the same tests for all."""

import asyncio
from pathlib import Path

import pytest

from lorogo_log import FileStorage, MemoryStorage, Storage
from tests.log.one_thread import OneThreadStorage, here


@pytest.fixture(params=["file", "memory", "one thread"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Storage:
    match request.param:
        case "file":
            return FileStorage()
        case "memory":
            return MemoryStorage()
        case _:
            monkeypatch.setattr(asyncio, "to_thread", here)
            return OneThreadStorage()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "log")
