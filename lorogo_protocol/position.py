"""Position of a message in the WAL."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """Place of a message in the WAL; the default is before the first message of no epoch.

    The epoch counts losses of the stream (`lorogo_server/ownership/epoch.py`). The time distinguishes a
    recreated stream, which starts at sequence 1 again, before the loss is found.
    """

    epoch: int = 0
    sequence: int = 0
    time_ns: int = 0  # of the message, by the stream's clock

    def includes(self, other: "Position") -> bool:
        """Return True if `other` is not after this position; positions of different epochs are unordered."""
        return other.epoch == self.epoch and other.sequence <= self.sequence and other.time_ns <= self.time_ns

    def __str__(self) -> str:
        return f"{self.epoch}:{self.sequence}:{self.time_ns}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Parse the string form. Raises ValueError."""
        epoch, sequence, time_ns = map(int, text.split(":"))
        return cls(epoch, sequence, time_ns)


NOWHERE = Position()
