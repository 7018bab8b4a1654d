"""Revocations on real NATS and in memory: delivered to every reader, read from the leader, never read in
part.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from lorogo_protocol.access import grants, revocation, tokens
from lorogo_protocol.access.tokens import Token
from lorogo_protocol.messages import subjects
from lorogo_testing.memory_nats import MemoryNats
from lorogo_testing.stream import MemoryStream
from lorogo_transport.auth.revocations import Revocations
from lorogo_transport.errors import OutcomeUnknown, RequestTimeout, StorageFull, TransportError
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.ports import Message, StoredMessage, Stream
from lorogo_transport.stores import topology
from tests.transport.support import AnyTransport, Connect, make_list, until

NOW = 1_800_000_000.0
SPEC = next(spec for spec in topology.specs() if spec.name == subjects.REVOKED_STREAM)


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self, seconds: float = NOW) -> None:
        self.seconds = seconds

    def wall_ns(self) -> int:
        return int(self.seconds * 1e9)

    def now(self) -> float:
        return self.seconds


def token(
    token_id: str = "t1", subject: str = "ana", issued: float | None = NOW - 100, expires: float = NOW + 3600
) -> Token:
    return Token(subject, grants.EVERYTHING, expires, issued, token_id, "k", "u" * 32)


async def entries(stream: Stream) -> set[str]:
    """The keys of revocations in the bucket."""
    keys = {subjects.document_of(subject) for subject in await stream.subjects(subjects.revoked_key("*"))}
    return keys - {"complete"}


@pytest.fixture
async def transport(dial: Connect) -> AnyTransport:
    """A world with an empty list."""
    made = await dial()
    await made.ensure(SPEC)
    await made.stream(SPEC.name).purge(subjects.revoked_key("*"))
    await make_list(made)
    return made


async def test_a_revoked_token_is_refused_everywhere(transport: AnyTransport, dial: Connect) -> None:
    """The revoking instance refuses the token at once, others after a notification; other tokens are
    unaffected.
    """
    clock, changes = HandClock(), asyncio.Event()
    async with Revocations(transport, clock) as ours, Revocations(await dial(), clock) as theirs:
        assert ours.known and theirs.known
        theirs.watch(changes.set)
        assert not ours.refuse(token())
        await ours.revoke_token("t1", expires=NOW + 3600)
        assert ours.refuse(token())
        async with asyncio.timeout(10):
            await changes.wait()
        assert theirs.refuse(token()) and not theirs.refuse(token("t2"))


async def test_what_was_revoked_before_is_known_at_the_start(transport: AnyTransport, dial: Connect) -> None:
    """Entering reads the whole list, however many batches it takes."""
    clock, stream = HandClock(), transport.stream(SPEC.name)
    value = revocation.encode(revocation.of_token(NOW, None))
    await asyncio.gather(
        *(stream.append(subjects.revoked_key(f"tok_{n}"), value, expected_last=0) for n in range(1500))
    )
    async with Revocations(await dial(), clock) as list_:
        assert all(list_.refuse(token(str(n))) for n in range(1500))
        assert not list_.refuse(token("1500"))


async def test_a_subject_is_revoked_with_all_it_has(transport: AnyTransport) -> None:
    """A revoked subject's old tokens and tokens without an issue time are refused; tokens issued later are
    good.
    """
    clock = HandClock()
    async with Revocations(transport, clock) as list_:
        await list_.revoke_subject("ana")
        assert list_.refuse(token("a", issued=NOW - 1))
        assert list_.refuse(token("b", issued=None))
        assert list_.refuse(token("c", issued=NOW + tokens.CLOCK_SECONDS))
        assert not list_.refuse(token("d", issued=NOW + tokens.CLOCK_SECONDS + 1))
        assert not list_.refuse(token("a", subject="bob"))
        clock.seconds += 1000
        await list_.revoke_subject("ana")
        assert list_.refuse(token("d", issued=NOW + tokens.CLOCK_SECONDS + 1))


async def test_revoking_twice_never_shortens(transport: AnyTransport) -> None:
    """An entry for ever stays for ever."""
    clock = HandClock()
    async with Revocations(transport, clock) as list_:
        await list_.revoke_token("t1")
        await list_.revoke_token("t1", expires=NOW + 1)
        clock.seconds = NOW + 10**9
        assert list_.refuse(token())


async def test_entries_are_forgotten_when_they_may_be(transport: AnyTransport) -> None:
    """An entry whose token has ended is ignored, and the next revocation removes it from the bucket."""
    clock, stream = HandClock(), transport.stream(SPEC.name)
    async with Revocations(transport, clock) as list_:
        await list_.revoke_token("old", expires=NOW + 10)
        await list_.revoke_token("stays", expires=NOW + 10_000)
        assert list_.refuse(token("old"))
        clock.seconds = NOW + 50
        assert not list_.refuse(token("old"))
        await list_.revoke_token("new")
        assert len(await entries(stream)) == 3  # others' clocks may be behind ours
        clock.seconds = NOW + 100
        await list_.revoke_token("new")
        assert await entries(stream) == {"tok_stays", "tok_new"}
        assert list_.refuse(token("stays")) and list_.refuse(token("new"))


async def test_a_key_that_is_removed_is_not_revoked_any_more(transport: AnyTransport) -> None:
    """A reader also notices an entry that a KV tool deletes."""
    changes = asyncio.Event()
    async with Revocations(transport, HandClock()) as list_:
        await list_.revoke_token("t1")
        list_.watch(changes.set)
        await transport.stream(SPEC.name).append(
            subjects.revoked_key("tok_t1"), b"", headers={"KV-Operation": "DEL"}
        )
        await until(lambda: not list_.refuse(token()))
        await list_.revoke_token("t2")
        assert await entries(transport.stream(SPEC.name)) == {"tok_t1", "tok_t2"}  # no copy brings it back


async def test_an_entry_that_cannot_be_read_refuses(transport: AnyTransport) -> None:
    """Whatever is written under the key of a token, the token is not let in."""
    await transport.stream(SPEC.name).append(subjects.revoked_key("tok_t1"), b"rubbish")
    async with Revocations(transport, HandClock()) as list_:
        assert list_.refuse(token()) and not list_.refuse(token("t2"))


async def test_what_anybody_says_is_only_a_hint(transport: AnyTransport) -> None:
    """A message on `loro.revoked.*` that no stream sent revokes nothing, and takes nothing back."""
    async with Revocations(transport, HandClock()) as list_:
        await list_.revoke_token("t1")
        forged = {
            "Nats-Stream": SPEC.name, "Nats-Sequence": "999999", "Nats-Last-Sequence": "0",
            "KV-Operation": "DEL", "Nats-Time-Stamp": "2026-11-16T10:00:00Z",
        }  # fmt: skip
        for name in ("tok_t1", "tok_t2"):
            await transport.bus.publish(
                subjects.revoked(name), b"{}", headers={**forged, "Nats-Subject": subjects.revoked_key(name)}
            )
        await list_.revoke_token("t3")  # a round trip after it
        async with Revocations(transport, HandClock()) as later:
            assert list_.refuse(token()) and later.refuse(token())
            assert not list_.refuse(token("t2")) and not later.refuse(token("t2"))


async def test_ids_that_no_token_has(transport: AnyTransport) -> None:
    """Nothing is written for them."""
    async with Revocations(transport, HandClock()) as list_:
        for bad in ("", "a.b", ">", "*", "a" * 65):
            with pytest.raises(ValueError, match="1 to 64"):
                await list_.revoke_token(bad)
        assert not await entries(transport.stream(SPEC.name))


async def test_a_list_that_was_never_read_is_not_known() -> None:
    """Without the bucket, the list is unknown; the reader loads it once the bucket exists."""
    world = MemoryNats()
    async with world.connect() as transport, Revocations(transport, HandClock()) as list_:
        assert not list_.known
        await make_list(transport)
        await Revocations(transport, HandClock()).revoke_token("t1")
        await until(lambda: list_.known)
        assert list_.refuse(token())


async def test_what_happened_while_the_connection_was_lost_is_read_after() -> None:
    """Missed copies are made up for; a list without its marker and entries refuses every token."""
    world, clock = MemoryNats(), HandClock()
    async with world.connect() as ours, world.connect() as theirs:
        await make_list(ours)
        async with Revocations(ours, clock) as list_, Revocations(theirs, clock) as other:
            await other.revoke_token("t1")
            await until(lambda: list_.refuse(token()))
            ours.cut()
            await other.revoke_token("t2")
            assert list_.known and list_.refuse(token()) and not list_.refuse(token("t2"))
            ours.heal()
            await until(lambda: list_.refuse(token("t2")))
            ours.cut()
            world.rewind(SPEC.name, 0)
            for name in (
                "t3",
                "t4",
                "t5",
            ):  # more than there were, so that nothing shows but the new connection
                await other.revoke_token(name)
            ours.heal()
            await until(lambda: list_.refuse(token("t5")))
            assert list_.refuse(token())
            assert not list_.fresh


async def test_a_lost_copy_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if no copy ever comes the list is read now and then, also when it is another list."""
    world, clock = MemoryNats(), HandClock()
    async with world.connect() as ours:
        await make_list(ours)
        store = world.store(SPEC.name)
        del store.config["republish"]
        monkeypatch.setattr("lorogo_transport.auth.revocations.POLL_SECONDS", 0.01)
        async with Revocations(ours, clock) as list_:
            value = revocation.encode(revocation.of_token(NOW, None))
            store.store(subjects.revoked_key("tok_t1"), value, {}, 1)
            store.store(subjects.revoked_key("tok_t2"), value, {}, 1)
            await until(lambda: list_.refuse(token("t2")))
            store.rewind(0)
            store.store(subjects.revoked_key("tok_t3"), value, {}, 1)
            await until(lambda: list_.refuse(token("t3")))
            assert list_.refuse(token("t2")) and not list_.fresh


async def test_more_than_fits_into_memory_is_as_good_as_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that is too long is not kept half: nothing is known then, until it is shorter."""
    world, clock = MemoryNats(), HandClock()
    async with world.connect() as transport:
        await make_list(transport)
        monkeypatch.setattr("lorogo_transport.auth.revocations.ENTRIES_MAX", 2)
        async with Revocations(transport, clock) as list_:
            changes: list[bool] = []
            list_.watch(lambda: changes.append(list_.known))
            writer = Revocations(transport, clock)
            for name in ("t1", "t2", "t3"):
                await writer.revoke_token(name)
            await until(lambda: not list_.known)
            assert changes[-1] is False
            await transport.stream(SPEC.name).purge(subjects.revoked_key("tok_t3"))
            await until(lambda: list_.known)
            assert list_.refuse(token("t1")) and list_.refuse(token("t2")) and not list_.refuse(token("t3"))


async def test_a_full_bucket_is_pruned_first() -> None:
    """A full bucket is freed of expired entries first; without expired entries a revocation fails with an
    error.
    """
    world, clock = MemoryNats(), HandClock()
    async with world.connect() as transport:
        await make_list(transport, bytes_max=600)
        async with Revocations(transport, clock) as list_:
            many = [list_.revoke_token(f"t{n}", expires=NOW + 10) for n in range(10)]
            results = await asyncio.gather(*many, return_exceptions=True)
            assert isinstance(results[0], int) and isinstance(results[9], StorageFull)
            assert list_.refuse(token("t0")) and not list_.refuse(token("t9"))
            clock.seconds = NOW + 100
            await list_.revoke_token("t9")
            assert list_.refuse(token("t9"))


async def test_a_write_without_confirmation_is_tried_again() -> None:
    """A revocation returns only after its confirmation; the writer checks an unconfirmed entry and writes it
    again.
    """
    world, clock = MemoryNats(), HandClock()
    async with world.connect() as transport:
        await make_list(transport)
        async with Revocations(transport, clock) as list_:
            transport.drop_next_ack()
            await list_.revoke_token("t1")
            assert list_.refuse(token())
            transport.drop_next_ack(100)
            with pytest.raises(OutcomeUnknown, match="try again"):
                await list_.revoke_token("t2")


async def test_a_listener_can_stop_and_can_fail() -> None:
    """A failing listener does not affect the others; a stopped listener, even stopped twice, receives
    nothing.
    """
    world = MemoryNats()
    async with world.connect() as transport:
        await make_list(transport)
        async with Revocations(transport, HandClock()) as list_:
            calls: list[str] = []
            list_.watch(lambda: calls.append(str(1 / 0)))
            stop = list_.watch(lambda: calls.append("stopped"))
            list_.watch(lambda: calls.append("well"))
            stop()
            stop()
            await list_.revoke_token("t1")
            assert set(calls) == {"well"}


async def test_nothing_is_left_when_it_closes() -> None:
    """No task, no subscription: a closed list hears nothing more."""
    world = MemoryNats()
    async with world.connect() as transport:
        await make_list(transport)
        before = asyncio.all_tasks()
        async with Revocations(transport, HandClock()):
            assert len(asyncio.all_tasks()) > len(before)
        assert asyncio.all_tasks() == before
        assert not world.route(Message(subjects.revoked("tok_x"), b""))


async def test_a_replica_that_lags_does_not_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lagging replica may answer direct gets, so the reader continues at the leader."""
    world = MemoryNats()
    async with world.connect() as transport:
        await make_list(transport)
        writer, read, limit = Revocations(transport, HandClock()), MemoryStream.read, 1
        for name in ("t1", "t2", "t3"):
            await writer.revoke_token(name)

        async def lagging(
            self: MemoryStream, subject: str, *, first: int = 1
        ) -> AsyncIterator[StoredMessage]:
            nonlocal limit
            async for stored in read(self, subject, first=first, last=limit):
                yield stored
            limit += 1

        monkeypatch.setattr(MemoryStream, "read", lagging)
        async with Revocations(transport, HandClock()) as list_:
            assert list_.known and list_.refuse(token("t3"))


@pytest.mark.nats
async def test_a_nats_that_is_killed_and_comes_back(fresh_nats: EmbeddedNats) -> None:
    """During the outage a reader keeps its entries; after it, the reader also has the newer revocations."""
    clock = HandClock()
    async with await connect(fresh_nats.url, name="ours") as ours:
        await make_list(ours)
        async with Revocations(ours, clock) as list_:
            await list_.revoke_token("t1")
            await fresh_nats.kill()
            await until(lambda: not ours.bus.connected)
            assert list_.known and list_.refuse(token())
            with pytest.raises(TransportError):
                await list_.revoke_token("t2")
            await fresh_nats.start()
            async with await connect(fresh_nats.url, name="theirs") as theirs:
                await Revocations(theirs, clock).revoke_token("t3")
                await until(lambda: list_.refuse(token("t3")))
                assert list_.refuse(token())
                await list_.revoke_token("t2")
                async with Revocations(theirs, clock) as later:
                    assert all(later.refuse(token(name)) for name in ("t1", "t2", "t3"))


async def test_a_failed_read_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reconnect the whole list is read, also if that takes two tries."""
    world, clock = MemoryNats(), HandClock()
    async with world.connect() as ours, world.connect() as theirs:
        await make_list(ours)
        writer = Revocations(theirs, clock)
        await writer.revoke_token("t1")
        async with Revocations(ours, clock) as list_:
            ours.cut()
            world.rewind(SPEC.name, 0)
            for name in ("t2", "t3"):
                await writer.revoke_token(name)
            read, failures = MemoryStream.read, 1

            async def failing(
                self: MemoryStream, subject: str, *, first: int = 1
            ) -> AsyncIterator[StoredMessage]:
                nonlocal failures
                if failures:
                    failures -= 1
                    raise RequestTimeout("no answer")
                async for stored in read(self, subject, first=first):
                    yield stored

            monkeypatch.setattr(MemoryStream, "read", failing)
            ours.heal()
            await until(lambda: list_.refuse(token("t3")))
            assert not failures and list_.refuse(token("t1")) and not list_.fresh


async def test_entering_can_be_cancelled() -> None:
    """Nothing is left behind: no task, no subscription, no listener."""
    world = MemoryNats()
    async with world.connect() as transport:
        before = asyncio.all_tasks()
        entering = asyncio.create_task(Revocations(transport, HandClock()).__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await transport.bus.barrier()
        assert asyncio.all_tasks() == before
        assert not world.route(Message(subjects.revoked("tok_x"), b""))


async def test_a_bucket_without_the_marker_is_incomplete() -> None:
    """An empty bucket does not mean that nothing is revoked: it counts once it is marked as complete."""
    world, clock = MemoryNats(), HandClock()
    async with world.connect() as transport:
        await transport.ensure(SPEC)
        async with Revocations(transport, clock) as list_:
            assert list_.read_once and not (list_.known or list_.fresh or list_.complete)
            await Revocations(transport, clock).mark_complete()
            await until(lambda: list_.fresh)


async def test_a_copy_brings_back_what_the_bucket_lost() -> None:
    """Present entries stay unchanged, and entries that were deleted on purpose stay deleted."""
    world, clock = MemoryNats(), HandClock()
    async with world.connect() as transport:
        await make_list(transport)
        list_ = Revocations(transport, clock)
        await list_.revoke_token("there")
        await transport.stream(SPEC.name).append(
            subjects.revoked_key("tok_back"), b"", headers={"KV-Operation": "DEL"}
        )
        await list_.read()
        entry = revocation.of_token(NOW - 5, NOW + 100)
        copy = {"tok_there": entry, "tok_back": entry, "tok_lost": entry}
        assert await list_.bring_back(copy) == 1
        assert await list_.bring_back(copy) == 0
        assert (
            list_.refuse(token("lost")) and list_.refuse(token("there")) and not list_.refuse(token("back"))
        )


async def test_a_server_confirms_what_its_disk_has() -> None:
    """A revocation is durable once a server confirms it; an unreadable confirmation counts as none."""
    world, clock = MemoryNats(), HandClock()
    async with world.connect() as transport:
        await make_list(transport)
        list_ = Revocations(transport, clock)
        sequence = await list_.revoke_token("t1")
        assert await list_.wait_kept(sequence, 0.0) == ()
        await transport.stream(SPEC.name).append(subjects.revoked_key("kept_odd"), b"many")
        await list_.confirm_kept("s1", sequence)
        assert await list_.wait_kept(sequence, 5.0) == ("s1",)
        assert list_.kept_by(sequence + 1) == ()
