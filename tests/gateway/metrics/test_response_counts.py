"""Answers over HTTP are counted by class of status, and those to probes are not."""

import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lorogo_gateway.metrics.response_counts import ResponseCountMiddleware, ResponseCounts
from lorogo_gateway.settings import GatewaySettings
from tests.gateway.whole import whole


async def _answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse("", int(request.path_params["status"]))


async def _fail(_: Request) -> PlainTextResponse:
    raise RuntimeError("an unexpected error")


async def test_each_answer_is_in_one_class_and_a_crash_is_a_500() -> None:
    """Classes that never were are there with a zero: a rate needs one."""
    responses = ResponseCounts()
    app = Starlette(
        routes=[
            Route("/readyz", _fail),
            Route("/fail", _fail),
            Route("/{status}", _answer),
        ],
        middleware=[Middleware(ResponseCountMiddleware, responses, ("/readyz",))],
    )
    assert responses.facts() == {"2xx": 0, "3xx": 0, "4xx": 0, "5xx": 0}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        for path in ("200", "204", "404", "503", "fail", "readyz"):
            await http.get(f"/{path}")
    assert responses.facts() == {"2xx": 2, "3xx": 0, "4xx": 1, "5xx": 2}


async def test_a_gateway_tells_how_it_answered() -> None:
    """`/metrics` has what people got, and neither itself nor the probes."""
    async with whole(GatewaySettings(port=0)) as served, served.http() as http:
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/v1/documents", 200), ("/nowhere", 404)):
            assert (await http.get(path)).status_code == status, path
        shown = (await http.get("/metrics")).text
        again = (await http.get("/metrics")).text
    counted = [line for line in shown.splitlines() if line.startswith("lorogo_gateway_http_responses_total{")]
    assert counted == [
        'lorogo_gateway_http_responses_total{status="2xx"} 1.0',
        'lorogo_gateway_http_responses_total{status="3xx"} 0.0',
        'lorogo_gateway_http_responses_total{status="4xx"} 1.0',
        'lorogo_gateway_http_responses_total{status="5xx"} 0.0',
    ]
    assert all(line in again for line in counted)
