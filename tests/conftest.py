"""Fixtures for every test: real nats-servers, shared or one's own."""

import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import pytest_asyncio
import structlog
from xdist.scheduler.loadscope import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

from lorogo_transport.nats.embedded import EmbeddedNats
from tests.durations import SECONDS, TOGETHER

# Processes that tests start are open, as in docs/SECURITY.md, unless a test sets otherwise.
os.environ["LOROGO_OPEN"] = "1"

# `nohup`, `&` and cron start a run with SIGINT ignored, and every child inherits that: tests interrupt both
# this process and its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A run gives the same result for the same code: LOROGO_FUZZ=1 enables the search for new examples, and its
# findings become tests of their own. No result depends on how busy the machine is.
hypothesis.settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
if "LOROGO_FUZZ" not in os.environ:
    hypothesis.settings.load_profile("steady")


def scope_of(nodeid: str) -> str:
    """The tests that one process runs: those of a file, or of all files that share something costly."""
    file = nodeid.partition("::")[0]
    return next((prefix for prefix in TOGETHER if file.startswith(prefix)), file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest scopes come first: the last one to start decides how long the other processes wait."""
    seconds: dict[str, int] = defaultdict(int)
    for file, took in SECONDS.items():
        seconds[scope_of(file)] += took
    items.sort(key=lambda item: -seconds[scope_of(item.nodeid)])


class Scheduler(LoadScopeScheduling):  # type: ignore[misc]  # the same
    """Gives each process whole scopes."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler:
    """Share the tests out by scope."""
    return Scheduler(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two processes for each core: tests wait for other processes and for leases more than they compute."""
    return 2 * (os.cpu_count() or 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """With `--durations`, also the files that took longest: `durations.py` has them."""
    count = config.getoption("durations")
    if not count:
        return
    seconds: dict[str, float] = defaultdict(float)
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section(f"slowest {count} files")
    for name, took in sorted(seconds.items(), key=lambda one: -one[1])[:count]:
        terminalreporter.line(f"{took:7.1f}s {name}")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def nats_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedNats]:
    """One nats-server for the whole run: use names of your own in it, and do not stop it."""
    async with EmbeddedNats(tmp_path_factory.mktemp("nats")) as nats:
        yield nats


@pytest.fixture
async def fresh_nats(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    """A nats-server of this test's own: kill it, pause it, start it again."""
    async with EmbeddedNats(tmp_path / "nats") as nats:
        yield nats


@pytest.fixture(autouse=True)
def structlog_as_it_was() -> Iterator[None]:
    """A test that configures structlog, or captures its events, leaves nothing behind for the next."""
    yield
    structlog.reset_defaults()
