"""The auth service: its absence and return, several instances at once, and a restart of nats-server."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lorogo_protocol.access import callout as words
from lorogo_protocol.access import tokens
from lorogo_protocol.messages import subjects
from lorogo_transport.auth import accounts as closed_config
from lorogo_transport.auth import seeds
from lorogo_transport.auth.auth_service import WrongSeed, check_issuer, running
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.errors import NotAuthorized
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.nats.tls import TlsFiles, name_files
from lorogo_transport.stores import topology
from tests.certificates import Authority
from tests.revoking import list_of
from tests.security.closed import KEY, Closed, closed_nats, mint, write_keys
from tests.security.raw import Raw
from tests.transport.support import Collector, make_list

pytestmark = pytest.mark.nats


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    async with closed_nats(tmp_path) as made:
        yield made


async def _until_welcome(closed: Closed, token: str) -> Raw:
    """Return a connection as soon as an auth service answers."""
    async with asyncio.timeout(20):
        while True:
            raw = await closed.raw(token)
            if raw.welcome:
                return raw
            await raw.close()


async def _until_refused(closed: Closed, token: str) -> None:
    """As soon as the service knows that it is revoked."""
    async with asyncio.timeout(20):
        while True:
            async with await closed.raw(token) as raw:
                if not raw.welcome:
                    return


@pytest.fixture
async def lonely(tmp_path: Path) -> AsyncIterator[tuple[str, dict[str, str], KeySource]]:
    """A closed NATS without an auth service: its address, the seeds, the keys."""
    found = closed_config.new_seeds(secrets.token_bytes)
    write_keys(tmp_path / "keys.jwks", KEY)
    conf = closed_config.accounts(closed_config.public_keys(found))
    async with EmbeddedNats(tmp_path / "nats", configuration=conf) as nats:
        yield nats.url, found, KeySource.from_file(tmp_path / "keys.jwks")


async def test_without_it_new_connections_fail_and_open_ones_stay(
    lonely: tuple[str, dict[str, str], KeySource],
) -> None:
    """NATS refuses connections without the service and accepts them with it; they stay open when it stops."""
    url, found, keys = lonely
    token = mint({"d1": "read"})
    async with await Raw.open(url, auth_token=token) as early:
        assert not early.welcome
    async with await connect(url, seed=found["server"]) as server:
        for spec in topology.specs(guarded=True):
            await server.ensure(spec)
        await make_list(server)
    async with running(url, keys, found):
        inside = await Raw.open(url, auth_token=token)
        assert inside.welcome
    async with inside, await Raw.open(url, auth_token=token) as late:
        assert not late.welcome
        inside.publish("loro.ping.d1")
        await inside.ping()
        assert inside.welcome
        assert inside.errors == []


async def test_before_the_revocation_list_was_read_no_token_is_accepted(
    lonely: tuple[str, dict[str, str], KeySource],
) -> None:
    """Without an earlier server there is no list, and a good token is refused; once the list exists, it is
    accepted.
    """
    url, found, keys = lonely
    token = mint({"d1": "read"})
    async with running(url, keys, found) as service:
        async with await Raw.open(url, auth_token=token) as early:
            assert not early.welcome
        assert service.denied == 1
        async with await connect(url, seed=found["server"]) as server:
            for spec in topology.specs(guarded=True):
                await server.ensure(spec)
            await make_list(server)
            async with asyncio.timeout(20):
                while True:
                    async with await Raw.open(url, auth_token=token) as late:
                        if late.welcome:
                            break


async def test_several_answer_once(closed: Closed) -> None:
    """Two services share the work: every connection is let in, and asked about by one of them."""
    keys = KeySource.from_file(closed.keys)
    async with running(closed.url, keys, closed.seeds) as second, AsyncExitStack() as stack:
        token = mint({"d1": "read"})
        raws = [await stack.enter_async_context(await closed.raw(token)) for _ in range(40)]
        assert all(raw.welcome for raw in raws)
        assert closed.callout.allowed + second.allowed == 40
        assert min(closed.callout.allowed, second.allowed) > 0
        await list_of(closed.authority).revoke_token(tokens.peek(token).token_id)
        for raw in raws:
            await raw.until_ended()


async def test_a_new_nats_server_is_closed_as_the_old_one_was(closed: Closed) -> None:
    """It was killed and started again: the service finds its way back, and revoked stays revoked."""
    bad, good = mint({"d1": "read"}), mint({"d1": "read"})
    await list_of(closed.authority).revoke_token(tokens.peek(bad).token_id)
    await _until_refused(closed, bad)  # the service has a connection of its own, and hears it a moment later
    await closed.nats.kill()
    await closed.nats.start()
    async with await _until_welcome(closed, good), await closed.raw(bad) as revoked:
        assert not revoked.welcome


async def test_an_answer_of_another_issuer_is_ignored(
    lonely: tuple[str, dict[str, str], KeySource],
) -> None:
    """The issuer must sign the answer: a service with auth.seed and without issuer.seed cannot
    admit a token.
    """
    url, found, keys = lonely
    forged = {**found, "issuer": seeds.new_seed(seeds.ACCOUNT, secrets.token_bytes(32))}
    async with await connect(url, seed=found["server"]) as server:
        for spec in topology.specs(guarded=True):
            await server.ensure(spec)
        await make_list(server)
    async with running(url, keys, forged) as service:
        async with await Raw.open(url, auth_token=mint({"d1": "read"})) as one:
            assert not one.welcome
        assert service.allowed == 1
        with pytest.raises(WrongSeed, match=r"issuer\.seed"):
            await check_issuer(url, service)


async def test_it_sees_that_nats_takes_its_answers(closed: Closed) -> None:
    """Also beside others of its kind. By a connection that may do nothing, with a token that is good once."""
    tried: list[str] = []

    async def try_token(token: str) -> bool:
        tried.append(token)
        async with await Raw.open(closed.url, auth_token=token) as one, await closed.raw("other") as other:
            assert not other.welcome
            if one.welcome:
                one.subscribe("_INBOX.x")
                one.publish("loro.ping.d1")
                await one.ping()
                assert len(one.errors) == 2
            return one.welcome

    keys = KeySource.from_file(closed.keys)
    async with running(closed.url, keys, closed.seeds) as second:
        assert await closed.callout.answers_accepted(try_token)
        await check_issuer(closed.url, second)
    async with await closed.raw(tried[-1]) as late:
        assert not late.welcome
    assert closed.callout.allowed == 0


async def test_the_services_connections_may_do_nothing_else(closed: Closed) -> None:
    """In AUTH it hears who comes, in LOROGO it reads one list, in SYS it closes connections: no more."""
    for name, allowed in {
        closed_config.AUTH: {words.SUBJECT},
        closed_config.AUTH_LIST: {"loro.revoked.*"},
        closed_config.SYSTEM: set(),
    }.items():
        tried = {">", "loro.>", "loro.accepted.*", "$SYS.>", "$KV.>", "loro.revoked.*", words.SUBJECT}
        async with await closed.service(name) as one:
            refused: set[str] = set()
            one.bus.watch_refusals(lambda refusal, into=refused: into.add(refusal.subject))  # type: ignore[misc]  # mypy does not know defaults of lambdas
            for subject in tried:
                await one.bus.subscribe(subject, lambda _: None)
            for subject in (
                "loro.wal.d1",
                subjects.revoked_key("tok_x"),
                "$JS.API.STREAM.NAMES",
                "$SYS.REQ.SERVER.PING.VARZ",
            ):
                await one.bus.publish(subject)
            await one.bus.barrier()
            assert tried - refused == allowed, name
            assert {
                "loro.wal.d1",
                "$KV.loro-revoked.tok_x",
                "$JS.API.STREAM.NAMES",
                "$SYS.REQ.SERVER.PING.VARZ",
            } <= refused


async def test_seeds_of_another_nats_are_refused(closed: Closed) -> None:
    """With a sentence, and before anything is answered."""
    other = closed_config.new_seeds(secrets.token_bytes)
    with pytest.raises(NotAuthorized):
        async with running(closed.url, KeySource.from_file(closed.keys), other):
            pytest.fail("it came in")


async def test_all_of_it_over_tls(tmp_path: Path) -> None:
    """Services and users connect with certificates that NATS requires, and still need a token."""
    authority = Authority(tmp_path)
    (cert, key), (ours, our_key) = authority.sign("nats"), authority.sign("client")
    tls = f'tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{authority.file}", verify: true }}\n'
    found = closed_config.new_seeds(secrets.token_bytes)
    write_keys(tmp_path / "keys.jwks", KEY)
    conf = tls + closed_config.accounts(closed_config.public_keys(found))
    async with EmbeddedNats(tmp_path / "nats", configuration=conf) as nats:
        url = name_files(nats.url, TlsFiles(str(authority.file), str(ours), str(our_key)))
        async with await connect(url, seed=found["server"]) as server:
            for spec in topology.specs(guarded=True):
                await server.ensure(spec)
            await make_list(server)
        async with running(url, KeySource.from_file(tmp_path / "keys.jwks"), found) as service:
            async with await connect(url, token=mint({"d1": "read"}), documents=["d1"]) as one:
                await one.bus.publish("loro.ping.d1")
                await one.bus.barrier()
            for token in (None, "garbage"):
                with pytest.raises(NotAuthorized):
                    await connect(url, token=token)
            assert (service.allowed, service.denied) == (1, 2)


@pytest.mark.parametrize("name", ["gateway", "operator"])
async def test_only_servers_say_what_owners_say(
    lonely: tuple[str, dict[str, str], KeySource], name: str
) -> None:
    """Neither a gateway nor a person vouches for updates, accepts them, or moves a status by a message."""
    url, found, _ = lonely
    received = Collector()
    async with (
        await connect(url, seed=found["server"]) as server,
        await connect(url, seed=found[name]) as other,
    ):
        await server.bus.subscribe("loro.>", received)
        await server.bus.barrier()
        for subject in (subjects.vouched, subjects.accepted, subjects.committed, subjects.status):
            await other.bus.publish(subject("d1"), b"forged")
        await other.bus.publish(subjects.awareness("d1"), b"fine")
        await received.wait(1)
        await other.bus.barrier()
        await server.bus.barrier()
    assert received.bodies == [b"fine"]
