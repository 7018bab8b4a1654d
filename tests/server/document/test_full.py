"""Documents that are as large as they may be: refused while they are served, never when they are loaded."""

import random
import string
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from loro import ExportMode

from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_server import Server, ServerSettings
from lorogo_server.recovery.vouchers import Vouchers
from lorogo_server.settings import InvalidSettings
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.clock import SystemClock
from tests.server.support import QUICK, Probe, Writer, until

LIMIT = 4000
SMALL = replace(QUICK, durability="stream", document_bytes_max=LIMIT)


@asynccontextmanager
async def served(world: MemoryNats, settings: ServerSettings = SMALL) -> AsyncIterator[tuple[Server, Probe]]:
    async with (
        world.connect("server") as transport,
        Server(transport, settings) as server,
        Probe(world.connect("probe")) as probe,
    ):
        await probe.start("doc")
        yield server, probe


def words(number: int) -> str:
    """Text that does not compress to nothing."""
    return "".join(random.Random(number).choices(string.ascii_letters, k=600))


async def fill(probe: Probe, writer: Writer) -> tuple[list[bytes], Nack]:
    """Write until it is full: what was ACKed, and the refusal."""
    accepted: list[bytes] = []
    for number in range(100):
        update = writer.type(words(number))
        answer = await probe.send("doc", update)
        if isinstance(answer, Nack):
            return accepted, answer
        accepted.append(update)
    raise AssertionError("it is never full")


async def test_a_full_document_refuses_and_loses_nothing() -> None:
    """The refusal is final and has the reason; ACKed content is there, in memory and after every load."""
    world, writer = MemoryNats(), Writer()
    async with served(world) as (server, probe):
        accepted, no = await fill(probe, writer)
        assert no.reason is Reason.DOCUMENT_FULL
        assert not no.reason.retriable
        assert str(LIMIT) in no.message
        assert len(accepted) >= 3
        before = await probe.value("doc")
        assert server.hosts["doc"].loaded.intake.document_bytes <= LIMIT

        async def quarantined() -> bool:
            return await probe.rejected.last(subjects.rejected("doc")) is not None

        await until(quarantined)
        assert server.stats()["nacked"] == {"document-full": 1}
    async with served(world, replace(SMALL, document_bytes_max=1)) as (_, probe):
        assert await probe.value("doc") == before
        no = await probe.refuse("doc", Writer().type("x"))
        assert no.reason is Reason.DOCUMENT_FULL


async def test_what_was_accepted_is_accepted_by_every_load() -> None:
    """An owner with a higher limit ACKed it: one with a lower limit has it after its load, out of the WAL."""
    world, writer = MemoryNats(), Writer()
    async with served(world, replace(SMALL, document_bytes_max=0)) as (_, probe):
        for number in range(20):
            await probe.accept("doc", writer.type(words(number)))
    async with served(world) as (_, probe):
        assert await probe.value("doc") == {"body": writer.text}


async def test_who_did_not_hear_the_answer_hears_it_again() -> None:
    """An update that is in the document is ACKed, however full it is; so is one that a server vouches for."""
    world, writer = MemoryNats(), Writer()
    async with served(world) as (server, probe), world.connect("other") as transport:
        other = Vouchers(transport.bus, SystemClock())
        accepted, _ = await fill(probe, writer)
        answer = await probe.send("doc", accepted[0])
        assert isinstance(answer, Ack)
        lost = Writer().type("".join(words(number) for number in range(200, 210)))
        assert len(lost) > LIMIT
        await other.give("doc", [digest(lost)])
        again = chunks.split(lost, "again", chunk_bytes_max=100_000, inbox=probe.inbox, again=True)
        await probe.put("doc", again)
        assert isinstance(await probe.answer(), Ack)
        assert "doc" in server.hosts


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (SMALL, Reason.DOCUMENT_FULL),
        (replace(SMALL, document_bytes_max=0, update_bytes_max=LIMIT), Reason.TOO_LARGE),
    ],
)
async def test_loro_again_alone_passes_no_limit(settings: ServerSettings, reason: Reason) -> None:
    """A writer who sets LORO_AGAIN is refused as any other: no server vouches for those bytes."""
    large = Writer().type("".join(words(number) for number in range(200, 210)))
    async with served(MemoryNats(), settings) as (server, probe):
        await server.context.vouchers.give("doc", [digest(b"other bytes")])
        await server.context.vouchers.give("another", [digest(large)])
        await probe.put(
            "doc", chunks.split(large, "again", chunk_bytes_max=2000, inbox=probe.inbox, again=True)
        )
        no = await probe.answer()
        assert isinstance(no, Nack)
        assert no.reason is reason


async def test_a_voucher_is_for_a_digest() -> None:
    """Text that is no digest is not kept: on an open NATS any client may send it."""
    async with served(MemoryNats()) as (server, probe):
        vouchers = server.context.vouchers
        await probe.bus.publish(subjects.vouched("doc"), b"123 " + b"9" * 100_000 + b" word 456")
        await probe.bus.barrier()
        assert [vouchers.has("doc", one) for one in ("123", "9" * 100_000, "word", "456")] == [
            True,
            False,
            False,
            True,
        ]


async def test_junk_is_called_junk_in_a_full_document() -> None:
    """Bytes that are no update at all are `invalid-update`, not a lack of room."""
    world, writer = MemoryNats(), Writer()
    async with served(world) as (_, probe):
        await fill(probe, writer)
        assert (await probe.refuse("doc", bytes(1000))).reason is Reason.INVALID_UPDATE


async def test_a_snapshot_makes_room() -> None:
    """Many small updates look larger than they are: before they are refused a snapshot is stored."""
    world, writer = MemoryNats(), Writer()
    async with served(world) as (server, probe):
        for _ in range(80):  # about a hundred bytes each as updates, one as text
            await probe.accept("doc", writer.type("a"))

            async def has_room() -> bool:
                return not server.hosts["doc"].loaded.intake.nearly_full

            await until(has_room)
        assert server.stats()["compactions"]
        assert server.hosts["doc"].loaded.intake.document_bytes < LIMIT


async def test_calls_are_refused_too() -> None:
    """A patch, an import and a fork that would be too large are refused with the same reason."""
    world, writer = MemoryNats(), Writer()
    async with served(world) as (_, probe):
        await fill(probe, writer)
        with pytest.raises(Refused) as caught:
            await probe.call(
                "patch", "doc", operations=[{"op": "add", "path": "/title", "value": words(1) + words(2)}]
            )
        assert caught.value.reason is Reason.DOCUMENT_FULL
        await probe.start("other")
        large = Writer()
        for number in range(20):
            large.type(words(number))
        snapshot = large.doc.export(ExportMode.Snapshot())
        assert len(snapshot) > LIMIT
        with pytest.raises(Refused) as caught:
            await probe.call("import", "other", payload=snapshot)
        assert caught.value.reason is Reason.DOCUMENT_FULL
    async with served(world, replace(SMALL, document_bytes_max=1)) as (_, probe):
        with pytest.raises(Refused) as caught:
            await probe.call("fork", "doc", to="copy")
        assert caught.value.reason is Reason.DOCUMENT_FULL
        assert await probe.statuses.read("copy") is None


async def test_an_update_that_was_early_finds_a_full_document_too() -> None:
    """It is refused when it is sent again after its dependencies and there is no room."""
    world, writer = MemoryNats(), Writer()
    async with served(world, replace(SMALL, pending_seconds=60.0)) as (_, probe):
        early = writer.type(words(1) + words(2))
        late = writer.type("".join(words(number) for number in range(3, 9)))
        assert len(late) < LIMIT < len(early) + len(late)
        no = await probe.refuse("doc", late)
        assert no.reason is Reason.MISSING_DEPENDENCIES
        await probe.accept("doc", early)
        assert (await probe.refuse("doc", late)).reason is Reason.DOCUMENT_FULL
        assert await probe.value("doc") == {"body": words(1) + words(2)}


def test_no_limit_and_bad_limits() -> None:
    """0 is no limit; less is none at all."""
    with pytest.raises(InvalidSettings, match="document_bytes_max"):
        ServerSettings(document_bytes_max=-1)
    with pytest.raises(InvalidSettings, match="unfinished_total_bytes_max"):
        ServerSettings(unfinished_total_bytes_max=1)
