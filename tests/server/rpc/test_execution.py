"""The work of calls: short work on the event loop, long work in a child, and nothing above its budget."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lorogo_protocol.limits import LOOP_WORK_MAX
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.rpc import execution
from lorogo_server.sandbox.work_meter import WorkMeter
from lorogo_server.values import document_value, patch, query
from lorogo_testing.memory_nats import MemoryNats
from tests.server.document.test_full import served
from tests.server.support import QUICK, until

QUICK_STREAM = replace(QUICK, durability="stream")


def doubling(times: int) -> list[object]:
    """Operations that double a list of lists so often."""
    return [
        {"op": "add", "path": "/m", "value": {"a": [1]}},
        *[{"op": "copy", "from": "/m/a", "path": "/m/a/-"}] * times,
    ]


Ran = Callable[[], list[bool]]


@pytest.fixture
def where_it_ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Any, str], Ran]:
    """True for each call of a function in the server's process; False for each in a child."""

    def watch(module: Any, name: str) -> Ran:
        inner: Callable[..., Any] = getattr(module, name)
        file, server = tmp_path / name, os.getpid()

        def noted(*arguments: Any) -> Any:
            with file.open("a") as to:
                to.write("loop\n" if os.getpid() == server else "child\n")
            return inner(*arguments)

        monkeypatch.setattr(module, name, noted)
        return lambda: [line == "loop" for line in file.read_text().split()]

    return watch


async def test_a_patch_above_its_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that doubles 22 times is refused, and the event loop does a small part of that work only."""
    spent, inner = list[int](), WorkMeter.spend

    def spend(meter: WorkMeter, units: int) -> None:
        inner(meter, units)
        spent.append(units)  # of the loop: a child's memory is its own

    monkeypatch.setattr(WorkMeter, "spend", spend)
    async with served(MemoryNats(), QUICK_STREAM) as (_, probe):
        with pytest.raises(Refused) as no:
            await probe.call("patch", "doc", operations=doubling(22))
    assert no.value.reason is Reason.PATCH_FAILED
    assert "too much" in str(no.value)
    assert LOOP_WORK_MAX // 2 < sum(spent) <= LOOP_WORK_MAX


async def test_a_long_patch_is_made_beside_the_loop_and_applied_once(
    where_it_ran: Callable[[Any, str], Ran],
) -> None:
    """A patch above the budget of the loop runs once more in a child, from the beginning."""
    ran = where_it_ran(patch, "apply_patch")
    async with served(MemoryNats(), QUICK_STREAM) as (_, probe):
        await probe.call("patch", "doc", operations=[{"op": "add", "path": "/n", "value": {"a": 1}}])
        assert ran() == [True]
        await probe.call("patch", "doc", operations=[{"op": "add", "path": "/l", "value": list(range(5000))}])
        assert ran() == [True, True, False]
        assert await probe.value("doc") == {"n": {"a": 1}, "l": list(range(5000))}


async def test_a_long_document_is_read_beside_the_loop(
    where_it_ran: Callable[[Any, str], Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`get` reads a document on the loop, and again in a child if its value is above the loop's budget."""
    ran = where_it_ran(document_value, "document_value")
    async with served(MemoryNats(), QUICK_STREAM) as (_, probe):
        value = list(range(5000))
        await probe.call("patch", "doc", operations=[{"op": "add", "path": "/l", "value": value}])
        assert await probe.value("doc") == {"l": value}
        assert ran() == [True]
        monkeypatch.setattr(execution, "LOOP_WORK_MAX", LOOP_WORK_MAX // 4)
        assert await probe.value("doc") == {"l": value}
        assert ran() == [True, True, False]


@pytest.mark.parametrize(
    ("expressions", "beside"), [(["$.n"], False), (["$.l[?@ > 0]"], True), ([f"${'.l' * 450}"] * 9, True)]
)
async def test_a_long_query_is_answered_beside_the_loop(
    where_it_ran: Callable[[Any, str], Ran], expressions: list[str], beside: bool
) -> None:
    """A query may take a second on a small value, and so may the parsing of its expressions."""
    async with served(MemoryNats(), QUICK_STREAM) as (_, probe):
        operation = {"op": "add", "path": "/l", "value": list(range(2000))}
        await probe.call("patch", "doc", operations=[operation])
        ran = where_it_ran(query, "query")
        await probe.call("get", "doc", paths=expressions)
    assert ran() == ([True, False] if beside else [True])


async def test_the_loop_executes_one_call_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many calls at once do not stop the event loop together."""
    turns, executed = [0], list[int]()
    inner = document_value.document_value

    def noted(*arguments: Any) -> Any:
        executed.append(turns[0])
        return inner(*arguments)

    async def count() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async with served(MemoryNats(), QUICK_STREAM) as (_, probe):
        await probe.start("doc")
        monkeypatch.setattr(document_value, "document_value", noted)
        counting = asyncio.ensure_future(count())
        await asyncio.gather(*(probe.call("get", "doc", paths=[f"$.a{number}"]) for number in range(5)))
        counting.cancel()
    assert len(set(executed)) == 5


async def test_a_call_that_waits_for_its_turn_sees_a_deletion() -> None:
    """It is refused as every later call is: no answer calls a deleted document empty."""
    async with served(MemoryNats(), QUICK_STREAM) as (server, probe):
        await probe.call("patch", "doc", operations=[{"op": "add", "path": "/n", "value": {"a": 1}}])
        async with server.context.call_turn:
            reading = asyncio.ensure_future(probe.call("get", "doc"))

            async def waits() -> bool:
                return bool(server.hosts["doc"].shared_calls)

            await until(waits)
            await probe.call("delete", "doc")
        with pytest.raises(Refused) as no:
            await reading
    assert no.value.reason is Reason.DELETED
