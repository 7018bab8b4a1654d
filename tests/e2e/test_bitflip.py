"""Damage to the stream's files: everything that was ACKed is there again, and nothing else.

Real processes, a real nats-server and its real files. Run with `-s` to see the table; LOROGO_DRILL=full
writes 5,000 updates to 50 documents.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import lorogo_client
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import subjects
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.rpc.discovery import server_stats
from tests.e2e.support import QUICK, ServerProcess, Typist, eventually, servers

FULL = os.environ.get("LOROGO_DRILL") == "full"
DOCUMENTS, UPDATES = (50, 100) if FULL else (10, 50)  # updates of each document
NAMES = [f"doc-{number:02d}" for number in range(DOCUMENTS)]


@dataclass(frozen=True)
class Written:
    """The ACKed content of a document."""

    text: str
    ends: dict[int, int]


def blocks(nats: EmbeddedNats) -> Path:
    return nats.store_dir / "jetstream" / "$G" / "streams" / subjects.WAL_STREAM


def flip_a_bit(nats: EmbeddedNats) -> None:
    block = max((blocks(nats) / "msgs").glob("*.blk"), key=lambda path: path.stat().st_size)
    with block.open("r+b") as file:
        middle = block.stat().st_size // 2
        file.seek(middle)
        byte = file.read(1)[0]
        file.seek(middle)
        file.write(bytes([byte ^ 0x10]))


def truncate_the_block(nats: EmbeddedNats) -> None:
    block = max((blocks(nats) / "msgs").glob("*.blk"), key=lambda path: path.stat().st_size)
    os.truncate(block, block.stat().st_size // 2)


def delete_the_stream(nats: EmbeddedNats) -> None:
    shutil.rmtree(blocks(nats))


def delete_everything(nats: EmbeddedNats) -> None:
    shutil.rmtree(nats.store_dir / "jetstream")


async def write(url: str, names: list[str], updates: int, author: str = "w") -> dict[str, Written]:
    """So many ACKed updates to each document; what they must hold from then on."""
    async with lorogo_client.connect(url) as client, AsyncExitStack() as stack:
        typists = [Typist(await stack.enter_async_context(client.open(name)), author) for name in names]

        async def fill(typist: Typist) -> None:
            for _ in range(updates):
                await typist.word()

        await asyncio.gather(*map(fill, typists))
        return {
            typist.session.document_id: Written(
                typist.session.doc.get_text("body").to_string(),
                crdt.counters(typist.session.doc.oplog_vv.encode()),
            )
            for typist in typists
        }


async def read(url: str, names: list[str]) -> dict[str, Written]:
    """The documents that a new client gets."""
    async with lorogo_client.connect(url) as client:

        async def one(name: str) -> Written:
            async with client.open(name, read_only=True) as session:
                doc = session.doc
                return Written(doc.get_text("body").to_string(), crdt.counters(doc.oplog_vv.encode()))

        return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


async def said(url: str) -> list[dict[str, int]]:
    """The statistics of each server."""
    async with await connect(url, name="operator") as line:
        return [dict(answer.stats) for answer in await server_stats(line.bus)]


async def figures(url: str, count: int) -> dict[str, int]:
    """The sum of the statistics of so many servers, once each has reconciled."""
    found: list[dict[str, int]] = []

    async def all_done() -> bool:
        found[:] = await said(url)
        return len(found) == count and all(one["reconcile_passes"] for one in found)

    await eventually(all_done)
    names = ("republished", "reconciled_documents", "lost_for_good", "tombstones_restored")
    return {name: sum(one[name] for one in found) for name in names}


async def messages(url: str, document_id: str = "*") -> int:
    async with await connect(url, name="operator") as line:
        return await line.stream(subjects.WAL_STREAM).count(subjects.wal(document_id))


def heading() -> None:
    print(f"\n{DOCUMENTS} documents, {DOCUMENTS * UPDATES} ACKed updates")
    names = f"{'damage':<22}{'owner':<24}"
    print(f"{names}{'in the WAL':>11}{'left':>6}{'published':>11}{'lost':>6}{'whole after':>13}")


async def drill(
    nats: EmbeddedNats,
    start: Callable[..., Awaitable[ServerProcess]],
    folders: list[Path],
    damage: Callable[[EmbeddedNats], None],
    written: dict[str, Written],
    owner: str,
) -> list[ServerProcess]:
    """Everything is stopped: do the damage, start it again, and compare."""
    before = await messages(nats.url)
    await nats.kill()
    await asyncio.to_thread(damage, nats)
    await nats.start()
    try:
        left = await messages(nats.url)
    except LorogoError:
        left = 0  # the stream itself is gone
    assert left < before, "the damage did no damage"
    began = time.monotonic()
    started = [await start(data=folder) for folder in folders]
    done = await figures(nats.url, len(folders))
    found = await read(nats.url, list(written))
    took = time.monotonic() - began
    lost = sum(
        max(0, end - found[name].ends.get(peer, 0))
        for name, one in written.items()
        for peer, end in one.ends.items()
    )
    print(
        f"{damage.__name__.replace('_', ' '):<22}{owner:<24}{before:>11}{left:>6}"
        f"{done['republished']:>11}{lost:>6}{took:>11.1f} s"
    )
    assert found == written
    assert done["lost_for_good"] == 0
    return started


@pytest.mark.slow
async def test_every_acked_update_survives_damage(tmp_path: Path, fresh_nats: EmbeddedNats) -> None:
    """One flipped bit, half a block, no stream, no store: documents are whole, by version vector and text."""
    heading()
    folder = tmp_path / "worker-0"
    async with servers(fresh_nats.url) as start:
        server = await start(data=folder)
        for number, damage in enumerate(
            (flip_a_bit, truncate_the_block, delete_the_stream, delete_everything)
        ):
            written = await write(fresh_nats.url, NAMES, UPDATES if not number else 5, f"{number}w")
            await server.stop()
            (server,) = await drill(fresh_nats, start, [folder], damage, written, "the same")


@pytest.mark.parametrize(
    ("damage", "folders"),
    [(flip_a_bit, ["a/worker-0", "a/worker-1"]), (delete_everything, ["a/worker-0", "b/worker-0"])],
    ids=["one data folder", "two data folders"],
)
async def test_the_owner_changed_between_writing_and_damage(
    tmp_path: Path, fresh_nats: EmbeddedNats, damage: Callable[[EmbeddedNats], None], folders: list[str]
) -> None:
    """Each journal has a part; together they have everything, whichever server starts first."""
    written: dict[str, Written] = {}
    paths = [tmp_path / folder for folder in folders]
    async with servers(fresh_nats.url) as start:
        for number, path in enumerate(paths):
            server = await start(data=path)
            written = await write(fresh_nats.url, NAMES, UPDATES // 2, f"{number}w")
            await server.stop()
        owner = f"changed, {len({folder[0] for folder in folders})} data folders"
        await drill(fresh_nats, start, paths, damage, written, owner)


async def test_damage_while_the_owner_lives(tmp_path: Path, fresh_nats: EmbeddedNats) -> None:
    """After the reconnect the stream and the snapshots hold everything again, without the owner's disk."""
    url, names = fresh_nats.url, NAMES[:5]
    async with servers(url) as start:
        server = await start(data=tmp_path / "owner")
        written = await write(url, names, UPDATES)
        passes = (await said(url))[0]["reconcile_passes"]
        await fresh_nats.kill()
        await asyncio.to_thread(flip_a_bit, fresh_nats)
        await fresh_nats.start()

        async def stored() -> bool:
            return any(
                stats["reconcile_passes"] > passes and stats["compactions"] >= len(names)
                for stats in await said(url)
            )

        await eventually(stored)
        await server.stop()
        await start(data=tmp_path / "another")
        assert await read(url, names) == written


async def test_a_server_that_returns(tmp_path: Path, fresh_nats: EmbeddedNats) -> None:
    """It neither brings a deleted document back nor fills the stream with history that was purged."""
    url = fresh_nats.url
    names = NAMES[:5]
    async with servers(url) as start:
        old = await start(data=tmp_path / "old", **QUICK)
        await write(url, names, UPDATES)
        await old.kill()
        new = await start(data=tmp_path / "new", **QUICK)
        written = await write(url, names, 2, "x")
        async with lorogo_client.connect(url) as client:
            for name in names[1:]:
                await client.document(name).compact()
            await client.document(names[0]).delete()
        left = await messages(url)
        old = await start(data=tmp_path / "old")
        done = await figures(url, 2)
        print(f"\n{'a server returns':<46}{left:>11}{left:>6}{done['republished']:>11}{0:>6}")
        assert await messages(url) == left
        assert (done["republished"], done["lost_for_good"]) == (0, 0)
        expected = {name: written[name] for name in names[1:]}
        assert await read(url, names[1:]) == expected

        # And when NATS lost all of it, the tombstone too: a journal knows that it is deleted.
        for server in (old, new):
            await server.stop()
        await fresh_nats.kill()
        await asyncio.to_thread(delete_everything, fresh_nats)
        await fresh_nats.start()
        await start(data=tmp_path / "new", recover_seconds_max=1.0)  # the other server is not there
        assert (await figures(url, 1))["tombstones_restored"] == 1
        await start(data=tmp_path / "old")
        assert (await figures(url, 2))["lost_for_good"] == 0
        assert await read(url, names[1:]) == expected
        with pytest.raises(lorogo_client.DocumentDeleted):
            await read(url, names[:1])
        assert await messages(url, names[0]) == 0
