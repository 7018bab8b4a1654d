"""A library's logs: nothing on standard output unless the app configured it."""

import json
import logging
import subprocess
import sys

import pytest
import structlog

from lorogo_transport.telemetry.logs import get_logger

_APP = """
from lorogo_transport.telemetry.logs import get_logger
log = get_logger("lorogo_client.session.room").bind(document="minutes")
log.debug("too small"); log.info("small"); log.warning("careful", why="because")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("broken")
"""


def test_an_app_that_configured_nothing_sees_warnings_on_standard_error_only() -> None:
    """Debug and info are silent; an app that prints data is not disturbed."""
    ran = subprocess.run([sys.executable, "-c", _APP], capture_output=True, text=True, check=True)
    assert ran.stdout == ""
    lines = ran.stderr.splitlines()
    assert lines[0] == "event='careful' document='minutes' why='because'"
    assert "ZeroDivisionError" in ran.stderr
    assert "small" not in ran.stderr


def test_the_standard_librarys_settings_count(caplog: pytest.LogCaptureFixture) -> None:
    """Levels by module, as an app sets them with `logging`."""
    log = get_logger("lorogo_test.module")
    with caplog.at_level(logging.INFO, logger="lorogo_test"):
        log.bind(a=1).info("shown", b=2)
        log.debug("hidden")
    assert [record.getMessage() for record in caplog.records] == ["event='shown' a=1 b=2"]


def test_an_app_that_configured_structlog_gets_events_there() -> None:
    """Its processors see the event and its facts."""
    seen: list[dict[str, object]] = []

    def collect(_: object, name: str, event: dict[str, object]) -> str:
        seen.append({**event, "level": name})
        raise structlog.DropEvent

    structlog.configure(processors=[collect])  # type: ignore[list-item]  # it keeps what it sees
    try:
        get_logger("any").bind(document="d").error("broken", exc_info=None)
    finally:
        structlog.reset_defaults()
    assert seen == [{"event": "broken", "document": "d", "exc_info": None, "level": "error"}]


_PROCESS = """
import json
import logging
from lorogo_transport.telemetry.logs import get_logger, to_stderr
to_stderr("info"); to_stderr("info")
get_logger("lorogo_server.document.host").bind(document="minutes").info("up", token=3)
logging.getLogger("another.library").warning("disk is %s", "slow")
logging.getLogger("another.library").info("a detail")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("another.library").log(45, "broken", exc_info=True)
"""


def test_a_process_of_ours_says_json_lines_and_nothing_else() -> None:
    """Records of libraries that use the standard library are there too, each once, with its level and its
    name.
    """
    ran = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=True)
    assert ran.stdout == ""
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert all(line.pop("timestamp").endswith("Z") for line in lines)
    assert lines[:2] == [
        {"message": "up", "document": "minutes", "token": 3, "level": "info"},
        {"message": "disk is slow", "logger": "another.library", "level": "warning"},
    ]
    (last,) = lines[2:]
    assert (last["message"], last["level"]) == ("broken", "error")
    assert "ZeroDivisionError" in last["exception"]
