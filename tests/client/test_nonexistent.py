"""Documents that do not exist: a call that cannot create one says so, and writes nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from loro import ExportMode, LoroDoc, VersionVector

from lorogo_client import Client, DocumentApi, InvalidMoment, NoSuchDocument, Refused
from lorogo_protocol.messages import calls, subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.stores import topology
from lorogo_transport.stores.catalogue import rows
from tests.client.support import QUICK, client_of
from tests.journals import in_memory
from tests.server.poison import forged

CALLS: dict[str, Callable[[DocumentApi], Awaitable[object]]] = {
    "get": lambda api: api.get(),
    "version": lambda api: api.version(),
    "status": lambda api: api.status(),
    "history": lambda api: api.history(),
    "export": lambda api: api.export(),
    "fork": lambda api: api.fork("copy"),
    "revert": lambda api: api.revert("10m"),
    "delete": lambda api: api.delete(),
    "purge": lambda api: api.delete(purge=True),
    "restore": lambda api: api.restore(),
    "compact": lambda api: api.compact(),
}


@pytest.fixture(params=["client", "server"])
async def client(request: pytest.FixtureRequest, world: MemoryNats) -> AsyncIterator[Client]:
    """One that reads the status bucket, and one that leaves all of it to servers, as with a token."""
    settings = replace(QUICK, start=request.param)
    async with Server(world.connect("server"), **in_memory()), client_of(world, settings) as client:
        yield client


async def _names(client: Client) -> list[str]:
    return [row["document"] for row in await rows(client.transport, now_ns=0)]


def _doc() -> LoroDoc:
    doc = LoroDoc()
    doc.get_text("t").insert(0, "hello")
    doc.commit()
    return doc


async def test_a_call_that_cannot_create_leaves_no_trace(client: Client) -> None:
    """It raises NoSuchDocument; neither a status, nor a message in the WAL, nor a snapshot is written."""
    for call in CALLS.values():
        with pytest.raises(NoSuchDocument, match="there is no document 'none'") as caught:
            await call(client.document("none"))
        assert caught.value.code == "not-found"
        assert not caught.value.retriable
    assert await _names(client) == []


async def test_patch_import_and_open_create(client: Client) -> None:
    """What they leave can be read, also when only a snapshot says that it exists, as after a fork."""
    await client.document("patched").patch([{"op": "add", "path": "/t", "value": "hello"}])
    await client.document("imported").import_(_doc().export(ExportMode.Snapshot()))
    async with client.open("opened"):
        pass
    await client.document("patched").fork("forked")
    for name, value in {"patched": "hello", "imported": "hello", "forked": "hello", "opened": None}.items():
        assert (await client.document(name).get())["value"] == ({} if value is None else {"t": value})
    assert await _names(client) == ["forked", "imported", "opened", "patched"]


async def test_a_patch_that_is_too_large_leaves_no_trace(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call above the limit is refused before it is sent, with both numbers."""
    monkeypatch.setattr(calls, "CALL_BYTES_MAX", 1000)
    with pytest.raises(Refused, match=r"the call has 10\d\d bytes and may have 1000") as caught:
        await client.document("none").patch([{"op": "add", "path": "/t", "value": "x" * 1000}])
    assert caught.value.reason is Reason.TOO_LARGE
    assert await _names(client) == []


@pytest.mark.parametrize("version", ["vNOPE", "vAAAA", "vAQEBAQ", "v!", "vAR4"])
async def test_one_sentence_for_every_wrong_version(client: Client, version: str) -> None:
    """Whether the text is no version or a version of another document: the sentence is the same."""
    api = client.document("doc")
    await api.patch([{"op": "add", "path": "/t", "value": "hello"}])
    calls_at = (lambda: api.get(at=version), lambda: api.revert(version), lambda: api.fork("copy", version))
    for call in calls_at:
        with pytest.raises((Refused, InvalidMoment)) as caught:
            await call()
        assert str(caught.value) == f"'{version}' is not a version of this document; its history lists them"


async def test_a_message_in_the_wal_is_a_document(client: Client) -> None:
    """A client wrote, and no server has taken the document yet: a read starts it."""
    await client.transport.stream(subjects.WAL_STREAM).append(subjects.wal("sent"), b"not an update")
    assert (await client.document("sent").get())["value"] == {}
    await client.document("sent").delete(purge=True)


@pytest.mark.parametrize("start", ["client", "server"])
async def test_what_nats_lost_exists(
    world: MemoryNats, tmp_path: Path, start: Literal["client", "server"]
) -> None:
    """A read brings back from a journal what NATS has no trace of any more."""
    settings = replace(QUICK, start=start)
    async with Server(world.connect("first"), data=tmp_path), client_of(world, settings) as client:
        await client.document("doc").patch([{"op": "add", "path": "/t", "value": "hello"}])
    for spec in topology.specs():
        world.lose_stream(spec.name)
    async with Server(world.connect("second"), data=tmp_path), client_of(world, settings) as client:
        assert (await client.document("doc").get())["value"] == {"t": "hello"}


@pytest.mark.parametrize("damage", ["no header", "cut", "one bit", "only updates", "forged"])
async def test_an_import_of_no_snapshot_leaves_no_trace(client: Client, damage: str) -> None:
    """Bytes that are not a whole snapshot are refused before the document is started."""
    whole = _doc().export(ExportMode.Snapshot())
    payload = {
        "no header": b"junk",
        "cut": whole[:-7],
        "one bit": whole[:60] + bytes([whole[60] ^ 1]) + whole[61:],
        "only updates": _doc().export(ExportMode.Updates(VersionVector())),
        "forged": forged(whole),
    }[damage]
    with pytest.raises(Refused, match="not a whole Loro snapshot") as caught:
        await client.document("none").import_(payload)
    assert caught.value.reason is Reason.INVALID_UPDATE
    assert await _names(client) == []


async def test_an_import_takes_every_kind_of_snapshot(client: Client) -> None:
    """Also one whose history was trimmed."""
    doc = _doc()
    await client.document("shallow").import_(doc.export(ExportMode.ShallowSnapshot(doc.oplog_frontiers)))
    assert (await client.document("shallow").get())["value"] == {"t": "hello"}
