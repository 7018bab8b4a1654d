"""The table of HTTP rights holds for every route, method and person, with a bearer token and with
a cookie.
"""

import json

import pytest

from lorogo_gateway.auth.needs import NoToken
from lorogo_gateway.http.operations import Operation
from tests.security.closed_gateway import bearer, closed
from tests.security.http_table import MAY, cells, routes, table
from tests.security.people import mint


@pytest.mark.parametrize("way", ["bearer", "cookie"])
@pytest.mark.slow
async def test_everybody_gets_what_their_token_allows_and_nothing_else(way: str) -> None:
    """401 without a good token and how to get in, 403 in a sentence with one that does not allow it."""
    async with closed() as gate:
        found = await cells(gate, way)
    wrong = [cell for cell in found if cell.status != cell.expected]
    assert not wrong, table(found)
    for cell in found:
        assert not cell.changed, f"{cell.person} changed it by {cell.method} {cell.path}"
        if cell.status not in (401, 403):
            continue
        problem = json.loads(cell.body)
        assert cell.headers["content-type"] == "application/problem+json"
        assert problem["status"] == cell.status
        assert problem["detail"]
        challenge = cell.headers.get("www-authenticate", "")
        assert challenge.startswith('Bearer realm="lorogo"') is (cell.status == 401)
        assert problem["code"].startswith("token-") is (cell.status == 401), problem


async def test_every_route_is_in_the_table() -> None:
    """A new route must be in the table, with the right that it needs."""
    async with closed(serving=False) as gate:
        assert set(routes(gate)) == set(MAY)
        paths = {path for _, path in routes(gate)}
        operations = [
            operation
            for route in gate.gateway.app.routes
            for operation in getattr(getattr(route, "endpoint", None), "operations", {}).values()
        ]
    assert {one.path for one in operations} <= paths
    unguarded = {(one.method, one.path) for one in operations if isinstance(one.need, NoToken)}
    assert unguarded == {
        ("POST", "/v1/session"),  # which verifies the token itself
        ("DELETE", "/v1/session"),
        ("GET", "/v1/openapi.json"),
    }
    with pytest.raises(TypeError, match="need"):
        Operation("GET", "/v1/new", "new", "", operations[0].handler, {})  # type: ignore[call-arg]  # on purpose


async def test_a_document_that_is_not_yours_looks_the_same_whether_it_exists_or_not() -> None:
    """403 both ways, and not a byte differs but the name."""
    async with closed() as gate:
        await gate.write("exists")
        token = bearer(mint({"mine": "admin"}))
        for method, path in MAY:
            if "{id}" not in path:
                continue
            body = {"to": "mine"} if path.endswith("fork") else None
            answers = []
            for name in ("exists", "absent"):
                where = path.replace("{id}", name)
                response = await gate.http.request(method, where, headers=token, json=body)
                assert response.status_code == 403, (method, path, response.text)
                answers.append(response.text.replace(name, "X"))
            assert answers[0] == answers[1]
        assert await gate.read("exists") == {"body": "hello"}


async def test_a_fork_needs_write_on_its_target() -> None:
    """Reading one and writing the other is enough; only one of them is not."""
    async with closed() as gate:
        await gate.write("one")
        for documents, status in (
            ({"one": "read", "two": "write"}, 201),
            ({"one": "admin", "three": "read"}, 403),
            ({"three": "admin"}, 403),
        ):
            to = "two" if "two" in documents else "three"
            response = await gate.http.post(
                "/v1/documents/one/fork", headers=bearer(mint(documents)), json={"to": to}
            )
            assert response.status_code == status, response.text
            if status == 403:  # refused here, before any call to the owner
                needed = "write on 'three'" if "one" in documents else "read on 'one'"
                assert response.json()["detail"].startswith(f"this needs {needed}")
        status_of_three = await gate.http.get(
            "/v1/documents/three/status", headers=bearer(mint({"*": "read"}))
        )
        assert status_of_three.status_code == 404


async def test_head_asks_as_much_as_get() -> None:
    """HEAD tells whether a document exists, so it needs read."""
    async with closed() as gate:
        await gate.write("one")
        for token, status in (
            ("", 401),
            (mint({"two": "read"}), 403),
            (mint({"one": "read"}), 200),
        ):
            response = await gate.http.head("/v1/documents/one", headers=bearer(token))
            assert response.status_code == status
            assert not response.content
