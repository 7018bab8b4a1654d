"""Participants that move cursors: real sessions on one or more connections."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self, cast

import lorogo_client
from lorogo_bench.loads.due import until_ns
from lorogo_bench.results.cursor_moves import MoveObserver, ObservedMoves, Schedule
from lorogo_client import Session

_OPENING_MAX = 16
_OPEN_SECONDS = 60.0


class CursorsLoad:
    """Participants of several documents."""

    def __init__(self, url: str, documents: dict[str, list[list[int]]]) -> None:
        """`documents`: for each document, the participants' indexes on each connection."""
        self._rooms = {name: _Room(url, name, groups) for name, groups in documents.items()}
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            await asyncio.gather(*(room.enter(undo) for room in self._rooms.values()))
            self._exit = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def do_move(self, *, document: str, schedule: dict[str, Any]) -> dict[str, Any]:
        """Make all moves when due; return when each connection has seen the last moves of all others."""
        return summary_of(await self._rooms[document].move(Schedule(**schedule)))

    async def do_shown(self, *, document: str) -> dict[str, Any]:
        """Return the cursor positions that participants are shown, with the number of participants."""
        return {"shown": self._rooms[document].shown()}


class _Room:
    """Participants of one document; participants on one connection share a client, and so what they see."""

    def __init__(self, url: str, document: str, groups: list[list[int]]) -> None:
        self._url = url
        self._document = document
        self._groups = groups
        self._sessions: dict[int, Session] = {}
        self._eyes = [MoveObserver() for _ in groups]  # one per connection
        self._more = asyncio.Event()
        self._opening = asyncio.Semaphore(_OPENING_MAX)

    async def enter(self, undo: AsyncExitStack) -> None:
        await asyncio.gather(*(self._join(undo, group) for group in self._groups))
        for place, group in enumerate(self._groups):
            watching = self._watch(place, self._sessions[group[0]])
            undo.callback(asyncio.create_task(watching, name=f"watch {self._document} {place}").cancel)

    async def move(self, plan: Schedule) -> list[ObservedMoves]:
        seen = look(plan, self._eyes, self._groups)
        for who, number in plan.turns(self._sessions):
            await until_ns(plan.due_ns(who, number))
            self._sessions[who].presence.set({"who": who, "cursor": number})
        while not all(one.whole for one in seen):
            self._more.clear()
            await self._more.wait()
        return seen

    def shown(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for session in self._sessions.values():
            where = sorted(_place(value) for value in session.presence.all().values())
            words = " ".join(f"{who}:{cursor}" for who, cursor in where)
            found[words] = found.get(words, 0) + 1
        return found

    async def _join(self, undo: AsyncExitStack, group: Sequence[int]) -> None:
        async with self._opening:
            client = await undo.enter_async_context(lorogo_client.connect(self._url, name="bench cursors"))
            for who in group:
                self._sessions[who] = await client.open(self._document, timeout=_OPEN_SECONDS)

    async def _watch(self, place: int, session: Session) -> None:
        newest: dict[int, int] = {}
        async for entries in session.presence.watch():
            now = time.monotonic_ns()
            for value in cast("Iterable[dict[str, int]]", entries.values()):
                who, cursor = value["who"], value["cursor"]
                if newest.get(who, -1) < cursor:  # most have not moved since the last event
                    newest[who] = cursor
                    if self._eyes[place].observe(who, cursor, now):
                        self._more.set()


def look(
    plan: Schedule, eyes: Sequence[MoveObserver], groups: Sequence[Sequence[int]]
) -> list[ObservedMoves]:
    """Let each observer follow this schedule, for the participants on other connections."""
    all_of_them = set(range(plan.participants))
    return [one.follow(plan, all_of_them - set(group)) for one, group in zip(eyes, groups, strict=True)]


def summary_of(seen: Sequence[ObservedMoves]) -> dict[str, Any]:
    """Return the delays of all moves on all connections, the number of shown moves, and the end time."""
    return {
        "late_ms": [late / 1e6 for one in seen for late in one.late_ns],
        "shown": sum(one.shown for one in seen),
        "ended_ns": time.monotonic_ns(),
    }


def _place(value: object) -> tuple[int, int]:
    assert isinstance(value, dict)
    return int(value["who"]), int(value["cursor"])
