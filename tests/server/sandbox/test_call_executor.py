"""The work of calls: short work on the event loop, long work in a thread, and nothing above its budget."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from loro import LoroDoc

from lorogo_protocol.limits import LOOP_WORK_MAX, PATCH_WORK_MAX
from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.sandbox import call_executor
from lorogo_server.sandbox.call_executor import CallExecutor, OverBudget, WorkMeter
from lorogo_server.values import document_value, parts, patch, query
from lorogo_testing.memory_nats import MemoryNats
from tests.server.document.test_full import served
from tests.server.support import QUICK

QUICK_STREAM = replace(QUICK, durability="stream")


def doubling(times: int) -> list[object]:
    """Operations that double a list of lists so often."""
    return [
        {"op": "add", "path": "/m", "value": {"a": [1]}},
        *[{"op": "copy", "from": "/m/a", "path": "/m/a/-"}] * times,
    ]


def where_it_ran(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[bool]:
    """True for each call of that function ran on the event loop's thread."""
    inner: Callable[..., Any] = getattr(module, name)
    ran: list[bool] = []

    def noted(*arguments: Any) -> Any:
        ran.append(threading.current_thread() is threading.main_thread())
        return inner(*arguments)

    monkeypatch.setattr(module, name, noted)
    return ran


async def test_a_patch_above_its_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that doubles 22 times is refused, and the event loop does a small part of that work only."""
    spent: dict[bool, int] = {True: 0, False: 0}  # by: on the loop
    inner = WorkMeter.spend

    def spend(meter: WorkMeter, units: int) -> None:
        spent[threading.current_thread() is threading.main_thread()] += units
        inner(meter, units)

    monkeypatch.setattr(WorkMeter, "spend", spend)
    async with served(MemoryNats(), QUICK_STREAM) as (_, probe):
        with pytest.raises(Refused) as no:
            await probe.call("patch", "doc", operations=doubling(22))
    assert no.value.reason is Reason.PATCH_FAILED
    assert "too much" in str(no.value)
    assert spent[True] <= LOOP_WORK_MAX + call_executor.CONTAINER_UNITS
    assert PATCH_WORK_MAX < spent[False] <= PATCH_WORK_MAX + call_executor.CONTAINER_UNITS


async def test_a_long_patch_is_made_beside_the_loop_and_applied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch above the budget of the loop runs once more in a thread, from the beginning."""
    ran = where_it_ran(monkeypatch, patch, "apply_patch")
    async with served(MemoryNats(), QUICK_STREAM) as (_, probe):
        await probe.call("patch", "doc", operations=[{"op": "add", "path": "/n", "value": {"a": 1}}])
        assert ran == [True]
        await probe.call("patch", "doc", operations=[{"op": "add", "path": "/l", "value": list(range(5000))}])
        assert ran == [True, True, False]
        assert await probe.value("doc") == {"n": {"a": 1}, "l": list(range(5000))}


async def test_a_long_document_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """`get` reads a small document on the loop, and a large one in a thread."""
    ran = where_it_ran(monkeypatch, document_value, "document_value")
    async with served(MemoryNats(), QUICK_STREAM) as (_, probe):
        assert await probe.value("doc") == {}
        assert ran == [True]
        value = list(range(5000))
        await probe.call("patch", "doc", operations=[{"op": "add", "path": "/l", "value": value}])
        ran.clear()
        assert await probe.value("doc") == {"l": value}
        assert ran == [True, False]


async def test_a_query_is_answered_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JSONPath expression on a small value may take a second, too."""
    ran = where_it_ran(monkeypatch, query, "query")
    async with served(MemoryNats(), QUICK_STREAM) as (_, probe):
        assert (await probe.call("get", "doc", paths=["$.n"]))["matches"] == [[]]
    assert ran == [False]


async def test_long_work_starts_again_on_a_copy_of_its_own() -> None:
    """Long work starts again on a copy of the document as it is when a thread is free."""
    executor, doc = CallExecutor(), LoroDoc()
    copies: list[Replica] = []

    def copy() -> Replica:
        copies.append(Replica(doc.fork()))
        return copies[-1]

    def work(replica: Replica, meter: WorkMeter) -> int:
        meter.spend(LOOP_WORK_MAX + 1)
        return len(replica.doc.get_text("t"))

    changed = asyncio.ensure_future(executor.run(work, on_loop=copy, copy=copy))
    doc.get_text("t").insert(0, "abc")
    doc.commit()
    assert await changed == 3
    assert len(copies) == 2  # the thread has one of its own, made when its turn came
    with pytest.raises(OverBudget):
        await executor.run(work, on_loop=copy, copy=copy, units_max=LOOP_WORK_MAX)


async def test_a_thread_gives_the_lock_up_every_few_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a thread pauses, so that the loop need not wait for the interpreter's lock."""
    paused: list[bool] = []  # on the loop
    main = threading.main_thread()
    monkeypatch.setattr(call_executor, "_pause", lambda: paused.append(threading.current_thread() is main))

    def work(_: Replica, meter: WorkMeter) -> None:
        for _number in range(LOOP_WORK_MAX // 1024 + 1):
            meter.spend(1024)

    await CallExecutor().run(work, on_loop=Replica, copy=Replica)
    assert len(paused) >= LOOP_WORK_MAX // (call_executor._PAUSE_UNITS + 1024)
    assert not any(paused)


async def test_short_queries_do_not_wait_for_long_calls() -> None:
    """A thread that one document keeps busy delays no query of a small document."""
    executor, busy, free = CallExecutor(), threading.Event(), threading.Event()

    def long(_: Replica, meter: WorkMeter) -> None:
        meter.spend(LOOP_WORK_MAX + 1)
        busy.set()
        assert free.wait(10)

    holding = asyncio.ensure_future(executor.run(long, on_loop=Replica, copy=Replica))
    assert await asyncio.to_thread(busy.wait, 10)
    assert await asyncio.wait_for(executor.in_thread(lambda: 1, units=LOOP_WORK_MAX), 10) == 1
    waiting = asyncio.ensure_future(executor.in_thread(lambda: 2, units=LOOP_WORK_MAX + 1))
    await asyncio.sleep(0)
    assert not waiting.done()
    free.set()
    await holding
    assert await waiting == 2


async def test_a_cancelled_call_keeps_its_thread_until_the_work_ends() -> None:
    """Calls that are cancelled cannot have more work under way than there are threads."""
    executor, busy, free = CallExecutor(), threading.Event(), threading.Event()

    def long(_: Replica, meter: WorkMeter) -> None:
        meter.spend(LOOP_WORK_MAX + 1)
        busy.set()
        assert free.wait(10)

    call = asyncio.ensure_future(executor.run(long, on_loop=Replica, copy=Replica))
    assert await asyncio.to_thread(busy.wait, 10)
    call.cancel()
    await asyncio.wait([call])
    for _ in range(5):
        await asyncio.sleep(0)
    assert executor._long.locked()
    behind = asyncio.ensure_future(executor.in_thread(lambda: 2, units=LOOP_WORK_MAX + 1))
    free.set()
    assert await behind == 2


@pytest.mark.parametrize("value", ["x" * 1024, b"x" * 1024, {"k" * 1024: 1}, [["x" * 1024]]])
def test_a_value_costs_at_least_its_characters(value: object) -> None:
    """Texts, bytes and keys, however deep they are."""
    assert call_executor.cost(value) >= 1024


@pytest.mark.parametrize("value", [{"$bytes": "AAAA" * LOOP_WORK_MAX}, {"k" * 1024: 1}])
def test_bytes_and_keys_are_counted_before_they_are_read(value: object) -> None:
    """Base64 and keys cost as many units as they have characters."""
    spent: list[int] = []
    parts.lift(value, 0, spent.append)
    assert sum(spent) >= len(str(value)) - 20
