"""Header blocks of a hostile writer: nats-server checks none, and they spoil nothing but its own update.

Against the real nats-server with the streams as a closed server makes them; the writer has a token for one
document and a plain socket.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import nanoid
import pytest

from lorogo_protocol.messages import chunks, subjects
from lorogo_server import Server
from lorogo_transport.clock import SystemClock
from lorogo_transport.nats.connection import connect
from lorogo_transport.rpc.calls import Caller
from lorogo_transport.stores.republish import republished
from tests.security.closed import Closed, closed_nats, mint
from tests.security.test_owner import start
from tests.server.support import QUICK, Writer
from tests.transport.support import Collector

pytestmark = pytest.mark.nats

SETTINGS = replace(QUICK, durability="stream")
MINE, OTHERS = "mine", "others"


def block(*lines: str) -> bytes:
    return b"".join(f"{line}\r\n".encode() for line in ("NATS/1.0", *lines, ""))


STORED = {
    "no block": b"",
    "two bytes": b"NA",
    "three bytes": b"NAT",
    "no line end": b"NATS/1.0",
    "half a line end": b"NATS/1.0\r",
    "one line end": b"NATS/1.0\r\n",
    "only line feeds": b"NATS/1.0\nA: b\n\n",
    "not NATS": b"hello world",
    "a status": b"NATS/1.0 204 EOB\r\n\r\n",
    "a status without its end": b"NATS/1.0 204 EOB",
    "a status with half its end": b"NATS/1.0 204 EOB\r\n",
    "an error": b"NATS/1.0 503\r\n\r\n",
    "an error without its end": b"NATS/1.0 503  ",
    "not found, without its end": b"NATS/1.0 404 Message Not Found..",
    "too many, without its end": b"NATS/1.0 413 Too Many Results..",
    "a cut name": b"NATS/1.0\r\nNats-Seque..",
    "a cut value": b"NATS/1.0\r\nNats-Sequence: 4..",
    "half a character": b"NATS/1.0\r\nA: \xe2..",
    "an empty line within": b"NATS/1.0\r\nA: b\r\n\r\nC: d\r\n\r\n",
    "no text": b"NATS/1.0\r\nA: \x00\xff\r\n\xff\x00: b\r\n\r\n",
    "names that cannot be written": b"NATS/1.0\r\na b: c\r\nd: e\nf: g\r\nh: i\rj\r\n: k\r\n\r\n",
    "the stream's headers of a message": block(
        "Nats-Stream: loro-status",
        f"Nats-Subject: {subjects.wal(OTHERS)}",
        "Nats-Sequence: 1",
        "Nats-Time-Stamp: never",
        "Nats-Last-Sequence: 999",
    ),
    "the stream's headers at the end": block(
        "Nats-Num-Pending: 5", "Nats-UpTo-Sequence: 1", "Nats-Last-Sequence: 0", "Status: 204", ":status: 204"
    ),
    "in other letters": block("nats-sequence: 1", "NATS-SUBJECT: x"),
    "headers of a bucket": block("KV-Operation: PURGE", "Nats-Marker-Reason: Purge"),
    "a long one": block("A: " + "b" * 65_000),
    "very many lines": block(*(f"A{number}:" for number in range(7_000))),
    "an id": block("Nats-Msg-Id: 1"),
    "of a newer NATS": block("Nats-Required-Api-Level: 99", "Nats-Fast-Batch-Id: b"),
}

REFUSED = {  # by nats-server: too long for any stream, or not allowed by the configuration of ours
    "a longer one": block("A: " + "b" * 66_000),
    "one that fills the message": block("A: " + "b" * 1_048_500),
    "an id for the second time": block("Nats-Msg-Id: 1"),
    "roll up all": block("Nats-Rollup: all"),
    "roll up the document": block("Nats-Rollup: sub"),
    "another last sequence": block("Nats-Expected-Last-Sequence: 1"),
    "another last sequence of the subject": block("Nats-Expected-Last-Subject-Sequence: 999"),
    "another subject's": block(
        "Nats-Expected-Last-Subject-Sequence: 999",
        f"Nats-Expected-Last-Subject-Sequence-Subject: {subjects.wal(OTHERS)}",
    ),
    "another last id": block("Nats-Expected-Last-Msg-Id: z"),
    "another stream": block("Nats-Expected-Stream: z"),
    "a time to live": block("Nats-TTL: 1s"),
    "a life for ever": block("Nats-TTL: never"),
    "a schedule": block("Nats-Schedule: @every 1s", f"Nats-Schedule-Target: {subjects.wal(OTHERS)}"),
    "a schedule's end": block("Nats-Schedule-Next: purge", f"Nats-Scheduler: {subjects.wal(OTHERS)}"),
    "a counter": block("Nats-Incr: +1"),
    "a batch": block("Nats-Batch-Id: b", "Nats-Batch-Sequence: 1", "Nats-Batch-Commit: 1"),
    "a source": block(f"Nats-Stream-Source: x 1 > > {subjects.wal(OTHERS)}"),
}


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    async with closed_nats(tmp_path) as made:
        yield made


async def publish(closed: Closed, *blocks: bytes) -> None:
    """As a writer of one document, on a plain socket."""
    async with await closed.raw(mint({MINE: "write"})) as raw:
        for one in blocks:
            raw.say(f"HPUB {subjects.wal(MINE)} {len(one)} {len(one) + 4}\r\n".encode() + one + b"body\r\n")
        await raw.ping()
        assert raw.welcome
        assert raw.errors == []


async def stored(closed: Closed, messages: int) -> None:
    """Wait until the WAL has so many: JetStream confirms nothing here."""
    wal = closed.server.stream(subjects.WAL_STREAM)
    async with asyncio.timeout(10):
        while (await wal.state()).messages < messages:  # noqa: ASYNC110  # NATS sends no event for it
            await asyncio.sleep(0.01)


async def test_every_message_is_read_as_what_it_is(closed: Closed) -> None:
    """Stored headers do not change the subject, sequence, time or order that any kind of read returns."""
    wal, copies = closed.server.stream(subjects.WAL_STREAM), Collector()
    await closed.server.bus.subscribe(subjects.committed("*"), copies)
    await closed.server.bus.barrier()
    await wal.append(subjects.wal(OTHERS), b"first")
    await publish(closed, *STORED.values())
    await stored(closed, len(STORED) + 1)
    await wal.append(subjects.wal(OTHERS), b"last")

    numbers = range(2, len(STORED) + 2)
    batch = [message async for message in wal.read(subjects.wal(MINE))]
    assert [message.sequence for message in batch] == list(numbers)
    for name, message in zip(STORED, batch, strict=True):
        assert (message.subject, message.data) == (subjects.wal(MINE), b"body"), name
        assert not {"Nats-Sequence", ":status"} & set(message.headers), name
        one = await wal.get(message.sequence)
        assert one is not None
        assert (one.subject, one.time_ns, one.data) == (message.subject, message.time_ns, message.data), name
        assert await wal.next(subjects.wal(MINE), message.sequence) == one
    copied = [republished(copy).stored for copy in await copies.wait(len(STORED) + 2)]
    assert copied[1:-1] == batch
    names = [subjects.wal(MINE), subjects.wal(OTHERS)]
    newest = [(message.subject, message.sequence) async for message in wal.newest_of(names)]
    assert newest == [(subjects.wal(MINE), len(STORED) + 1), (subjects.wal(OTHERS), len(STORED) + 2)]
    others = [message.data async for message in wal.read(subjects.wal(OTHERS))]
    assert others == [b"first", b"last"]


async def test_no_header_does_anything_to_the_stream(closed: Closed) -> None:
    """Rolling up, expiring, scheduling, counting, batches: nothing is stored, and nothing else is gone."""
    wal = closed.server.stream(subjects.WAL_STREAM)
    await wal.append(subjects.wal(OTHERS), b"first")
    await publish(closed, STORED["an id"], *REFUSED.values(), STORED["no line end"])
    await stored(closed, 3)  # the last one is behind all that was refused
    assert (await wal.state()).last_sequence == 3
    assert [message.sequence async for message in wal.read(subjects.wal(MINE))] == [2, 3]
    assert [message.data async for message in wal.read(subjects.wal(OTHERS))] == [b"first"]


@pytest.mark.parametrize("served", [False, True], ids=["met by a load", "met live"])
async def test_a_document_is_served_whatever_a_writer_stored(closed: Closed, served: bool) -> None:
    """Updates of other writers before and after are there; the owner moves invalid messages out
    of the WAL.
    """
    token, writer, wal = mint({MINE: "write"}), Writer(), closed.server.stream(subjects.WAL_STREAM)
    rejected = closed.server.stream(subjects.REJECTED_STREAM)
    async with await connect(closed.url, name="client", token=token) as line:

        async def write(text: str) -> None:
            for chunk in chunks.split(writer.type(text), nanoid.generate(), chunk_bytes_max=10_000):
                await line.bus.publish(subjects.wal(MINE), chunk.data, headers=chunk.headers())
            await line.bus.barrier()

        async def spoil() -> None:
            await write("before ")
            await publish(closed, *STORED.values())
            await write("after")

        if not served:
            await spoil()
            await stored(closed, len(STORED) + 2)
        async with Server(closed.server, SETTINGS, authority=closed.authority):
            await start(line, MINE)
            if served:
                await spoil()
            async with asyncio.timeout(20):
                while await rejected.count(">") < len(STORED):  # noqa: ASYNC110  # NATS sends no event for it
                    await asyncio.sleep(0.02)
                while await wal.count(subjects.wal(MINE)) > 2:  # noqa: ASYNC110  # NATS sends no event for it
                    await asyncio.sleep(0.02)
            caller = Caller(line.bus, SystemClock(), nanoid.generate)
            await caller.start()
            answer = await caller.call("get", MINE, {}, timeout=10, token=token)
            await caller.close()
            assert answer["value"] == {"body": "before after"}
    assert await rejected.count(">") == len(STORED)
    assert b"body" not in [message.data async for message in wal.read(subjects.wal(MINE))]
