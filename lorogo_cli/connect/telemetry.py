"""Export spans of a process, as OpenTelemetry's own variables define; off unless LOROGO_OTEL is set.

LOROGO_OTEL=1 is our only variable. OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and
the others have their usual meaning (docs/OBSERVABILITY.md).
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lorogo_cli.errors import CommandError, brief

ENVIRONMENT = "LOROGO_OTEL"
_ON, _OFF = ("1", "on", "true", "yes"), ("", "0", "off", "false", "no")
_LAST_SECONDS = 5.0  # to export remaining spans when the process ends


def wanted(environment: str) -> bool:
    """Return whether spans are enabled. Raises CommandError."""
    word = environment.strip().lower()
    if word not in _ON + _OFF:
        raise CommandError(f"{ENVIRONMENT} must be 1 or 0, not {brief(environment)}")
    return word in _ON


@asynccontextmanager
async def telemetry(service: str) -> AsyncIterator[object | None]:
    """Yield the TracerProvider of this process, or None if spans are off.

    `service` is its name unless OTEL_SERVICE_NAME sets another. Raises CommandError.
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
        # Its own deadline is 30 s; an unreachable collector must not delay the end of the process.
        ending = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, _LAST_SECONDS)
