"""The log id as a trace: the same numbers at every end."""

import pytest

from lorogo_protocol.messages.tracing import send_span_id, shown, trace_id


@pytest.mark.parametrize(
    ("log_id", "trace", "span"),
    [
        ("V1StGXR8_Z5jdHi6B-myT", "471cfc1b738ab039b264215a8f268e1a", "490917199ddc26b9"),
        ("a", "a96faf705af16834e6c632b61e964e1f", "d2f6d0996f37a720"),
    ],
)
def test_the_ids_are_those_of_the_page(log_id: str, trace: str, span: str) -> None:
    """XXH3 of the log id; who writes a client in another language gets the same."""
    assert shown(log_id) == trace
    assert f"{send_span_id(log_id):016x}" == span


def test_they_fit_into_a_traceparent() -> None:
    """128 and 64 bits, never zero, and not the same for two updates."""
    log_ids = [f"log-{number}" for number in range(1000)]
    traces, spans = {trace_id(one) for one in log_ids}, {send_span_id(one) for one in log_ids}
    assert len(traces) == len(spans) == 1000
    assert 0 < min(traces) <= max(traces) < 2**128
    assert 0 < min(spans) <= max(spans) < 2**64
