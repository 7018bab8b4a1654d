"""LOROGO_OTEL: spans of a process, sent as OpenTelemetry's environment variables set."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from lorogo_cli.connect.telemetry import ENVIRONMENT, telemetry, wanted
from lorogo_cli.errors import CommandError
from lorogo_protocol.messages.tracing import trace_id
from lorogo_transport.telemetry.tracing import spans_of


@pytest.mark.parametrize(
    ("words", "on"), [("", False), ("0", False), (" Off ", False), ("1", True), ("TRUE", True)]
)
def test_it_is_off_unless_it_is_asked_for(words: str, on: bool) -> None:
    """By one word of the environment."""
    assert wanted(words) is on


def test_another_word_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(CommandError, match="LOROGO_OTEL must be 1 or 0, not 'maybe'"):
        wanted("maybe")


async def test_who_does_not_ask_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even OpenTelemetry is loaded."""
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    async with telemetry("lorogo-test") as provider:
        assert provider is None


async def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is served."""
    monkeypatch.setenv(ENVIRONMENT, "1")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(CommandError, match=r"pip install 'lorogo\[otel\]'"):
        async with telemetry("lorogo-test"):
            pass


class Collector(BaseHTTPRequestHandler):
    """Takes what is posted."""

    taken: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.taken.append((self.path, self.rfile.read(size)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass  # no log lines


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Its address, and what it was sent."""
    taken: list[tuple[str, bytes]] = []
    server = HTTPServer(("127.0.0.1", 0), type("Taking", (Collector,), {"taken": taken}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("name", ["", "named-by-the-operator"])
async def test_spans_reach_the_collector_before_the_process_ends(
    monkeypatch: pytest.MonkeyPatch, collector: tuple[str, list[tuple[str, bytes]]], name: str
) -> None:
    """The service name is ours, or the one in OpenTelemetry's environment variables."""
    pytest.importorskip("opentelemetry.sdk", reason="needs lorogo[otel]: make install")
    address, taken = collector
    monkeypatch.setenv(ENVIRONMENT, "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_SERVICE_NAME", name)
    async with asyncio.timeout(30), telemetry("lorogo-test") as provider:
        spans = spans_of(provider)
        assert spans is not None
        spans.send("some-log-id", 1, 2, {"lorogo.log_id": "some-log-id"})
    ((path, body),) = taken
    assert path == "/v1/traces"
    assert trace_id("some-log-id").to_bytes(16, "big") in body
    assert (name or "lorogo-test").encode() in body
