"""Every figure of a server, of `/metrics` and of the WebSockets can change: what drives each of them."""

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest

from lorogo_gateway.metrics import prometheus
from lorogo_gateway.metrics.collector import ClusterSample
from lorogo_gateway.metrics.prometheus import GatewayFigures, families
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.websocket import Sockets
from lorogo_protocol.limits import AWARENESS_BYTES_MAX
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.status import Up
from lorogo_server import Server
from lorogo_server.journal import replication
from lorogo_server.journal.archive import ArchiveError, ArchiveStorage
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.errors import WrongLastSequence
from lorogo_transport.ports import Message
from lorogo_transport.rpc.discovery import ServerStats
from tests.client.support import client_of, new_world
from tests.journals import TestDisk
from tests.server.journal.test_replicated import fleet
from tests.server.journal.test_segment_upkeep import World as KeepingWorld
from tests.server.journal.test_segment_upkeep import fill, kept
from tests.server.support import QUICK, Probe, Writer, until
from tests.server.worlds import World

_TESTS = Path(__file__).parents[1]

#: figures of the server's configuration
FIXED = {"closed", "durability", "journal_replicas_wanted"}

#: a figure of `Server.stats()` -> the test that sees it change; those of this file drive several at once
SERVER: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("documents", "documents_up", "accepted", "accepted_bytes", "refused", "calls_refused"),
            *("acked", "nacked", "ack_us_counts", "ack_us_sum", "ack_us_p50", "ack_us_p99"),
            *("loads", "compactions", "step_downs", "takeovers", "last_takeovers", "presence_dropped"),
            *("pings_dropped", "snapshot_bytes", "ready", "journal"),
            *("journal_records", "journal_bytes", "journal_sync_us_counts"),
            *("journal_damage", "epoch"),
        ),
        "server/test_figures.py::test_a_day_of_a_server_changes_its_figures",
    ),
    **dict.fromkeys(
        ("archive", "archive_waiting", "archive_shipped"),
        "server/test_figures.py::test_shipping_changes_the_figures_of_the_archive",
    ),
    **dict.fromkeys(
        ("documents_incomplete", "recovering", "servers_absent", "recovery_doubt"),
        "server/recovery/test_recovery.py::test_a_document_without_an_absent_journal_is_served_late_and_marked",
    ),
    "unanswerable": "server/rpc/test_rights.py::test_no_answer_goes_where_anybody_might_listen",
    "load_failures": "server/document/test_closing.py::test_a_load_that_takes_too_long_has_an_error_message",
    **dict.fromkeys(
        ("intake_waiting", "intake_waiting_bytes"),
        "server/test_stats.py::test_waiting_items_are_counted_and_go_back_to_zero",
    ),
    **dict.fromkeys(
        ("acks_waiting", "journal_waiting", "journal_waiting_bytes", "journal_sync_us_sum"),
        "server/test_figures.py::test_a_slow_disk_shows_in_what_waits_for_it",
    ),
    "loads_waiting": "server/test_stats.py::test_loads_beyond_the_limit_wait_and_are_counted",
    "unfinished_bytes": "server/test_figures.py::test_a_day_of_a_server_changes_its_figures",
    "wal_full": "server/compaction/test_wal_usage.py::test_a_server_looks_at_its_wal",
    "journal_disk_bytes": "server/test_stats.py::test_the_journals_files_are_measured",
    **dict.fromkeys(
        ("disk_free_bytes", "disk_size_bytes"), "server/test_stats.py::test_the_journals_disk_is_measured"
    ),
    "journal_replicas": "server/journal/test_replicated.py::test_no_ack_before_another_server_has_it",
    "journal_lacking": "server/test_figures.py::test_a_copy_that_is_missing_shows_in_what_the_journal_lacks",
    **dict.fromkeys(
        ("copies", "copies_trouble"),
        "server/test_figures.py::test_a_copy_that_is_missing_shows_in_what_the_journal_lacks",
    ),
    **dict.fromkeys(
        ("reconciled_documents", "republished"),
        "server/recovery/test_reconcile.py::test_a_gap_is_filled_with_what_was_in_it",
    ),
    **dict.fromkeys(
        ("reconcile", "reconcile_passes", "reconciled_ns"),
        "server/test_figures.py::test_a_pass_of_reconciliation_changes_its_figures",
    ),
    "reconcile_compared": "server/recovery/test_reconcile.py::test_a_second_look_costs_nothing",
    "snapshots_restored": "server/recovery/test_reconcile.py::test_the_journal_of_the_last_owner_is_enough",
    "tombstones_restored": "server/recovery/test_reconcile.py::test_a_lost_tombstone_is_stored_again",
    "tombstones_contradicted": (
        "server/recovery/test_reconcile.py::test_a_new_life_after_a_lost_tombstone_is_told_and_left"
    ),
    "lost_for_good": "server/recovery/test_reconcile.py::test_an_update_before_the_trim_line_is_kept_aside",
    "reconcile_skipped": (
        "server/recovery/test_reconcile.py::test_what_an_owner_moved_out_of_the_wal_stays_out"
    ),
    "reconcile_waiting": (
        "server/recovery/test_reconcile.py::test_what_builds_on_something_lost_everywhere_waits"
    ),
    "reconcile_unread": (
        "server/recovery/test_reconcile.py::test_a_document_that_cannot_be_read_keeps_nobody_waiting"
    ),
    "reconcile_unsettled": (
        "server/recovery/test_reconcile.py::test_what_memory_lacks_is_brought_back_after_memory_was_stored"
    ),
    "journals_damaged": (
        "server/ownership/test_alarms.py::test_damage_that_reconciliation_finds_is_in_the_statistics"
    ),
    "feeds_asking": "server/journal/test_feed.py::test_a_server_that_stops_answers_those_who_wait",
    "journal_expired": (
        "server/journal/test_segment_upkeep.py::test_after_an_expiry_a_load_journals_what_the_ledger_had_called_covered"
    ),
    "journal_erased": (
        "server/journal/test_segment_upkeep.py::test_an_erased_document_leaves_nothing_but_its_tombstone"
    ),
}

#: a figure of the WebSockets -> the test that sees it change
SOCKETS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("connections", "rooms", "members", "joins", "acks", "bytes_in", "bytes_out"),
            *("documents", "opened", "updates_in", "updates_out"),
        ),
        "gateway/websocket/test_connection.py::test_stats_count_what_happens",
    ),
    "unacked": "gateway/websocket/test_bounds.py::test_a_client_with_too_much_in_flight_is_not_read",
    **dict.fromkeys(
        ("slow_readers_dropped", "closed", "unread_bytes", "unread_bytes_worst"),
        "gateway/websocket/test_bounds.py::test_a_slow_reader_is_dropped_and_others_get_everything",
    ),
    "rejoins": "gateway/websocket/test_tables.py::test_above_its_rate_an_update_is_dropped_and_healed_later",
    "joins_refused": "security/test_sockets_rights.py::test_every_room_is_joined_by_right",
    "unfinished_bytes": (
        "gateway/websocket/test_tables.py::test_fragments_that_do_not_come_in_time_are_healed"
    ),
}


@cache
def _functions(path: str) -> Mapping[str, str]:
    """The source of each test of a file, by its name."""
    source = (_TESTS / path).read_text()
    return {
        node.name: ast.get_source_segment(source, node) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize(("figure", "test"), [*SERVER.items(), *SOCKETS.items()])
def test_the_test_that_drives_a_figure_names_it(figure: str, test: str) -> None:
    """A row leads to a test that exists and reads the figure; those of this file read them from the table."""
    path, _, name = test.partition("::")
    source = _functions(path)[name]
    assert path == "server/test_figures.py" or f'"{figure}"' in source or f".{figure} " in source


async def test_every_figure_of_a_server_has_a_row(tmp_path: Path) -> None:
    """A figure that nothing changes is an error that no operator sees: each is driven by a test."""
    async with fleet(tmp_path) as world:
        server = await world.server("one", archive=f"file://{tmp_path}/archive")
        assert set(server.stats()) == set(SERVER) | FIXED


async def test_every_figure_of_the_websockets_has_a_row() -> None:
    """Gauges and sums."""
    async with client_of(await new_world()) as client:
        assert set(Sockets(client, GatewaySettings()).stats()) == set(SOCKETS)


@pytest.mark.parametrize(
    "key",
    [
        *(key for _, key, _ in (*prometheus._COUNTERS, *prometheus._GAUGES, *prometheus._GAUGES_OF_SOME)),
        *(key for _, items, size in prometheus._QUEUES for key in (items, size) if key is not None),
    ],
)
def test_a_figure_that_changes_shows_in_the_metrics(key: str) -> None:
    """Every metric of servers reads a figure that servers have, and follows it."""
    assert key in SERVER or key in FIXED
    assert _shown({key: 4711}) != _shown({key: 4712})


@pytest.mark.parametrize(
    "key", [key for _, key, _ in (*prometheus._SOCKET_GAUGES, *prometheus._SOCKET_COUNTERS)]
)
def test_a_figure_of_the_websockets_shows_in_the_metrics(key: str) -> None:
    """As those of servers."""
    assert key in SOCKETS
    assert _shown({}, {key: 4711}) != _shown({}, {key: 4712})


@pytest.mark.parametrize("key", ["nacked", "calls_refused"])
def test_reasons_and_latencies_show_in_the_metrics(key: str) -> None:
    """Sums by label, and histograms."""
    assert _shown({key: {"deleted": 1}}) != _shown({key: {"deleted": 2}})
    for histogram in ("ack_us", "journal_sync_us"):
        assert _shown({f"{histogram}_counts": [1]}) != _shown({f"{histogram}_counts": [2]})
        assert _shown({f"{histogram}_sum": 1}) != _shown({f"{histogram}_sum": 2})


def _shown(stats: Mapping[str, object], sockets: Mapping[str, object] | None = None) -> list[str]:
    server = ServerStats("one", "1.0", "2026-11-16T10:00:00.000Z", dict(stats))
    return [
        str(family.samples)
        for family in families(ClusterSample(0.0, 0, True, (server,)), None, GatewayFigures(sockets=sockets))
    ]


def _driven(test: str) -> list[str]:
    """The figures that a test of this file is to change."""
    return [figure for figure, row in SERVER.items() if row == f"server/test_figures.py::{test}"]


class Changes:
    """Which figures have had two values."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._first = dict(server.stats())
        self.changed: set[str] = set()
        self.look()

    def look(self) -> None:
        self.changed |= {
            figure for figure, value in self._server.stats().items() if value != self._first.get(figure)
        }

    def lacks(self, test: str) -> list[str]:
        """Figures that are the test's to change, and did not."""
        self.look()
        return [figure for figure in _driven(test) if figure not in self.changed]


async def test_a_day_of_a_server_changes_its_figures(memory: World) -> None:
    """Updates, refusals, calls, presence, pings, a lost lease, a takeover, a snapshot, and the end."""
    server, line = await memory.server()
    changes = Changes(server)
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("hello"))
    await probe.refuse("doc", b"not an update, and long enough")
    with pytest.raises(Refused):
        await probe.call("fork", "doc", to="doc")
    await probe.put("doc", probe.split(writer.type("x" * 500), size=100)[:1])  # never whole
    await until(lambda: _seen(changes, "unfinished_bytes"))
    await probe.call("compact", "doc")
    endpoint = server.hosts["doc"].endpoint
    for _ in range(1100):
        endpoint._on_ping(Message(subjects.ping("doc"), b"", {}, "_INBOX.one"))
    await probe.bus.publish(subjects.awareness("doc"), bytes(AWARENESS_BYTES_MAX + 1))
    await until(lambda: _seen(changes, "presence_dropped"))
    assert server.journal is not None
    server.journal.damaged("a test")
    changes.look()
    while True:  # the owner loses its lease
        with suppress(WrongLastSequence):  # it was renewed just now
            await probe.move("doc")
            break
    await until(lambda: _seen(changes, "step_downs"))
    assert server.stats()["step_downs"] == 1
    await probe.statuses.write("other", Up("gone", 1), expected_revision=0, server="gone", lease=7)
    await probe.init("other", b"")
    await probe.until_up("other")
    del memory.nats.stores[subjects.WAL_STREAM]  # a lost stream: the next epoch
    line.cut()
    changes.look()
    line.heal()
    await until(lambda: _seen(changes, "epoch"))
    await server.stop()
    assert changes.lacks("test_a_day_of_a_server_changes_its_figures") == []


async def _seen(changes: Changes, figure: str) -> bool:
    changes.look()
    return figure in changes.changed


async def test_a_document_that_is_given_up_is_no_step_down(memory: World) -> None:
    """A server that stops, and one that unloads, lose no lease."""
    server, _ = await memory.server()
    await memory.probe.start("doc")
    await server.stop()
    assert server.stats()["step_downs"] == 0


async def test_shipping_changes_the_figures_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that takes nothing, the segment that waits for it, and the segment that was shipped."""

    def away(*_: object) -> None:
        raise ArchiveError("it is away")

    nats = MemoryNats()
    async with Probe(nats.connect()) as probe:
        world = KeepingWorld(nats, tmp_path, probe)
        async with world.serving(settings=replace(QUICK, archive=f"file://{tmp_path}/archive")) as server:
            changes = Changes(server)
            await fill(world, "doc", "one")
            assert server.journal is not None
            await server.journal.logs[0].rotate()
            with monkeypatch.context() as patch:
                patch.setattr(ArchiveStorage, "write", away)
                await kept(server).run_once()
                await until(lambda: _seen(changes, "archive_waiting"))
            world.clock.ahead += 3600.0

            async def shipped() -> bool:
                await kept(server).run_once()
                return await _seen(changes, "archive_shipped")

            await until(shipped)
            assert changes.lacks("test_shipping_changes_the_figures_of_the_archive") == []


async def test_a_slow_disk_shows_in_what_waits_for_it() -> None:
    """Records that are not on the disk, and ACKs that wait for them."""
    nats, disk = MemoryNats(), TestDisk()
    async with (
        Server(nats.connect(), QUICK, data=Path("data"), storage=disk) as server,
        Probe(nats.connect()) as probe,
    ):
        await probe.start("doc")
        changes, writer = Changes(server), Writer()
        disk.hold()
        try:
            await probe.put("doc", probe.split(writer.type("one")) + probe.split(writer.type("two")))
            await until(lambda: _seen(changes, "journal_waiting_bytes"))
            await until(lambda: _seen(changes, "acks_waiting"))
        finally:
            disk.let_go()
        await probe.answer()
        assert changes.lacks("test_a_slow_disk_shows_in_what_waits_for_it") == []


async def test_a_copy_that_is_missing_shows_in_what_the_journal_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal without a copy shows its missing replicas; a server that cannot copy shows the reason."""
    monkeypatch.setattr(replication, "_WAIT_SECONDS", 0.05)
    async with fleet(tmp_path) as world:
        one = await world.server("one", journal_secret="open sesame")
        changes = Changes(one)
        probe = await world.probe()
        await probe.start("doc")
        await probe.put("doc", probe.split(Writer().type("hello")))
        await until(lambda: _seen(changes, "journal_lacking"))
        await world.server("two", journal_secret="guess")
        await until(lambda: _seen(changes, "copies"))
        await until(lambda: _seen(changes, "copies_trouble"))


async def test_a_pass_of_reconciliation_changes_its_figures(tmp_path: Path) -> None:
    """A running one, the number of runs, and the end of the last one."""
    nats = MemoryNats()
    async with Server(nats.connect(), QUICK, data=tmp_path) as server:
        changes = Changes(server)
        assert server.reconciler is not None
        async with server.reconciler._passing:  # the pass waits for this one
            server.reconciler.want("a test")
            await until(lambda: _seen(changes, "reconcile"))
        for figure in _driven("test_a_pass_of_reconciliation_changes_its_figures"):
            await until(partial(_seen, changes, figure))
