"""Faults of a run and their times: all from the seed, before the run begins.

Each run draws which kinds of faults it has at all, and how often: a world with few kinds meets each of them
in states that a world with all of them hardly reaches. lorogo promises to survive the loss of the stream or
of a journal, not of both: a run damages one of them at most.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

Kind = Literal[
    "server-kill",  # the process; what it wrote stays in the page cache
    "server-power",  # the machine: what was not synced is lost by chance
    "server-in-write",  # the machine, in the middle of a call to its disk
    "server-pause",
    "server-stop",  # gracefully, as an operator does
    "server-cut",  # its connection
    "server-parted",  # no message passes, which stays unnoticed for a while
    "client-kill",
    "client-pause",
    "client-cut",
    "client-parted",
    "broker-restart",
    "site-power",  # every machine at once; the broker has lost the end of the WAL, too
    "stream-rewind",  # the broker is restarted and has lost the end of the WAL
    "stream-hole",  # some messages in the middle
    "stream-gone",  # the whole WAL; it is created again
    "snapshots-gone",
    "everything-gone",  # the WAL, the snapshots and the statuses
    "journal-flip",  # a bit of one machine's journal, while it is down
    "disk-full",
    "disk-slow",
    "clock-jump",  # a machine's wall clock
    "storm",  # messages are lost, doubled, late and overtaken more than before
    "stale-reads",
    "compact",  # an operator requests it
    "swap-held",  # a server's next swap of a snapshot comes late to the broker; no seed draws it
    "swap-unheard",  # the answer to one comes late to the server; no seed draws it
]

KINDS: tuple[Kind, ...] = get_args(Kind)
ALWAYS_POSSIBLE: tuple[Kind, ...] = (
    "server-kill",
    "server-power",
    "server-in-write",
    "server-pause",
    "server-stop",
    "server-cut",
    "server-parted",
    "client-kill",
    "client-pause",
    "client-cut",
    "client-parted",
    "broker-restart",
    "disk-full",
    "disk-slow",
    "clock-jump",
    "storm",
    "stale-reads",
    "compact",
)
STREAM_LOSSES: tuple[Kind, ...] = (
    "site-power",
    "stream-rewind",
    "stream-hole",
    "stream-gone",
    "snapshots-gone",
    "everything-gone",
)
JOURNAL_LOSSES: tuple[Kind, ...] = ("journal-flip",)
_HISTORY_SECONDS_MIN = 120.0  # longer than any journal is away


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    at: float  # seconds after the beginning
    kind: Kind
    target: int  # which server or client, counted on
    seconds: float  # how long it lasts, where it lasts
    roll: float  # for whatever else is to be chosen


@dataclass(frozen=True, slots=True)
class Wish:
    """Requirements of a plan, fixed whatever the seed; the rest is left to the seed."""

    kinds: tuple[Kind, ...] = ()  # of faults, and no others
    every: float = 0.0  # seconds between faults
    seconds: float = 0.0
    settings: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)  # fields of the plan


ANYTHING = Wish()


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: how large the world is, how people behave, what goes wrong."""

    seed: int
    servers: int
    clients: int
    documents: int
    seconds: float  # of faults; then they stop
    think_seconds: float
    max_payload: int
    harms: Literal["", "stream", "journal"]
    kinds: frozenset[Kind]
    faults: tuple[Fault, ...]
    settings: dict[str, float] = field(default_factory=dict)  # of the servers
    rogue: bool = False  # a client sends garbage
    deletes: bool = False  # a client deletes and restores
    kept: float = 0.0  # the share of clients that have a store

    @staticmethod
    def draw(seed: int, rng: random.Random, wish: Wish = ANYTHING) -> "Plan":
        """The plan of a seed."""
        harms: Literal["", "stream", "journal"] = rng.choice(("", "stream", "stream", "journal"))
        possible: list[Kind] = list(ALWAYS_POSSIBLE)
        possible += STREAM_LOSSES if harms == "stream" else JOURNAL_LOSSES if harms == "journal" else ()
        kinds = rng.sample(possible, k=rng.randint(1, min(8, len(possible))))
        if harms == "stream" and not set(kinds) & set(STREAM_LOSSES):
            kinds.append(rng.choice(STREAM_LOSSES))
        if harms == "journal" and not set(kinds) & set(JOURNAL_LOSSES):
            kinds.append(rng.choice(JOURNAL_LOSSES))
        if wish.kinds:
            kinds = list(wish.kinds)
            harms = _harms(kinds)
        seconds = wish.seconds or rng.choice((12.0, 20.0, 40.0))
        servers = rng.choice((1, 2, 2, 3))
        clients = rng.choice((1, 2, 2, 3))
        every = wish.every or rng.choice((2.0, 4.0, 8.0))
        faults: list[Fault] = []
        at = rng.expovariate(1 / every)
        while at < seconds and len(faults) < 24:
            lasts = rng.choice((0.2, 1.0, 3.0, 6.0, 12.0)) * (0.5 + rng.random())
            faults.append(Fault(at, rng.choice(kinds), rng.randrange(6), lasts, rng.random()))
            at += rng.expovariate(1 / every)
        settings = {
            "reconcile_every_seconds": rng.choice((7.0, 20.0, 60.0)),
            "compact_every_seconds": rng.choice((4.0, 15.0, 600.0)),
            "compact_idle_bytes": rng.choice((100, 100_000)),
            "idle_seconds": rng.choice((5.0, 15.0, 300.0)),
            "history_seconds": rng.choice((5.0, 30.0, 3600.0)),
            "pending_seconds": 8.0,
            "unfinished_seconds": 10.0,
            "load_seconds_max": 20.0,
            "stop_seconds": 10.0,
        }
        if harms == "stream":  # a journal must be back before the history is trimmed (docs/JOURNAL.md)
            settings["history_seconds"] = max(settings["history_seconds"], _HISTORY_SECONDS_MIN)
        settings |= wish.settings
        drawn = Plan(
            seed=seed,
            servers=servers,
            clients=clients,
            documents=rng.choice((1, 1, 2, 3)),
            seconds=seconds,
            think_seconds=rng.choice((0.4, 1.0, 3.0)),
            max_payload=rng.choice((4096, 65536)),
            harms=harms,
            kinds=frozenset(kinds),
            faults=tuple(faults),
            settings=settings,
            rogue=rng.random() < 0.3,
            deletes=rng.random() < 0.3,
            kept=rng.choice((0.0, 0.0, 0.5, 1.0)),
        )
        return replace(drawn, **wish.others)


def _harms(kinds: list[Kind]) -> Literal["", "stream", "journal"]:
    """The store that faults of these kinds damage: one or the other, never both."""
    stream, journal = set(kinds) & set(STREAM_LOSSES), set(kinds) & set(JOURNAL_LOSSES)
    if stream and journal:
        raise ValueError("a plan damages the stream or a journal, never both")
    return "stream" if stream else "journal" if journal else ""
