"""Whole workloads through client and server: a real paper typed, huge updates, thousands of documents.

Real processes, real NATS. Run with `-s` to see the figures.
"""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import lorogo_client
from lorogo_protocol.messages import subjects
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.e2e.support import eventually, servers, text_of
from tests.e2e.traces import trace
from tests.server.support import Probe, Writer

_DOCUMENTS = 2_000


async def test_a_paper_is_typed_compacted_and_read_by_a_fresh_client(fresh_nats: EmbeddedNats) -> None:
    """One update per 100 edits; the text equals what the trace ends with, before and after compaction."""
    url, paper = fresh_nats.url, trace("automerge-paper")
    async with servers(url) as start, lorogo_client.connect(url) as client:
        await start()
        began = time.monotonic()
        async with client.open("paper") as session:
            body = session.doc.get_text("body")
            for number, (position, deleted, inserted) in enumerate(paper.patches, start=1):
                if deleted:
                    body.delete(position, deleted)
                if inserted:
                    body.insert(position, inserted)
                if number % 100 == 0:
                    session.commit()
                    await asyncio.sleep(0)
            session.commit()
            await session.flush(timeout=60)
            assert body.to_string() == paper.end_content
        typed = time.monotonic() - began
        wal = client.transport.stream(subjects.WAL_STREAM)
        before = await wal.count(subjects.wal("paper"))
        report = await client.document("paper").compact()
        after = await wal.count(subjects.wal("paper"))
        began = time.monotonic()
        text = await text_of(url, "paper")
        opened = time.monotonic() - began
        print(
            f"\ntrace {paper.name}: {len(paper.patches)} edits typed in {typed:.1f} s;"
            f" text of a fresh client equals endContent: {text == paper.end_content} ({len(text)} characters,"
            f" opened in {opened * 1000:.0f} ms); WAL {before} -> {after} messages;"
            f" snapshot {report['snapshot_bytes']} bytes"
        )
        assert text == paper.end_content
        assert after == 1


async def test_twenty_mebibytes_go_through_in_chunks_also_interleaved(fresh_nats: EmbeddedNats) -> None:
    """One update of 20 MiB, then three clients' updates of 20 MiB at once, all whole."""
    url = fresh_nats.url
    async with servers(url) as start, AsyncExitStack() as stack:
        await start()
        clients = [await stack.enter_async_context(lorogo_client.connect(url)) for _ in range(3)]
        sessions = [await stack.enter_async_context(client.open("large")) for client in clients]
        began = time.monotonic()
        blob = os.urandom(20 << 20)
        sessions[0].doc.get_map("files").insert("alone", blob)
        sessions[0].commit()
        receipt = await sessions[0].flush(timeout=60)
        alone = time.monotonic() - began
        assert receipt is not None
        await eventually(lambda: all("alone" in session.doc.get_map("files") for session in sessions), 60)
        began = time.monotonic()
        for number, session in enumerate(sessions):
            session.doc.get_map("files").insert(f"client-{number}", os.urandom(20 << 20))
            session.commit()
        await asyncio.gather(*(session.flush(timeout=120) for session in sessions))
        together = time.monotonic() - began
        await eventually(lambda: all(len(session.doc.get_map("files")) == 4 for session in sessions), 120)
        wanted = sessions[0].doc.get_deep_value()
        assert all(session.doc.get_deep_value() == wanted for session in sessions)
        print(
            f"\n20 MiB update ACKed in {alone:.2f} s; three at once in {together:.2f} s; all replicas equal"
        )


async def test_a_hundred_mebibytes_are_too_large_and_the_server_goes_on(fresh_nats: EmbeddedNats) -> None:
    """The final chunk of 100 MiB gets `too-large`; the next update is accepted."""
    url = fresh_nats.url
    async with servers(url) as start, await connect(url, name="probe") as line, Probe(line) as probe:
        await start()
        await probe.start("huge")
        nack = await probe.refuse("huge", os.urandom(100 << 20))
        print(f"\n100 MiB: NACK {nack.reason.value}: {nack.message}")
        assert nack.reason.value == "too-large"
        await probe.accept("huge", Writer().type("still here"))


@pytest.mark.deep
async def test_two_thousand_documents_are_open_at_once_without_a_consumer(fresh_nats: EmbeddedNats) -> None:
    """Each is edited once on one server process; the stream has no consumer."""
    url = fresh_nats.url
    async with servers(url) as start, lorogo_client.connect(url) as client, AsyncExitStack() as stack:
        server = await start()
        empty = _resident(server.pid), _resident(fresh_nats.pid)
        began = time.monotonic()
        slots = asyncio.Semaphore(100)

        async def edit(number: int) -> None:
            async with slots:
                session = await stack.enter_async_context(client.open(f"doc-{number}", timeout=60))
                session.doc.get_text("body").insert(0, f"edited {number}")
                session.commit()
                assert await session.flush(timeout=60) is not None

        async with asyncio.TaskGroup() as group:
            for number in range(_DOCUMENTS):
                group.create_task(edit(number))
        took = time.monotonic() - began
        state = await client.transport.stream(subjects.WAL_STREAM).state()
        up = [document async for document, entry in client.statuses() if entry.server == server.server_id]
        full = _resident(server.pid), _resident(fresh_nats.pid)
        print(
            f"\n{len(up)} documents open on one server, each edited once, in {took:.1f} s;"
            f" consumers on the stream: {state.consumers};"
            f" server {empty[0]} -> {full[0]} MiB, nats-server {empty[1]} -> {full[1]} MiB"
        )
        assert len(up) == _DOCUMENTS
        assert state.consumers == 0
        assert state.messages == _DOCUMENTS


def _resident(pid: int) -> int:
    """MiB of memory that a process has, by the kernel's account."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0
