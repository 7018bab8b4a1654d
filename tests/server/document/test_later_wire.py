"""A client or server of a later version of the wire is refused at once, and nothing is written."""

import asyncio
import json

import pytest

import lorogo_client
from lorogo_client import Refused
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.wire import WIRE, LaterWire, later
from lorogo_server import Server, ServerSettings
from lorogo_server.document.host import Host
from lorogo_server.rpc import methods
from lorogo_testing.memory_nats import MemoryNats
from tests.journals import in_memory
from tests.server.support import Probe

DEADLINE = 20.0


@pytest.mark.parametrize(
    ("theirs", "fine"),
    [(None, True), (WIRE, True), (WIRE + 1, False), (0, False), ("2", False), (True, False)],
)
def test_who_says_nothing_speaks_the_first(theirs: object, fine: bool) -> None:
    """Anything but a version that we know is another's."""
    assert (later(theirs, "it", advice="wait") == "") is fine


async def test_a_client_of_a_later_wire_has_to_wait_for_the_servers() -> None:
    """Its sync is refused with a sentence; one without a version is served as ever."""
    nats = MemoryNats()
    async with Server(nats.connect(), ServerSettings(), **in_memory()), Probe(nats.connect()) as probe:
        await probe.start("doc")
        assert (await probe.call("sync", "doc", frontiers=b"\x00"))["wire"] == WIRE
        with pytest.raises(Refused, match="update the servers before the clients") as no:
            await probe.call("sync", "doc", frontiers=b"\x00", wire=WIRE + 1)
        assert no.value.reason is Reason.INVALID_REQUEST


async def test_a_client_that_finds_a_later_server_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`open()` raises; it does not try on until its time is over."""
    nats = MemoryNats()
    sync = methods._VERBS["sync"]

    async def of_a_later_server(host: Host, arguments: methods.Arguments) -> methods.Answer:
        return {**await sync(host, arguments), "wire": WIRE + 1}

    monkeypatch.setitem(methods._VERBS, "sync", of_a_later_server)
    async with (
        asyncio.timeout(DEADLINE),
        Server(nats.connect(), ServerSettings(), **in_memory()),
        lorogo_client.connect(nats.connect()) as client,
    ):
        with pytest.raises(
            Refused, match="speaks version 2 of the wire, and this is version 1: update lorogo"
        ):
            await client.open("doc")


async def test_a_server_does_not_start_where_later_ones_have_been() -> None:
    """They leave their version in the record of the epoch, and this one leaves that as it is."""
    nats = MemoryNats()
    async with Server(nats.connect(), ServerSettings(), **in_memory()):
        pass
    bucket = nats.connect().stream(subjects.STATUS_STREAM)
    before = await bucket.last(subjects.EPOCH_KEY)
    assert before is not None
    marked = json.dumps({**json.loads(before.data), "wire": WIRE + 1}).encode()
    await bucket.append(subjects.EPOCH_KEY, marked)
    with pytest.raises(LaterWire, match="start a later version of lorogo"):
        async with Server(nats.connect(), ServerSettings(), **in_memory()):
            pass
    after = await bucket.last(subjects.EPOCH_KEY)
    assert after is not None
    assert after.data == marked
