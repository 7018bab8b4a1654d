"""The search for one update by its log id."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

import lorogo_client
from lorogo_cli.commands.update_trace import (
    InJournal,
    InWal,
    Quarantined,
    SnapshotCoverage,
    UpdateTrace,
    search,
    verdict,
)
from lorogo_client import Client, UpdateRefused
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.position import Position
from lorogo_server import Server, ServerSettings
from lorogo_testing.memory_nats import MemoryNats
from tests.journals import in_memory
from tests.server.support import until

DEADLINE = 20.0

WAL = InWal("doc", (41,), 0, 10, whole=True)
JOURNAL = InJournal("server", "ab", 7, "doc", 1, 41, 0, 3, 0, "1", 10, ((1, 0, 5),))
REFUSED = Quarantined("doc", "invalid-update", "it does not decode", 41, 0, 10)
KNOWN = UpdateTrace("x", "doc")
BEFORE = SnapshotCoverage(Position(1, 40), deleted=False)
BEFORE = SnapshotCoverage(Position(1, 40), deleted=False)


VERDICTS = [
    (UpdateTrace("x"), "not found: it did not reach NATS, or its records have expired"),
    (
        replace(KNOWN, wal=(WAL,), journals=(JOURNAL,)),
        "accepted: in the WAL at 41, in the journal of 1 server",
    ),
    (
        replace(KNOWN, wal=(WAL,), journals=(JOURNAL, replace(JOURNAL, server="other"))),
        "accepted: in the WAL at 41, in the journals of 2 servers",
    ),
    (
        replace(KNOWN, journals=(JOURNAL,), snapshot=SnapshotCoverage(Position(1, 41), deleted=False)),
        "accepted, and compacted since: in the stored snapshot, in the journal of 1 server",
    ),
    (
        replace(
            KNOWN,
            journals=(JOURNAL,),
            in_document=True,
            snapshot=BEFORE,
        ),
        "accepted, and compacted since: in the stored snapshot, in the journal of 1 server",
    ),
    (
        replace(KNOWN, journals=(JOURNAL,), in_document=False),
        "accepted, but missing from the document: in the journal of 1 server; reconciliation restores it",
    ),
    (
        replace(KNOWN, journals=(JOURNAL,), snapshot=BEFORE),
        "accepted: in the journal of 1 server; no server serves the document now, so its content is unknown",
    ),
    (replace(KNOWN, rejected=(REFUSED,)), "refused: invalid-update: it does not decode"),
    (
        replace(KNOWN, rejected=(REFUSED,), journals=(JOURNAL,), wal=(WAL,)),  # it waited, and came again
        "accepted: in the WAL at 41, in the journal of 1 server",
    ),
    (
        replace(KNOWN, wal=(WAL,)),
        (
            "in the WAL at 41, but in no journal that answered: not accepted yet, or accepted with"
            " durability stream"
        ),
    ),
    (
        replace(KNOWN, wal=(replace(WAL, whole=False),)),
        "incomplete: some of its chunks are in the WAL, others are missing",
    ),
    (
        replace(KNOWN, journals=(JOURNAL,), snapshot=SnapshotCoverage(Position(1, 41), deleted=True)),
        "its document is deleted; the update is in the journal of 1 server",
    ),
]


@pytest.mark.parametrize(("found", "words"), VERDICTS)
def test_what_is_known_in_one_sentence(found: UpdateTrace, words: str) -> None:
    """The strongest fact that the records prove, and no more."""
    assert verdict(found) == words


@asynccontextmanager
async def world(**settings: object) -> AsyncIterator[tuple[MemoryNats, Client]]:
    nats = MemoryNats()
    chosen = ServerSettings(**settings)  # type: ignore[arg-type]  # passed on
    async with (
        asyncio.timeout(DEADLINE),
        Server(nats.connect("server"), chosen, **in_memory()),
        lorogo_client.connect(nats.connect("client")) as client,
    ):
        yield nats, client


async def write(client: Client, document: str, text: str) -> str:
    async with client.open(document) as session:
        session.doc.get_text("body").insert(0, text)
        receipt = await session.flush(timeout=DEADLINE)
    assert receipt is not None
    return receipt.log_id


async def test_an_accepted_update_is_found_before_and_after_a_compaction() -> None:
    """With or without its document's name; other updates and other documents are left out."""
    async with world() as (_, client):
        first = await write(client, "minutes", "one")
        second = await write(client, "minutes", "two")
        await write(client, "other", "three")
        by_name, by_id = (
            await search(client.pool.first, first, document="minutes"),
            await search(client.pool.first, first),
        )
        assert by_name == by_id
        assert by_id.document == "minutes"
        (held,), (kept,) = by_id.wal, by_id.journals
        assert held.sequences == (kept.sequence,)
        assert (kept.document, held.whole, by_id.in_document, by_id.rejected) == ("minutes", True, True, ())
        assert (await search(client.pool.first, second)).journals[0].sequence > kept.sequence
        assert (await search(client.pool.first, first, document="other")).journals == ()
        await client.document("minutes").compact()
        after = await search(client.pool.first, first)
        assert (after.wal, after.journals) == ((), (kept,))
        assert verdict(after).startswith("accepted, and compacted since")


async def test_a_refused_update_is_found_with_its_reason() -> None:
    """In the quarantine, by the log id that the error named."""
    async with world(document_bytes_max=100) as (_, client):
        with pytest.raises(UpdateRefused) as no:
            await write(client, "small", "x" * 1000)
        log_id = no.value.log_id

        async def moved() -> UpdateTrace | None:
            found = await search(client.pool.first, log_id)
            return found if found.rejected and not found.wal else None

        found = await until(moved)
        assert found.document == "small"
        assert found.rejected[0].reason == "document-full"
        assert verdict(found).startswith("refused: document-full: the document has ")


async def test_an_update_with_missing_chunks_is_incomplete() -> None:
    """Only the WAL has it, so the whole WAL is read, after a notice."""
    async with world() as (nats, client):
        await write(client, "minutes", "one")
        first, *_ = chunks.split(b"x" * 100, "half-of-it", chunk_bytes_max=60)
        wal = nats.connect("hand").stream(subjects.WAL_STREAM)
        await wal.append(subjects.wal("minutes"), first.data, headers=first.headers())
        notices: list[str] = []
        found = await search(client.pool.first, "half-of-it", on_full_scan=lambda: notices.append("all"))
        assert (found.document, found.wal[0].whole, notices) == ("minutes", False, ["all"])


async def test_an_update_without_records_is_unknown() -> None:
    """Every place is searched, and none has it."""
    async with world() as (_, client):
        await write(client, "minutes", "one")
        found = await search(client.pool.first, "never-sent")
        assert (found.known, found.document, found.unreadable) == (False, "", ())


async def test_the_log_id_in_a_payload_is_no_update() -> None:
    """A text that names the id of another update is not taken for it."""
    async with world() as (_, client):
        log_id = await write(client, "minutes", "one")
        await write(client, "minutes", f"see {log_id}")
        assert len((await search(client.pool.first, log_id)).journals) == 1


async def test_without_servers_the_wal_tells_what_it_has() -> None:
    """No journal is asked; nothing is started."""
    nats = MemoryNats()
    async with asyncio.timeout(DEADLINE), lorogo_client.connect(nats.connect("client")) as client:
        async with Server(nats.connect("server"), ServerSettings(), **in_memory()):
            log_id = await write(client, "minutes", "one")
        found = await search(client.pool.first, log_id, document="minutes")
        assert (len(found.wal), found.journals, found.in_document) == (1, (), None)
        assert verdict(found).startswith("in the WAL at ")
