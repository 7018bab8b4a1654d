"""Stores in tests: a crash is a copy of the directory as it is on the disk."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from lorogo_client import Client, ClientSettings
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import QUICK, client_of

__all__ = ["crashed", "files", "holding", "offline", "size_of"]


def crashed(store: Path) -> Path:
    """What a process that is killed now would find when it comes back.

    The log's threads may be at work: a copy counts if nothing changed while it was made.
    """
    number = 1
    while (image := store.with_name(f"{store.name}-{number}")).exists():
        number += 1
    for _ in range(100):
        before = _listing(store)
        with suppress(shutil.Error, OSError):
            shutil.copytree(store, image)
            if _listing(store) == before:
                return image
        shutil.rmtree(image, ignore_errors=True)
    raise AssertionError(f"{store} never stood still")


def _listing(store: Path) -> list[tuple[str, int, int]]:
    found = []
    with suppress(FileNotFoundError):
        for path in sorted(store.rglob("*")):
            facts = path.stat()
            found.append((path.name, facts.st_size, facts.st_mtime_ns))
    return found


@asynccontextmanager
async def offline(
    world: MemoryNats, store: Path, settings: ClientSettings = QUICK, seed: int = 1
) -> AsyncIterator[Client]:
    """A client with a store and without a connection."""
    transport = world.connect("offline")
    transport.cut()
    async with client_of(world, settings, transport=transport, seed=seed, store=store) as client:
        yield client


def files(store: Path, pattern: str) -> list[Path]:
    return sorted(store.glob(pattern))


def holding(store: Path, text: bytes) -> list[Path]:
    """The segments with these bytes in them."""
    return [path for path in files(store, "*.seg") if text in path.read_bytes()]


def size_of(store: Path) -> int:
    total = 0
    for path in store.rglob("*"):
        with suppress(FileNotFoundError):  # cleaned away meanwhile
            total += path.stat().st_size if path.is_file() else 0
    return total
