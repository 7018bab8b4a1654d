"""Two replicas that edit under one peer id: the second is refused, and loses nothing."""

from dataclasses import replace

from loro import ExportMode, LoroDoc, VersionVector

from lorogo_client import State
from lorogo_protocol.messages.reasons import Reason
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import DEADLINE, client_of, until_state
from tests.server.document.test_full import served
from tests.server.support import QUICK, Probe

SETTINGS = replace(QUICK, durability="stream")


def twin(text: str) -> bytes:
    doc = LoroDoc()
    doc.peer_id = 7
    doc.get_text("body").insert(0, text)
    doc.commit()
    return doc.export(ExportMode.Updates(VersionVector()))


async def test_other_content_under_known_ids_is_not_acked() -> None:
    """An ACK means that the content is in the document; a repetition under another log id still gets one."""
    async with served(MemoryNats(), SETTINGS) as (_, probe):
        await probe.accept("doc", twin("hello"))
        await probe.accept("doc", twin("hello"))
        assert (await probe.refuse("doc", twin("other"))).reason is Reason.PEER_REUSED
        assert (await probe.refuse("doc", twin("other and longer"))).reason is Reason.PEER_REUSED
        assert await probe.value("doc") == {"body": "hello"}


async def test_an_overlap_that_waits_for_another_update_is_not_refused_for_good() -> None:
    """Known operations beside new ones that build on what has not come: missing dependencies, not a reuse."""
    first, second, third = LoroDoc(), LoroDoc(), LoroDoc()
    for doc, text in ((first, "aaa"), (third, "ccc")):
        doc.get_text("body").insert(0, text)
        doc.commit()
    for doc in (first, third):
        second.import_(doc.export(ExportMode.Updates(VersionVector())))
    second.get_text("body").insert(0, "b")
    second.commit()
    async with served(MemoryNats(), SETTINGS) as (_, probe):
        await probe.accept("doc", first.export(ExportMode.Updates(VersionVector())))
        early = second.export(ExportMode.Updates(VersionVector.decode(third.oplog_vv.encode())))
        assert (await probe.refuse("doc", early)).reason is Reason.MISSING_DEPENDENCIES
        await probe.accept("doc", third.export(ExportMode.Updates(VersionVector())))
        await probe.accept("doc", early)
        assert await probe.value("doc") == {"body": second.get_text("body").to_string()}


async def test_a_load_decides_as_a_live_owner_does() -> None:
    """An update that came while no server ran is refused by the one that loads it."""
    world = MemoryNats()
    async with served(world, SETTINGS) as (_, probe):
        await probe.accept("doc", twin("hello"))
    async with Probe(world.connect("writer")) as writer:
        parts = writer.split(twin("other"))
        await writer.put("doc", parts)
        async with world.connect("server") as transport, Server(transport, SETTINGS):
            await writer.start("doc")
            while (no := await writer.answer()).log_id != parts[0].log_id:
                pass
            assert getattr(no, "reason", None) is Reason.PEER_REUSED
            assert await writer.value("doc") == {"body": "hello"}


async def test_a_client_that_shares_a_peer_id_starts_over_and_loses_nothing() -> None:
    """The SDK puts the refused edits on the current state, under a new peer id: both texts are saved."""
    world = MemoryNats()
    cut_off = world.connect("second")
    async with (
        world.connect("server") as transport,
        Server(transport, SETTINGS),
        client_of(world, transport=world.connect("first")) as first,
        client_of(world, transport=cut_off, seed=2) as second,
        first.open("doc") as one,
        second.open("doc") as two,
    ):
        for session in (one, two):
            await until_state(session, State.SAVED)
            session.doc.peer_id = 7
        cut_off.cut()
        one.doc.get_text("body").insert(0, "hello")
        one.commit()
        await one.flush(DEADLINE)
        two.doc.get_text("body").insert(0, "other")
        two.commit()
        cut_off.heal()
        await two.flush(DEADLINE)
        assert two.doc.peer_id != 7
        text = str(two.doc.get_text("body").to_string())
        assert sorted(text) == sorted("helloother")
        assert "hello" in text
        assert "other" in text
