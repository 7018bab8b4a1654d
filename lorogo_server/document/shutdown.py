"""Shutdown of one host: whether it is requested, the reason, and the queued messages to process first.

step down: another server owns the document. The host processes nothing more and writes nothing.
stop:      the host processes and answers the queued messages, then writes DOWN;
           at once: the host drops the queued messages, then writes DOWN.
"""

import asyncio

from lorogo_transport.light import Event
from lorogo_transport.tasks import Work

_LAST_ACKS_SECONDS = 2.0


class ClosedEarly(Exception):
    """A shutdown was requested before the work was done."""


class Shutdown:
    """Shutdown state of one host; the first reason is kept."""

    __slots__ = ("_through", "_wanted", "at_once", "graceful", "last_acks_seconds", "why")

    def __init__(self) -> None:
        self.why = ""
        self.graceful = False  # write DOWN
        self.at_once = False  # drop the queued messages
        self.last_acks_seconds = _LAST_ACKS_SECONDS  # wait for the last ACKs
        self._through = 0  # last sequence to process
        self._wanted = Event()

    @property
    def wanted(self) -> bool:
        """True once a shutdown is requested."""
        return self._wanted.is_set()

    def step_down(self, why: str) -> None:
        self.set_reason(why)
        self._wanted.set()

    def stop(self, why: str, *, finish: bool, newest: int) -> None:
        """Request a graceful stop: process the queue up to `newest`, unless a stop at once was requested."""
        finish = finish and not self.at_once
        self.at_once = not finish
        self.graceful = True
        self._through = newest if finish else 0
        self.last_acks_seconds = _LAST_ACKS_SECONDS if finish else 0.0
        self.set_reason(why)
        self._wanted.set()

    def set_reason(self, why: str) -> None:
        """Set the reason unless there is one already."""
        self.why = self.why or why

    def finishes(self, sequence: int) -> bool:
        """Return True if the message was queued before a graceful stop."""
        return self.graceful and sequence <= self._through

    async def run_until_shutdown(self, work: Work) -> None:
        """Await the work, but cancel it when a shutdown is requested. Raises EndedBefore."""
        working = asyncio.ensure_future(work)
        closing = asyncio.ensure_future(self._wanted.wait())
        try:
            await asyncio.wait({working, closing}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClosedEarly
            await working
        finally:
            working.cancel()
            closing.cancel()
            await asyncio.gather(working, closing, return_exceptions=True)
