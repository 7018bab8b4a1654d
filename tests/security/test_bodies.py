"""Bodies of anonymous requests: the gateway reads none where a right is needed, and a few bytes elsewhere."""

import asyncio

import pytest

from lorogo_gateway.auth.needs import NoToken
from lorogo_gateway.http.operations import Operation
from lorogo_protocol.limits import KIB, MIB
from tests.client.support import DEADLINE
from tests.gateway.http_support import problem
from tests.security.closed_gateway import Closed, bearer, closed
from tests.security.people import mint


def with_bodies(gate: Closed) -> list[Operation]:
    found = [
        operation
        for route in gate.gateway.app.routes
        for operation in getattr(getattr(route, "endpoint", None), "operations", {}).values()
        if operation.body is not None
    ]
    assert len(found) >= 5
    return found


async def status_line(gate: Closed, operation: Operation, length: str) -> bytes:
    """The first line of the answer to a head alone: the body never comes."""
    host, _, port = gate.address.removeprefix("http://").partition(":")
    path = operation.path.replace("{id}", "doc")
    kind = next(iter(operation.body or {}))
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            head = f"{operation.method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
            writer.write(f"{head}{length}\r\n\r\n".encode())
            return await reader.readline()
        finally:
            writer.close()


@pytest.mark.parametrize("length", ["Content-Length: 60000000", "Transfer-Encoding: chunked"])
async def test_no_body_is_read_before_the_right_is_known(length: str) -> None:
    """401 comes while nothing of the body did."""
    async with closed() as gate:
        for operation in with_bodies(gate):
            if not isinstance(operation.need, NoToken):
                assert b" 401 " in await status_line(gate, operation, length), operation.name


async def test_a_body_without_a_token_is_a_few_bytes() -> None:
    """Every operation with a body and without a token has its own limit, applied to the Content-Length
    header.
    """
    async with closed() as gate:
        free = [operation for operation in with_bodies(gate) if isinstance(operation.need, NoToken)]
        assert [operation.name for operation in free] == ["sign-in"]
        for operation in free:
            assert operation.body_bytes_max is not None
            assert operation.body_bytes_max <= 16 * KIB
            length = f"Content-Length: {operation.body_bytes_max + 1}"
            assert b" 413 " in await status_line(gate, operation, length), operation.name


async def test_signing_in_with_a_bomb_is_413_and_parses_nothing() -> None:
    async with closed() as gate:
        bomb = b"[" + b"[]," * (MIB // 3) + b"[]]"
        for content in (bomb, b'{"token":"' + b"x" * 20_000 + b'"}'):
            answer = await gate.http.post(
                "/v1/session", content=content, headers={"content-type": "application/json"}
            )
            problem(answer, 413, "too-large")
        assert gate.gateway.limiter.refusals.facts()["body-bytes"] == 2


async def test_a_pointer_has_a_bound() -> None:
    """To look whether a path of megabytes is one would take gigabytes."""
    token = mint({"doc": "write"})
    async with closed() as gate:
        for path in ("/" * 100_000, "/" + "a" * 100_000):
            operation = {"op": "add", "path": path, "value": 1}
            answer = await gate.http.patch("/v1/documents/doc", json=[operation], headers=bearer(token))
            assert "at most 65536" in problem(answer, 400, "invalid-body")["detail"]
