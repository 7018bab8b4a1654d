"""How full the WAL is: told once when it passes the line, once when it is below it again."""

import asyncio

from lorogo_protocol.errors import LorogoError
from lorogo_server.settings import ServerSettings
from lorogo_transport.ports import Stream, StreamState
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_FRESH_SECONDS = 0.1  # many may ask at once, and JetStream is asked once
ALARM = 0.7  # of `max_bytes`: there is time to compact, or to give it more


class WalUsage:
    """The WAL's level, as this server last saw it."""

    def __init__(self) -> None:
        self.full = 0.0  # of `max_bytes`; 0 without a limit
        self.high = False
        self.bytes_max = -1  # of the WAL; not above 0: no limit
        self._left: int | None = None
        self._fresh_until = 0.0
        self._looking = asyncio.Lock()

    async def left(self, wal: Stream, *, now: float) -> int | None:
        """How many bytes the WAL takes now; None: without a limit, or JetStream does not say."""
        async with self._looking:
            if now >= self._fresh_until:
                self._left = None
                self._fresh_until = now + _FRESH_SECONDS
                try:
                    self.see(await wal.state())
                except LorogoError as error:
                    log.info("how full the WAL is cannot be said", problem=str(error))
            return self._left

    def document_share(self, settings: ServerSettings) -> int:
        """What unfinished updates of a document may keep in the WAL: a quarter of it, at least one update."""
        most = settings.unfinished_bytes_max
        if self.bytes_max <= 0:
            return most
        return min(most, max(self.bytes_max // 4, settings.update_bytes_max))

    def see(self, state: StreamState) -> None:
        """Take a look; crossing the line is a line in the log."""
        self._left = state.bytes_left
        self.bytes_max = state.bytes_max
        self.full = state.bytes / state.bytes_max if state.bytes_max > 0 else 0.0
        high = self.full >= ALARM
        if high and not self.high:
            log.warning(
                "the WAL is nearly full: compact documents, or raise its limit; when it is full, every"
                " update is refused with storage-full",
                percent=round(self.full * 100),
                bytes=state.bytes,
                bytes_max=state.bytes_max,
            )
        elif self.high and not high:
            log.info("the WAL has room again", percent=round(self.full * 100))
        self.high = high
