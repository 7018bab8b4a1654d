"""Lost updates are published again: small ones as one message, each alone where that was refused."""

from lorogo_protocol.journal.records import UpdateRecord
from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages.digest import digest
from lorogo_server.context import ServerContext
from lorogo_server.recovery.reconcile_publish import Publisher
from tests.server.support import Writer
from tests.server.worlds import World

_CHUNK_BYTES = 100_000


async def published(
    context: ServerContext, updates: list[UpdateRecord], refused: set[tuple[str, str]]
) -> list[str]:
    """The log ids under which the WAL has these updates then."""
    replica = Replica()
    async with Publisher(context, "doc", _CHUNK_BYTES) as publisher:
        publisher.begin(replica, refused)
        for update in updates:
            await publisher.make_room(update)
            replica.apply(update.payload)
            publisher.add(list(chunks.split(update.payload, update.log_id, chunk_bytes_max=_CHUNK_BYTES)))
        await publisher.confirmed()
    return [
        chunks.parse(stored.headers, stored.data).log_id
        async for stored in context.wal.read(subjects.wal("doc"))
    ]


def records(texts: list[str]) -> list[UpdateRecord]:
    """Journalled updates of one writer."""
    writer, found, counter = Writer(), [], 0
    for number, text in enumerate(texts):
        payload, spans = writer.type(text), ((writer.doc.peer_id, counter, counter + len(text)),)
        found.append(UpdateRecord(1, number + 1, f"id-{number}", digest(payload), 1, 1, spans, payload))
        counter += len(text)
    return found


async def test_small_updates_are_published_as_one(memory: World) -> None:
    """What the WAL has then is what they hold together."""
    server, _ = await memory.server()
    (log_id,) = await published(server.context, records(["a", "b", "c"]), set())
    assert log_id.startswith("merged-")
    await memory.probe.start("doc")
    assert await memory.probe.value("doc") == {"body": "abc"}


async def test_each_is_published_alone_if_the_merged_one_was_refused(memory: World) -> None:
    """An owner refused it for good; one of them may still be taken."""
    server, _ = await memory.server()
    updates = records(["a", "b", "c"])
    together = Replica()
    for update in updates:
        together.apply(update.payload)
    merged = digest(together.updates_since(Replica().version().vector))
    ids = await published(server.context, updates, {(f"merged-{merged}", merged)})
    assert ids == ["id-0", "id-1", "id-2"]


async def test_a_merged_update_is_bounded(memory: World) -> None:
    """More than 1,000 operations are several messages, and a large update is published alone."""
    server, _ = await memory.server()
    ids = await published(server.context, records(["x" * 600, "y" * 300, "z" * 200, "w" * 40_000]), set())
    assert [one.partition("-")[0] for one in ids] == ["merged", "id", "id"]
