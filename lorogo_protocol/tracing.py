"""The trace of an update is its log id. Here it has the shape that W3C Trace Context and OpenTelemetry want.

Both ends work out the same numbers, so nothing more travels (docs/decisions/0018). Pure.
"""

import xxhash

_SPAN_SEED = 1


def trace_id(log_id: str) -> int:
    """128 bits, never 0: XXH3 of the log id."""
    return xxhash.xxh3_128_intdigest(log_id.encode()) or 1


def send_span_id(log_id: str) -> int:
    """The 64 bits, never 0, of the span in which a client sends it: XXH3 with seed 1."""
    return xxhash.xxh3_64_intdigest(log_id.encode(), _SPAN_SEED) or 1


def shown(log_id: str) -> str:
    """The trace id as tracing backends write it: 32 hex digits."""
    return f"{trace_id(log_id):032x}"
