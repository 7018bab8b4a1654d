"""Who does a log's work, and by whose clock: what a storage brings that has no threads."""

from collections.abc import Callable
from typing import Protocol


class Workers(Protocol):
    """The hands, the clock and the chance of one simulated process: everything in one thread, in turn.

    A storage that has none (`workers` is None) is written by threads, by the time of the operating system.
    """

    def later(self, work: Callable[[], None], seconds: float = 0.0) -> None:
        """Call this later, at the earliest after so long; never, if the process has ended by then."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    def now(self) -> int:
        """The time of records that are given none, in nanoseconds."""
        ...

    def random_bytes(self, size: int) -> bytes:
        """For ids."""
        ...
