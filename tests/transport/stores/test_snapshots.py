"""Snapshots: replaced only by compare-and-swap, readable by any ObjectStore client, swept with care."""

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import nats
import pytest

from lorogo_protocol.messages.subjects import SNAPSHOT_BUCKET
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.errors import OutcomeUnknown, StorageFull, TooLarge, WrongLastSequence
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.ports import StoredMessage, Stream, StreamSpec
from lorogo_transport.stores import snapshots
from lorogo_transport.stores.snapshots import (
    CHUNK_BYTES,
    ORPHAN_SECONDS,
    SnapshotDamaged,
    SnapshotHead,
    SnapshotReplaced,
    SnapshotStore,
)
from lorogo_transport.stores.topology import specs
from tests.transport.support import AnyTransport, Connect, newest

BIG = bytes(range(256)) * 6000  # 1.5 MB: a dozen chunks
FACTS = {"format": "1", "sequence": "7", "frontiers": "AA=="}
MAX = 100_000_000


@dataclass
class FixedClock:
    seconds: float = 0.0
    wall: int = 1_800_000_000 * 10**9

    def wall_ns(self) -> int:
        return self.wall

    def now(self) -> float:
        return self.seconds


def spec_of(bucket: str) -> StreamSpec:
    return StreamSpec(
        name=f"OBJ_{bucket}", subjects=(f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"), allow_rollup=True
    )


def store_on(stream: Stream, bucket: str, prefix: str = "id") -> SnapshotStore:
    ids = itertools.count(1)
    return SnapshotStore(
        stream,
        max_payload=1024 * 1024,
        clock=FixedClock(),
        new_id=lambda: f"{prefix}{next(ids)}",
        bucket=bucket,
    )


@pytest.fixture
async def stream(transport: AnyTransport, unique: str) -> Stream:
    await transport.ensure(spec_of(unique))
    return transport.stream(f"OBJ_{unique}")


@pytest.fixture
def store(stream: Stream, unique: str) -> SnapshotStore:
    return store_on(stream, unique)


async def chunk_counts(stream: Stream, unique: str) -> dict[str, int]:
    found = await stream.subjects(f"$O.{unique}.C.>")
    return {subject.rpartition(".")[2]: count for subject, count in found.items()}


@pytest.mark.parametrize("data", [b"", b"x", b"y" * CHUNK_BYTES, BIG], ids=len)
async def test_put_and_get(store: SnapshotStore, data: bytes) -> None:
    """A stored snapshot is returned with its facts and a revision."""
    assert await store.head("doc=1") is None
    put = await store.put("doc=1", data, FACTS, expected_revision=0)
    head = await store.head("doc=1")
    assert head == put
    assert (head.document_id, head.size, head.facts) == ("doc=1", len(data), FACTS)
    assert head.chunks == -(-len(data) // CHUNK_BYTES)
    assert await store.get(head, bytes_max=MAX) == data


async def test_a_swap_needs_the_right_revision(store: SnapshotStore, stream: Stream, unique: str) -> None:
    """A put over another revision loses, leaves the winner whole and takes its own chunks back."""
    first = await store.put("doc", b"first", FACTS, expected_revision=0)
    for wrong in (0, first.revision - 1, first.revision + 1):
        with pytest.raises(WrongLastSequence):
            await store.put("doc", b"second", FACTS, expected_revision=wrong)
    assert await store.head("doc") == first
    assert await chunk_counts(stream, unique) == {first.nuid: 1}
    second = await store.put("doc", b"second", {"a": "b"}, expected_revision=first.revision)
    assert second.revision > first.revision
    assert await store.get(second, bytes_max=MAX) == b"second"
    assert await store.get(first, bytes_max=MAX) == b"first"  # a reader of the old snapshot can finish
    assert await stream.count(f"$O.{unique}.M.>") == 1


async def test_a_document_that_never_was(store: SnapshotStore, stream: Stream, unique: str) -> None:
    """A revision expected of a missing document looks like a loss: the outcome is unknown and no head is
    written.
    """
    with pytest.raises(OutcomeUnknown):
        await store.put("doc", b"x", FACTS, expected_revision=3)
    assert await store.head("doc") is None
    assert len(await chunk_counts(stream, unique)) == 1  # left to the sweeper


async def test_of_two_writers_one_wins(dial: Connect, store: SnapshotStore, unique: str) -> None:
    """Two servers compact the same document at once: one snapshot remains whole, and the other put fails."""
    other = store_on((await dial()).stream(f"OBJ_{unique}"), unique, "other")
    results = await asyncio.gather(
        store.put("doc", b"a" * 500_000, {"by": "a"}, expected_revision=0),
        other.put("doc", b"b" * 500_000, {"by": "b"}, expected_revision=0),
        return_exceptions=True,
    )
    winners = [result for result in results if isinstance(result, SnapshotHead)]
    assert [type(result) for result in results if result not in winners] == [WrongLastSequence]
    head = await other.head("doc")
    assert head == winners[0]
    assert await other.get(head, bytes_max=MAX) == head.facts["by"].encode() * 500_000


async def test_put_facts(store: SnapshotStore, stream: Stream, unique: str) -> None:
    """A tombstone changes the facts and keeps the bytes; without a snapshot it is facts alone."""
    first = await store.put("doc", b"bytes", FACTS, expected_revision=0)
    gone = await store.put_facts(first, "doc", {"deleted": "1"})
    assert gone == replace(first, revision=gone.revision, facts={"deleted": "1"})
    assert await store.head("doc") == gone
    assert await store.get(gone, bytes_max=MAX) == b"bytes"
    with pytest.raises(WrongLastSequence):
        await store.put_facts(first, "doc", {})
    fresh = await store.put_facts(None, "other", {"deleted": "1"})
    assert (fresh.size, fresh.chunks) == (0, 0)
    assert await store.get(fresh, bytes_max=MAX) == b""
    with pytest.raises(WrongLastSequence):
        await store.put_facts(None, "other", {})
    assert await chunk_counts(stream, unique) == {first.nuid: 1}


async def test_list(store: SnapshotStore, stream: Stream, unique: str) -> None:
    """Every document's head, once; damaged metadata is left out."""
    for number in range(5):
        await store.put(f"doc{number}", b"%d" % number, {"n": str(number)}, expected_revision=0)
    await stream.append(f"$O.{unique}.M.bm9wZQ==", b"not json")
    heads = [head async for head in store.list()]
    assert {head.document_id: head.facts["n"] for head in heads} == {f"doc{n}": str(n) for n in range(5)}


async def test_heads(store: SnapshotStore, stream: Stream, unique: str) -> None:
    """Every document's head, and of those whose metadata is damaged, what is wrong with it."""
    assert [head async for head in store.heads()] == []
    heads = [await store.put(f"doc{number}", b"x", {}, expected_revision=0) for number in range(3)]
    await stream.append(f"$O.{unique}.M.YmFk", b"no JSON")
    found = [head async for head in store.heads()]
    good = [head for head in found if isinstance(head, SnapshotHead)]
    (damage,) = [head for head in found if isinstance(head, SnapshotDamaged)]
    assert sorted(good, key=lambda head: head.document_id) == heads
    assert damage.document_id == "bad"


async def test_bytes_are_bounded(store: SnapshotStore) -> None:
    """A snapshot above the limit is not read."""
    head = await store.put("doc", b"12345", FACTS, expected_revision=0)
    assert await store.get(head, bytes_max=5) == b"12345"
    with pytest.raises(TooLarge):
        await store.get(head, bytes_max=4)


async def remove_a_chunk(stream: Stream, subject: str) -> None:
    last = await stream.last(subject)
    assert last is not None
    await stream.delete(last.sequence)


async def add_a_chunk(stream: Stream, subject: str) -> None:
    await stream.append(subject, b"more")


async def change_a_chunk(stream: Stream, subject: str) -> None:
    last = await stream.last(subject)
    assert last is not None
    await stream.delete(last.sequence)
    await stream.append(subject, last.data[::-1])


async def remove_all_chunks(stream: Stream, subject: str) -> None:
    await stream.purge(subject)


@pytest.mark.parametrize("damage", [remove_a_chunk, add_a_chunk, change_a_chunk, remove_all_chunks])
async def test_damage_is_seen(
    store: SnapshotStore, stream: Stream, unique: str, damage: Callable[[Stream, str], Awaitable[None]]
) -> None:
    """A chunk that is missing, added or changed: SnapshotDamaged, and it names the document."""
    head = await store.put("doc", BIG, FACTS, expected_revision=0)
    await damage(stream, f"$O.{unique}.C.{head.nuid}")
    with pytest.raises(SnapshotDamaged, match="'doc'"):
        await store.get(head, bytes_max=MAX)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"nuid": 5}',
        b'{"nuid": "x", "size": "big"}',
        b'{"nuid": "x", "metadata": {"a": 1}}',
        b'{"nuid": "", "deleted": true}',
    ],
)
async def test_damaged_metadata(store: SnapshotStore, stream: Stream, unique: str, body: bytes) -> None:
    """Metadata that does not parse, or that another tool deleted, is damage: never 'no snapshot'."""
    await stream.append(f"$O.{unique}.M.{base64.urlsafe_b64encode(b'doc').decode()}", body)
    with pytest.raises(SnapshotDamaged):
        await store.head("doc")


async def test_a_reader_that_comes_too_late(store: SnapshotStore, stream: Stream, unique: str) -> None:
    """The error for a snapshot that was replaced and swept differs from that for a damaged one."""
    old = await store.put("doc", b"old", FACTS, expected_revision=0)
    await store.put("doc", b"new", FACTS, expected_revision=old.revision)
    await stream.purge(f"$O.{unique}.C.{old.nuid}")
    with pytest.raises(SnapshotReplaced):
        await store.get(old, bytes_max=MAX)


async def test_sweep(store: SnapshotStore, stream: Stream, unique: str) -> None:
    """Chunks that no metadata names go after ten minutes by our own clock; others stay for ever."""
    old = await store.put("doc", BIG, FACTS, expected_revision=0)
    new = await store.put("doc", b"new", FACTS, expected_revision=old.revision)
    await stream.append(f"$O.{unique}.C.foreign", b"chunks of another tool")
    assert await store.sweep(1000.0) == 0
    assert await store.sweep(1000.0 + ORPHAN_SECONDS - 1) == 0
    assert await store.get(old, bytes_max=MAX) == BIG
    assert await store.sweep(1000.0 + ORPHAN_SECONDS) == 1
    assert await chunk_counts(stream, unique) == {new.nuid: 1, "foreign": 1}
    assert await store.sweep(1_000_000.0) == 0
    assert await store.get(new, bytes_max=MAX) == b"new"


async def test_sweep_is_bounded(store: SnapshotStore, stream: Stream, unique: str) -> None:
    """One sweep removes a few, the next ones the rest."""
    revision = 0
    for _ in range(6):
        revision = (await store.put("doc", b"x", FACTS, expected_revision=revision)).revision
    assert await store.sweep(0.0, removals_max=2) == 0
    assert [await store.sweep(ORPHAN_SECONDS, removals_max=2) for _ in range(4)] == [2, 2, 1, 0]
    assert len(await chunk_counts(stream, unique)) == 1


async def test_no_sweep_over_damaged_metadata(store: SnapshotStore, stream: Stream, unique: str) -> None:
    """Metadata that cannot be read may name any chunk: nothing is removed."""
    head = await store.put("doc", b"x", FACTS, expected_revision=0)
    await stream.append(
        f"$O.{unique}.M.{base64.urlsafe_b64encode(b'doc').decode()}", b"{", headers={"Nats-Rollup": "sub"}
    )
    await store.sweep(0.0)
    assert await store.sweep(ORPHAN_SECONDS) == 0
    assert await chunk_counts(stream, unique) == {head.nuid: 1}


async def test_a_full_store(transport: AnyTransport, unique: str) -> None:
    """A snapshot that does not fit fails as StorageFull, leaves no chunks, and the old one stays."""
    await transport.ensure(replace(spec_of(unique), bytes_max=2_000_000))
    stream = transport.stream(f"OBJ_{unique}")
    store = store_on(stream, unique)
    head = await store.put("doc", bytes(500_000), FACTS, expected_revision=0)
    with pytest.raises(StorageFull):
        await store.put("doc", bytes(5_000_000), FACTS, expected_revision=head.revision)
    assert await store.head("doc") == head
    assert await chunk_counts(stream, unique) == {head.nuid: head.chunks}


# In memory, where faults come on demand.


@dataclass
class Laggard:
    """A stream whose direct gets come from a replica that is a few messages, or all names, behind."""

    stream: Stream
    short_reads: int = 0
    stale_names: list[StoredMessage] = field(default_factory=list)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)

    async def read(
        self, subject: str, *, first: int = 1, last: int | None = None
    ) -> AsyncIterator[StoredMessage]:
        everything = [stored async for stored in self.stream.read(subject, first=first, last=last)]
        if self.short_reads > 0:
            self.short_reads -= 1
            everything = everything[:-1]
        for stored in everything:
            yield stored

    async def newest_of(self, subjects: Sequence[str]) -> AsyncIterator[StoredMessage]:
        for stored in self.stale_names:
            yield stored
        if not self.stale_names:
            async for stored in self.stream.newest_of(subjects):
                yield stored


@pytest.fixture
async def memory() -> MemoryTransport:
    transport = MemoryNats().connect()
    await transport.ensure(spec_of("b"))
    return transport


async def test_a_lagging_replica(memory: MemoryTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that has not all chunks yet is asked again; one that never gets them is damage."""
    monkeypatch.setattr(snapshots, "_READ_PAUSES", (0.0, 0.0, 0.0))
    laggard = Laggard(memory.stream("OBJ_b"), short_reads=3)
    store = store_on(laggard, "b")  # type: ignore[arg-type]
    head = await store.put("doc", BIG, FACTS, expected_revision=0)
    assert await store.get(head, bytes_max=MAX) == BIG
    laggard.short_reads = 4
    with pytest.raises(SnapshotDamaged):
        await store.get(head, bytes_max=MAX)


async def test_a_lagging_replica_hides_no_head(memory: MemoryTransport) -> None:
    """The store requests a document that the answering replica does not know yet from the leader."""
    laggard = Laggard(memory.stream("OBJ_b"))
    store = store_on(laggard, "b")  # type: ignore[arg-type]
    await store.put("old", b"x", {}, expected_revision=0)
    laggard.stale_names = await newest(laggard.stream, "$O.b.M.>")
    await store.put("new", b"y", {}, expected_revision=0)
    assert {head.document_id async for head in store.heads()} == {"old", "new"}


async def test_a_lagging_replica_misleads_no_sweeper(memory: MemoryTransport) -> None:
    """Names from a replica that is far behind do not cost a live snapshot its chunks."""
    laggard = Laggard(memory.stream("OBJ_b"))
    store = store_on(laggard, "b")  # type: ignore[arg-type]
    old = await store.put("doc", b"old", FACTS, expected_revision=0)
    laggard.stale_names = await newest(laggard.stream, "$O.b.M.>")
    new = await store.put("doc", b"new", FACTS, expected_revision=old.revision)
    await store.sweep(0.0)
    assert await store.sweep(ORPHAN_SECONDS) == 0
    assert await store.get(new, bytes_max=MAX) == b"new"


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_lost_ack_of_the_metadata(memory: MemoryTransport, lost: int) -> None:
    """The swap happened and its confirmation is lost: the leader tells, and the put succeeds."""
    store = store_on(memory.stream("OBJ_b"), "b")
    memory.drop_next_ack(lost)
    gone = await store.put_facts(None, "gone", {"deleted": "1"})
    assert await store.head("gone") == gone
    original = store._put_chunks

    async def then_drop(document_id: str, nuid: str, data: bytes) -> int:
        chunks = await original(document_id, nuid, data)
        memory.bus.acks_to_drop = lost
        return chunks

    store._put_chunks = then_drop  # type: ignore[method-assign]
    memory.bus.acks_to_drop = 0
    head = await store.put("doc", BIG, FACTS, expected_revision=0)
    assert await store.head("doc") == head
    assert await store.get(head, bytes_max=MAX) == BIG


async def test_a_lost_ack_of_a_chunk(memory: MemoryTransport) -> None:
    """An upload whose chunk is not confirmed fails before anything names it."""
    store = store_on(memory.stream("OBJ_b"), "b")
    memory.drop_next_ack()
    with pytest.raises(OutcomeUnknown):
        await store.put("doc", BIG, FACTS, expected_revision=0)
    assert await store.head("doc") is None
    assert await memory.stream("OBJ_b").subjects("$O.b.C.>") == {}


async def test_a_lost_ack_and_another_who_claims_it(memory: MemoryTransport) -> None:
    """A swap whose confirmation is lost, and on which another then put its facts, keeps its bytes."""
    stream = memory.stream("OBJ_b")
    store, other = store_on(stream, "b"), store_on(stream, "b", "other")
    first = await store.put("doc", b"first", FACTS, expected_revision=0)
    chunks, asked = store._put_chunks, store._stream.last

    async def then_drop(document_id: str, nuid: str, data: bytes) -> int:
        count = await chunks(document_id, nuid, data)
        memory.drop_next_ack()
        return count

    class Late(type(store._stream)):  # type: ignore[misc]  # the twin's own class
        """The leader answers only after the next owner has claimed what it found."""

        async def last(self, subject: str, *, timeout: float = 5.0) -> StoredMessage | None:
            await other.put_facts(await other.head("doc"), "doc", {"by": "other"})
            return await asked(subject, timeout=timeout)

    store._put_chunks = then_drop  # type: ignore[method-assign]
    store._stream = Late(stream._world, stream._bus, "OBJ_b")
    with pytest.raises(WrongLastSequence):
        await store.put("doc", b"second", FACTS, expected_revision=first.revision)
    head = await other.head("doc")
    assert head is not None and head.facts == {"by": "other"}
    assert await other.get(head, bytes_max=MAX) == b"second"


async def test_a_cut_before_the_leader_can_tell(memory: MemoryTransport) -> None:
    """Without a leader to ask, the outcome is unknown and the chunks stay where they are."""
    store = store_on(memory.stream("OBJ_b"), "b")
    original = store._put_chunks

    async def then_cut(document_id: str, nuid: str, data: bytes) -> int:
        chunks = await original(document_id, nuid, data)
        asyncio.get_running_loop().call_soon(memory.cut)
        return chunks

    store._put_chunks = then_cut  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        await store.put("doc", b"x", FACTS, expected_revision=0)
    memory.heal()
    assert len(await memory.stream("OBJ_b").subjects("$O.b.C.>")) == 1


@pytest.mark.nats
async def test_other_clients_read_it(fresh_nats: EmbeddedNats) -> None:
    """nats-py's own ObjectStore reads a snapshot of ours, lists it, and finds its facts in the metadata."""
    async with await connect(fresh_nats.url) as transport:
        for spec in specs():
            await transport.ensure(spec)
        store = store_on(transport.stream(f"OBJ_{SNAPSHOT_BUCKET}"), SNAPSHOT_BUCKET)
        head = await store.put("doc", BIG, FACTS, expected_revision=0)
        client = await nats.connect(fresh_nats.url)
        try:
            objects = await client.jetstream().object_store(SNAPSHOT_BUCKET)
            result = await objects.get("doc")
            assert result.data == BIG
            assert (result.info.nuid, result.info.size, result.info.chunks) == (head.nuid, len(BIG), 12)
            assert [info.name for info in await objects.list()] == ["doc"]
            await objects.put("theirs", b"written by nats-py")
        finally:
            await client.close()
        stored = await transport.stream(f"OBJ_{SNAPSHOT_BUCKET}").get(head.revision)
        assert stored is not None
        assert json.loads(stored.data)["metadata"] == FACTS
        theirs = await store.head("theirs")
        assert theirs is not None
        assert await store.get(theirs, bytes_max=MAX) == b"written by nats-py"
