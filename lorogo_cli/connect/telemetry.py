"""Spans of a process to wherever OpenTelemetry's own environment says; off unless LOROGO_OTEL asks for it.

LOROGO_OTEL=1 is all that is ours. OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and
the others mean what they mean everywhere (docs/OBSERVABILITY.md).
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lorogo_cli.errors import CommandError, brief

ENVIRONMENT = "LOROGO_OTEL"
_ON, _OFF = ("1", "on", "true", "yes"), ("", "0", "off", "false", "no")
_LAST_SECONDS = 5.0  # for what is not exported yet, when the process ends


def wanted(environment: str) -> bool:
    """Whether spans are asked for. Raises Problem."""
    word = environment.strip().lower()
    if word not in _ON + _OFF:
        raise CommandError(f"{ENVIRONMENT} is {brief(environment)}: it can be 1 or 0")
    return word in _ON


@asynccontextmanager
async def telemetry(service: str) -> AsyncIterator[object | None]:
    """The TracerProvider of this process, for as long as the body runs; None: nobody asked for spans.

    `service` is its name unless OTEL_SERVICE_NAME says another. Raises Problem.
    """
    if not wanted(os.environ.get(ENVIRONMENT, "")):
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError:
        raise CommandError(f"{ENVIRONMENT} needs OpenTelemetry: pip install 'lorogo[otel]'") from None
    named = Resource({SERVICE_NAME: service}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=Resource.create().merge(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield provider
    finally:
        # Its own deadline is 30 s, and a collector that is away must keep neither us nor the interpreter.
        ending = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, _LAST_SECONDS)
