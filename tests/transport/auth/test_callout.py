"""The auth callout service: bounded, in time, and quiet. Who gets in is tried in tests/security."""

import asyncio
import base64
import json
from typing import cast

import structlog.testing

from lorogo_protocol.access import callout as words
from lorogo_protocol.access.grants import parse
from lorogo_protocol.access.tokens import Token, TokenRefused
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.auth import seeds
from lorogo_transport.auth.accounts import ANSWER_SECONDS
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.callout import LATE_SECONDS, WAITING_MAX, Callout
from lorogo_transport.ports import Message
from lorogo_transport.telemetry.log_throttle import BURST_LINES, LogThrottle

SIGNER = seeds.SeedSigner(seeds.new_seed(seeds.ACCOUNT, bytes(32)), seeds.ACCOUNT, "it")


class HandClock:
    """Time that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def wall_ns(self) -> int:
        return int(self.seconds * 1e9)


class FakeAuthority:
    """Takes the token "good", falls over "broken"."""

    def verify(self, text: str) -> Token:
        if text == "broken":
            raise RuntimeError("not expected")
        if text != "good":
            raise TokenRefused("token-invalid", "the token cannot be used")
        return Token("ann", parse({"d1": "read"}), 5000.0, 1.0, "t1", "k1", "f" * 32)


def _request(token: str, host: str = "10.0.0.7") -> bytes:
    claims = {
        "nats": {
            "type": "authorization_request",
            "server_id": {"id": "N" + "A" * 55},
            "user_nkey": "U" + "A" * 55,
            "client_info": {"host": host, "kind": "Client"},
            "connect_opts": {"auth_token": token},
        }
    }
    return b"e30." + base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=") + b".c2ln"


class World:
    """The callout service on a bus in memory, and its caller."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.nats = MemoryNats()
        self.transport = self.nats.connect()
        self.service = Callout(self.transport.bus, cast(Authority, FakeAuthority()), SIGNER, self.clock)
        self.answers: list[Message] = []

    async def ask(self, *data: bytes) -> None:
        """Publish these, and return when they have been taken."""
        await self.transport.bus.subscribe("answers", self.answers.append)
        for one in data:
            await self.transport.bus.publish(words.SUBJECT, one, reply="answers")
        await self.transport.bus.barrier()

    async def until(self, count: int) -> None:
        """Return when so many were answered or dropped."""
        async with asyncio.timeout(10):
            while sum(vars_of(self.service)) < count:
                await self.transport.bus.barrier()


def vars_of(service: Callout) -> tuple[int, int, int]:
    return service.allowed, service.denied, service.dropped


async def test_a_good_token_is_answered_with_a_user_and_a_bad_one_without() -> None:
    """The service answers a good and a bad token at once; garbage gets no answer, because it names no
    connection.
    """
    world = World()
    async with world.service:
        await world.ask(_request("good"), _request("bad"), b"garbage", b"")
        await world.until(4)
        await world.transport.bus.barrier()
    assert vars_of(world.service) == (1, 3, 0)
    assert len(world.answers) == 2


async def test_one_that_cannot_be_taken_ends_nothing() -> None:
    """The next is answered as if nothing had been."""
    world = World()
    async with world.service:
        await world.ask(_request("broken"), _request("good"))
        await world.until(1)
    assert world.service.allowed == 1


async def test_too_many_at_once_are_dropped_and_the_rest_is_answered() -> None:
    """The queue is bounded; nats-server refuses a dropped request when its own timeout ends."""
    world = World()
    bus = world.transport.bus
    async with world.service:
        for _ in range(WAITING_MAX + 50):
            world.service._on_request(Message(words.SUBJECT, _request("bad"), {}, "answers"))
        await world.until(WAITING_MAX + 50)
        await bus.barrier()
    assert vars_of(world.service) == (0, WAITING_MAX, 50)


async def test_who_connects_very_often_waits_behind_itself() -> None:
    """However many of one token and of one address wait: another token, another address come next."""
    world = World()
    order: list[str] = []

    class Watching(FakeAuthority):
        def verify(self, text: str) -> Token:
            order.append(text)
            return super().verify(text)

    service = Callout(world.transport.bus, cast(Authority, Watching()), SIGNER, world.clock)
    for number in range(WAITING_MAX + 50):
        service._on_request(Message(words.SUBJECT, _request("greedy"), {}, f"answers.{number}"))
    service._on_request(Message(words.SUBJECT, _request("good"), {}, "answers"))
    service._on_request(Message(words.SUBJECT, _request("good", "10.0.0.8"), {}, "answers"))
    async with service, asyncio.timeout(10):
        while sum(vars_of(service)) < WAITING_MAX + 52:
            await world.transport.bus.barrier()
    assert sorted(order[:4]) == ["good", "good", "greedy", "greedy"]
    assert vars_of(service) == (2, WAITING_MAX - 2, 52)


async def test_an_expired_request_is_not_answered() -> None:
    """A request that waited too long is dropped, so the next ones are in time."""
    world = World()
    async with world.service:
        world.service._on_request(Message(words.SUBJECT, _request("good"), {}, "answers"))
        world.clock.seconds += LATE_SECONDS + 0.1
        world.service._on_request(Message(words.SUBJECT, _request("good"), {}, "answers"))
        await world.until(2)
    assert vars_of(world.service) == (1, 0, 1)


async def test_the_answer_of_another_service_is_no_proof_of_ours() -> None:
    """A connection of our own that we were not asked about is no proof; each has a token of its own."""
    tried: list[str] = []

    async def try_token(token: str) -> bool:
        tried.append(token)
        return False

    assert await World().service.answers_accepted(try_token) is None
    assert len(set(tried)) == len(tried) > 1


async def test_rights_that_do_not_fit_into_an_answer_are_a_refusal() -> None:
    """The service refuses at once instead of sending an answer that does not fit."""
    world = World()
    world.nats.max_payload = 1200
    async with world.service:
        await world.ask(_request("good"))
        await world.until(1)
        await world.transport.bus.barrier()
    assert vars_of(world.service) == (0, 1, 0)
    assert len(world.answers) == 1


async def test_no_line_of_the_log_has_a_token() -> None:
    """Neither of those that were let in, nor of those that were not."""
    world = World()
    with structlog.testing.capture_logs() as events:
        async with world.service:
            await world.ask(_request("good"), _request("very-secret"), _request("broken"))
            await world.until(2)
    assert events
    assert "very-secret" not in repr(events)
    refusal = next(event for event in events if event["event"] == "NATS connection refused")
    assert (refusal["reason"], refusal["address"]) == ("token-invalid", "10.0.0.7")


def test_a_flood_of_refusals_is_counted_not_logged() -> None:
    """So many at once, then one a second, with how many were kept back."""
    refusals = LogThrottle()
    admitted = [refusals.admit(0.0) for _ in range(BURST_LINES + 100)]
    assert [one for one in admitted if one is not None] == [0] * BURST_LINES
    assert refusals.admit(1.0) == 100
    assert refusals.admit(1.5) is None
    assert refusals.admit(2.5) == 1
    assert refusals.count == BURST_LINES + 103


def test_late_is_before_nats_gives_up() -> None:
    """An answer that is begun in time comes in time."""
    assert LATE_SECONDS < ANSWER_SECONDS
