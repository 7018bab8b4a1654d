"""Documents over HTTP with the real nats-server, and over real sockets."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from loro import ExportMode, LoroDoc
from starlette.applications import Starlette

import lorogo_client
from lorogo_gateway.documents.operations import operations
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.messages import subjects
from lorogo_server import Server
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.gateway.http_support import app, gate_of, http_of, problem
from tests.journals import in_memory

pytestmark = pytest.mark.nats

OCTETS = "application/octet-stream"


@asynccontextmanager
async def listening(served: Starlette) -> AsyncIterator[tuple[str, int]]:
    """Serve the app over TCP; yields host and port."""
    config = uvicorn.Config(served, port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.ensure_future(server.serve())
    async with asyncio.timeout(10):
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[:2]
    finally:
        server.should_exit = True
        await task


async def test_a_document_of_megabytes_goes_through(fresh_nats: EmbeddedNats) -> None:
    """Import, read, list, delete, restore on the real thing; without its server it is 503."""
    settings = GatewaySettings(call_seconds=20.0)
    doc = LoroDoc()
    doc.get_text("body").insert(0, random.Random(1).randbytes(2_000_000).hex())
    doc.commit()
    snapshot = doc.export(ExportMode.Snapshot())
    headers = {"content-type": OCTETS}
    async with await connect(fresh_nats.url, name="server") as transport:
        async with (
            Server(transport, **in_memory()),
            lorogo_client.connect(fresh_nats.url) as client,
            http_of(operations(client, settings), settings) as http,
        ):
            http.timeout = httpx.Timeout(30)
            put = await http.put("/v1/documents/big", content=snapshot, headers=headers)
            assert put.status_code == 201, put.text
            got = await http.get("/v1/documents/big")
            assert got.json()["body"] == doc.get_text("body").to_string()
            out = await http.get("/v1/documents/big", headers={"accept": OCTETS})
            copy = LoroDoc()
            copy.import_(out.content)
            assert copy.get_deep_value() == doc.get_deep_value()
            (row,) = (await http.get("/v1/documents")).json()["documents"]
            assert row["wal_messages"] > 10
            assert row["last_edit"] is not None
            assert (await http.delete("/v1/documents/big")).status_code == 200
            problem(await http.get("/v1/documents/big"), 410, "deleted")
            assert (await http.post("/v1/documents/big/restore")).status_code == 200
            assert (await http.get("/v1/documents/big")).content == got.content
        quick = GatewaySettings(call_seconds=0.5)
        async with (
            lorogo_client.connect(fresh_nats.url) as client,
            http_of(operations(client, quick), quick) as http,
        ):
            refused = await http.get("/v1/documents/big")
            problem(refused, 503, "not-served")
            assert "retry-after" in refused.headers
            problem(await http.get("/v1/documents/none"), 404, "not-found")


async def test_thousands_of_documents_are_listed(fresh_nats: EmbeddedNats) -> None:
    """More than NATS names in one answer, in pages of any size, each with its last edit."""
    settings = GatewaySettings()
    async with (
        await connect(fresh_nats.url, name="server") as transport,
        Server(transport, **in_memory()),
        lorogo_client.connect(fresh_nats.url) as client,
        http_of(operations(client, settings), settings) as http,
    ):
        wal = transport.stream(subjects.WAL_STREAM)
        names = sorted(f"doc-{number}" for number in range(2_300))
        for name in names:
            await wal.append_unconfirmed(subjects.wal(name), b"x")
        await wal.append(subjects.wal("zzz"), b"x")
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            page = (await http.get("/v1/documents", params={"limit": 999, "after": after})).json()
            seen += [row["document"] for row in page["documents"]]
            assert all(row["last_edit"] and row["wal_messages"] == 1 for row in page["documents"])
            after = page["next"]
        assert seen == [*names, "zzz"]


async def _said(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        return await reader.readuntil(b"\r\n\r\n")


async def test_bodies_are_bounded_on_the_wire() -> None:
    """413 comes while a body is still being sent; half a body and junk leave the gateway as it was."""
    settings = GatewaySettings(body_bytes_max=100_000, bodies_bytes_max=150_000, call_seconds=5.0)
    start = b"PUT /v1/documents/doc HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
    async with (
        gate_of(settings) as gate,
        listening(app(operations(gate.client, settings), settings)) as (host, port),
    ):
        for _ in range(3):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(start + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(4):
                writer.write(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
            assert b" 413 " in await _said(reader)
            writer.close()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(start + b"Content-Length: 100001\r\n\r\n")
        assert b" 413 " in await _said(reader)
        writer.close()
        for half in (
            b"Content-Length: 90000\r\n\r\n" + b"x" * 80_000,
            b"Content-Length: -1\r\n\r\n",
            b"\x00\xff\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(start + half)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}") as http:
            large = {"body": "x" * 90_000}  # needs most of the bound: what was half is free again
            async with asyncio.timeout(10):
                while (put := await http.put("/v1/documents/doc", json=large)).status_code == 503:
                    pass  # the loop has not seen yet that the others are gone
            assert put.status_code == 201, put.text
            assert (await http.head("/v1/documents/doc")).status_code == 200
