"""A typist with a store in bad weather: cuts, crashes, lost answers, an owner that trims."""

import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lorogo_client import Client, Session
from lorogo_protocol.messages.reasons import Reason
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from tests.client.stores import crashed
from tests.client.support import DEADLINE, FakeOwner, client_of, eventually

STEPS = 60
WEATHER = ["type"] * 8 + ["stored", "cut", "heal", "heal", "crash", "theirs", "trim", "mute", "deny", "saved"]


class Typist:
    """Pushes numbered words into a list, and remembers which were said to be stored or saved."""

    def __init__(self, world: MemoryNats, store: Path, seed: int) -> None:
        self.world = world
        self.store = store
        self.seed = seed
        self.lives = 0
        self.typed = 0
        self.promised: set[int] = set()
        self._pending: set[int] = set()  # of this life, not promised yet
        self._stack = AsyncExitStack()

    async def live(self, *, connected: bool) -> None:
        """Begin a life with what the store has."""
        self.lives += 1
        self.transport: MemoryTransport = self.world.connect(f"life-{self.lives}")
        if not connected:
            self.transport.cut()
        seed = 1000 * self.seed + self.lives
        opening = client_of(self.world, transport=self.transport, store=self.store, seed=seed)
        self.client: Client = await self._stack.enter_async_context(opening)
        self.session: Session = await self._stack.enter_async_context(self.client.open("doc", create=True))
        assert self.promised <= set(self.words()), "a promise is broken"

    def words(self) -> list[int]:
        value = self.session.doc.get_list("words").get_deep_value()
        assert isinstance(value, list)
        return [word for word in value if isinstance(word, int)]

    def type(self) -> None:
        self.session.doc.get_list("words").push(self.typed)
        self.session.commit()
        self._pending.add(self.typed)
        self.typed += 1

    def promise(self) -> None:
        self.promised |= self._pending
        self._pending.clear()

    async def crash(self, *, connected: bool) -> None:
        """Killed: what is on the disk is all that is left."""
        self.transport.cut()
        self.store = crashed(self.store)
        await self._stack.aclose()
        self._pending.clear()
        await self.live(connected=connected)

    async def leave(self) -> None:
        await self._stack.aclose()


async def apply_record(typist: Typist, owner: FakeOwner, rng: random.Random) -> None:
    match rng.choice(WEATHER):
        case "type":
            typist.type()
        case "stored":
            await typist.session.stored(DEADLINE)
            typist.promise()
        case "saved" if typist.transport.bus.connected:
            await typist.session.flush(DEADLINE)
            typist.promise()
        case "cut" if typist.transport.bus.connected:
            typist.transport.cut()
        case "heal" if not typist.transport.bus.connected:
            typist.transport.heal()
        case "crash":
            await typist.crash(connected=rng.random() < 0.5)
        case "theirs" if owner.token:
            await owner.edit("x", tell=rng.random() < 0.7)
        case "trim" if owner.token:
            owner.compact()
        case "mute":
            owner.mute = rng.randint(1, 3)
        case "deny":
            owner.nacks.append(rng.choice([Reason.MISSING_DEPENDENCIES, Reason.HISTORY_TRIMMED, Reason.BUSY]))
        case _:
            pass


@pytest.mark.parametrize("seed", range(12))
async def test_in_any_weather_every_promised_word_arrives_once(
    world: MemoryNats, owner: FakeOwner, tmp_path: Path, seed: int
) -> None:
    """stored() and flush() are promises; a word without one is there once or not at all."""
    rng = random.Random(seed)
    typist = Typist(world, tmp_path / "store", seed)
    await typist.live(connected=rng.random() < 0.5)
    try:
        for _ in range(STEPS):
            await apply_record(typist, owner, rng)
        owner.mute = 0
        owner.nacks.clear()
        if not typist.transport.bus.connected:
            typist.transport.heal()
        await typist.session.flush(DEADLINE)
        typist.promise()
        await eventually(lambda: not typist.session.unsaved)
    finally:
        await typist.leave()
    value = owner.replica.doc.get_list("words").get_deep_value()
    assert isinstance(value, list)
    there = Counter(value)
    assert set(there.values()) <= {1}, "a word is there twice"
    assert typist.promised <= set(there)
