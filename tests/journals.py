"""A journal in memory, for servers whose tests are not about the disk."""

from pathlib import Path
from typing import TypedDict

from lorogo_log import MemoryStorage


class Kept(TypedDict):
    """Where a server keeps its journal."""

    data: Path
    storage: MemoryStorage


def in_memory() -> Kept:
    """For `Server(..., **in_memory())`."""
    return {"data": Path("data"), "storage": MemoryStorage()}
