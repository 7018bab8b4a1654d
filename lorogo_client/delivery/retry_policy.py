"""What an answer to an update asks for, and how long to wait before the next attempt. Pure."""

from enum import Enum, auto

from lorogo_protocol.reasons import Reason


class Next(Enum):
    """What an answer asks for."""

    SETTLED = auto()  # saved
    AGAIN = auto()  # send the same bytes under the same id, after a pause
    FIND_OWNER = auto()  # the same, but first look who serves the document
    SYNC = auto()  # the owner lacks something: sync, then send all that it lacks
    REBASE = auto()  # put our edits on the current state
    DELETED = auto()
    FULL = auto()  # the stream takes no more
    REFUSED = auto()  # never
    IGNORED = auto()  # not about anything that we sent


def decide(reason: Reason) -> Next:
    """What a NACK asks for."""
    match reason:
        case Reason.NOT_OWNER:
            return Next.FIND_OWNER
        case Reason.MISSING_DEPENDENCIES:
            return Next.SYNC
        case Reason.HISTORY_TRIMMED | Reason.PEER_REUSED:
            return Next.REBASE
        case Reason.DELETED:
            return Next.DELETED
        case Reason.STORAGE_FULL:
            return Next.FULL
        case _:
            return Next.AGAIN if reason.retriable else Next.REFUSED


def backoff(attempt: int, *, least: float, most: float, jitter: float) -> float:
    """Seconds to wait before attempt number `attempt` + 1; `jitter` is a number from 0 to 1."""
    return min(most, least * 2.0 ** min(attempt, 30)) * (0.5 + jitter / 2)
