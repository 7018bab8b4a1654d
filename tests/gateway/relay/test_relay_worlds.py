"""Worlds for relays: real servers, lost messages, changing owners, junk; in the end all are equal."""

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import pytest

from lorogo_client import Client, NotServed, Timeout, UpdateRefused
from lorogo_gateway.relay.errors import GivenUp
from lorogo_server import Server
from lorogo_testing.broker import BrokerSubscription
from lorogo_testing.bus import MemoryBus
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.ports import Message
from tests.client.support import QUICK, client_of, eventually, new_world
from tests.gateway.relay_pages import Page, relayed
from tests.journals import in_memory
from tests.server.support import QUICK as SERVER

PAGES = 6
WORDS = 60
SETTINGS = replace(
    QUICK,
    reply_seconds=1.0,
    doubt_seconds=0.2,
    stale_seconds=0.9,
    relay_silence_seconds=0.3,
    relay_grace_seconds=0.5,
)


class Typist(Page):
    """A page that joins again whenever it is told to, and notes which words were ACKed."""

    def __init__(self, name: str, peer: int, rng: random.Random) -> None:
        super().__init__(name, peer)
        self.rng = rng
        self.acked: list[str] = []
        self.refused = 0
        self.lost = asyncio.Event()
        self.lost.set()

    def rejoin(self, why: str) -> None:
        super().rejoin(why)
        self.lost.set()

    async def stay(self) -> None:
        """Join, and join again."""
        while True:
            await self.lost.wait()
            self.lost.clear()
            try:
                await self.join(timeout=5.0)
            except (NotServed, Timeout):
                self.lost.set()

    async def work(self) -> None:
        for number in range(WORDS):
            await asyncio.sleep(self.rng.random() * 0.08)
            if self.rng.random() < 0.15:
                await self._junk()
            word = f"[{self.name}{number}]"
            future = self.type(word)
            if self.rng.random() < 0.5:
                with suppress(GivenUp):
                    await future
            future.add_done_callback(lambda done, word=word: self._answered(done, word))  # type: ignore[misc]

    def _answered(self, done: "asyncio.Future[object]", word: str) -> None:
        if done.exception() is None:
            self.acked.append(word)

    async def _junk(self) -> None:
        try:
            await self.member.send(self.rng.randbytes(50))
        except UpdateRefused:
            self.refused += 1
        except GivenUp:
            pass


class Lossy:
    """A connection that loses some of what owners publish, until it is told to stop."""

    def __init__(self, bus: MemoryBus, rng: random.Random) -> None:
        self._deliver = bus.deliver
        self._rng = rng
        self.on = True
        bus.deliver = self  # type: ignore[method-assign]

    def __call__(self, listener: BrokerSubscription, message: Message) -> None:
        lossy = message.subject.startswith(("loro.accepted.", "loro.status."))
        if not (self.on and lossy and self._rng.random() < 0.1):
            self._deliver(listener, message)


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_acked_is_lost_and_all_pages_end_equal(seed: int) -> None:
    """Two gateways, lost messages, owners that change, junk that is refused: every page shows the same."""
    rng = random.Random(seed)
    world = await new_world()
    done, settled = asyncio.Event(), asyncio.Event()
    pages = [Typist("abcdef"[n], 100 + n, random.Random(seed * 10 + n)) for n in range(PAGES)]
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        serving = tasks.create_task(_serve(world, rng, done, settled))
        losses, clients, transports = list[Lossy](), list[Client](), list[MemoryTransport]()
        for number in range(2):
            transport = world.connect(f"gateway-{number}")
            transports.append(transport)
            losses.append(Lossy(transport.bus, random.Random(seed * 100 + number)))
            clients.append(
                await stack.enter_async_context(
                    client_of(world, SETTINGS, transport=transport, seed=number + 1)
                )
            )
        staying = []
        for number, page in enumerate(pages):
            page.member = await stack.enter_async_context(relayed(clients[number % 2], "doc", page))
            staying.append(tasks.create_task(page.stay()))
        cutting = tasks.create_task(_cut_now_and_then(transports, rng))
        await asyncio.gather(*(page.work() for page in pages))
        done.set()
        cutting.cancel()
        for transport in transports:
            transport.heal()
        for loss in losses:
            loss.on = False

        def quiet() -> bool:
            return (
                all(page.member.unacked == 0 and not page.lost.is_set() for page in pages)
                and len({page.text for page in pages}) == 1
                and len(pages[0].text) > 0
            )

        async with asyncio.timeout(30):
            while True:
                with suppress(TimeoutError):
                    await eventually(quiet)
                    value = (await clients[0].document("doc").get())["value"]
                    if value == {"t": pages[0].text}:
                        break
        text = pages[0].text
        for page in pages:
            assert [word for word in page.acked if text.count(word) != 1] == []
            assert all(text.count(f"[{page.name}{number}]") == 1 for number in range(WORDS))
        assert sum(page.refused for page in pages) > 0
        settled.set()
        for task in staying:
            task.cancel()
        await serving


async def _serve(world: MemoryNats, rng: random.Random, done: asyncio.Event, settled: asyncio.Event) -> None:
    """One server after the other, some stopped with grace, some cut off; the last one stays."""
    async with AsyncExitStack() as stack:
        while True:
            transport = world.connect("server")
            server = Server(transport, SERVER, **in_memory())
            await server.__aenter__()
            if done.is_set():
                await settled.wait()
                await server.__aexit__(None, None, None)
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3 + rng.random() * 0.4):
                    await done.wait()
            if rng.random() < 0.5:
                transport.cut()
                stack.push_async_callback(server.__aexit__, None, None, None)
            else:
                await server.__aexit__(None, None, None)


async def _cut_now_and_then(transports: list[MemoryTransport], rng: random.Random) -> None:
    """The gateways' own connections fail, too."""
    while True:
        await asyncio.sleep(0.5 + rng.random())
        transport = rng.choice(transports)
        transport.cut()
        await asyncio.sleep(rng.random() * 0.2)
        transport.heal()
