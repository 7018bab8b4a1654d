"""Rules that all operations share: paths, methods, parameters, bodies, media types."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from lorogo_gateway.auth.needs import NoToken
from lorogo_gateway.documents.reads import json_response
from lorogo_gateway.http import schema_check
from lorogo_gateway.http.negotiation import best, body_type
from lorogo_gateway.http.operations import Operation, Parameter, ResponseSpec, checked_request
from lorogo_gateway.http.routes import router
from lorogo_gateway.problems import HttpProblem
from lorogo_gateway.settings import GatewaySettings
from tests.gateway.http_support import app, http_of, problem

JSON = "application/json"
OCTETS = "application/octet-stream"
SMALL = GatewaySettings(body_bytes_max=1000, bodies_bytes_max=1500, call_seconds=0.2)


async def echo(request: Request) -> Response:
    what = checked_request(request)
    body = what.body.decode("latin-1") if isinstance(what.body, bytes) else what.body
    return json_response(
        {"values": dict(what.values), "body": body, "type": what.body_type, "wants": what.wants}
    )


PARAMETERS = (
    Parameter("id", "path", "", {"type": "string"}, required=True),
    Parameter("n", "query", "", {"type": "integer", "minimum": 1, "maximum": 9, "default": 3}),
    Parameter("b", "query", "", {"type": "boolean"}),
    Parameter("s", "query", "", {"type": "string", "pattern": "^[a-z]+$"}),
    Parameter("many", "query", "", {"type": "array", "items": {"type": "integer"}, "maxItems": 2}),
    Parameter("X-It", "header", "", {"type": "string", "maxLength": 3}),
)
GET = Operation(
    "GET",
    "/v1/things/{id}",
    "get",
    "",
    echo,
    {200: ResponseSpec("", {JSON: {}, OCTETS: {}})},
    PARAMETERS,
    need=NoToken(),
)
PUT = Operation(
    "PUT",
    "/v1/things/{id}",
    "put",
    "",
    echo,
    {200: ResponseSpec("", {JSON: {}})},
    PARAMETERS[:1],
    {JSON: {}, OCTETS: {}},
    need=NoToken(),
)
POST = Operation(
    "POST",
    "/v1/things/{id}",
    "post",
    "",
    echo,
    {200: ResponseSpec("", {JSON: {}})},
    PARAMETERS[:1],
    {JSON: {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}},
    body_required=False,
    need=NoToken(),
)
FIXED = Operation(
    "GET", "/v1/things/fixed", "fixed", "", echo, {200: ResponseSpec("", {JSON: {}})}, need=NoToken()
)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with http_of([GET, PUT, POST, FIXED], SMALL) as http:
        yield http


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v1/nothing", "/v1/things", "/v1/things/", "/v1/things/a/b", "/v1/things/a%2Fb"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "TRACE"])
async def test_an_unknown_path_is_a_problem(http: httpx.AsyncClient, path: str, method: str) -> None:
    """Below /v1 nothing answers with a page."""
    problem(await http.request(method, path), 404, "no-such-path")


async def test_an_unknown_method_gets_the_allowed_methods(http: httpx.AsyncClient) -> None:
    """405 has an Allow header, as the response to OPTIONS has; HEAD is a GET without its body."""
    for method in ("DELETE", "PATCH", "TRACE", "BREW"):
        response = await http.request(method, "/v1/things/a")
        problem(response, 405, "method-not-allowed")
        assert response.headers["allow"] == "GET, HEAD, POST, PUT"
    options = await http.options("/v1/things/a")
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, POST, PUT")
    head, get = await http.head("/v1/things/a"), await http.get("/v1/things/a")
    assert head.content == b""
    assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))
    assert (await http.head("/v1/things/a?x=1")).status_code == 400


async def test_a_path_in_full_goes_before_one_with_a_name(http: httpx.AsyncClient) -> None:
    """`/v1/things/fixed` is not the thing called fixed."""
    assert (await http.get("/v1/things/fixed")).json()["values"] == {}


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("", {"n": 3}),
        ("n=9&b=true&s=abc", {"n": 9, "b": True, "s": "abc"}),
        ("many=1&many=-2&b=false", {"n": 3, "many": [1, -2], "b": False}),
    ],
)
async def test_parameters_are_converted(http: httpx.AsyncClient, query: str, values: dict[str, Any]) -> None:
    """Integers, booleans and lists come as such, and defaults are there."""
    response = await http.get(f"/v1/things/a?{query}", headers={"x-it": "abc"})
    assert response.json()["values"] == {"id": "a", "X-It": "abc", **values}


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("other=1", "unknown-parameter"),
        ("N=1", "unknown-parameter"),
        ("n=1&n=2", "invalid-parameter"),
        ("n=0", "invalid-parameter"),
        ("n=10", "invalid-parameter"),
        ("n=", "invalid-parameter"),
        ("n=1.0", "invalid-parameter"),
        ("n=%2B1", "invalid-parameter"),
        ("n=1_0", "invalid-parameter"),
        ("n=" + "9" * 5000, "invalid-parameter"),
        ("b=1", "invalid-parameter"),
        ("b=True", "invalid-parameter"),
        ("s=ABC", "invalid-parameter"),
        ("s=abc%0A", "invalid-parameter"),
        ("s=%ff", "invalid-parameter"),
        ("many=1&many=2&many=3", "invalid-parameter"),
        ("many=x", "invalid-parameter"),
    ],
)
async def test_a_wrong_parameter_is_refused(http: httpx.AsyncClient, query: str, code: str) -> None:
    """Unknown, repeated, of another type, out of range: 400, and the sentence names it."""
    assert query[0].lower() in problem(await http.get(f"/v1/things/a?{query}"), 400, code)["detail"].lower()


async def test_a_wrong_header_is_refused(http: httpx.AsyncClient) -> None:
    """A declared header is checked like any parameter; two lines of it are one list."""
    problem(await http.get("/v1/things/a", headers={"x-it": "long"}), 400, "invalid-parameter")
    two = await http.get("/v1/things/a", headers=[("x-it", "a"), ("x-it", "b")])
    problem(two, 400, "invalid-parameter")  # "a, b"


MALFORMED = [
    b"",
    b" ",
    b"{",
    b"{'a': 1}",
    b"[1,]",
    b"NaN",
    b"[Infinity]",
    b"[-Infinity]",
    b'{"a": 1, "a": 2}',
    b'{"x": {"a": 1, "b": 1, "a": 1}}',
    b'["\\ud800"]',
    b'["\\udc00\\ud800"]',
    b'{"\\udfff": 1}',
    b'["\xff"]',
    b'["\xed\xa0\x80"]',
    b"\xef\xbb\xbf{}",
    b"{}{}",
    b'["a\nb"]',
    b'["\x00"]',
]


@pytest.mark.parametrize("body", MALFORMED)
async def test_malformed_json_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    """JSON that is none, or that two readers would take for two things, is 400."""
    response = await http.put("/v1/things/a", content=body, headers={"content-type": JSON})
    problem(response, 400, "malformed-json")


@pytest.mark.parametrize(
    "number", ["1e999", "-1e999", "9" * 900, "-" + "9" * 900, "9223372036854775808", "-9223372036854775809"]
)
async def test_a_number_that_does_not_fit_is_refused(http: httpx.AsyncClient, number: str) -> None:
    """It is JSON, and no document can have it: 422, and never something else in its place."""
    response = await http.put("/v1/things/a", content=f"[{number}]", headers={"content-type": JSON})
    problem(response, 422, "number-too-large")


@pytest.mark.parametrize("bomb", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
async def test_a_depth_bomb_is_refused(bomb: bytes) -> None:
    """However deep: one 400, and the gateway lives."""
    async with http_of([PUT]) as http:
        response = await http.put("/v1/things/a", content=bomb, headers={"content-type": JSON})
        problem(response, 400, "malformed-json")


async def test_json_is_taken_as_it_is(http: httpx.AsyncClient) -> None:
    """Whole surrogate pairs, 64 bits and unusual spaces are JSON."""
    body = b'\r\n\t {"a": ["\\ud83d\\ude00", 9223372036854775807, -0.5e-3, null]} '
    response = await http.put(
        "/v1/things/a", content=body, headers={"content-type": "Application/JSON; charset=UTF-8"}
    )
    assert response.json()["body"] == {"a": ["😀", 9223372036854775807, -0.0005, None]}
    large = {"a": ["x" * 100] * 5000}
    async with http_of([PUT]) as roomy:
        assert (await roomy.put("/v1/things/a", json=large)).json()["body"] == large


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/xml", "json", "application/json; charset=latin-1", "*/*", ";", "é"]
)
async def test_another_content_type_is_415(http: httpx.AsyncClient, kind: str) -> None:
    """Only declared media types are taken, in UTF-8; the sentence names them."""
    response = await http.put("/v1/things/a", content=b"{}", headers={b"content-type": kind.encode()})
    body = problem(response, 415, "unsupported-media-type")
    assert JSON in body["detail"] or "UTF-8" in body["detail"]


async def test_a_body_without_a_type_is_415_and_no_body_is_400(http: httpx.AsyncClient) -> None:
    """An empty body is fine where none is needed."""
    problem(await http.put("/v1/things/a", content=b"{}"), 415, "unsupported-media-type")
    problem(await http.put("/v1/things/a"), 400, "missing-body")
    assert (await http.post("/v1/things/a")).json()["body"] is None
    problem(await http.post("/v1/things/a", json={"a": "x"}), 400, "invalid-body")
    assert (await http.post("/v1/things/a", json={"a": 1})).json()["body"] == {"a": 1}


@pytest.mark.parametrize(
    ("accept", "wants"),
    [
        (None, JSON),
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        (OCTETS, OCTETS),
        (f"{OCTETS};q=0.5, {JSON};q=0.4", OCTETS),
        (f"{JSON};q=0, */*", OCTETS),
        (f"{OCTETS}, {JSON}", JSON),
        ("text/html, APPLICATION/JSON;q=0.1", JSON),
        (f"{JSON};q=nonsense", JSON),
        (f"{JSON};q=nan", JSON),
        ("text/html", None),
        (f"{JSON};q=0", None),
        ("nonsense", None),
        (",;,;q=", None),
    ],
)
def test_the_answer_is_what_is_accepted(accept: str | None, wants: str | None) -> None:
    """The best of what there is, the first of equals; 406 if nothing fits."""
    if wants is None:
        with pytest.raises(HttpProblem) as caught:
            best(accept, [JSON, OCTETS])
        assert caught.value.status == 406
    else:
        assert best(accept, [JSON, OCTETS]) == wants


async def test_not_acceptable_is_a_problem(http: httpx.AsyncClient) -> None:
    """A problem is problem+json, whatever was accepted."""
    problem(await http.get("/v1/things/a", headers={"accept": "text/html"}), 406, "not-acceptable")
    assert (await http.get("/v1/things/a", headers={"accept": OCTETS})).json()["wants"] == OCTETS


def test_body_types() -> None:
    """Parameters of a media type are no part of it."""
    assert body_type('application/json ; charset="utf-8"; x', [JSON]) == JSON


class Upload:
    """A request whose body arrives as a test sets, and the gateway's response."""

    def __init__(
        self,
        parts: list[bytes],
        *,
        ending: str = "whole",
        headers: dict[str, str] | None = None,
        kind: str | None = OCTETS,
    ) -> None:
        self.parts = parts
        self.ending = ending
        self.asked = 0
        self.sent: list[Any] = []
        named = ({} if kind is None else {"content-type": kind}) | (headers or {})
        self.scope = {
            "type": "http",
            "method": "PUT",
            "path": "/v1/things/a",
            "raw_path": b"/v1/things/a",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
            "scheme": "http",
            "server": ("gateway", 80),
            "client": ("127.0.0.1", 1),
        }

    async def receive(self) -> dict[str, Any]:
        at, self.asked = self.asked, self.asked + 1
        if at < len(self.parts):
            last = at == len(self.parts) - 1 and self.ending == "whole"
            return {"type": "http.request", "body": self.parts[at], "more_body": not last}
        if self.ending == "silent":
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def run(self, served: Callable[..., Any]) -> tuple[int, dict[str, Any]]:
        await served(self.scope, self.receive, self.send)
        body = b"".join(message.get("body", b"") for message in self.sent[1:])
        return self.sent[0]["status"], json.loads(body or b"{}")


async def test_a_body_is_cut_while_it_is_read() -> None:
    """The gateway answers 413 at the first byte above the limit and stops reading, whatever Content-Length
    announces.
    """
    served = app([PUT], SMALL)
    for headers in ({}, {"content-length": "10"}, {"content-length": "ten"}):
        upload = Upload([b"x" * 400] * 100, headers=headers)
        status, body = await upload.run(served)
        assert (status, body["code"]) == (413, "too-large")
        assert upload.asked == 3
    for length in ("1001", "9" * 30):
        upload = Upload([b"x"], headers={"content-length": length})
        assert (await upload.run(served))[0] == 413
        assert upload.asked == 0
    assert (await Upload([b"x" * 400, b"x" * 600]).run(served))[0] == 200


async def test_bodies_together_have_a_bound() -> None:
    """Buffered bodies together have a limit: the request above it gets 503, and later ones fit when others
    end.
    """
    held, go_on = asyncio.Event(), asyncio.Event()

    async def hold(_: Request) -> Response:
        held.set()
        await go_on.wait()
        return Response()

    served = app(
        [
            Operation(
                "PUT",
                "/v1/things/{id}",
                "put",
                "",
                hold,
                {200: ResponseSpec("")},
                PARAMETERS[:1],
                {OCTETS: {}},
                need=NoToken(),
            )
        ],
        SMALL,
    )
    first = asyncio.create_task(Upload([b"x" * 900]).run(served))
    await held.wait()
    status, body = await Upload([b"x" * 900]).run(served)
    assert (status, body["code"]) == (503, "busy")
    go_on.set()
    assert (await first)[0] == 200
    assert (await Upload([b"x" * 900]).run(served))[0] == 200


async def test_large_answers_are_sent_in_parts_and_counted() -> None:
    """One that its reader does not take counts against the bound: the next is 503 until it is gone."""
    large = bytes(range(256)) * 4_000  # 1,024,000

    async def give(_: Request) -> Response:
        return Response(large)

    get = Operation(
        "GET", "/v1/large", "large", "", give, {200: ResponseSpec("", {OCTETS: {}})}, need=NoToken()
    )
    served = app([get], GatewaySettings(body_bytes_max=1_500_000, bodies_bytes_max=1_500_000))
    taken, go_on = asyncio.Event(), asyncio.Event()
    parts: list[bytes] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            parts.append(message["body"])
            taken.set()
            await go_on.wait()

    reader = Upload([b""])
    scope = reader.scope | {"method": "GET", "path": "/v1/large", "raw_path": b"/v1/large"}
    first = asyncio.create_task(served(scope, reader.receive, send))
    await taken.wait()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://gateway") as http:
        problem(await http.get("/v1/large"), 503, "busy")
        assert (await http.head("/v1/large")).headers["content-length"] == str(len(large))
        go_on.set()
        await first
        assert b"".join(parts) == large
        assert max(map(len, parts)) == 65_536
        assert (await http.get("/v1/large")).content == large


async def test_a_body_that_does_not_come_is_408() -> None:
    """A sender that stops in the middle of a body gets 408, and its share of the memory limit is
    free again.
    """
    served = app([PUT], SMALL)
    for _ in range(3):
        status, body = await Upload([b"x" * 900], ending="silent").run(served)
        assert (status, body["code"]) == (408, "body-timeout")


async def test_a_client_that_leaves_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """A client that disconnects in the middle of a body causes no call and no log line."""
    served = app([PUT], SMALL)
    for _ in range(3):
        assert (await Upload([b"x" * 900], ending="gone").run(served))[0] == 499
    assert not caplog.records


async def test_a_handler_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow handler is answered with 504; for a change the detail warns that the change may have
    been made.
    """
    monkeypatch.setattr("lorogo_gateway.http.routes._GRACE_SECONDS", 0.01)

    async def hang(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    def slow(method: Any) -> Operation:
        return Operation(method, "/v1/slow", method, "", hang, {200: ResponseSpec("")}, need=NoToken())

    async with http_of([slow("GET"), slow("POST")], SMALL) as http:
        assert "may have been made" not in problem(await http.get("/v1/slow"), 504, "timeout")["detail"]
        assert "may have been made" in problem(await http.post("/v1/slow"), 504, "timeout")["detail"]


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"origin": "http://gateway"}, True),
        ({"origin": "https://gateway"}, True),  # behind a proxy that ends TLS
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://gateway:81"}, False),
        ({"origin": "https://elsewhere.example", "sec-fetch-site": "same-origin"}, False),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
    ],
)
async def test_pages_of_others_do_not_write(
    http: httpx.AsyncClient, headers: dict[str, str], allowed: bool
) -> None:
    """There is no CORS: a page of another origin changes nothing, not even by a POST without a body."""
    response = await http.post("/v1/things/a", headers=headers)
    if allowed:
        assert response.status_code == 200
    else:
        problem(response, 403, "cross-origin")
    assert (await http.get("/v1/things/a", headers=headers)).status_code == 200
    assert not any(name.startswith("access-control") for name in response.headers)


def test_a_mistake_in_the_table_shows_at_the_start() -> None:
    """Two operations at one place, a schema that nothing checks, and a loose pattern are refused."""
    with pytest.raises(ValueError, match="declared twice"):
        router([GET, GET])
    unchecked: list[dict[str, Any]] = [{"multipleOf": 2}, {"pattern": "a"}, {"items": {"oneOf": []}}]
    for schema in (*unchecked, {"anyOf": [{"not": {}}]}):
        bad = Operation(
            "GET", "/v1/x", "x", "", echo, {}, (Parameter("p", "query", "", schema),), need=NoToken()
        )
        with pytest.raises(ValueError, match=r"no check for|not anchored"):
            router([bad])


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, 1.0, -3], [True, "1", 1.5, None, [], {}]),
        ({"type": "number"}, [1, 1.5], [True, "1"]),
        ({"type": ["string", "null"]}, ["", None], [1, False]),
        ({"type": "boolean"}, [True, False], [0, 1]),
        ({"enum": [1, "a"]}, [1, "a"], [True, 2, "b"]),
        ({"const": 1}, [1], [True, 2]),
        ({"minimum": 1, "maximum": 2}, [1, 2, "x", None, True], [0, 3]),
        ({"minLength": 1, "maxLength": 2}, ["a", "ab", 7], ["", "abc"]),
        ({"pattern": "^a$"}, ["a", 1], ["b", "a\n", "aa"]),
        ({"minItems": 1, "maxItems": 2, "items": {"type": "string"}}, [["a"]], [[], ["a"] * 3, [1]]),
        (
            {"properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False},
            [{"a": "x"}, 5],
            [{}, {"a": 1}, {"a": "x", "b": 1}],
        ),
        (
            {"additionalProperties": {"type": "string"}, "propertyNames": {"maxLength": 1}},
            [{"a": "x"}],
            [{"a": 1}, {"ab": "x"}],
        ),
        ({"maxProperties": 1}, [{}, {"a": 1}, [1, 2], 5], [{"a": 1, "b": 2}]),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, ["a", 1], [None, 1.5]),
    ],
)
def test_schemas_are_checked(schema: dict[str, Any], good: list[object], bad: list[object]) -> None:
    """The words of JSON Schema that we use mean what they mean there."""
    schema_check.supported(schema)
    for value in good:
        assert schema_check.wrong(schema, value, "it") is None, value
    for value in bad:
        assert "it" in str(schema_check.wrong(schema, value, "it")), value


@pytest.mark.parametrize("kind", [JSON, None], ids=["JSON", "no type"])
async def test_json_has_a_bound_of_bytes_of_its_own(kind: str | None) -> None:
    """The JSON limit also covers a body without a content type; a body of another type may be larger."""
    served = app([PUT], replace(SMALL, json_bytes_max=300))
    upload = Upload([b"1" * 200] * 3, kind=kind)
    status, body = await upload.run(served)
    assert (status, body["code"]) == (413, "too-large")
    assert "300 bytes" in body["detail"]
    assert upload.asked == 2
    assert (await Upload([b"x" * 400, b"x" * 600]).run(served))[0] == 200


async def test_an_operation_may_take_less_than_others() -> None:
    """The gateway refuses by Content-Length, or at the first byte above the limit; it never reads more."""
    served = app([replace(PUT, body_bytes_max=100)], SMALL)
    upload = Upload([b"x" * 80] * 10)
    assert (await upload.run(served))[0] == 413
    assert upload.asked == 2
    upload = Upload([b"x"], headers={"content-length": "101"})
    assert (await upload.run(served))[0] == 413
    assert upload.asked == 0
    assert (await Upload([b"x" * 100]).run(served))[0] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" + b"1," * 8 + b"1]", 200),
        (b"[" + b"1," * 10 + b"1]", 413),
        (b"[" + b"[]," * 5 + b"[]]", 413),
        (b'{"a":{"b":{"c":{"d":{"e":1}}}}}', 200),
        (b'{"a":{"b":{"c":{"d":{"e":{}}}}}}', 413),
        (b'["' + b"," * 100 + b'"]', 200),
        (rb'["\\", "\"' + b"[" * 100 + b'"]', 200),
        (rb'["\\\"' + b"{" * 100 + b'", 1]', 200),
        (rb'["\\",' + b"1," * 10 + rb'"\\"]', 413),
        (rb'["\"",' + b"1," * 10 + rb'"\""]', 413),
        (b"[" + b'"",' * 20 + b'""]', 413),
        (b'["' + rb"\"" * 100 + b'"]', 200),
    ],
)
async def test_values_are_counted_before_they_are_parsed(body: bytes, status: int) -> None:
    """The gateway counts JSON values, not similar characters within strings; the 413 detail has the limit."""
    async with http_of([PUT], replace(SMALL, json_values_max=10, bodies_bytes_max=2_000)) as http:
        response = await http.put("/v1/things/a", content=body, headers={"content-type": JSON})
        assert response.status_code == status, response.text
        if status == 413:
            assert "10 JSON values" in problem(response, 413, "too-large")["detail"]
        else:
            assert response.json()["body"] == json.loads(body)


async def test_values_in_memory_count_as_what_they_take() -> None:
    """Many small values of a short text are as much as a large body."""
    async with http_of([PUT], replace(SMALL, bodies_bytes_max=10_000)) as http:
        kind = {"content-type": JSON}
        problem(await http.put("/v1/things/a", content=b"[" + b"1," * 200 + b"1]", headers=kind), 503, "busy")
        for _ in range(3):  # what was refused holds nothing
            content = b"[" + b"1," * 100 + b"1]"
            assert (await http.put("/v1/things/a", content=content, headers=kind)).status_code == 200
