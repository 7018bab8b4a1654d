"""Schemathesis sends requests inside and outside the OpenAPI description; the gateway answers as
described.
"""

import asyncio
import json
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import jsonschema_rs
import pytest
import schemathesis
import uvicorn
from schemathesis import engine
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import StopReason, events
from schemathesis.engine.recorder import Interaction, ScenarioRecorder
from schemathesis.specs.openapi import definitions
from starlette.requests import Request
from starlette.responses import Response

from lorogo_gateway.auth.needs import NoToken
from lorogo_gateway.http import openapi
from lorogo_gateway.http.operations import Operation, ResponseSpec
from lorogo_gateway.server.app import Gateway
from lorogo_gateway.settings import GatewaySettings
from lorogo_server import Server
from tests.client.support import client_of, new_world
from tests.gateway.http_support import gate_of
from tests.journals import in_memory

SETTINGS = GatewaySettings(call_seconds=10.0, body_bytes_max=1_000_000)
#: what the state of a document may make of a request that is well-formed
FITS = ["2xx", "3xx", "404", "409", "410", "412", "422"]
#: a request that is not; a path that is none is 404
REFUSED = ["400", "404", "405", "406", "415", "422"]

_URI_CHARS_MAX = 60_000


@contextmanager
def serving() -> Iterator[str]:
    """The address of a gateway with a server behind it, on a thread with a loop of its own."""
    address: list[str] = []
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        world = await new_world()
        async with (
            Server(world.connect("server"), **in_memory()),
            client_of(world) as client,
            Gateway(client, SETTINGS) as gateway,
        ):
            config = uvicorn.Config(gateway.app, port=0, log_level="critical", lifespan="off")
            server = uvicorn.Server(config)
            task = asyncio.ensure_future(server.serve())
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            address.append(f"http://127.0.0.1:{port}")
            ready.set()
            await stop.wait()
            await gateway.disconnect_all()
            server.should_exit = True
            await task

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        assert ready.wait(20)
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()
    assert not thread.is_alive()


def _config() -> SchemathesisConfig:
    """The same requests in every run; LOROGO_FUZZ=1 looks for new ones, and for more of them."""
    new = "LOROGO_FUZZ" in os.environ
    generation = {"mode": "all", "max-examples": 300 if new else 20, "database": "none"}
    return SchemathesisConfig.from_dict(
        {
            "seed": random.getrandbits(32) if new else 7,
            "continue-on-failure": True,
            "generation": generation,
            "checks": {
                "positive_data_acceptance": {"expected-statuses": FITS},
                "negative_data_rejection": {"expected-statuses": REFUSED},
            },
            "phases": {"stateful": {"max-steps": 6, "generation": {"max-examples": 10}}},
        }
    )


@pytest.mark.deep
@pytest.mark.filterwarnings("default")  # of Schemathesis and what it brings, not ours
def test_every_answer_is_as_it_is_described() -> None:
    """The gateway answers valid requests and refuses invalid ones, with a described status and shape.

    Phases: examples, coverage (every border of every schema, and each violated), fuzzing, stateful.
    """
    config = _config()
    failures: list[str] = []
    requests: Counter[str] = Counter()
    with serving() as url:
        whole = schemathesis.openapi.from_url(f"{url}{openapi.PATH}", config=config)
        schema = whole.exclude(path="/v1/feed")  # which has no end
        for event in engine.from_schema(schema).execute():
            match event:
                case events.ScenarioFinished(phase=phase, recorder=recorder):
                    requests[phase.value] += len(recorder.interactions)
                    failures += _failures(recorder)
                case events.NonFatalError() | events.FatalError():
                    failures.append(str(event))
                case events.EngineFinished():
                    assert event.stop_reason is StopReason.COMPLETED
        assert httpx.get(f"{url}/v1/documents").status_code == 200
    assert not failures, f"seed {config.seed}\n" + "\n\n".join(failures[:10])
    assert requests.keys() >= {"examples", "coverage", "fuzzing", "stateful"}
    assert requests["coverage"] > 100
    assert requests["fuzzing"] > 100


def _failures(recorder: ScenarioRecorder) -> Iterator[str]:
    sent = recorder.interactions.values()
    restored = any(one.request.uri.endswith("/restore") and _status(one) == 200 for one in sent)
    for case, checks in recorder.checks.items():
        interaction = recorder.interactions.get(case)
        answer = "" if interaction is None or interaction.response is None else interaction.response.text
        for check in checks:
            if (info := check.failure_info) is None:
                continue
            if check.name == "use_after_free" and restored:
                continue  # Schemathesis does not know that it was brought back
            if interaction is not None and len(interaction.request.uri) > _URI_CHARS_MAX:
                continue  # uvicorn refuses it before we see it
            text = f"{info.failure}\n{info.code_sample[:3000]}\n{answer[:1000]}"
            yield f"{recorder.label}: {check.name}: {text}"


def _status(interaction: Interaction) -> int:
    return 0 if interaction.response is None else interaction.response.status_code


async def test_the_description_is_openapi() -> None:
    """It is served, it fits the meta schema of OpenAPI 3.1, and everything that it refers to is there."""
    async with gate_of(serving=False) as gate:
        response = await gate.http.get("/v1/openapi.json")
        assert response.headers["content-type"] == "application/json"
        described = response.json()
    definitions.OPENAPI_31_VALIDATOR.validate(described)
    text = json.dumps(described)
    for name in re.findall(r'"#/components/schemas/([^"]+)"', text):
        jsonschema_rs.validator_for(
            {**described["components"]["schemas"][name], "components": described["components"]}
        )
    ids = [one["operationId"] for path in described["paths"].values() for one in path.values()]
    assert sorted(set(ids)) == sorted(ids)
    assert {"list", "get", "patch", "import", "delete", "fork", "revert", "restore", "reset"} <= set(ids)
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            problems = {status for status, answer in one["responses"].items() if int(status) >= 400}
            assert {"400", "500", "503"} <= problems, (path, method)
            for status in problems:
                assert list(one["responses"][status]["content"]) == ["application/problem+json"]


def test_two_shapes_cannot_share_a_title() -> None:
    """A component is named once."""
    with pytest.raises(ValueError, match="two schemas"):
        openapi.document(
            [
                Operation(
                    "GET",
                    f"/v1/{at}",
                    at,
                    "",
                    _never,
                    {200: ResponseSpec("", {"application/json": schema})},
                    need=NoToken(),
                )
                for at, schema in (
                    ("a", {"title": "X", "type": "string"}),
                    ("b", {"title": "X", "type": "null"}),
                )
            ]
        )


async def _never(_: Request) -> Response:
    raise AssertionError
