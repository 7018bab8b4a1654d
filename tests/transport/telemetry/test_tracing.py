"""Spans and debug events of single updates: none unless the app enables them."""

import logging
import subprocess
import sys

import pytest
import structlog

from lorogo_transport.telemetry.logs import get_logger, to_stderr
from lorogo_transport.telemetry.tracing import OtelMissing, RecentEntries, events_of, spans_of


def test_no_event_is_made_without_a_listener() -> None:
    """Without a provider and debug events both are None, the only value that the hot path checks."""
    assert spans_of(None) is None
    assert events_of(get_logger("lorogo_test.quiet")) is None


def test_debug_events_are_seen_as_the_app_sets_them(caplog: pytest.LogCaptureFixture) -> None:
    """By the levels of the standard library, or by those of structlog if that is configured."""
    log = get_logger("lorogo_test.configured")
    with caplog.at_level(logging.DEBUG, logger="lorogo_test"):
        assert events_of(log) is log
    for level, expected in (("info", None), ("debug", log)):
        to_stderr(level)
        assert events_of(log) is expected
    structlog.configure(wrapper_class=structlog.BoundLogger)  # one without levels logs everything
    assert events_of(log) is log


def test_without_the_extra_a_provider_is_answered_with_what_to_install() -> None:
    """An app without a provider loads no module of OpenTelemetry."""
    code = (
        "import sys\nsys.modules['opentelemetry'] = None\nimport lorogo_client\n"
        "lorogo_client.connect()\n"
        "try:\n    lorogo_client.connect(tracer_provider=object())\n"
        "except ImportError as error:\n    print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "spans need OpenTelemetry: pip install 'lorogo[otel]'\n"
    assert issubclass(OtelMissing, ImportError)


def test_the_oldest_unanswered_entry_is_dropped_first() -> None:
    """However many updates are lost, their facts take no more room than this."""
    recent: RecentEntries[int] = RecentEntries(entries_max=3)
    for number in range(5):
        recent.put(str(number), number)
    assert len(recent) == 3
    assert [recent.pop(str(number)) for number in range(5)] == [None, None, 2, 3, 4]
    assert recent.get("4") is None
