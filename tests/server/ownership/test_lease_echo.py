"""A lease's own renewal that comes back is known without being read; nothing else is taken for it."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Down, Up, encode
from lorogo_server import Server
from lorogo_server.document.host import Host
from lorogo_server.ownership.lease import Lease, LeaseStage, StatusView
from lorogo_transport.ports import Message
from lorogo_transport.stores.statuses import status_of
from tests.server.worlds import World, lease_of

TOKEN = 50


class Muted:
    """Statuses without effect; the last one can be read."""

    value = b""

    async def write_unconfirmed(self, _: str, value: bytes, **__: object) -> None:
        self.value = value


async def renewed(memory: World, statuses: Muted) -> tuple[Lease, Host]:
    """A lease with a renewal on its way, and the document's host."""
    server, _ = await memory.server()
    await memory.probe.start("doc")
    return await renewal(server, statuses), server.hosts["doc"]


async def renewal(server: Server, statuses: Muted) -> Lease:
    """A lease of that server with a renewal on its way."""
    lease = lease_of(server, TOKEN, statuses)  # type: ignore[arg-type]  # what a renewal needs of them
    lease.go_up()
    await lease.renew()
    return lease


def copy(lease: Lease, value: bytes, sequence: str = "60", **others: str) -> Message:
    """As the bucket republishes what was written."""
    headers = {
        h.SERVER: lease.server_id,
        h.LEASE: str(TOKEN),
        "Nats-Stream": subjects.STATUS_STREAM,
        "Nats-Subject": subjects.status_key("doc"),
        "Nats-Sequence": sequence,
        "Nats-Last-Sequence": "50",
        "Nats-Time-Stamp": "2026-11-17T18:00:00.000000001Z",
    }
    return Message(subjects.status("doc"), value, {**headers, **others})


async def test_what_comes_back_is_taken_as_if_it_had_been_read(memory: World) -> None:
    """The revision is ours, the lease lasts from when it was sent, and nothing is in doubt."""
    server, _ = await memory.server()
    await memory.probe.start("doc")
    statuses = Muted()
    lease, read = await renewal(server, statuses), await renewal(server, Muted())
    assert lease.doubtful
    assert lease.on_own_renewal(copy(lease, statuses.value))
    entry = status_of(copy(read, encode(Up(read.server_id, 0))))
    assert entry is not None
    assert read.on_status(entry) is None
    for one in (lease, read):
        assert (one.revision, one.doubtful, one.valid(), one.ended) == (60, False, True, False)
        assert one.view is StatusView.FOLLOWED


@dataclass(frozen=True)
class Other:
    """Something else than the renewal, made of what was sent."""

    make: Callable[[Lease, bytes], Message]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Other(lambda lease, _: copy(lease, encode(Up(lease.server_id, 1)))), id="another time"),
        pytest.param(Other(lambda lease, _: copy(lease, encode(Down(1)))), id="another status"),
        pytest.param(Other(lambda lease, value: copy(lease, value, **{h.SERVER: "other"})), id="not ours"),
        pytest.param(Other(lambda lease, value: copy(lease, value, **{h.LEASE: "49"})), id="another lease"),
        pytest.param(Other(lambda lease, value: copy(lease, value, sequence="50")), id="the past"),
        pytest.param(Other(lambda lease, value: copy(lease, value, sequence="")), id="no sequence"),
        pytest.param(Other(lambda lease, value: copy(lease, value, sequence="-60")), id="not a number"),
        pytest.param(Other(lambda lease, value: copy(lease, value, sequence="६०")), id="other digits"),
        pytest.param(Other(lambda lease, value: copy(lease, value, sequence="9" * 5000)), id="too many"),
        pytest.param(Other(lambda _, value: Message("loro.status.doc", value)), id="no headers"),
    ],
)
async def test_nothing_else_is_taken_for_it(memory: World, other: Other) -> None:
    statuses = Muted()
    lease, _host = await renewed(memory, statuses)
    assert not lease.on_own_renewal(other.make(lease, statuses.value))
    assert (lease.revision, lease.doubtful, lease.ended) == (TOKEN, True, False)


async def test_a_lease_that_ended_hears_nothing(memory: World) -> None:
    statuses = Muted()
    lease, _host = await renewed(memory, statuses)
    lease.stage = LeaseStage.RELEASED
    assert not lease.on_own_renewal(copy(lease, statuses.value))
    assert lease.revision == TOKEN
