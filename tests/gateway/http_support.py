"""A gateway's HTTP in this process, over the in-memory twin with a real server behind it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from lorogo_client import Client
from lorogo_gateway.documents.operations import operations
from lorogo_gateway.http.operations import Operation
from lorogo_gateway.http.routes import router
from lorogo_gateway.settings import GatewaySettings
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import client_of, new_world
from tests.journals import in_memory

SETTINGS = GatewaySettings(call_seconds=5.0)


@dataclass(frozen=True, slots=True)
class Gate:
    """An HTTP client, and the NATS and the lorogo client behind the gateway."""

    http: httpx.AsyncClient
    client: Client
    world: MemoryNats


def app(made: Sequence[Operation], settings: GatewaySettings = SETTINGS) -> Starlette:
    return Starlette(routes=router(made, settings))


@asynccontextmanager
async def http_of(
    made: Sequence[Operation], settings: GatewaySettings = SETTINGS
) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of these operations alone."""
    transport = httpx.ASGITransport(app(made, settings), raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        yield http


@asynccontextmanager
async def gate_of(settings: GatewaySettings = SETTINGS, *, serving: bool = True) -> AsyncIterator[Gate]:
    """A gateway on a world of its own, with a server or without."""
    world = await new_world()
    async with client_of(world) as client, http_of(operations(client, settings), settings) as http:
        if not serving:
            yield Gate(http, client, world)
            return
        async with Server(world.connect("server"), **in_memory()):
            yield Gate(http, client, world)


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    async with gate_of() as made:
        yield made


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Assert that the response is a problem with that status and code; return its body."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["code"] == code, body
    assert body["detail"]
    assert body["title"]
    return body


async def made(gate: Gate, name: str = "doc", content: dict[str, Any] | None = None) -> str:
    """A document with content; its version."""
    response = await gate.http.put(f"/v1/documents/{name}", json=content or {"body": "hello"})
    assert response.status_code == 201, response.text
    return str(response.json()["version"])
