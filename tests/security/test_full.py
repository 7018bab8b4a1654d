"""A WAL that takes no more, where JetStream tells no writer: all still learn why, and lose nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from loro import LoroDoc
from websockets.asyncio.client import connect

import lorogo_client
from lorogo_client import ClientSettings, Session, State, StorageFull
from lorogo_gateway.frames import Status
from lorogo_gateway.server.app import Gateway
from lorogo_gateway.server.listener import listening
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.messages import subjects
from lorogo_server import Server, ServerSettings
from lorogo_server.compaction.wal_usage import WalUsage
from lorogo_transport.errors import OutcomeUnknown
from lorogo_transport.nats.connection import connect as nats
from tests.client.support import eventually, until_state
from tests.gateway.support import Peer, type_in
from tests.security.closed import Closed, closed_nats, mint

pytestmark = pytest.mark.nats

WAL_BYTES = 300_000
ROOMY = 50_000_000
QUICK = ClientSettings(reply_seconds=0.5, doubt_seconds=0.2, retry_seconds_max=0.3, close_seconds=0.1)
SECONDS = 30.0
WRITER = mint({"plan": "write"})
ADMIN = mint({"*": "admin"}, subject="root")


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    settings = ServerSettings(wal_bytes_max=WAL_BYTES, compact_wal_bytes=1 << 30)
    async with (
        closed_nats(tmp_path) as made,
        Server(made.server, settings, data=tmp_path / "server", authority=made.authority),
    ):
        yield made


def write(session: Session, key: str, size: int) -> None:
    session.doc.get_map("m").insert(key, "x" * size)
    session.commit()


async def change_wal(closed: Closed, **changes: Any) -> None:
    """Settings of the WAL, as an operator changes them."""
    name = subjects.WAL_STREAM
    info = json.loads((await closed.server.bus.request(f"$JS.API.STREAM.INFO.{name}", timeout=5.0)).data)
    body = json.dumps({**info["config"], **changes}).encode()
    answer = await closed.server.bus.request(f"$JS.API.STREAM.UPDATE.{name}", body, timeout=5.0)
    assert "error" not in json.loads(answer.data)


async def keys_of(closed: Closed) -> set[str]:
    """The keys in the owner's state of the document."""
    async with lorogo_client.connect(closed.url, token=ADMIN) as root:
        value = (await root.document("plan").get())["value"]
        assert isinstance(value, dict)
        return set(value.get("m", {}))


@pytest.mark.parametrize("size", [200_000, 3_000_000], ids=["two chunks", "many chunks"])
async def test_a_token_client_gets_storage_full(closed: Closed, size: int) -> None:
    """flush() raises StorageFull and the state stays SAVING until there is space; then every
    update is sent.
    """
    async with lorogo_client.connect(closed.url, token=WRITER, settings=QUICK) as client:
        session = await client.open("plan")
        write(session, "first", 150_000)
        await session.flush(SECONDS)
        write(session, "second", size)
        write(session, "third", 10)
        for _ in range(2):  # asking again does not help, nor harm
            with pytest.raises(StorageFull, match="has space for"):
                await session.flush(SECONDS)
            assert session.state is State.SAVING
        assert isinstance(session.problem, StorageFull)
        assert await keys_of(closed) == {"first"}
        await change_wal(closed, max_bytes=ROOMY)
        async with asyncio.timeout(SECONDS):
            while session.state is not State.SAVED:
                with suppress(StorageFull):  # for some milliseconds yet
                    await session.flush(SECONDS)
        assert await keys_of(closed) == {"first", "second", "third"}


async def test_what_the_stream_dropped_is_sent_again_whole_until_it_is_acked(closed: Closed) -> None:
    """For whatever reason: here it takes the small last chunk of an update and drops those before it."""
    await change_wal(closed, max_bytes=ROOMY, max_msg_size=50_000)
    received: list[bytes] = []
    await closed.server.bus.subscribe(subjects.wal("plan"), lambda message: received.append(message.data))
    await closed.server.bus.barrier()
    async with lorogo_client.connect(closed.url, token=WRITER, settings=QUICK) as client:
        session = await client.open("plan")
        write(session, "small", 10)
        await session.flush(SECONDS)
        received.clear()
        write(session, "large", 140_000)
        await eventually(lambda: len([one for one in received if len(one) > 50_000]) >= 3)  # and again
        assert session.state is not State.SAVED
        assert await keys_of(closed) == {"small"}
        await change_wal(closed, max_msg_size=-1)
        await session.flush(SECONDS)
        await until_state(session, State.SAVED)
        assert await keys_of(closed) == {"small", "large"}


@pytest.mark.parametrize("fault", [None, OutcomeUnknown("no answer")], ids=["no figure", "fails"])
async def test_an_owner_that_cannot_say_keeps_nothing_back(
    closed: Closed, monkeypatch: pytest.MonkeyPatch, fault: OutcomeUnknown | None
) -> None:
    """The update is sent again and again, and arrives when there is room."""
    asked = 0

    async def left(*_: object, **__: object) -> None:
        nonlocal asked
        asked += 1
        if fault is not None:
            raise fault

    monkeypatch.setattr(WalUsage, "left", left)
    async with lorogo_client.connect(closed.url, token=WRITER, settings=QUICK) as client:
        session = await client.open("plan")
        write(session, "first", 400_000)
        await eventually(lambda: asked >= 2)
        assert session.state is State.SAVING
        assert session.problem is None
        await change_wal(closed, max_bytes=ROOMY)
        await session.flush(SECONDS)
        assert await keys_of(closed) == {"first"}


@asynccontextmanager
async def gateway(closed: Closed) -> AsyncIterator[str]:
    """As `running` makes it, but with a client that is not patient."""
    settings = GatewaySettings(port=0, full_seconds=0.1, rejoin_seconds=0.05, close_seconds=1.0)
    async with (
        await nats(
            closed.url, name="gateway", seed=closed.seeds["gateway"], inbox_prefix=subjects.GATEWAY_INBOX
        ) as line,
        lorogo_client.connect(line, settings=QUICK) as client,
        Gateway(client, settings, closed.authority) as made,
        listening(made.app, settings, made.limiter) as address,
    ):
        try:
            yield address
        finally:
            await made.disconnect_all()


async def test_a_gateway_says_why_too(closed: Closed) -> None:
    """A PATCH gets 507 `storage-full`, an update over a WebSocket `app_error`; with room both go through."""
    bearer = {"Authorization": f"Bearer {WRITER}"}
    patch = [{"op": "add", "path": "/m", "value": {"key": "x" * 400_000}}]
    doc = LoroDoc()
    large = type_in(doc, "x" * 200_000)
    async with gateway(closed) as address, httpx.AsyncClient(base_url=address, timeout=SECONDS) as http:
        where, media = "/v1/documents/plan", {"Content-Type": "application/json-patch+json", **bearer}
        answer = await http.put(where, json={"m": {"first": 1}}, headers=bearer)
        assert answer.status_code == 201, answer.text
        answer = await http.patch(where, json=patch, headers=media)
        assert (answer.status_code, answer.json()["code"]) == (507, "storage-full")
        url = f"{address.replace('http', 'ws', 1)}/ws"
        async with connect(url, compression=None, max_size=None, additional_headers=bearer) as socket:
            peer = Peer(socket)
            await peer.join("plan")
            assert await peer.save(large, room="plan") is Status.APP_ERROR
        await change_wal(closed, max_bytes=ROOMY)
        answer = await http.patch(where, json=patch, headers=media)
        assert answer.status_code == 200, answer.text
        async with connect(url, compression=None, max_size=None, additional_headers=bearer) as socket:
            peer = Peer(socket)
            await peer.join("plan")
            assert await peer.save(large, room="plan") is Status.OK


async def test_append_of_a_service_raises_storage_full(closed: Closed) -> None:
    """StorageFull as where JetStream answers, also with others writing; nothing of it is in the stream."""
    await change_wal(closed, max_bytes=200_000)
    wal = closed.server.stream(subjects.WAL_STREAM)
    await wal.append(subjects.wal("d1"), b"x" * 100_000)
    with pytest.raises(StorageFull):
        await wal.append(subjects.wal("d1"), b"y" * 150_000)
    assert await wal.append(subjects.wal("d1"), b"z") > 0
    assert [stored.data[:1] async for stored in wal.read(subjects.wal("d1"))] == [b"x", b"z"]
