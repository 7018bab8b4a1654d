"""Updates as spans of OpenTelemetry: one trace per log id, on both sides, without a word on the wire."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from loro import ExportMode, LoroDoc

import lorogo_client
from lorogo_client import Client, LorogoError, UpdateRefused
from lorogo_gateway.relay.subscriber import Joined
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.tracing import send_span_id, shown, trace_id
from lorogo_server import Server, ServerSettings
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.telemetry.tracing import spans_of
from tests.gateway.relay_pages import relayed
from tests.journals import TestDisk, in_memory
from tests.server.support import until

pytest.importorskip("opentelemetry.sdk", reason="needs lorogo[otel]: make install")

from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio, Sampler, TraceIdRatioBased

DEADLINE = 20.0


class Watched:
    """A provider that keeps its spans for the tests."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self, log_id: str) -> dict[str, ReadableSpan]:
        """Those of one update, by name."""
        return {one.name: one for one in self.exporter.get_finished_spans() if log_id_of(one) == log_id}

    @property
    def log_ids(self) -> set[str]:
        return {log_id_of(one) for one in self.exporter.get_finished_spans()}


def log_id_of(span: ReadableSpan) -> str:
    assert span.attributes is not None
    return str(span.attributes["lorogo.log_id"])


@dataclass
class World:
    """A server and a client, each with spans of its own."""

    nats: MemoryNats
    client: Client
    at_server: Watched
    at_client: Watched

    async def spans(self, log_id: str, *names: str) -> dict[str, ReadableSpan]:
        """Those of one update, as soon as there are these; the owner tells its last behind the ACK."""

        async def look() -> dict[str, ReadableSpan] | None:
            found = self.at_client.spans(log_id) | self.at_server.spans(log_id)
            return found if found.keys() >= {f"lorogo.{name}" for name in names} else None

        found = await until(look)
        assert len(found) == len(names)
        return found


@asynccontextmanager
async def world(
    sampler: Callable[[], Sampler] = lambda: TraceIdRatioBased(1.0), **settings: Any
) -> AsyncIterator[World]:
    nats, at_server, at_client = MemoryNats(), Watched(sampler()), Watched(sampler())
    async with (
        asyncio.timeout(DEADLINE),
        Server(
            nats.connect("server"),
            ServerSettings(**settings),
            tracer_provider=at_server.provider,
            **in_memory(),
        ),
        lorogo_client.connect(nats.connect("client"), tracer_provider=at_client.provider) as client,
    ):
        yield World(nats, client, at_server, at_client)


async def write(client: Client, document: str, text: str) -> str:
    """Type, wait for the ACK, and give the log id."""
    async with client.open(document) as session:
        session.doc.get_text("body").insert(0, text)
        receipt = await session.flush(timeout=DEADLINE)
    assert receipt is not None
    return receipt.log_id


async def test_one_update_is_one_trace_from_the_client_to_the_ack() -> None:
    """Send is the root span, accept its child, ack the child of accept; each has the document and the
    sequence.
    """
    async with world() as here:
        with otel.use_span(otel.NonRecordingSpan(otel.SpanContext(7, 7, is_remote=False))):
            log_id = await write(here.client, "minutes", "hello")  # the app's own span is another trace
        wal = here.nats.connect("look").stream(subjects.WAL_STREAM)
        (stored,) = [one async for one in wal.read(subjects.wal("minutes"))]
        found = await here.spans(log_id, "send", "accept", "ack")
        send, accept, ack = (found[name] for name in ("lorogo.send", "lorogo.accept", "lorogo.ack"))
        assert {one.context.trace_id for one in found.values()} == {trace_id(log_id)}
        assert send.parent is None
        assert send.context.span_id == send_span_id(log_id)
        assert accept.parent is not None
        assert (accept.parent.span_id, accept.parent.is_remote) == (send.context.span_id, True)
        assert ack.parent is not None
        assert ack.parent.span_id == accept.context.span_id
        for span in found.values():
            assert span.attributes is not None
            assert span.start_time is not None
            assert span.end_time is not None
            assert span.attributes["lorogo.document"] == "minutes"
            assert span.attributes["lorogo.sequence"] == stored.sequence
            assert span.start_time <= span.end_time
            assert span.status.is_ok
        assert {**(send.attributes or {})}["lorogo.durability"] == "journal"
        assert {**(ack.attributes or {})}["lorogo.durability"] == "journal"
        # Nothing of it was on the wire.
        assert {name.lower() for name in stored.headers} & {"traceparent", "tracestate"} == set()
        assert stored.headers[h.LOG_ID] == log_id
        assert len(shown(log_id)) == 32


@pytest.mark.parametrize("sampler", [TraceIdRatioBased, ParentBasedTraceIdRatio])
async def test_both_sides_choose_the_same_updates(sampler: Callable[[float], Sampler]) -> None:
    """A sampler that goes by the trace id needs no word between them; what is left out leaves nothing."""
    async with world(lambda: sampler(0.5)) as here:
        written = {await write(here.client, f"doc-{number}", "x") for number in range(24)}
        chosen = here.at_client.log_ids
        assert 0 < len(chosen & written) < len(written)
        for log_id in chosen:
            await here.spans(log_id, "send", "accept", "ack")
        assert here.at_server.log_ids == chosen


async def test_a_refusal_is_an_error_with_its_reason_on_both_sides() -> None:
    """The update never reaches an ack; the client's span has the reason."""
    async with world(document_bytes_max=100) as here:
        with pytest.raises(UpdateRefused) as no:
            await write(here.client, "small", "x" * 1000)
        log_id = no.value.log_id
        found = await here.spans(log_id, "send", "accept")
        for span in found.values():
            assert span.attributes is not None
            assert span.attributes["lorogo.reason"] == "document-full"
            assert not span.status.is_ok
            assert "may have 100" in str(span.status.description)


async def test_what_a_server_makes_for_a_call_is_sent_by_the_server() -> None:
    """A patch is an update like any; its receipt names it."""
    async with world() as here:
        receipt = await here.client.document("minutes").patch([{"op": "add", "path": "/a", "value": "text"}])
        await here.spans(receipt.log_id, "send", "accept", "ack")
        assert not here.at_client.log_ids


class Page:
    """Hears nothing."""

    def accepted(self, payload: bytes) -> None: ...

    def aware(self, data: bytes) -> None: ...

    def rejoin(self, why: str) -> None: ...

    def gone(self, error: LorogoError) -> None: ...


async def test_what_a_relay_passes_on_is_traced_too() -> None:
    """So a gateway's updates are; one that was given up ends with that."""
    async with world() as here:
        doc = LoroDoc()
        doc.get_text("body").insert(0, "from a browser")
        doc.commit()
        async with relayed(here.client, "minutes", Page()) as member:
            joined = await member.join(b"")
            assert isinstance(joined, Joined)
            receipt = await member.send(doc.export(ExportMode.Updates(LoroDoc().oplog_vv)))
        await here.spans(receipt.log_id, "send", "accept", "ack")


async def test_an_update_without_an_answer_ends_when_it_is_given_up() -> None:
    """No span stays open: its status is that no answer came."""
    nats, watched, disk = MemoryNats(), Watched(), TestDisk()
    async with (
        asyncio.timeout(DEADLINE),
        Server(nats.connect("server"), ServerSettings(), data=Path("data"), storage=disk),
        lorogo_client.connect(nats.connect("client"), tracer_provider=watched.provider) as client,
    ):
        session = await client.open("minutes")
        disk.hold()
        session.doc.get_text("body").insert(0, "x")
        session.commit()

        async def waiting() -> int:
            return disk.waiting  # of a thread

        await until(waiting)
        assert not watched.log_ids
        await client.close_session(session, raise_unsaved=False)
        disk.let_go()
    (span,) = watched.exporter.get_finished_spans()
    assert (span.name, span.status.is_ok, span.status.description) == ("lorogo.send", False, "no answer")


def test_a_provider_that_is_switched_off_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SDK_DISABLED means what it means everywhere."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert spans_of(TracerProvider(shutdown_on_exit=False)) is None


def test_what_is_no_provider_is_refused_with_a_sentence() -> None:
    """The error occurs when the client is made, not when it sends the first update."""
    with pytest.raises(TypeError, match="must be a TracerProvider of opentelemetry-sdk, not object"):
        lorogo_client.connect(tracer_provider=object())
