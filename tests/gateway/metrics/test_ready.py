"""Health and readiness of the gateway: /healthz, and whether edits through it can be ACKed."""

import asyncio
from typing import Any

import pytest

from lorogo_gateway.metrics import probes
from lorogo_gateway.metrics.collector import ClusterSample
from lorogo_gateway.metrics.probes import not_ready
from lorogo_gateway.metrics.rates import StreamStates
from lorogo_protocol.messages import subjects
from lorogo_transport.ports import StreamState
from lorogo_transport.rpc.discovery import ServerStats
from tests.gateway.operator_support import Gate, gate_of

MIB = 1 << 20
WELL = {"ready": True, "journal": "open"}


def look(
    *stats: dict[str, Any], filled: int | None = 0, most: int = 1000 * MIB, connected: bool = True
) -> ClusterSample:
    servers = tuple(ServerStats(f"s{at}", "1", "", one) for at, one in enumerate(stats))
    wal = None if filled is None else StreamState(1, 1, 1, filled, 0, most)
    return ClusterSample(0.0, 0, connected, servers, StreamStates(wal=wal))


@pytest.mark.parametrize(
    ("seen", "codes"),
    [
        (look(WELL), []),
        (look({"ready": False}, WELL), []),
        (look({"ready": True}), []),  # durability stream
        (look(WELL, most=-1, filled=10**15), []),
        (look(WELL, filled=900 * MIB), []),
        (look(WELL, filled=1000 * MIB), ["wal-full"]),
        (look(WELL, filled=1000 * MIB - 100), ["wal-full"]),
        (look(WELL, filled=900, most=1000), []),
        (look(WELL, filled=1000, most=1000), ["wal-full"]),
        (look(WELL, filled=None), ["wal-missing"]),
        (look(), ["no-server"]),
        (look({"ready": False}, {"ready": True, "journal": "no space left"}), ["no-server-ready"]),
        (look({"ready": False}, filled=None), ["wal-missing", "no-server-ready"]),
        (look(WELL, connected=False), ["nats-disconnected"]),
    ],
)
def test_what_is_in_the_way_of_an_ack(seen: ClusterSample, codes: list[str]) -> None:
    """Readiness lists every reason, each with a code and a sentence."""
    reasons = not_ready(seen, MIB)
    assert [reason.code for reason in reasons] == codes
    assert all(reason.detail for reason in reasons)


def test_a_stopped_journal_is_reported_with_its_reason() -> None:
    """The operator reads the cause in the readiness response itself."""
    (reason,) = not_ready(look({"ready": False, "journal": "no space left on the disk"}), MIB)
    assert "no space left on the disk" in reason.detail


async def ready(gate: Gate) -> tuple[int, list[str]]:
    response = await gate.http.get("/readyz")
    body = response.json()
    assert body["ready"] is (response.status_code == 200)
    return response.status_code, [reason["code"] for reason in body["reasons"]]


async def test_a_gateway_with_a_server_is_ready() -> None:
    """And alive."""
    async with gate_of() as gate:
        assert await ready(gate) == (200, [])
        response = await gate.http.get("/healthz")
        assert (response.status_code, response.json()) == (200, {"alive": True})


async def test_without_a_server_it_is_not() -> None:
    """Alive all the same."""
    async with gate_of(servers=0) as gate:
        assert await ready(gate) == (503, ["no-server"])
        assert (await gate.http.get("/healthz")).status_code == 200


async def test_a_lost_connection_shows_at_once() -> None:
    """However fresh the last answer is."""
    async with gate_of() as gate:
        assert await ready(gate) == (200, [])
        gate.transport.cut()
        assert await ready(gate) == (503, ["nats-disconnected"])
        gate.transport.heal()


async def test_a_missing_wal_is_reported() -> None:
    """An operator deleted its stream."""
    async with gate_of() as gate:
        del gate.world.stores[subjects.WAL_STREAM]
        assert await ready(gate) == (503, ["wal-missing"])


async def test_many_probes_ask_nats_once() -> None:
    """Probes in a tight loop load neither NATS nor the servers."""
    async with gate_of() as gate:
        asked = 0
        real = gate.collector._take

        async def counted() -> None:
            nonlocal asked
            asked += 1
            await real()

        gate.collector._take = counted  # type: ignore[method-assign]  # only counted
        answers = await asyncio.gather(*(gate.http.get("/readyz") for _ in range(30)))
        assert {answer.status_code for answer in answers} == {200}
        assert asked == 1
        assert gate.collector._census_task is None


async def test_a_nats_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe has its own deadline."""
    monkeypatch.setattr(probes, "_READY_SECONDS", 0.05)
    async with gate_of(servers=0) as gate:

        async def silence() -> None:
            await asyncio.Event().wait()

        gate.collector._take = silence  # type: ignore[method-assign]  # a NATS that hangs
        assert await ready(gate) == (503, ["no-answer"])
