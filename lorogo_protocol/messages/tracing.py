"""Derives trace and span ids of W3C Trace Context and OpenTelemetry from an update's log id.

Both ends compute the same ids, so they are not sent (docs/decisions/0018). Pure.
"""

import xxhash

_SPAN_SEED = 1


def trace_id(log_id: str) -> int:
    """Return the 128-bit trace id, never 0: XXH3 of the log id."""
    return xxhash.xxh3_128_intdigest(log_id.encode()) or 1


def send_span_id(log_id: str) -> int:
    """Return the 64-bit id, never 0, of the client's send span: XXH3 with seed 1."""
    return xxhash.xxh3_64_intdigest(log_id.encode(), _SPAN_SEED) or 1


def shown(log_id: str) -> str:
    """Return the trace id as 32 hex digits, as tracing backends show it."""
    return f"{trace_id(log_id):032x}"
