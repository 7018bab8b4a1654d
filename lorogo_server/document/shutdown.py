"""How one host ends: whether somebody has said so, why, and what it still finishes.

step down: another has the document. Nothing is finished, nothing is written.
stop:      what is queued now is taken and answered, then the status says DOWN;
           at once: nothing queued is taken any more, then DOWN.
"""

import asyncio

from lorogo_transport.light import Event
from lorogo_transport.tasks import Work

_LAST_ACKS_SECONDS = 2.0


class ClosedEarly(Exception):
    """The document is to be closed before that was done."""


class Shutdown:
    """The end of one host, from when it is wanted; what was said first stays the reason."""

    __slots__ = ("_through", "_wanted", "at_once", "graceful", "last_acks_seconds", "why")

    def __init__(self) -> None:
        self.why = ""
        self.graceful = False  # DOWN is written
        self.at_once = False  # nothing that is queued is finished any more
        self.last_acks_seconds = _LAST_ACKS_SECONDS  # to wait for them
        self._through = 0  # the last that is finished
        self._wanted = Event()

    @property
    def wanted(self) -> bool:
        """Whether the document is to be closed."""
        return self._wanted.is_set()

    def step_down(self, why: str) -> None:
        self.because(why)
        self._wanted.set()

    def stop(self, why: str, *, finish: bool, newest: int) -> None:
        """Finish what is queued, up to `newest`, unless told not to, now or before."""
        finish = finish and not self.at_once
        self.at_once = not finish
        self.graceful = True
        self._through = newest if finish else 0
        self.last_acks_seconds = _LAST_ACKS_SECONDS if finish else 0.0
        self.because(why)
        self._wanted.set()

    def because(self, why: str) -> None:
        """Unless there is a reason already."""
        self.why = self.why or why

    def finishes(self, sequence: int) -> bool:
        """Whether it came before a graceful stop."""
        return self.graceful and sequence <= self._through

    async def unless_wanted(self, work: Work) -> None:
        """Do it, unless the document is to be closed before it is done. Raises EndedBefore."""
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
