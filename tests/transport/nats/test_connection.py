"""The connection to real NATS when things break: reconnects, lost answers, addresses that do not work."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

from lorogo_protocol.messages import subjects
from lorogo_transport.errors import (
    Disconnected,
    OutcomeUnknown,
    RequestTimeout,
    StorageFull,
    TransportError,
    Unreachable,
)
from lorogo_transport.nats import wire
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.nats.wire import NatsConnection
from lorogo_transport.ports import ServiceInfo, StreamSpec
from lorogo_transport.stores import topology
from tests.stillness import stand_still
from tests.transport.support import Collector, StartNats, until

pytestmark = pytest.mark.nats

SPEC = StreamSpec(name="s", subjects=("s.*",))


@pytest.fixture
async def transport(fresh_nats: EmbeddedNats) -> AsyncIterator[JetStreamTransport]:
    async with await connect(fresh_nats.url, name="test") as made:
        yield made


@pytest.fixture
def changes(transport: JetStreamTransport) -> list[bool]:
    seen: list[bool] = []
    transport.bus.watch_connection(seen.append)
    return seen


async def test_subscriptions_go_on_after_kill_and_restart(
    fresh_nats: EmbeddedNats, transport: JetStreamTransport, changes: list[bool]
) -> None:
    """After kill -9 and a restart, subscriptions made before and during the outage work, and so
    do appends.
    """
    await transport.ensure(SPEC)
    stream = transport.stream("s")
    await stream.append("s.a", b"before")
    old, new, gone = Collector(), Collector(), Collector()
    await transport.bus.subscribe("news.*", old)
    closed = await transport.bus.subscribe("news.*", gone)
    await fresh_nats.kill()
    await until(lambda: not transport.bus.connected)
    await transport.bus.subscribe("news.*", new)
    await closed.close()
    await fresh_nats.start()
    await until(lambda: transport.bus.connected)
    await transport.bus.publish("news.1", b"hello")
    await old.wait(1)
    await new.wait(1)
    assert await stream.append("s.a", b"after", expected_last=1) == 2
    assert [stored.data async for stored in stream.read("s.a")] == [b"before", b"after"]
    assert changes == [False, True]
    assert not gone.messages


async def test_subscriptions_made_while_reconnecting(
    fresh_nats: EmbeddedNats, transport: JetStreamTransport
) -> None:
    """Whenever during a reconnect a subscription is made, it is effective once we are connected."""
    await fresh_nats.kill()
    await until(lambda: not transport.bus.connected)
    got: list[Collector] = []

    async def keep_subscribing() -> None:
        while not transport.bus.connected:
            got.append(Collector())
            await transport.bus.subscribe(f"late.{len(got)}", got[-1])
            closed = await transport.bus.subscribe("closed", got[0])
            await asyncio.sleep(0.0005)
            await closed.close()

    subscribing = asyncio.ensure_future(keep_subscribing())
    await fresh_nats.start()
    await subscribing
    await transport.bus.publish("closed", b"nobody")
    for number in range(1, len(got) + 1):
        await transport.bus.publish(f"late.{number}", b"heard")
    for one in got:
        await one.wait(1)
    assert all(one.bodies == [b"heard"] for one in got)


async def test_everything_says_disconnected(fresh_nats: EmbeddedNats, transport: JetStreamTransport) -> None:
    """Without a connection every call fails at once, and nothing is kept to be sent later."""
    await transport.ensure(SPEC)
    stream = transport.stream("s")
    got = Collector()
    await transport.bus.subscribe("late", got)
    await fresh_nats.kill()
    await until(lambda: not transport.bus.connected)
    for call in (
        transport.bus.publish("late", b"x"),
        transport.bus.request("late", timeout=60),
        transport.bus.barrier(),
        stream.append("s.a", b"x"),
        stream.append_unconfirmed("s.a", b"x"),
        stream.last("s.a"),
        stream.state(),
        anext(aiter(stream.read("s.a"))),
    ):
        with pytest.raises(Disconnected):
            await call
    await fresh_nats.start()
    await until(lambda: transport.bus.connected)
    await transport.bus.barrier()
    assert await stream.count("s.a") == 0
    assert not got.messages


@pytest.mark.parametrize("behind", [False, True], ids=["in the background", "by a publisher who waits"])
async def test_the_first_write_notices_a_closed_socket(
    transport: JetStreamTransport, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    """A closed socket is a RuntimeError in uvloop: the bus reports the lost connection to its watchers and
    reconnects.
    """
    unhandled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    wire = transport.bus._wire
    assert isinstance(wire, NatsConnection)
    writer = wire._writer()
    assert writer is not None

    def gone(_: object) -> None:
        raise RuntimeError("unable to perform operation on a closed transport; the handler is closed")

    monkeypatch.setattr(writer, "writelines", gone)
    changes: list[bool] = []
    transport.bus.watch_connection(changes.append)
    if behind:
        wire._socket_bytes = 1 << 30  # the socket is behind, so publishers wait for it
        wire.send(b"PING\r\n")
        with pytest.raises(Disconnected):
            await transport.bus.publish("x", b"x")
    else:
        await transport.bus.publish("x", b"x")
    await until(lambda: changes == [False, True])
    await transport.bus.barrier()
    assert not unhandled


async def test_what_is_under_way_fails_promptly(
    fresh_nats: EmbeddedNats, transport: JetStreamTransport
) -> None:
    """After a lost connection, an append has an unknown outcome and a request no answer, both at once."""
    await transport.ensure(SPEC)
    await transport.bus.subscribe("silent", Collector())
    await transport.bus.barrier()
    stand_still(fresh_nats.pid)  # sent, taken by the socket, not served
    stream = transport.stream("s")
    calls = [
        asyncio.ensure_future(call)
        for call in (
            stream.append("s.a", b"x", timeout=60),
            transport.bus.request("silent", timeout=60),
            stream.last("s.a", timeout=60),
            anext(aiter(stream.read("s.a"))),
            stream.purge("s.a", timeout=60),
            transport.bus.barrier(60),
        )
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await fresh_nats.kill()
    async with asyncio.timeout(5):
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [
        OutcomeUnknown, RequestTimeout, RequestTimeout, RequestTimeout, OutcomeUnknown, Disconnected,
    ]  # fmt: skip


async def test_a_silent_server_is_noticed(fresh_nats: EmbeddedNats, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stops answering without closing the connection is given up, and found again later."""
    monkeypatch.setattr(wire, "_PING_SECONDS", 0.05)
    monkeypatch.setattr(wire, "_PONG_SECONDS", 1.0)
    async with await connect(fresh_nats.url, timeout=0.3) as transport:
        got = Collector()
        await transport.bus.subscribe("a", got)
        await transport.bus.barrier()
        stand_still(fresh_nats.pid)
        try:
            append = asyncio.ensure_future(transport.stream("s").append("s.a", bytes(500_000), timeout=60))
            await until(lambda: not transport.bus.connected)
            with pytest.raises(OutcomeUnknown):
                await append
        finally:
            os.kill(fresh_nats.pid, signal.SIGCONT)
        await until(lambda: transport.bus.connected)
        await transport.bus.publish("a", b"again")
        await got.wait(1)


async def test_a_publisher_waits_for_a_slow_server(fresh_nats: EmbeddedNats) -> None:
    """The buffer for a server that does not read is bounded: publishers wait, then fail or continue."""
    async with await connect(fresh_nats.url) as transport:
        got = Collector()
        await transport.bus.subscribe("a", got)
        await transport.bus.barrier()
        stand_still(fresh_nats.pid)
        sent = 0

        async def flood() -> None:
            nonlocal sent
            for _ in range(64):
                await transport.bus.publish("a", bytes(1_000_000))
                sent += 1

        flooding = asyncio.ensure_future(flood())
        try:
            done, _ = await asyncio.wait({flooding}, timeout=0.3)
            assert not done
            assert sent < 20
        finally:
            os.kill(fresh_nats.pid, signal.SIGCONT)
        await flooding
        await got.wait(64)


async def test_a_graceful_stop_of_the_server(
    fresh_nats: EmbeddedNats, transport: JetStreamTransport, changes: list[bool]
) -> None:
    """A server that is shut down and started again is one change to disconnected and one back."""
    await fresh_nats.stop()
    await until(lambda: not transport.bus.connected)
    await fresh_nats.start()
    await until(lambda: transport.bus.connected)
    await transport.bus.barrier()
    assert changes == [False, True]


async def test_an_error_from_the_server_is_not_the_end(
    transport: JetStreamTransport, changes: list[bool]
) -> None:
    """A server that ends the connection with an error is dialled again."""
    got = Collector()
    await transport.bus.subscribe("a", got)
    wire = transport.bus._wire
    assert wire is not None
    wire.send(b"NONSENSE\r\n")  # NATS answers -ERR 'Unknown Protocol Operation' and hangs up
    await until(lambda: changes == [False, True])
    await transport.bus.publish("a", b"again")
    await got.wait(1)


async def test_a_watcher_can_be_stopped(fresh_nats: EmbeddedNats, transport: JetStreamTransport) -> None:
    """A stopped watcher is not called; a failing watcher does not affect the others."""
    seen: list[bool] = []
    stop = transport.bus.watch_connection(seen.append)
    transport.bus.watch_connection(lambda _: 1 / 0)  # type: ignore[arg-type]
    stop()
    await fresh_nats.kill()
    await until(lambda: not transport.bus.connected)
    assert seen == []


async def test_close_sends_what_is_waiting(fresh_nats: EmbeddedNats, transport: JetStreamTransport) -> None:
    """A message published just before `close()` is not lost; afterwards nothing works; twice is fine."""
    got = Collector()
    await transport.bus.subscribe("a", got)
    await transport.bus.barrier()
    other = await connect(fresh_nats.url)
    await other.bus.publish("a", b"last words")
    await other.close()
    await other.close()
    await got.wait(1)
    with pytest.raises(Disconnected):
        await other.bus.publish("a")


async def test_close_while_reconnecting(fresh_nats: EmbeddedNats) -> None:
    """A transport without a connection closes at once and leaves no task behind."""
    transport = await connect(fresh_nats.url)
    await fresh_nats.kill()
    await until(lambda: not transport.bus.connected)
    async with asyncio.timeout(1):
        await transport.close()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "nats-supervisor"] == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:4222", "not a NATS address"),
        ("nats://", "not a NATS address"),
        ("nats://host:port", "not a NATS address"),
        ("", "not a NATS address"),
        ("nats://a b", "not a NATS address"),
        ("nats://127.0.0.1:1", "connection refused"),
        ("127.0.0.1:1", "connection refused"),
        ("nats://127.0.0.1:1,nats://127.0.0.1:2", "connection refused"),
        ("nats://name.invalid:4222", "unknown host|no answer"),  # a resolver may also just hang
    ],
)
async def test_addresses_that_do_not_work(url: str, words: str) -> None:
    """The error for an unusable address is one sentence."""
    with pytest.raises(Unreachable, match=words) as caught:
        await connect(url, timeout=5)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak NATS"),
        (b"INFO not json\r\n", "does not speak NATS"),
        (b"", "no answer from nats://127.0.0.1:[0-9]+ within 0.3 s"),
        (None, "does not speak NATS"),
    ],
)
async def test_something_else_listens_there(greeting: bytes | None, words: str) -> None:
    """Another service may listen at the address, or a service that sends nothing."""
    finished = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if greeting is not None:
            writer.write(greeting)
            await finished.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable, match=words):
            await connect(f"nats://127.0.0.1:{port}", timeout=0.3)
        finished.set()


async def test_several_addresses(fresh_nats: EmbeddedNats) -> None:
    """Of several addresses one that answers is enough."""
    async with await connect(f"nats://127.0.0.1:1,{fresh_nats.url}") as transport:
        await transport.bus.barrier()


async def test_wrong_credentials(start_nats: StartNats) -> None:
    """The error names refused credentials without the password; the right ones work."""
    url = await start_nats({"authorization": {"user": "ann", "password": "secret"}})
    place = url.removeprefix("nats://")
    for wrong in (url, f"nats://ann:guess@{place}"):
        with pytest.raises(Unreachable, match="refuses the credentials") as caught:
            await connect(wrong)
        assert "guess" not in str(caught.value)
    async with await connect(f"nats://ann:secret@{place}") as transport:
        await transport.bus.barrier()


async def test_no_jetstream(start_nats: StartNats) -> None:
    """A server without JetStream causes an error at the first call about a stream."""
    async with await connect(await start_nats({})) as transport:
        with pytest.raises(Unreachable, match="JetStream is not enabled"):
            await transport.ensure(SPEC)
        with pytest.raises(Unreachable, match="JetStream is not enabled"):
            await transport.stream("s").append("s.a", b"")


async def test_a_permission_that_is_missing(
    start_nats: StartNats,
) -> None:
    """A forbidden subject costs that message, not the connection."""
    users = [{"user": "ann", "password": "p", "permissions": {"publish": ["ok", "_INBOX.>"]}}]
    url = (await start_nats({"authorization": {"users": users}})).replace("nats://", "nats://ann:p@")
    async with await connect(url) as transport:
        got = Collector()
        await transport.bus.subscribe("*", got)
        await transport.bus.publish("forbidden", b"1")
        await transport.bus.publish("ok", b"2")
        await got.wait(1)
        await transport.bus.barrier()
        assert got.bodies == [b"2"]


async def test_storage_of_the_account_is_full(start_nats: StartNats, tmp_path: Path) -> None:
    """JetStream's own limit, above the stream's, is StorageFull as well."""
    limits = {"store_dir": str(tmp_path / "js"), "max_file_store": 100_000, "max_memory_store": 0}
    async with await connect(await start_nats({"jetstream": limits})) as transport:
        await transport.ensure(SPEC)
        stream = transport.stream("s")
        error: TransportError | None = None
        for _ in range(20):
            try:
                await stream.append("s.a", bytes(10_000))
            except TransportError as caught:
                error = caught
                break
        assert error is not None
        assert error.code == "storage-full"


async def test_a_small_jetstream_takes_a_smaller_bucket_of_kept_presence(
    start_nats: StartNats, tmp_path: Path
) -> None:
    """Its limit is set aside when it is made; a full one still takes what makes a value no larger."""
    limits = {"store_dir": str(tmp_path / "js"), "max_file_store": 50_000_000, "max_memory_store": 0}
    async with await connect(await start_nats({"jetstream": limits})) as transport:
        with pytest.raises(StorageFull, match=subjects.PRESENCE_STREAM):
            await transport.ensure(topology.specs()[-1])
        await transport.ensure(topology.specs(kept_presence_bytes_max=100_000)[-1])
        bucket = transport.stream(subjects.PRESENCE_STREAM)
        for name in ("a", "b", "c"):
            await bucket.append(subjects.presence_key(name), bytes(30_000))
        with pytest.raises(StorageFull):
            await bucket.append(subjects.presence_key("d"), bytes(30_000))
        await bucket.append(subjects.presence_key("a"), bytes(30_000))


async def test_kv_and_object_store_work_with_other_clients(
    fresh_nats: EmbeddedNats, transport: JetStreamTransport
) -> None:
    """nats-py's own KV and ObjectStore can use the buckets that we made."""
    for spec in topology.specs(replicas=1, wal_bytes_max=50_000_000):
        assert await transport.ensure(spec) == [f"created stream {spec.name}"]
        assert await transport.ensure(spec) == []
    client = await nats.connect(fresh_nats.url)
    try:
        js = client.jetstream()
        status = Collector()
        await transport.bus.subscribe("loro.status.*", status)
        await transport.bus.barrier()
        bucket = await js.key_value(subjects.STATUS_BUCKET)
        revision = await bucket.create("doc", b"DOWN:1")
        assert await bucket.update("doc", b"DOWN:2", last=revision) == revision + 1
        entry = await bucket.get("doc")
        assert (entry.value, entry.revision) == (b"DOWN:2", revision + 1)
        stored = await transport.stream(subjects.STATUS_STREAM).last(subjects.status_key("doc"))
        assert stored is not None
        assert (stored.data, stored.sequence) == (b"DOWN:2", revision + 1)
        messages = await status.wait(2)
        assert [(message.subject, message.data) for message in messages] == [
            ("loro.status.doc", b"DOWN:1"),
            ("loro.status.doc", b"DOWN:2"),
        ]
        await bucket.purge("doc")
        objects = await js.object_store(subjects.SNAPSHOT_BUCKET)
        await objects.put("doc", b"x" * 300_000)
        assert (await objects.get("doc")).data == b"x" * 300_000
    finally:
        await client.close()


async def test_announced_services_are_found(fresh_nats: EmbeddedNats, transport: JetStreamTransport) -> None:
    """The NATS services protocol: ping, info and stats answer until the announcement is closed."""
    info = ServiceInfo("lorogo-server", "0.1.0", "documents", {"server": "s1"})
    announcement = await transport.announce(info, lambda: {"documents": 3, "num_requests": 7})
    await transport.bus.barrier()
    client = await nats.connect(fresh_nats.url)
    try:
        from nats.micro.service import ServiceInfo as Info  # noqa: PLC0415
        from nats.micro.service import ServicePing, ServiceStats  # noqa: PLC0415

        ping = ServicePing.from_dict(json.loads((await client.request("$SRV.PING", b"")).data))
        assert (ping.name, ping.version, ping.metadata) == ("lorogo-server", "0.1.0", {"server": "s1"})
        found = Info.from_dict(json.loads((await client.request("$SRV.INFO.lorogo-server", b"")).data))
        assert (found.description, found.endpoints[0].subject) == ("documents", "loro.init.*")
        answer = await client.request(f"$SRV.STATS.lorogo-server.{ping.id}", b"")
        stats = ServiceStats.from_dict(json.loads(answer.data))
        assert (stats.endpoints[0].num_requests, stats.endpoints[0].data) == (
            7,
            {"documents": 3, "num_requests": 7},
        )
        await announcement.close()
        await transport.bus.barrier()
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("$SRV.PING", b"")
    finally:
        await client.close()


async def test_reconnects_are_quick_and_spread(fresh_nats: EmbeddedNats) -> None:
    """A server that is back is found within the longest wait, two seconds, by every client."""
    transports = [await connect(fresh_nats.url) for _ in range(10)]
    try:
        await fresh_nats.kill()
        await until(lambda: not any(transport.bus.connected for transport in transports))
        await fresh_nats.start()
        started = time.monotonic()
        await until(lambda: all(transport.bus.connected for transport in transports))
        assert time.monotonic() - started < 3
    finally:
        for transport in transports:
            await transport.close()


@pytest.mark.parametrize("outcome", ["refused", "connected"])
async def test_closing_while_a_connection_is_being_made(
    monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    """If the attempt is decided in the moment of the cancellation, which is lost so, it still ends."""
    trying = asyncio.Event()
    swallowed: list[str] = []

    async def decided(self: object, *_: object, **__: object) -> None:
        trying.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if len(swallowed) == 2:  # once by the first deadline, once by closing
                raise
            swallowed.append(outcome)
            if outcome == "refused":
                raise ConnectionRefusedError from None

    monkeypatch.setattr(NatsConnection, "connect", decided)
    transport = await connect("nats://127.0.0.1:1", wait_seconds=0.01)
    trying.clear()
    await trying.wait()
    closing = asyncio.create_task(transport.close())
    done, _ = await asyncio.wait({closing}, timeout=10)
    assert done
    assert swallowed == [outcome] * 2
