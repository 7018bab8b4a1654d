"""The rights of every person on every HTTP route and method. Prints them as a Markdown table:

python -m tests.security.http_table
"""

import asyncio
import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.routing import Route

from tests.revoking import list_of
from tests.security.closed_gateway import Closed, bearer, closed, cookie
from tests.security.people import PEOPLE, token_of

#: who may, at least: `all`, `token`, `some` (read on some document), read, write, admin, operator.
#: A route that is not here fails the test: its author must decide who may use it.
MAY: Mapping[tuple[str, str], str] = {
    ("GET", "/v1/documents"): "some",
    ("GET", "/v1/documents/{id}"): "read",
    ("GET", "/v1/documents/{id}/history"): "read",
    ("GET", "/v1/documents/{id}/status"): "read",
    ("GET", "/v1/documents/{id}/sizes"): "admin",
    ("PATCH", "/v1/documents/{id}"): "write",
    ("PUT", "/v1/documents/{id}"): "write",
    ("DELETE", "/v1/documents/{id}"): "write",
    ("DELETE", "/v1/documents/{id}?purge=true"): "admin",
    ("POST", "/v1/documents/{id}/fork"): "read",  # and write on the target
    ("POST", "/v1/documents/{id}/revert"): "write",
    ("POST", "/v1/documents/{id}/restore"): "write",
    ("POST", "/v1/documents/{id}/reset"): "admin",
    ("GET", "/v1/servers"): "operator",
    ("GET", "/v1/overview"): "operator",
    ("GET", "/v1/overview/samples"): "operator",
    ("GET", "/v1/rejected"): "operator",
    ("GET", "/v1/feed"): "some",
    ("GET", "/v1/session"): "token",
    ("POST", "/v1/session"): "token",
    ("DELETE", "/v1/session"): "all",
    ("GET", "/v1/openapi.json"): "all",
    ("GET", "/healthz"): "all",
    ("GET", "/readyz"): "all",
    ("GET", "/metrics"): "operator",
    ("GET", "/"): "all",
    ("GET", "/dashboard"): "all",
    ("GET", "/dashboard/"): "all",
    ("GET", "/d/{document}"): "all",
    ("GET", "/assets/{path:path}"): "all",
    ("GET", "/{name}"): "all",
    ("GET", "/{path:path}"): "all",
    ("GET", "/ws"): "all",  # 426: it is for WebSockets
    ("GET", "/v1"): "all",  # 404
    ("GET", "/v1/{rest:path}"): "all",  # 404
}
#: what an allowed request is answered with, if not with 200
FINE: Mapping[tuple[str, str], int] = {
    ("PUT", "/v1/documents/{id}"): 409,  # it is there already
    ("POST", "/v1/documents/{id}/fork"): 201,
    ("POST", "/v1/documents/{id}/restore"): 409,  # it was not deleted
    ("DELETE", "/v1/session"): 204,
    ("GET", "/dashboard/"): 307,
    ("GET", "/assets/{path:path}"): 404,
    ("GET", "/{name}"): 404,
    ("GET", "/{path:path}"): 404,
    ("GET", "/ws"): 426,
    ("GET", "/v1"): 404,
    ("GET", "/v1/{rest:path}"): 404,
}
_BODIES: Mapping[tuple[str, str], Any] = {
    ("PATCH", "/v1/documents/{id}"): [{"op": "add", "path": "/m", "value": {"a": 1}}],
    ("PUT", "/v1/documents/{id}"): {"body": "new"},
    ("POST", "/v1/documents/{id}/fork"): {"to": "{id}-copy"},
    ("POST", "/v1/documents/{id}/revert"): {"at": "0s"},
}
_RANK = {"": 0, "another": 1, "read": 2, "write": 3, "admin": 4, "operator": 5}
_NEEDED = {"token": 0, "some": 1, "read": 2, "write": 3, "admin": 4, "operator": 5}
_cells = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Cell:
    """One request of one person."""

    method: str
    path: str
    person: str
    expected: int
    status: int
    body: str
    headers: Mapping[str, str]
    changed: bool  # the document is not what it was


def routes(gate: Closed) -> list[tuple[str, str]]:
    """Every method of every route of the app, HEAD and OPTIONS aside, and DELETE with purge."""
    found = []
    for route in gate.gateway.app.routes:
        if isinstance(route, Route):
            operations = getattr(route.endpoint, "operations", None)
            methods = operations or route.methods or {"GET"}
            found += [(method, route.path) for method in methods if method not in ("HEAD", "OPTIONS")]
    return [*found, ("DELETE", "/v1/documents/{id}?purge=true")]


def expected(row: tuple[str, str], person: str, way: str) -> int:
    """The status that this person must get."""
    if way == "cookie" and row == ("POST", "/v1/session"):
        return 401  # signing in takes a token that is not in the cookie already
    may, grant = MAY[row], PEOPLE[person]
    if may == "all":
        return FINE.get(row, 200)
    if grant is None:
        return 401
    if _RANK[grant] < _NEEDED[may]:
        return 403
    if row == ("POST", "/v1/documents/{id}/fork") and grant != "operator":
        return 403  # only the operator may write the target
    return FINE.get(row, 200)


async def ask(gate: Closed, row: tuple[str, str], person: str, way: str = "bearer") -> Cell:
    """Ask as this person, for a document that was made for it, with a bearer or as our page does."""
    method, path = row
    document = f"cell-{next(_cells)}"
    await gate.write(document)
    before = await gate.read(document)
    token = token_of(person, document)
    if person == "revoked":
        await list_of(gate.authority).revoke_token("revoked")
    where = path.replace("{id}", document).replace("{document}", document)
    where = (
        where.replace("{path:path}", "no/where").replace("{rest:path}", "no/where").replace("{name}", "no")
    )
    body = _BODIES.get(row)
    if isinstance(body, dict):
        body = {name: text.replace("{id}", document) for name, text in body.items()}
    gate.http.cookies.clear()  # of an earlier sign-in
    headers = bearer(token) if way == "bearer" else cookie(token, gate.address)
    async with gate.http.stream(method, where, headers=headers, json=body) as response:
        streams = "event-stream" in response.headers.get("content-type", "")
        text = "" if streams else (await response.aread()).decode()
    changed = False
    if response.status_code in (401, 403):
        changed = await gate.read(document) != before
    return Cell(
        method,
        path,
        person,
        expected(row, person, way),
        response.status_code,
        text,
        response.headers,
        changed,
    )


async def cells(gate: Closed, way: str = "bearer") -> list[Cell]:
    return [await ask(gate, row, person, way) for row in routes(gate) for person in PEOPLE]


def table(found: list[Cell]) -> str:
    """Markdown; what is wrong is in bold, with what it should have been."""
    lines = [f"| | {' | '.join(PEOPLE)} |", f"|---|{'---|' * len(PEOPLE)}"]
    for (method, path), row in itertools.groupby(found, key=lambda cell: (cell.method, cell.path)):
        shown = [
            f"{cell.status}" if cell.status == cell.expected else f"**{cell.status}, not {cell.expected}**"
            for cell in row
        ]
        lines.append(f"| `{method} {path}` | {' | '.join(shown)} |")
    return "\n".join(lines)


async def _main() -> int:
    failed = 0
    for way in ("bearer", "cookie"):
        async with closed() as gate:
            found = await cells(gate, way)
        wrong = [cell for cell in found if cell.status != cell.expected or cell.changed]
        failed += len(wrong)
        sys.stdout.write(f"With a {way}: {len(found)} requests, {len(wrong)} wrong\n\n{table(found)}\n\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
