"""Servers keep the list of revoked tokens on their disks, and bring it back when NATS lost it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lorogo_log import MemoryStorage
from lorogo_protocol.access import revocation
from lorogo_protocol.messages import subjects
from lorogo_server import ServerSettings, streams
from lorogo_server.recovery.revocation_copy import (
    Judgement,
    RevocationCopy,
    decode,
    encode,
    find,
    judge,
    restore,
)
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.auth.revocations import Revocations
from lorogo_transport.clock import SystemClock
from lorogo_transport.ports import Transport
from lorogo_transport.tasks import Tasks
from tests.transport.support import until

ENTRY = revocation.of_token(1_700_000_000.0, None)


class Cluster:
    """A NATS that can lose its files, and servers with disks."""

    def __init__(self) -> None:
        self.nats = MemoryNats()
        self.disks: dict[str, MemoryStorage] = {}

    async def new_nats(self) -> Transport:
        """A NATS without files, with the streams that a server makes."""
        self.nats = MemoryNats()
        transport = self.nats.connect("operator")
        await streams.ensure(transport, ServerSettings(), SystemClock(), guarded=True, above=0, known=_none)
        return transport

    @asynccontextmanager
    async def server(self, name: str, wait_seconds: float = 0.0) -> AsyncIterator[None]:
        """The part of a server that keeps revocations, on its own disk."""
        disk = self.disks.setdefault(name, MemoryStorage()).directory("data", create=True)
        copy = RevocationCopy(self.nats.connect(name), disk, SystemClock(), name, wait_seconds)
        tasks = Tasks(lambda error: pytest.fail(str(error)))
        await copy.open()
        tasks.spawn(copy.run())
        try:
            yield
        finally:
            await tasks.close()


async def _none() -> int:
    return 0


async def _listed(transport: Transport) -> Revocations:
    listed = Revocations(transport, SystemClock())
    await listed.read()
    return listed


async def test_revocations_survive_the_loss_of_nats() -> None:
    """A server brings back its copy, and only then is the list complete."""
    cluster = Cluster()
    transport = await cluster.new_nats()
    async with cluster.server("s1"):
        listed = await _listed(transport)
        assert listed.complete
        sequence = await listed.revoke_token("stolen")
        assert await listed.wait_kept(sequence, 10.0) == ("s1",)
    transport = await cluster.new_nats()
    assert not (await _listed(transport)).complete
    async with cluster.server("s1"):
        listed = await _listed(transport)
        assert listed.complete and set(listed.entries) == {"tok_stolen"}


async def test_a_server_without_a_copy_does_not_complete_a_list_that_was_lost() -> None:
    """Where NATS has documents, tokens are refused until a server with a copy is there."""
    cluster = Cluster()
    transport = await cluster.new_nats()
    async with cluster.server("s1"):
        pass
    transport = await cluster.new_nats()
    await transport.stream(subjects.WAL_STREAM).append(subjects.wal("doc"), b"an update")
    async with cluster.server("s2"):
        assert not (await _listed(transport)).complete
        async with cluster.server("s1"):
            assert (await _listed(transport)).complete


async def test_servers_wait_for_the_copies_of_others() -> None:
    """Before the time is over a server marks nothing, and it takes up what another brings back."""
    cluster = Cluster()
    transport = await cluster.new_nats()
    async with cluster.server("s1", wait_seconds=600.0):
        assert not (await _listed(transport)).complete
        async with cluster.server("s2"):
            listed = await _listed(transport)
            sequence = await listed.revoke_token("stolen")

            async with listed:
                await until(lambda: listed.kept_by(sequence) == ("s1", "s2"))


@pytest.mark.parametrize(
    ("has_copy", "has_entries", "new_nats", "waited", "expected"),
    [
        (True, False, False, False, Judgement.WAIT),
        (False, False, True, False, Judgement.WAIT),
        (True, False, False, True, Judgement.COMPLETE),
        (False, True, False, True, Judgement.COMPLETE),
        (False, False, True, True, Judgement.COMPLETE),
        (False, False, False, True, Judgement.REFUSE),
    ],
)
def test_who_marks_the_list_as_complete(
    has_copy: bool, has_entries: bool, new_nats: bool, waited: bool, expected: Judgement
) -> None:
    """A server with a reason to know it, after it waited for others."""
    found = judge(has_copy=has_copy, has_entries=has_entries, new_nats=new_nats, waited=waited)
    assert found is expected


@pytest.mark.parametrize("entry", [ENTRY, revocation.decode("tok_a", b"rubbish"), replace(ENTRY, until=2e9)])
def test_a_copy_is_read_as_it_was_written(entry: revocation.Revocation) -> None:
    """Damage is noticed: a damaged copy is none."""
    data = encode({"tok_a": entry})
    assert decode(data) == {"tok_a": entry}
    assert decode(data[:-1]) is None and decode(b"") is None


async def test_a_restore_brings_back_what_data_folders_have(tmp_path: Path) -> None:
    """Of every worker below the folder; a damaged copy is left out."""
    for name, data in (("worker-0", encode({"tok_a": ENTRY})), ("worker-1", encode({"tok_b": ENTRY}))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "revocations").write_bytes(data)
    (tmp_path / "worker-2").mkdir()
    (tmp_path / "worker-2/revocations").write_bytes(b"damaged")
    transport = await Cluster().new_nats()
    assert await restore(transport, SystemClock(), find(tmp_path)) == 2
    listed = await _listed(transport)
    assert listed.complete and set(listed.entries) == {"tok_a", "tok_b"}
