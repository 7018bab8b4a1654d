"""A log on a disk and a log in memory: the same tests for both."""

from pathlib import Path

import pytest

from lorogo_log import FileStorage, MemoryStorage, Storage


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest) -> Storage:
    return FileStorage() if request.param == "file" else MemoryStorage()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "log")
