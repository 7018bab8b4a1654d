"""The executor, clock and randomness of a log's writer on a storage without threads."""

from collections.abc import Callable
from typing import Protocol


class Workers(Protocol):
    """Executor, clock and randomness of one simulated process: one thread, in order.

    Without workers (`workers` is None) threads write, on the operating system's clock.
    """

    def later(self, work: Callable[[], None], seconds: float = 0.0) -> None:
        """Call the function later, after at least the delay; never, if the process has ended by then."""
        ...

    def monotonic(self) -> float:
        """Monotonic seconds."""
        ...

    def now(self) -> int:
        """The time of records without one, in nanoseconds."""
        ...

    def random_bytes(self, size: int) -> bytes:
        """Random bytes for ids."""
        ...
