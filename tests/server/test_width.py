"""An update of too many peers would hold up every document of a server: refused, live and at a load."""

from dataclasses import replace

import pytest
from loro import ExportMode, LoroDoc, VersionVector

from lorogo_protocol.limits import UPDATE_PEERS_MAX
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused as CallRefused
from lorogo_protocol.messages.reasons import Reason
from tests.server.support import Writer, until
from tests.server.worlds import World


def wide() -> LoroDoc:
    doc = LoroDoc()
    for peer in range(1, UPDATE_PEERS_MAX + 2):
        doc.peer_id = peer
        doc.get_map("m").insert("by", peer)
        doc.commit()
    return doc


WIDE = wide()
UPDATE = bytes(WIDE.export(ExportMode.Updates(VersionVector())))


async def quarantined(world: World, messages: int) -> None:
    """Until so many messages of the document, which has one update left, were moved out of its WAL."""

    async def moved() -> bool:
        left = await world.probe.wal.count(subjects.wal("doc"))
        kept = await world.probe.rejected.count(subjects.rejected("doc"))
        return (left, kept) == (1, messages)

    await until(moved)


async def test_it_is_refused_and_quarantined_and_nothing_else_stops(memory: World) -> None:
    """The reason has the number of peers; the document, others, and a fresh load go on without it."""
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    await probe.start("other")
    await probe.accept("doc", Writer().type("kept"))
    nack = await probe.refuse("doc", UPDATE)
    assert nack.reason is Reason.TOO_LARGE
    assert nack.message == "the update has changes of 1001 peers, above the limit of 1000"
    await probe.accept("other", Writer().type("goes on"))
    await quarantined(memory, messages=1)
    assert await probe.value("doc") == {"body": "kept"}
    await server.stop()
    await memory.server()
    await probe.start("doc")
    assert await probe.value("doc") == {"body": "kept"}


async def test_a_load_refuses_it_as_an_owner_does(memory: World) -> None:
    """Stored while the document had no owner, it is quarantined by the next load."""
    probe = memory.probe
    first, _ = await memory.server()
    await probe.start("doc")
    await probe.accept("doc", Writer().type("kept"))
    await first.stop()
    parts = probe.split(UPDATE, size=30_000)
    await probe.put("doc", [replace(part, inbox="") for part in parts])
    await memory.server()
    await probe.start("doc")
    assert await probe.value("doc") == {"body": "kept"}
    await quarantined(memory, messages=len(parts))


async def test_an_old_document_can_be_imported_into_a_new_one(memory: World) -> None:
    """As a snapshot, of however many peers; also when a compaction's snapshot is loaded before it."""
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    await probe.call("import", "doc", payload=WIDE.export(ExportMode.Snapshot()))
    await probe.call("compact", "doc")
    await server.stop()
    await memory.server()
    await probe.start("doc")
    assert await probe.value("doc") == WIDE.get_deep_value()
    assert await probe.rejected.count(subjects.rejected("doc")) == 0


async def test_an_import_of_anything_but_a_snapshot_has_the_limit_too(memory: World) -> None:
    """An update that begins at nothing could be imported, but is not quick."""
    await memory.server()
    await memory.probe.start("doc")
    with pytest.raises(CallRefused, match="1001 peers, above the limit of 1000") as caught:
        await memory.probe.call("import", "doc", payload=UPDATE)
    assert caught.value.reason is Reason.TOO_LARGE
    assert await memory.probe.wal.count(subjects.wal("doc")) == 0
