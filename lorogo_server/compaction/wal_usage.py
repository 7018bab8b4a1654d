"""WAL usage: logs one event when the usage crosses the alarm level, and one when it falls below."""

import asyncio

from lorogo_protocol.errors import LorogoError
from lorogo_server.settings import ServerSettings
from lorogo_transport.ports import Stream, StreamState
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_FRESH_SECONDS = 0.1  # concurrent callers share one request to JetStream
ALARM = 0.7  # of `max_bytes`: leaves time to compact, or to raise the limit
_RELIEVED = 0.5  # of `max_bytes`: the aim of compactions, well below the alarm


class WalUsage:
    """Usage of the WAL at the last measurement."""

    def __init__(self) -> None:
        self.full = 0.0  # of `max_bytes`; 0 without a limit
        self.high = False
        self.bytes_max = -1  # of the WAL; not above 0: no limit
        self._left: int | None = None
        self._fresh_until = 0.0
        self._lock = asyncio.Lock()

    async def left(self, wal: Stream, *, now: float) -> int | None:
        """Return the bytes that the WAL can still take; None without a limit or if JetStream fails."""
        async with self._lock:
            if now >= self._fresh_until:
                self._left = None
                self._fresh_until = now + _FRESH_SECONDS
                try:
                    self.update(await wal.state())
                except LorogoError as error:
                    log.info("cannot read WAL usage", problem=str(error))
            return self._left

    def document_share(self, settings: ServerSettings) -> int:
        """Return the WAL bytes for a document's unfinished updates: a quarter, at least one update."""
        most = settings.unfinished_bytes_max
        if self.bytes_max <= 0:
            return most
        return min(most, max(self.bytes_max // 4, settings.update_bytes_max))

    @property
    def excess_bytes(self) -> int:
        """Return the bytes to remove from the WAL while it is nearly full, else 0."""
        return round((self.full - _RELIEVED) * self.bytes_max) if self.high else 0

    def update(self, state: StreamState) -> None:
        """Set the usage from the stream's state; log if it crosses the alarm level."""
        self._left = state.bytes_left
        self.bytes_max = state.bytes_max
        self.full = state.bytes / state.bytes_max if state.bytes_max > 0 else 0.0
        high = self.full >= ALARM
        if high and not self.high:
            log.warning(
                "the WAL is nearly full: compact documents or raise its limit;"
                " a full WAL refuses every update with storage-full",
                percent=round(self.full * 100),
                bytes=state.bytes,
                bytes_max=state.bytes_max,
            )
        elif self.high and not high:
            log.info("WAL usage is below the alarm level", percent=round(self.full * 100))
        self.high = high
