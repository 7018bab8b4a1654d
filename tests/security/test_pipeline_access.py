"""The pipeline on a closed NATS: it reads with an operator's seed, and compacts with a server's."""

from pathlib import Path

import pytest

import lorogo_client
from lorogo_pipeline.audit.live_documents import live
from lorogo_pipeline.jobs.fleet import compact_fleet
from lorogo_pipeline.jobs.fleet_report import FleetOptions
from lorogo_pipeline.sources import nats_connection, stream_reader
from lorogo_server import Server, ServerSettings
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.errors import NotAuthorized
from lorogo_transport.secret_files import SecretUnusable
from tests.security.closed import Closed, closed_nats, mint

pytestmark = pytest.mark.nats


async def _fill(closed: Closed, folder: Path) -> None:
    async with (
        Server(closed.server, ServerSettings(), data=folder, authority=closed.authority),
        lorogo_client.connect(closed.url, token=mint({"plan": "write"})) as ann,
    ):
        for number in range(3):
            await ann.document("plan").patch([{"op": "add", "path": "/t", "value": f"v{number}"}])


async def test_seeds_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading needs an operator's seed, compacting a server's seed and the keys; without a seed
    NATS refuses.
    """
    async with closed_nats(tmp_path) as closed:
        await _fill(closed, tmp_path / "server")
        with pytest.raises(NotAuthorized):
            await stream_reader.read_bounds(closed.url)
        monkeypatch.setenv("LOROGO_NATS_SEED", closed.seeds["operator"])
        assert (await stream_reader.read_bounds(closed.url)).last == 3
        async with live(closed.url) as seen:
            assert await seen.documents() == {"plan"}

        monkeypatch.setenv("LOROGO_NATS_SEED", closed.seeds["server"])
        options = FleetOptions(data=tmp_path / "job", cold_seconds=0.0)
        report = await compact_fleet(closed.url, options, keys=KeySource.from_file(closed.keys))
        assert report.failures == []
        assert report.compacted == 1
        assert "iolation" not in closed.nats.log_path.read_text()


async def test_a_seed_that_others_may_read_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the command that helps, as everywhere."""
    file = tmp_path / "operator.seed"
    file.write_text("SU...")
    file.chmod(0o644)
    monkeypatch.setenv("LOROGO_NATS_SEED_FILE", str(file))
    with pytest.raises(SecretUnusable, match="chmod 600"):
        await nats_connection.connect("nats://127.0.0.1:1", name="test")
