"""Async generators, item by item, for a caller that knows no loop."""

import threading
from collections.abc import AsyncGenerator

import pytest

from lorogo_pipeline.spark.async_bridge import once, pumped
from lorogo_protocol.errors import LorogoError


async def _numbers(count: int, said: list[str]) -> AsyncGenerator[int, None]:
    try:
        for number in range(count):
            said.append(f"made {number}")
            yield number
    finally:
        said.append("closed")


async def _failing() -> AsyncGenerator[int, None]:
    yield 1
    raise LorogoError("this went wrong")


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "lorogo source"]


def test_all_items() -> None:
    """Every item comes, in order; then the generator is closed and its thread has ended."""
    said: list[str] = []
    assert list(pumped(_numbers(100, said))) == list(range(100))
    assert said[-1] == "closed"
    assert _threads() == []


def test_no_more_than_a_few_ahead() -> None:
    """A caller that takes one item has at most a few made for it."""
    said: list[str] = []
    items = pumped(_numbers(100, said))
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert len([word for word in said if word.startswith("made")]) <= 3
    assert said[-1] == "closed"
    assert _threads() == []


def test_a_failure() -> None:
    """An exception of the generator is raised in the consumer."""
    items = pumped(_failing())
    assert next(items) == 1
    with pytest.raises(LorogoError, match="this went wrong"):
        next(items)
    assert _threads() == []


async def _forever() -> None:
    import asyncio  # noqa: PLC0415

    await asyncio.Event().wait()


def test_a_deadline() -> None:
    """Work that never ends is given up, with a sentence."""
    with pytest.raises(LorogoError, match=r"within 0\.01 s"):
        once(_forever(), seconds=0.01)
