"""Loads that fail or end early, and stops: the status afterwards, and how soon."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from lorogo_log import read_file
from lorogo_protocol import lease as rules
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.replies import Ack
from lorogo_protocol.status import Down, Failed, Starting, Up
from lorogo_server.document import host_loop, loading, startup
from lorogo_server.document.loading import Loaded
from lorogo_server.ownership.lease import Lease
from lorogo_transport.errors import Disconnected, TransportError
from lorogo_transport.nats import api
from tests.server.support import QUICK, Probe, Writer, until
from tests.server.worlds import PATIENCE, World


async def load_until_up_or_condemned(probe: Probe, times: int) -> list[StatusEntry]:
    """Have it loaded as a client does whose loads fail; the status after each."""
    seen: list[StatusEntry] = []
    entry = await probe.statuses.read("doc")
    while len(seen) < times and not (entry is not None and isinstance(entry.status, Failed | Up)):
        wish = rules.wish(entry, seen_seconds=1e9)
        assert isinstance(wish, rules.RequestStart)
        before = "" if entry is None else entry.trace
        operation = await probe.move("doc", wish.retry_count)
        await probe.init("doc", operation.encode())

        async def ended(before: str = before) -> StatusEntry | None:
            now = await probe.status("doc")
            done = isinstance(now.status, Down | Failed | Up) or now.trace not in ("", before)
            return now if done else None

        entry = await until(ended)
        seen.append(entry)
    return seen


async def test_a_damaged_snapshot_ends_in_error(memory: World) -> None:
    """Bytes that are gone do not come back by trying: after the retries a person must look."""
    first, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    await probe.accept("doc", Writer().type("gone"))
    await probe.call("compact", "doc")
    await first.stop()
    snapshots = probe.transport.stream(subjects.SNAPSHOT_STREAM)
    await snapshots.purge(f"$O.{subjects.SNAPSHOT_BUCKET}.C.>")
    await memory.server(replace(QUICK, retries_max=1))
    entries = await load_until_up_or_condemned(probe, 5)
    assert len(entries) == 3
    status = entries[-1].status
    assert isinstance(status, Failed)
    assert status.trace_id == entries[-2].trace


@pytest.mark.parametrize(
    "problem",
    [
        Disconnected("there is no connection"),
        api.error_of("s", {"err_code": 10008, "description": "JetStream system temporarily unavailable"}),
        api.error_of("s", {"err_code": 10009, "description": "JetStream cluster can not handle request"}),
    ],
    ids=["no connection", "no quorum", "no leader"],
)
async def test_a_lost_connection_is_no_failed_load(
    memory: World, monkeypatch: pytest.MonkeyPatch, problem: TransportError
) -> None:
    """However often: the document is DOWN and may be tried again, and it is never given up."""
    load, lost = loading.load, 0

    async def cut_off(*arguments: Any, **options: Any) -> Loaded:
        nonlocal lost
        if lost < 5:
            lost += 1
            raise problem
        return await load(*arguments, **options)

    monkeypatch.setattr(startup, "load", cut_off)
    await memory.server(replace(QUICK, retries_max=1))
    entries = await load_until_up_or_condemned(memory.probe, 10)
    assert [type(entry.status) for entry in entries] == [Down, Down, Down, Down, Down, Up]


async def test_a_connection_lost_while_loading_is_no_failed_load_either(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DOWN is written as soon as the connection is back."""
    load, write_down, tried = loading.load, Lease.write_down, asyncio.Event()
    _, line = await memory.server(replace(QUICK, retries_max=1))
    probe = memory.probe

    async def cut_off(*arguments: Any, **options: Any) -> Loaded:
        line.cut()
        return await load(*arguments, **options)

    async def noted(self: Lease, *, owed: bool = False) -> None:
        try:
            await write_down(self, owed=owed)
        finally:
            tried.set()

    monkeypatch.setattr(startup, "load", cut_off)
    monkeypatch.setattr(Lease, "write_down", noted)
    operation = await probe.move("doc")
    await probe.init("doc", operation.encode())
    async with asyncio.timeout(PATIENCE):
        await tried.wait()
    assert isinstance((await probe.status("doc")).status, Starting)
    line.heal()

    async def down() -> bool:
        return isinstance((await probe.status("doc")).status, Down)

    await until(down)
    monkeypatch.setattr(startup, "load", load)
    await probe.start("doc")


class StuckLoad:
    """A load that never ends, for the documents named."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *document_ids: str) -> None:
        self.begun = asyncio.Event()
        self._load = loading.load
        self._stuck = set(document_ids)
        monkeypatch.setattr(startup, "load", self)

    async def __call__(self, request: loading.LoadRequest) -> Loaded:
        if request.document_id in self._stuck:
            self._stuck.discard(request.document_id)  # the next load of it goes well
            self.begun.set()
            await asyncio.Event().wait()
        return await self._load(request)

    async def begin(self, probe: Probe, document_id: str) -> None:
        """Have the document loaded, until it is stuck."""
        operation = await probe.move(document_id)
        await probe.init(document_id, operation.encode())
        async with asyncio.timeout(PATIENCE):
            await self.begun.wait()


async def test_a_load_that_takes_too_long_has_an_error_message(
    memory: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has failed like any other that failed, with its reason; the next one may go well."""
    stuck = StuckLoad(monkeypatch, "doc")
    server, _ = await memory.server(replace(QUICK, load_seconds_max=0.1))
    await stuck.begin(memory.probe, "doc")

    async def failed() -> bool:
        return server.context.counters.load_failures == 1

    await until(failed)
    assert "it was not loaded in 0.1 s" in caplog.text
    await memory.probe.start("doc")


async def test_a_server_that_stops_while_it_loads_says_down_at_once(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits neither for the load nor for its own deadline, and no failure is counted."""
    stuck = StuckLoad(monkeypatch, "doc")
    server, _ = await memory.server(replace(QUICK, stop_seconds=60.0))
    await stuck.begin(memory.probe, "doc")
    async with asyncio.timeout(PATIENCE):
        await server.stop()
    assert isinstance((await memory.probe.status("doc")).status, Down)
    assert server.stats()["load_failures"] == 0


async def test_a_server_that_loses_a_document_stops_loading_it(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place among those that load is free for others, and the document may be taken again."""
    stuck = StuckLoad(monkeypatch, "doc")
    server, _ = await memory.server(replace(QUICK, loads_max=1))
    probe = memory.probe
    await stuck.begin(probe, "doc")
    operation = await probe.move("doc")  # a client took it for stale
    await probe.start("other")
    answer = await probe.init("doc", operation.encode())
    assert answer.headers[h.SERVER] == server.server_id
    await probe.until_up("doc")
    assert server.stats()["load_failures"] == 0


async def test_a_stop_under_a_flood_finishes_what_was_queued_and_no_more(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later update is in the stream: the next owner takes and answers it."""
    monkeypatch.setattr(host_loop, "_TURN_SECONDS", 0.0)  # one message a turn
    first, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    host = first.hosts["doc"]
    before = [chunk for _ in range(3) for chunk in probe.split(writer.type("a"))]
    after = [chunk for _ in range(3) for chunk in probe.split(writer.type("b"))]

    async def queued(count: int) -> None:
        async def there() -> bool:
            return len(host.backlog) == count

        await until(there)

    async with host.busy:
        await probe.put("doc", before)
        await queued(3)
        host.stop("stopped by the test")
        await probe.put("doc", after)
        await queued(6)
    async with asyncio.timeout(PATIENCE):
        await host.closed.wait()
    assert isinstance((await probe.status("doc")).status, Down)
    assert [(await probe.answer()).log_id for _ in before] == [chunk.log_id for chunk in before]
    await probe.bus.barrier()
    assert probe.replies.empty()
    await probe.start("doc")
    assert await probe.value("doc") == {"body": "aaabbb"}
    answered: set[str] = set()
    while not answered >= {chunk.log_id for chunk in after}:
        reply = await probe.answer()
        assert isinstance(reply, Ack)
        answered.add(reply.log_id)


async def test_interrupted_loads_are_no_failures_of_the_document(memory: World) -> None:
    """A document whose loads were interrupted more than three times is loaded: the count restarts at 0."""
    await memory.server(replace(QUICK, retries_max=3))
    probe = memory.probe
    operation = await probe.move("doc", 4)
    await probe.init("doc", operation.encode())
    entry = await probe.status("doc")
    assert isinstance(entry.status, Starting | Up)
    assert isinstance(entry.status, Up) or entry.status.retry_count == 0
    assert isinstance((await probe.until_up("doc")).status, Up)


@pytest.mark.parametrize("foreign", [False, True], ids=["our client", "a client that drops our headers"])
async def test_only_failed_loads_lead_to_error(
    memory: World, monkeypatch: pytest.MonkeyPatch, foreign: bool
) -> None:
    """A load that ran and failed is counted in LORO_FAILURES; more than the limit are ERROR."""

    async def fails(*_: Any, **__: Any) -> Loaded:
        raise loading.DocumentLoadFailed("its bytes are gone")

    monkeypatch.setattr(startup, "load", fails)
    await memory.server(replace(QUICK, retries_max=1))
    memory.probe.foreign = foreign
    entries = await load_until_up_or_condemned(memory.probe, 5)
    assert [type(entry.status) for entry in entries] == [Starting, Starting, Failed]
    assert [entry.failures for entry in entries] == [1, 2, 2]


async def test_a_load_that_the_connection_interrupted_has_not_failed(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the connection was lost meanwhile, also a load that fails by itself ends with DOWN."""
    _, line = await memory.server(replace(QUICK, retries_max=0))

    async def fails(*_: Any, **__: Any) -> Loaded:
        line.cut()
        line.heal()
        raise loading.DocumentLoadFailed("it was not loaded in time")

    monkeypatch.setattr(startup, "load", fails)
    entries = await load_until_up_or_condemned(memory.probe, 3)
    assert [type(entry.status) for entry in entries] == [Down, Down, Down]


async def test_a_load_is_noted_on_the_disk_while_it_runs(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note is there before the load begins, and gone after it."""
    server, _ = await memory.server()
    assert server.journal is not None
    directory, load, noted = server.journal.directory, loading.load, []

    async def looked(*arguments: Any, **options: Any) -> Loaded:
        noted.append(json.loads(read_file(directory, "loads"))["loading"])
        return await load(*arguments, **options)

    monkeypatch.setattr(startup, "load", looked)
    await memory.probe.start("doc")
    assert noted == [["doc"]]
    await until(lambda: _true_when(json.loads(read_file(directory, "loads"))["loading"] == []))


async def _true_when(true: bool) -> bool:
    return true
