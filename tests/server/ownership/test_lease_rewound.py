"""NATS lost the end of the status bucket: an owner believes the bucket, not the revision that it knew."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

import pytest

from lorogo_protocol.lease import Failures, StatusEntry
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Down, Failed, Starting, Up
from lorogo_server import ServerSettings, streams
from lorogo_server.ownership.lease import Lease, LeaseLost, LeaseStage
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.stores.statuses import Statuses
from tests.server.worlds import ShiftedClock


@dataclass
class Held:
    """Gets the end of the lease."""

    why: list[str] = field(default_factory=list)

    def step_down(self, why: str) -> None:
        self.why.append(why)


@dataclass
class Owner:
    """`one` had `doc` UP, renewed it once, and has just lost its connection."""

    nats: MemoryNats
    statuses: Statuses
    held: Held
    lease: Lease
    token: int

    def lose_end(self) -> None:
        """Of all that it wrote, nothing was synced."""
        self.nats.rewind(subjects.STATUS_STREAM, self.token - 1)

    async def write(self, status: Starting | Up | Down | Failed, server: str, lease: int = 0) -> int:
        before = await self.now()
        revision = 0 if before is None else before.revision
        return await self.statuses.write(
            "doc", status, expected_revision=revision, server=server, lease=lease
        )

    async def now(self) -> StatusEntry | None:
        return await self.statuses.read("doc")


@pytest.fixture
async def owner() -> Owner:
    clock, nats = ShiftedClock(), MemoryNats()
    line = nats.connect("server")
    await streams.ensure(line, ServerSettings(), clock, guarded=False)
    statuses, held = Statuses(line), Held()
    await statuses.write("another", Down(1), expected_revision=0)
    starting = Starting("op", 0, 1)
    token = await statuses.write("doc", starting, expected_revision=0, server="one")
    lease = Lease(
        "doc",
        server_id="one",
        operation_id="op",
        retry_count=0,
        token=token,
        acquired_at=clock.now(),
        statuses=statuses,
        clock=clock,
        settings=ServerSettings(),
    )
    lease.observe(held)
    lease.go_up()
    await lease.confirm()
    lease.connection_lost()
    return Owner(nats, statuses, held, lease, token)


@pytest.mark.parametrize("ends", [False, True], ids=["confirms", "says-down"])
async def test_a_revision_that_was_given_out_again_is_not_ours(owner: Owner, ends: bool) -> None:
    """Another has the document with our token, and its newest entry has the revision of ours."""
    owner.lose_end()
    token = await owner.write(Starting("other", 0, 2), "two")
    revision = await owner.write(Up("two", 3), "two", token)
    assert (token, revision) == (owner.token, owner.lease.revision)
    if ends:
        await owner.lease.give_up(write_down=True)
    else:
        with pytest.raises(LeaseLost, match="two owns it"):
            await owner.lease.confirm()
        assert owner.held.why
    there = await owner.now()
    assert there is not None
    assert (there.server, there.revision) == ("two", revision)


@pytest.mark.parametrize("ends", [False, True], ids=["confirms", "says-down"])
async def test_an_older_entry_of_ours_is_ours(owner: Owner, ends: bool) -> None:
    """The replaced entry is there again: the bucket counts from there."""
    owner.lose_end()
    assert await owner.write(Starting("op", 0, 1), "one") == owner.token < owner.lease.revision
    if ends:
        await owner.lease.give_up(write_down=True)
    else:
        await owner.lease.confirm()
        assert owner.lease.valid()
        assert owner.lease.token == owner.token
    there = await owner.now()
    assert there is not None
    assert isinstance(there.status, Down if ends else Up)
    assert there.revision == owner.lease.revision + ends


async def test_the_last_word_of_an_owner_before_us_ends_it(owner: Owner) -> None:
    """Our move is lost: a client that wants the document now may have found another owner."""
    owner.lose_end()
    owner.nats.rewind(subjects.STATUS_STREAM, owner.token - 2)
    await owner.write(Down(1), "zero", 5)
    with pytest.raises(LeaseLost):
        await owner.lease.confirm()


async def test_a_lost_entry_is_acquired_again(owner: Owner) -> None:
    """Without an owner: with a new token."""
    owner.lose_end()
    await owner.statuses.write("another", Down(2), expected_revision=owner.token - 1)
    await owner.lease.confirm()
    assert owner.lease.valid()
    assert owner.lease.token == owner.token + 1


@pytest.mark.parametrize("word", [Down(4), Failed("trace", 4)], ids=["down", "error"])
async def test_a_last_word_at_our_very_revision_ends_it(owner: Owner, word: Down | Failed) -> None:
    """Another took the document and let it go: to write UP over that would bring back an older token."""
    owner.lose_end()
    token = await owner.write(Starting("other", 0, 2), "two")
    assert await owner.write(word, "two", token) == owner.lease.revision
    with pytest.raises(LeaseLost):
        await owner.lease.confirm()
    there = await owner.now()
    assert there is not None
    assert there.server == "two"


@pytest.mark.parametrize("ours", [False, True])
async def test_a_failed_load_leaves_its_trace_where_the_key_is_ours(owner: Owner, ours: bool) -> None:
    """The revision that it expects may be another's by now."""
    owner.lease.stage, owner.lease.served = LeaseStage.STARTING, False
    owner.lose_end()
    if ours:
        await owner.write(Starting("op", 0, 1), "one")
    else:
        token = await owner.write(Starting("other", 0, 2), "two")
        assert await owner.write(Up("two", 3), "two", token) == owner.lease.revision
    await owner.lease.leave_failure(Failures(1, "trace-of-one"))
    there = await owner.now()
    assert there is not None
    assert (there.server, there.trace) == (("one", "trace-of-one") if ours else ("two", ""))


@pytest.mark.parametrize("ends", [False, True], ids=["renews", "says-down"])
async def test_nothing_is_written_under_the_old_token_while_a_new_one_is_acquired(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """The acquiring write is stored under the revision that the lease knew; its reply is under way."""
    stored, replied = asyncio.Event(), asyncio.Event()
    write = Statuses.write

    async def slow(self: Statuses, *arguments: Any, **named: Any) -> int:
        revision = await write(self, *arguments, **named)
        if named["expected_revision"] == 0:
            stored.set()
            await replied.wait()
        return revision

    owner.lose_end()
    await owner.statuses.write("third", Down(1), expected_revision=0)
    monkeypatch.setattr(Statuses, "write", slow)
    confirming = asyncio.create_task(owner.lease.confirm())
    await stored.wait()
    there = await owner.now()
    assert there is not None
    assert (there.revision, there.token) == (owner.lease.revision, owner.lease.revision)
    assert owner.lease.doubtful
    if ends:
        await owner.lease.give_up(write_down=True)
        assert await owner.now() == there
    replied.set()
    with contextlib.suppress(LeaseLost) if ends else contextlib.nullcontext():
        await confirming
    assert owner.lease.valid() is not ends
