"""Sources of chance and time in a run: the seed, and nothing of the machine.

What asks the machine by itself, deep in a library or as a default argument, is replaced before anything of
lorogo is imported: `install()` is the first thing that a run does.
"""

import os
import random
import time
from collections.abc import Callable
from typing import Any

from loro import LoroDoc

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-"
WALL_BEGIN_NS = 1_794_800_000_000_000_000
_PEER_MAX = 2**63

_rng = random.Random(0)
_now: Callable[[], float] = lambda: 0.0  # noqa: E731  # replaced by each run


def install() -> None:
    """Replace the machine's clocks and its chance, for good: this process does nothing but simulate."""
    os.urandom = _rng.randbytes
    random._urandom = os.urandom  # type: ignore[attr-defined]  # what SystemRandom asks
    random.random = _rng.random
    random.seed = lambda *_: None
    real = random.Random

    class Seeded(real):  # type: ignore[misc, valid-type]
        """A generator without a seed gets one of the run's."""

        def __init__(self, seed: Any = None) -> None:
            super().__init__(_rng.getrandbits(64) if seed is None else seed)

    random.Random = Seeded  # type: ignore[misc, assignment]
    time.time_ns = lambda: WALL_BEGIN_NS + int(_now() * 1e9)
    time.time = lambda: time.time_ns() / 1e9
    time.monotonic = _virtual
    time.perf_counter = _virtual


def _virtual() -> float:
    return _now()


def begin(seed: int, now: Callable[[], float]) -> random.Random:
    """A new run: everything from this seed on. Its own generator, for the world."""
    global _now  # noqa: PLW0603  # the machine's clock is global, and so is its stand-in
    _rng.seed(seed)
    _now = now
    return random.Random(_rng.getrandbits(64))


def seeded_peers() -> None:
    """Let Loro's documents have peers of the run, not of the machine."""
    from lorogo_protocol.loro import crdt

    class Documents:
        """Stands in for `LoroDoc` in the border module: a maker of documents, and their class's functions."""

        def __call__(self) -> LoroDoc:
            return with_peer(LoroDoc())

        def __getattr__(self, name: str) -> Any:
            return getattr(LoroDoc, name)

    fork = crdt.Replica.fork

    def forked(self: crdt.Replica) -> crdt.Replica:
        copy = fork(self)
        with_peer(copy.doc)
        return copy

    crdt.LoroDoc = Documents()  # type: ignore[assignment, attr-defined]
    crdt.Replica.fork = forked  # type: ignore[method-assign]


def with_peer(doc: LoroDoc) -> LoroDoc:
    """The document, under a peer id of its own."""
    doc.peer_id = _rng.randrange(1, _PEER_MAX)
    return doc


def new_id(rng: random.Random) -> Callable[[], str]:
    """Ids as nanoid makes them, by this generator."""
    return lambda: "".join(rng.choices(ALPHABET, k=21))
