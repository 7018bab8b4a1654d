"""A closed server on a closed NATS, and clients that have a token and nothing else."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import nanoid
import pytest
from loro import ExportMode, LoroDoc

from lorogo_protocol import limits
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server import Server
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import PermissionDenied
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.rpc.calls import Caller
from tests.security.closed import Closed, closed_nats, mint
from tests.server.support import QUICK

pytestmark = pytest.mark.nats

SETTINGS = replace(QUICK, durability="stream", unfinished_seconds=60.0)


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    async with closed_nats(tmp_path) as made, Server(made.server, SETTINGS, authority=made.authority):
        yield made


@asynccontextmanager
async def client(closed: Closed, token: str) -> AsyncIterator[tuple[JetStreamTransport, Caller]]:
    """A token's connection, which has the document served and calls its owner."""
    async with await connect(closed.url, name="client", token=token) as transport:
        caller = Caller(transport.bus, SystemClock(), nanoid.generate)
        await caller.start()
        await transport.bus.barrier()
        yield transport, caller
        await caller.close()


async def start(transport: JetStreamTransport, document_id: str) -> None:
    """An empty body: the server makes the STARTING move."""
    up = asyncio.Event()
    status = await transport.bus.subscribe(
        subjects.status(document_id), lambda message: up.set() if message.data.startswith(b"UP") else None
    )
    await transport.bus.barrier()
    answer = await transport.bus.request(subjects.init(document_id), timeout=10)
    assert h.REASON not in answer.headers
    async with asyncio.timeout(10):
        await up.wait()
    await status.close()


def large(size: int) -> bytes:
    """A snapshot of so many bytes at least."""
    doc = LoroDoc()
    doc.get_map("m").insert("blob", random.Random(1).randbytes(size))
    doc.commit()
    return bytes(doc.export(ExportMode.Snapshot()))


async def test_long_calls_both_ways_with_nothing_but_a_token(closed: Closed) -> None:
    """Requests and replies above a window need its acknowledgement, which the rights of 0016 allow."""
    token = mint({"doc": "write"})
    snapshot = large(3 * limits.WINDOW_BYTES)
    async with client(closed, token) as (transport, caller):
        await start(transport, "doc")
        receipt = await caller.call("import", "doc", {"payload": snapshot}, timeout=20, token=token)
        assert receipt["sequence"]
        answer = await caller.call("sync", "doc", {}, timeout=20, token=token)
    payload = answer["payload"]
    assert isinstance(payload, bytes)
    assert len(payload) > 2 * limits.WINDOW_BYTES
    doc = LoroDoc()
    doc.import_(payload)
    assert doc.get_map("m").get("blob").value == random.Random(1).randbytes(3 * limits.WINDOW_BYTES)  # type: ignore[union-attr]  # it is a value


async def test_nats_and_the_owner_each_refuse_what_they_can_see(closed: Closed) -> None:
    """NATS refuses by the subject at once; the owner refuses by the body and the token."""
    reader = mint({"doc": "read"})
    async with client(closed, reader) as (transport, caller):
        await start(transport, "doc")
        async with asyncio.timeout(10):
            for verb in ("patch", "compact", "delete"):
                with pytest.raises(PermissionDenied):
                    await caller.call(verb, "doc", timeout=60, token=reader)
        for token in ("", mint({"other": "admin"}), mint({"doc": "read"}, seconds=-60)):
            with pytest.raises(Refused) as caught:
                await caller.call("get", "doc", timeout=10, token=token)
            assert caught.value.reason is Reason.PERMISSION_DENIED
        with pytest.raises(Refused) as caught:
            await caller.call("fork", "doc", {"to": "copy"}, timeout=10, token=reader)
        assert caught.value.reason is Reason.PERMISSION_DENIED


async def test_naming_the_inbox_of_a_service_gives_nothing(closed: Closed) -> None:
    """The answer to a sync without a token goes to the named inbox, which the caller may not read."""
    reader = mint({"doc": "read"})
    async with client(closed, reader) as (transport, _):
        await start(transport, "doc")
        received: list[str] = []
        refused: list[str] = []
        transport.bus.watch_refusals(lambda refusal: refused.append(refusal.subject))
        for inbox in (subjects.SERVER_INBOX, subjects.GATEWAY_INBOX, subjects.OPERATOR_INBOX):
            await transport.bus.subscribe(f"{inbox}.mine", lambda message: received.append(message.subject))
            await transport.bus.publish(subjects.call("sync", "doc"), reply=f"{inbox}.mine")
        await transport.bus.barrier()
        answer = await transport.bus.request(
            subjects.ping("doc"), timeout=10
        )  # behind the three, by the owner
        assert not answer.data
        await closed.server.bus.barrier()
        await transport.bus.barrier()
        assert refused == [f"{inbox}.mine" for inbox in ("_INBOX_srv", "_INBOX_gateway", "_INBOX_operator")]
        assert received == []


async def test_hostile_inits_do_nothing(closed: Closed) -> None:
    """For a body with an operation, any text, or bytes, no server acquires the document and nothing is
    written.
    """
    reader = mint({"doc": "read"})
    status = closed.server.stream(subjects.STATUS_STREAM)
    async with client(closed, reader) as (transport, _):
        for body in (b"op", b"UP:evil:1", b"\xff\xfe", b"x" * 100_000, b"a b", b"\r\nPUB x 0\r\n"):
            answer = await transport.bus.request(subjects.init("doc"), body, timeout=10)
            assert answer.headers[h.REASON] == Reason.CONFLICT.value
        assert await status.last(subjects.status_key("doc")) is None
        await start(transport, "doc")


async def test_reset_over_nats(closed: Closed) -> None:
    """Admins may request a reset; NATS stops the request of any other user."""
    admin, writer = mint({"doc": "admin"}), mint({"doc": "write"})
    status = closed.server.stream(subjects.STATUS_STREAM)
    await status.append(subjects.status_key("doc"), b"ERROR:trace:1.000000000")
    async with client(closed, writer) as (transport, caller):
        with pytest.raises(PermissionDenied):
            await caller.ask(subjects.reset("doc"), timeout=60, token=writer)
    async with client(closed, admin) as (transport, caller):
        assert await caller.ask(subjects.reset("doc"), timeout=10, token=admin) == {"reset": True}
        assert await caller.ask(subjects.reset("doc"), timeout=10, token=admin) == {"reset": False}
        await start(transport, "doc")


async def test_an_update_and_its_answer(closed: Closed) -> None:
    """A writer's chunk into the WAL is ACKed to the inbox of its user."""
    writer = mint({"doc": "write"})
    async with client(closed, writer) as (transport, caller):
        await start(transport, "doc")
        answered: asyncio.Queue[bytes] = asyncio.Queue()
        inbox = transport.bus.new_inbox()
        await transport.bus.subscribe(inbox, lambda message: answered.put_nowait(message.data))
        doc = LoroDoc()
        doc.get_text("body").insert(0, "hello")
        doc.commit()
        update = bytes(doc.export(ExportMode.Snapshot()))
        for chunk in chunks.split(update, "u1", chunk_bytes_max=100_000, inbox=inbox):
            await transport.bus.publish(subjects.wal("doc"), chunk.data, headers=chunk.headers())
        async with asyncio.timeout(10):
            assert await answered.get() == b"ACK"
        answer = await caller.call("get", "doc", timeout=10, token=writer)
        assert answer["value"] == {"body": "hello"}


async def test_a_closed_run_logs_no_secret(closed: Closed, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a token, nor its signature, nor a seed; whatever was refused or broken."""
    caplog.set_level(logging.DEBUG)
    texts = [mint({"doc": "admin"}), mint({"doc": "read"}, seconds=-60), "nonsense-but-secret"]
    good = texts[0]
    async with client(closed, good) as (transport, caller):
        await start(transport, "doc")
        for token in texts:
            for verb in ("get", "patch", "compact", "delete", "fork"):
                with suppress(Refused, PermissionDenied):
                    await caller.call(verb, "doc", {"to": 7}, timeout=10, token=token)
        await transport.bus.publish("forbidden." + "x" * 50)
        await closed.nats.kill()
        await closed.nats.start()
    for secret in (*texts, *(text.rpartition(".")[2] for text in texts), *closed.seeds.values()):
        assert secret not in caplog.text
    assert "connection to NATS lost" in caplog.text
