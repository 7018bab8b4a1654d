"""Order of updates: a load is free of it, a live owner is strict (docs/decisions/0023)."""

from dataclasses import replace

import pytest
from loro import ExportMode, VersionVector

from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack
from lorogo_server.intake import intake as intake_module
from tests.server.support import QUICK, Writer, until
from tests.server.worlds import World


@pytest.mark.parametrize("pending_bytes_max", [QUICK.pending_bytes_max, 4000], ids=["fits", "several reads"])
async def test_a_load_applies_updates_in_any_order(memory: World, pending_bytes_max: int) -> None:
    """Also if few of those with missing dependencies fit into memory: it reads the WAL again."""
    server, _ = await memory.server(replace(QUICK, pending_bytes_max=pending_bytes_max))
    probe, writer = memory.probe, Writer()
    updates = [writer.type(f"{number} ") for number in range(30)]
    for update in reversed(updates):
        await probe.put("doc", probe.split(update))
    await probe.start("doc")
    assert await probe.value("doc") == {"body": writer.text}
    host = server.hosts["doc"]
    assert (host.loaded.intake.pending, host.loaded.intake.head.sequence) == (0, 30)
    assert host.loaded.follower.taken == 30
    ack = await probe.accept("doc", writer.type("more"))
    assert ack.sequence == 31


async def test_a_load_leaves_an_update_without_its_dependencies_where_it_is(memory: World) -> None:
    """It may be ACKed: it bounds the purge until the document has its changes, and is never moved."""
    server, _ = await memory.server(replace(QUICK, pending_seconds=0.01))
    probe, writer, other = memory.probe, Writer(), Writer()
    writer.type("lost ")
    await probe.put("doc", probe.split(writer.type("left")))
    await probe.start("doc")
    assert getattr(await probe.answer(), "reason", None) is Reason.MISSING_DEPENDENCIES
    await probe.accept("doc", other.type("a"))
    await probe.accept("doc", other.type("b"))
    assert server.hosts["doc"].loaded.intake.tick(1e5) == []
    assert (await probe.call("compact", "doc"))["purged"] == 0
    assert await probe.rejected.last(subjects.rejected("doc")) is None
    await probe.accept("doc", writer.doc.export(ExportMode.Updates(VersionVector())))
    assert (await probe.call("compact", "doc"))["purged"] == 3


async def test_what_is_left_for_days_is_moved(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that vanished does not bound the purge for good."""
    monkeypatch.setattr(intake_module, "_LEFT_OVER_SECONDS", 0.05)
    await memory.server()
    probe, writer = memory.probe, Writer()
    writer.type("lost ")
    early = writer.type("left")
    await probe.put("doc", probe.split(early))
    await probe.start("doc")
    copy = await until(lambda: probe.rejected.last(subjects.rejected("doc")))
    assert copy.data == early


async def test_more_left_updates_than_fit_into_memory_bound_the_purge_too(memory: World) -> None:
    """Beyond the limit only the lowest sequence is kept."""
    server, _ = await memory.server(replace(QUICK, pending_updates_max=2))
    probe, writer = memory.probe, Writer()
    writer.type("lost ")
    for number in range(4):
        await probe.put("doc", probe.split(writer.type(f"{number} ")))
    await probe.start("doc")
    intake = server.hosts["doc"].loaded.intake
    assert intake.pending == 2
    await probe.accept("doc", Writer().type("a"))
    assert intake.first_needed() == 1


async def test_a_read_from_the_beginning_is_one_request_to_sync(memory: World) -> None:
    """What it accepts out of order is not published; the next update names its predecessor by one number."""
    server, _ = await memory.server()
    probe, writer, other = memory.probe, Writer(), Writer()
    await probe.start("doc")
    first, second = writer.type("one "), writer.type("two ")
    assert (await probe.refuse("doc", second)).reason is Reason.MISSING_DEPENDENCIES
    await probe.accept("doc", first)
    received = await probe.hear(subjects.accepted("doc"))
    server.hosts["doc"].rewind()
    sync = (await received.get()).headers
    assert (sync[h.OMITTED], sync[h.SEQUENCE], sync[h.PREVIOUS]) == ("0", "2", "2")
    assert await probe.value("doc") == {"body": writer.text}
    while not isinstance(await probe.answer(), Ack):
        pass
    ack = await probe.accept("doc", other.type("x"))
    update = (await received.get()).headers
    assert (update[h.SEQUENCE], update[h.PREVIOUS]) == (str(ack.sequence), "2")
