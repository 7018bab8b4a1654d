"""`RoomError` `rejoin_suggested`: the recovery of a room that missed something (docs/decisions/0015)."""

import asyncio

from lorogo_client import DocumentDeleted, LorogoError
from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, RoomErrorCode
from lorogo_gateway.rooms.connection_port import ConnectionPort

_MESSAGE_CHARS_MAX = 500


def room_error(crdt: Crdt, name: str, code: RoomErrorCode, message: str) -> bytes:
    """Return an encoded RoomError."""
    return frames.encode(frames.RoomError(crdt, name, code, message[:_MESSAGE_CHARS_MAX]))


def gone_code(error: LorogoError) -> tuple[RoomErrorCode, str]:
    """Return the code and message of the RoomError for a document that has ended."""
    deleted = isinstance(error, DocumentDeleted)
    return RoomErrorCode.EVICTED if deleted else RoomErrorCode.UNKNOWN, f"{error.code}: {error}"


class RejoinTimer:
    """Suggests a rejoin of one room to its client, after a delay and at a limited rate."""

    __slots__ = ("_crdt", "_last", "_name", "_port", "_timer")

    def __init__(self, port: ConnectionPort, crdt: Crdt, name: str) -> None:
        self._port = port
        self._crdt = crdt
        self._name = name
        self._timer: asyncio.TimerHandle | None = None
        self._last: float | None = None

    def suggest(self, why: str, *, seconds: float = 0.0) -> None:
        """Suggest a rejoin after `seconds`, or when `rejoin_seconds` since the last one have passed."""
        self.cancel()
        loop = asyncio.get_running_loop()
        if self._last is not None:
            seconds = max(seconds, self._last + self._port.gateway.settings.rejoin_seconds - loop.time())
        if seconds > 0:
            self._timer = loop.call_later(seconds, self._send, why)
        else:
            self._send(why)

    def cancel(self) -> None:
        """Cancel a scheduled suggestion: the client has rejoined or left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, why: str) -> None:
        self._timer = None
        self._last = asyncio.get_running_loop().time()
        self._port.gateway.counters.rejoins += 1
        self._port.send(room_error(self._crdt, self._name, RoomErrorCode.REJOIN_SUGGESTED, why))
