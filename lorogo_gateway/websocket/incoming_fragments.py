"""Fragmented updates of one connection, and the timer that drops incomplete ones."""

import asyncio
from collections.abc import Callable

from lorogo_gateway.frames import Crdt, Fragment, FragmentAssembler, FragmentHeader, FragmentRefusal
from lorogo_gateway.frames.fragments import NO_ROOM
from lorogo_gateway.limits.reasons import LimitReason
from lorogo_gateway.state.gateway_state import GatewayState
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)


class IncomingFragments:
    """An Assembler with a timer; `refused` is called for every dropped batch."""

    __slots__ = ("_assembler", "_expiry", "_gateway", "_refused")

    def __init__(self, gateway: GatewayState, key: str, refused: Callable[[FragmentRefusal], None]) -> None:
        settings = gateway.settings
        self._gateway = gateway
        self._refused = refused
        self._expiry: asyncio.TimerHandle | None = None
        self._assembler = FragmentAssembler(
            bytes_max=settings.fragments_bytes_max,
            update_bytes_max=settings.update_bytes_max,
            seconds=settings.fragment_seconds,
            pool=gateway.unfinished,
            key=key,
        )

    def begin(self, header: FragmentHeader) -> bool:
        """Begin a batch; returns False if it was refused or had begun before."""
        known = self._assembler.knows(header)
        refusal = self._assembler.begin(header, now=asyncio.get_running_loop().time())
        if refusal is not None:
            self._refuse(refusal)
        self._schedule()
        return refusal is None and not known

    def add(self, fragment: Fragment) -> bytes | None:
        """Return the whole update if this was its last missing fragment."""
        match self._assembler.add(fragment):
            case FragmentRefusal() as refusal:
                self._refuse(refusal)
                return None
            case payload:
                return payload

    def drop(self, header: FragmentHeader) -> None:
        """Drop a batch whose sender was answered."""
        self._assembler.drop(header)

    def forget(self, crdt: Crdt, room: str) -> None:
        """Drop the batches of a room that was left or joined again."""
        self._assembler.forget(crdt, room)

    def close(self) -> None:
        """Stop the timer and drop every batch."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._assembler.close()

    def _refuse(self, refusal: FragmentRefusal) -> None:
        log.info("fragments refused", room=refusal.key.room, problem=refusal.problem)
        if refusal.problem == NO_ROOM:
            self._gateway.limiter.refusals.count(LimitReason.FRAGMENTS)
        self._refused(refusal)

    def _schedule(self) -> None:
        if self._expiry is None and (due := self._assembler.deadline) is not None:
            self._expiry = asyncio.get_running_loop().call_at(due, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        for refusal in self._assembler.expire(now=asyncio.get_running_loop().time()):
            self._refuse(refusal)
        self._schedule()
