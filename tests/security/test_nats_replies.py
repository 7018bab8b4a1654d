"""No client makes NATS, JetStream or a server publish where it may not, whatever reply subject it names."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from lorogo_protocol.limits import CHUNK_BYTES_MAX
from lorogo_protocol.messages import subjects
from lorogo_server import Server, ServerSettings
from lorogo_transport.errors import StreamMismatch
from lorogo_transport.ports import Message
from lorogo_transport.stores import topology
from tests.security.closed import Closed, closed_nats, mint

pytestmark = pytest.mark.nats

TARGETS = [
    "$KV.loro-document-status.d2",
    "$KV.loro-revoked.tok_somebody",
    "$O.loro-document-snapshots.M.ZDI=",
    "loro.wal.d2",
    "loro.committed.d2",
    "loro.accepted.d2",
    "loro.status.d2",
    "loro.rejected.d2",
    "loro.reset.d2",
    "loro.erased.d2",
    "loro.server.started",
    "loro.server.vouched.d2",
    "$JS.API.STREAM.PURGE.loro-wal",
    "$JS.API.STREAM.DELETE.loro-wal",
    "$JS.API.STREAM.MSG.DELETE.loro-wal",
    "$JS.API.CONSUMER.CREATE.loro-wal",
    "$SRV.PING",
    "_INBOX_srv.x",
]


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    async with closed_nats(tmp_path) as made:
        yield made


class _Observer:
    """A subscriber that receives every message in the account, from any publisher."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def hear(self, message: Message) -> None:
        self.said.append(message.subject)


async def _observe(closed: Closed) -> _Observer:
    observer = _Observer()
    await closed.server.bus.subscribe(">", observer.hear)
    await closed.server.bus.barrier()
    return observer


async def _settled(closed: Closed) -> None:
    """Return when what was published before is stored and answered: something later is stored."""
    await closed.server.stream(subjects.REJECTED_STREAM).append(subjects.rejected("last"), b"")
    wal = closed.server.stream(subjects.WAL_STREAM)
    await wal.append(subjects.wal("last"), b"the last")
    await closed.server.bus.barrier()


async def _stored(closed: Closed) -> dict[str, int]:
    """The number of messages in each stream."""
    names = [spec.name for spec in topology.specs()]
    return {name: (await closed.server.stream(name).state()).messages for name in names}


@pytest.mark.parametrize("header", ["", "Nats-Expected-Last-Sequence: 9", "Nats-Rollup: all", "Nats-TTL: 1s"])
async def test_jetstream_answers_no_writer(closed: Closed, header: str) -> None:
    """A chunk whose reply is another's status, key or WAL, or JetStream's API: nothing is published there."""
    async with await closed.raw(mint({"d1": "write"})) as writer:
        observer = await _observe(closed)
        before = await _stored(closed)
        for target in TARGETS:
            headers = f"NATS/1.0\r\n{header}\r\n\r\n" if header else "NATS/1.0\r\n\r\n"
            writer.say(
                f"HPUB loro.wal.d1 {target} {len(headers)} {len(headers) + 1}\r\n{headers}x\r\n".encode()
            )
        await writer.ping()
        await _settled(closed)
        assert writer.errors == []
    after = await _stored(closed)
    assert observer.said.count("loro.wal.d1") == len(TARGETS)
    assert [said for said in observer.said if said in TARGETS] == []
    stored = len(TARGETS) if header == "" else 0
    changed = {subjects.WAL_STREAM: before[subjects.WAL_STREAM] + stored + 1, subjects.REJECTED_STREAM: 1}
    assert after == {**before, **changed}


async def test_a_reply_that_was_received_gives_no_right(closed: Closed) -> None:
    """Presence sent to oneself with JetStream's API as its reply does not open the API."""
    await closed.server.stream(subjects.WAL_STREAM).append(subjects.wal("d1"), b"precious")
    purge = "$JS.API.STREAM.PURGE.loro-wal"
    async with await closed.raw(mint({"d1": "admin"})) as one:
        one.subscribe("loro.awareness.d1")
        one.publish("loro.awareness.d1", b"to myself", purge)
        assert await one.next_message() == ("loro.awareness.d1", b"to myself")
        one.publish(purge)
        await one.ping()
        assert one.errors == [f"-ERR 'Permissions Violation for Publish to \"{purge}\"'"]
    assert (await closed.server.stream(subjects.WAL_STREAM).state()).messages == 1


async def test_a_server_sees_no_reply_that_is_not_of_a_user(closed: Closed) -> None:
    """A ping that wants its answer at JetStream's API, or at another's key, gets none."""
    replies: list[str] = []
    await closed.server.bus.subscribe("loro.ping.d1", lambda message: replies.append(message.reply))
    await closed.server.bus.barrier()
    async with await closed.raw(mint({"d1": "read"})) as reader:
        for target in (*TARGETS[:-1], "_INBOX.x", "_INBOXx", "x", "_INBOX_a.b"):
            reader.publish("loro.ping.d1", b"", target)
        await reader.ping()
    await closed.server.bus.barrier()
    assert replies == [""] * (len(replies) - 1) + ["_INBOX_a.b"]
    assert len(replies) == len(TARGETS) + 3


async def test_a_trace_goes_only_where_its_sender_may_publish(closed: Closed) -> None:
    """NATS reports the way of a message to a subject that its header names: not to others'."""
    async with await closed.raw(mint({"d1": "write"})) as writer:
        observer = await _observe(closed)
        for target in TARGETS:
            headers = f"NATS/1.0\r\nNats-Trace-Dest: {target}\r\n\r\n"
            writer.say(f"HPUB loro.wal.d1 {len(headers)} {len(headers) + 1}\r\n{headers}x\r\n".encode())
        await writer.ping()
        await _settled(closed)
        assert len(writer.errors) == len(TARGETS)
    assert [said for said in observer.said if said in TARGETS] == []


async def test_a_service_sees_its_chunks_stored_without_an_answer(closed: Closed) -> None:
    """`append` to the WAL looks for what it wrote, also when others write at the same time."""
    wal = closed.server.stream(subjects.WAL_STREAM)
    first = await wal.append(subjects.wal("d1"), b"one", headers={"A": "1"})
    async with await closed.raw(mint({"d1": "write"})) as writer:
        for number in range(50):
            writer.publish("loro.wal.d1", b"%d" % number)
        second = await wal.append(subjects.wal("d1"), b"x" * CHUNK_BYTES_MAX, headers={"A": "2"})
        await writer.ping()
    stored = await wal.get(second)
    assert second > first
    assert stored is not None
    assert (stored.data, dict(stored.headers)) == (b"x" * CHUNK_BYTES_MAX, {"A": "2"})


async def test_a_closed_server_sees_to_it_when_it_starts(closed: Closed, tmp_path: Path) -> None:
    """Whatever the stream was before: while a server with keys runs on it, JetStream answers no writer."""
    wal = next(spec for spec in topology.specs(guarded=False) if spec.name == subjects.WAL_STREAM)
    with pytest.raises(StreamMismatch, match="start the server with --keys"):  # an open one changes nothing
        await closed.server.ensure(wal)
    config = json.dumps({**topology.config_of(wal), "no_ack": False}).encode()  # an operator's hand
    reply = await closed.server.bus.request("$JS.API.STREAM.UPDATE.loro-wal", config, timeout=10)
    assert not json.loads(reply.data)["config"].get("no_ack")
    settings = ServerSettings(server_id="s1")
    async with Server(closed.server, settings, data=tmp_path / "data", authority=closed.authority):
        assert await closed.server.ensure(replace(wal, no_ack=True)) == []
