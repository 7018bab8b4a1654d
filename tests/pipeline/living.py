"""Documents of every kind on a real system, for audits and jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import lorogo_client
from lorogo_client import Client
from lorogo_server import Server, ServerSettings
from lorogo_transport.nats import connection


@asynccontextmanager
async def serving(url: str, data: Path, **settings: object) -> AsyncIterator[Client]:
    """A server whose journal is in that folder, and a client."""
    async with await connection.connect(url, name="server") as transport:
        chosen = ServerSettings(**settings)  # type: ignore[arg-type]  # passed on
        async with Server(transport, chosen, data=data), lorogo_client.connect(url) as client:
            yield client


async def write(client: Client, document_id: str, *words: str) -> None:
    """Each word in a commit of its own, ACKed."""
    async with client.open(document_id) as session:
        for word in words:
            body = session.doc.get_text("body")
            body.insert(len(body), word)
            session.commit()
            await session.flush(timeout=30)


async def fill(client: Client, document_id: str) -> None:
    """One of everything that Loro has."""
    async with client.open(document_id) as session:
        doc = session.doc
        doc.get_map("map").insert("value", {"n": [1, 2.5, b"\x00\xff", None, True, "ü"], "inf": float("inf")})
        doc.get_list("list").push(2**60)
        doc.get_movable_list("moving").push("x")
        doc.get_counter("count").increment(0.1)
        tree = doc.get_tree("tree")
        tree.get_meta(tree.create(None)).insert("title", "root")
        doc.get_text("emptied").insert(0, "gone")
        session.commit()
        doc.get_text("emptied").delete(0, 4)
        session.commit()
        await session.flush(timeout=30)


async def everything(url: str, data: Path) -> set[str]:
    """Documents of every kind, made by two servers one after the other; the first is gone afterwards."""
    async with serving(url, data / "worker-0", history_seconds=0) as client:
        for name in ("plain", "gone", "back", "erased", "trimmed", "source"):
            await write(client, name, "one ", "two ")
        await fill(client, "all")
        async with client.open("empty"):
            pass
        await client.document("gone").delete()
        await client.document("back").delete()
        await client.document("back").restore()
        await write(client, "back", "again ")
        await client.document("erased").delete(purge=True)
        await client.document("trimmed").compact()
        await write(client, "trimmed", "three ")
        await client.document("trimmed").compact()
        await client.document("source").fork("fork")
    return {"plain", "gone", "back", "erased", "trimmed", "source", "fork", "all", "empty"}
