"""Every kind of bad update gets exactly its answer from a real server process, and the server goes on."""

import os
from dataclasses import replace

import pytest

import lorogo_client
from lorogo_protocol.errors import InvalidDocumentId
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.replies import Ack, Nack, Reply
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.e2e.support import servers
from tests.server.support import Probe, Writer


async def _wrong_digest(probe: Probe) -> Reply:
    (chunk,) = probe.split(Writer().type("x"))
    await probe.put("doc", [replace(chunk, digest="1")])
    return await probe.answer()


async def _missing_chunk(probe: Probe) -> Reply:
    first, _, *rest = probe.split(Writer().type("x" * 500), size=100)
    await probe.put("doc", [first, *rest])
    return await probe.answer()


async def _missing_dependencies(probe: Probe) -> Reply:
    writer = Writer()
    writer.type("never sent")
    return await probe.send("doc", writer.type("builds on it"))


async def _older_than_the_history(probe: Probe) -> Reply:
    writer = Writer()
    await probe.accept("old", writer.type("first "))
    offline = Writer(writer.everything())
    stale = offline.type("made offline long ago ")
    await probe.accept("old", writer.type("second "))
    await probe.call("compact", "old")
    return await probe.send("old", stale)


async def test_each_bad_update_gets_its_answer(fresh_nats: EmbeddedNats) -> None:
    """The reasons of docs/PROTOCOL.md, one by one; a good update is accepted after each."""
    url = fresh_nats.url
    async with servers(url) as start, await connect(url, name="probe") as line, Probe(line) as probe:
        await start(history_seconds=0)
        await probe.start("doc")
        await probe.start("old")
        print()
        for name, reason, reply in (
            ("wrong digest", "digest-mismatch", await _wrong_digest(probe)),
            ("missing chunk", "chunk-missing", await _missing_chunk(probe)),
            ("100 MiB", "too-large", await probe.send("doc", os.urandom(100 << 20))),
            ("random bytes", "invalid-update", await probe.send("doc", os.urandom(1000))),
            ("missing dependencies", "missing-dependencies", await _missing_dependencies(probe)),
            ("older than the kept history", "history-trimmed", await _older_than_the_history(probe)),
        ):
            assert isinstance(reply, Nack)
            assert reply.reason.value == reason
            good = await probe.send("doc", Writer().type("good"))
            assert isinstance(good, Ack)
            print(f"{name:28} NACK {reply.reason.value:22} ({reply.message}); next update: ACK")
        async with lorogo_client.connect(url) as client:
            for bad in ("a.b", "*", ">", "", "a b", "-a", "_kv_epoch", "x" * 129):
                with pytest.raises(InvalidDocumentId) as no:
                    await client.open(bad).__aenter__()
                print(f"id {bad[:20]!r:24} {no.value.problem}")
        answer = await probe.bus.request(subjects.init("-raw"), b"operation", timeout=5)
        print(f"init of '-raw' by hand        {answer.headers[h.REASON]}: {answer.headers[h.MESSAGE]}")
        assert answer.headers[h.REASON]
