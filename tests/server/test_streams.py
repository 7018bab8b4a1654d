"""The streams that a server needs, and where fencing tokens begin."""

import json
from pathlib import Path
from typing import Any

import pytest

from lorogo_protocol import limits
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Down
from lorogo_server import ServerSettings, streams
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.stores.statuses import Statuses
from tests.server.support import until
from tests.server.worlds import ShiftedClock, memory_world


async def test_tokens_go_up_though_the_bucket_is_created_again_without_knowledge_of_them() -> None:
    """A status bucket begins at NATS's clock, whatever its creator's clock: no later owner seems older."""
    nats_clock, behind = ShiftedClock(), ShiftedClock(ahead=-3600.0)
    nats = MemoryNats(now_ns=nats_clock.wall_ns)
    line = nats.connect("server")
    token = 0
    for clock in (nats_clock, ShiftedClock(ahead=3600.0), behind, nats_clock):
        await streams.ensure(line, ServerSettings(), clock, guarded=False)
        now = nats_clock.wall_ns() // 1_000
        first = await line.stream(subjects.STATUS_STREAM).append(subjects.status_key("doc"), b"")
        assert token < first <= now
        token = first
        del nats.stores[subjects.STATUS_STREAM]


async def test_tokens_go_up_from_those_that_are_known() -> None:
    """NATS's clock was ahead when the bucket was made, and the next to make it has seen its tokens."""
    clock = ShiftedClock(ahead=3600.0)
    nats = MemoryNats(now_ns=clock.wall_ns)
    line = nats.connect("server")
    await streams.ensure(line, ServerSettings(), clock, guarded=False)
    statuses = Statuses(line)
    token = await statuses.write("doc", Down(1), expected_revision=0)
    assert statuses.highest == token
    other = Statuses(line)
    await other.read("doc")
    del nats.stores[subjects.STATUS_STREAM]
    clock.ahead = 0.0
    await streams.ensure(line, ServerSettings(), clock, guarded=False, above=other.highest)
    assert await statuses.write("doc", Down(2), expected_revision=0) > token


@pytest.mark.parametrize(
    ("now", "above", "first"),
    [
        (5_000, 0, 5_000),
        (5_000, 4_999, 5_000),
        (5_000, 5_000, 60_010_000),
        (5_000, 9_000_000, 69_005_000),
        (65_000_000, 90_000_000, 155_000_000),
    ],
)
def test_where_tokens_begin(now: int, above: int, first: int) -> None:
    """At NATS's clock in microseconds; where that went back, behind a gap that differs each time."""
    assert streams.first_token(now * 1_000, above) == first


async def test_what_is_lost_while_a_server_starts_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """NATS restarts without it right after it was checked: the server checks again."""
    ensure, lost = streams.ensure, False

    async def lose(transport: MemoryTransport, *arguments: Any, **options: Any) -> list[tuple[str, str]]:
        nonlocal lost
        changes = await ensure(transport, *arguments, **options)
        if not lost:
            lost = True
            transport.cut()
            del nats.stores[subjects.SNAPSHOT_STREAM]
            transport.heal()
        return changes

    monkeypatch.setattr(streams, "ensure", lose)
    async with memory_world() as world:
        nats = world.nats
        await world.server()

        async def there() -> bool:
            return subjects.SNAPSHOT_STREAM in nats.stores

        await until(there)
        await world.probe.start("doc")


async def test_what_is_there_is_left_as_it_is() -> None:
    """The second time nothing changes."""
    line = MemoryNats().connect("server")
    clock = ShiftedClock()
    made = await streams.ensure(line, ServerSettings(), clock, guarded=False)
    assert {name for name, _ in made} >= {subjects.WAL_STREAM, subjects.STATUS_STREAM}
    assert await streams.ensure(line, ServerSettings(), clock, guarded=False) == []


async def wal_limit(line: JetStreamTransport, settings: ServerSettings) -> int:
    """The limit of the WAL after a server with these settings has started."""
    await streams.ensure(line, settings, ShiftedClock(), guarded=False)
    return (await line.stream(subjects.WAL_STREAM).state()).bytes_max


@pytest.mark.nats
async def test_the_wal_is_limited_to_what_fits_jetstreams_storage(tmp_path: Path) -> None:
    """A WAL without a limit gets one that leaves room for snapshots; messages and other limits stay."""
    small = SmallNats(tmp_path, file_store=2 << 30)
    async with small as nats, await connect(nats.url) as line:
        assert await wal_limit(line, ServerSettings(wal_bytes_max=-1)) == -1
        wal = line.stream(subjects.WAL_STREAM)
        for _ in range(10):
            await wal.append(subjects.wal("doc"), b"x" * 1000)
        limit = await wal_limit(line, ServerSettings())
        assert limits.WAL_FITTED_BYTES_MIN <= limit <= 512 << 20  # 1 GiB fits; half of it is for snapshots
        assert (await wal.state()).messages == 10
        assert await wal_limit(line, ServerSettings()) == limit
        assert await wal_limit(line, ServerSettings(wal_bytes_max=100_000_000)) == 100_000_000
        assert await wal_limit(line, ServerSettings()) == 100_000_000
        info = json.loads((await line.bus.request("$JS.API.STREAM.INFO.loro-wal", timeout=5)).data)
        assert info["config"]["discard"] == "new"


@pytest.mark.nats
async def test_a_storage_without_room_for_a_limit_leaves_the_wal_as_it_is(tmp_path: Path) -> None:
    """The server starts all the same: kept presence and revocations have their share first."""
    async with SmallNats(tmp_path, file_store=250 << 20) as nats, await connect(nats.url) as line:
        assert await wal_limit(line, ServerSettings()) == -1


class SmallNats(EmbeddedNats):
    """A nats-server whose streams together may take so many bytes."""

    def __init__(self, folder: Path, *, file_store: int) -> None:
        super().__init__(folder)
        self._file_store = file_store

    def _configuration(self) -> str:
        return (
            super()
            ._configuration()
            .replace('"store_dir"', f'"max_file_store": {self._file_store}, "store_dir"')
        )
