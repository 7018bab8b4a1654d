"""The table of rights in docs/decisions/0016, written out by hand, against what NATS really allows."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.security.closed import Closed, closed_nats
from tests.security.nats_table import OWN, Found, attempt, everybody, markdown

pytestmark = pytest.mark.nats

ANYBODY_SAYS = {"_TAKEN.x"}
ANYBODY_HEARS = {OWN, "_INBOX_{own}.>"}
READER_SAYS = ANYBODY_SAYS | {
    "loro.ping.d1",
    "loro.init.d1",
    "loro.awareness.d1",
    "loro.doc.sync.d1",
    "loro.doc.version.d1",
    "loro.doc.status.d1",
    "loro.doc.get.d1",
    "loro.doc.history.d1",
    "loro.doc.export.d1",
    "loro.doc.fork.d1",
}
READER_HEARS = ANYBODY_HEARS | {"loro.accepted.d1", "loro.status.d1", "loro.awareness.d1"}
WRITER_SAYS = READER_SAYS | {
    "loro.wal.d1",
    "loro.doc.patch.d1",
    "loro.doc.revert.d1",
    "loro.doc.import.d1",
    "loro.doc.delete.d1",
    "loro.doc.restore.d1",
}
ADMIN_SAYS = WRITER_SAYS | {"loro.doc.compact.d1", "loro.reset.d1"}
ALL_HEAR = READER_HEARS | {
    "loro.accepted.*",
    "loro.accepted.>",  # NATS takes its `>` for a word that `*` allows; nothing is below it
    "loro.status.*",
    "loro.awareness.*",
    "loro.awareness.d*",
}

PAGE = Path(__file__).parents[2] / "docs" / "NATS_RIGHTS.md"
OUTSIDE = Found(False)
EXPECTED = {
    "no token": OUTSIDE,
    "an empty token": OUTSIDE,
    "garbage": OUTSIDE,
    "alg none": OUTSIDE,
    "expired": OUTSIDE,
    "a wrong key": OUTSIDE,
    "revoked": OUTSIDE,
    "names a document that it is not granted": OUTSIDE,
    "reader of d1": Found(True, frozenset(READER_SAYS), frozenset(READER_HEARS)),
    "writer of d1": Found(True, frozenset(WRITER_SAYS), frozenset(READER_HEARS)),
    "admin of d1": Found(True, frozenset(ADMIN_SAYS), frozenset(READER_HEARS)),
    "admin of d2": Found(True, frozenset(ANYBODY_SAYS), frozenset(ANYBODY_HEARS)),
    "writer of d*, names none": Found(True, frozenset(ANYBODY_SAYS), frozenset(ANYBODY_HEARS)),
    "writer of d*, names d1": Found(True, frozenset(WRITER_SAYS), frozenset(READER_HEARS)),
    "writer of d*, names d2": Found(True, frozenset(ANYBODY_SAYS), frozenset(ANYBODY_HEARS)),
    "reader of *": Found(True, frozenset(READER_SAYS), frozenset(ALL_HEAR)),
    "operator": Found(True, frozenset(ADMIN_SAYS), frozenset(ALL_HEAR)),
    "operator, names d2": Found(True, frozenset(ANYBODY_SAYS), frozenset(ANYBODY_HEARS)),
}


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    async with closed_nats(tmp_path) as made:
        yield made


async def test_everybody_may_do_exactly_what_the_table_says(closed: Closed) -> None:
    """Every person publishes and subscribes to every subject of lorogo and many of NATS, each for real."""
    results = [(who, await attempt(closed, who)) for who in await everybody(closed)]
    assert [who.name for who, _ in results] == list(EXPECTED)
    for who, found in results:
        expected = EXPECTED[who.name]
        assert found.welcome == expected.welcome, who.name
        assert found.publish == expected.publish, who.name
        assert found.subscribe == expected.subscribe, who.name
    assert markdown(results) in PAGE.read_text(), f"run python -m tests.security.nats_table > {PAGE.name}"


async def test_gateways_and_operators_do_not_speak_for_owners(closed: Closed) -> None:
    """Their nkeys give every right except publishing commits, acceptances and the owner of a document."""
    received: list[str] = []
    await closed.server.bus.subscribe("loro.>", lambda message: received.append(message.subject))
    await closed.server.bus.barrier()
    for name in ("gateway", "operator"):
        async with await closed.service(name) as service:
            for word in ("committed", "status", "accepted", "awareness"):
                await service.bus.publish(f"loro.{word}.d1", name.encode())
            await service.bus.barrier()
    await closed.server.bus.barrier()
    assert received == ["loro.awareness.d1"] * 2
