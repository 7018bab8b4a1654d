"""What an answer to an update asks for, and how long to wait before the next attempt. Pure."""

from enum import Enum, auto

from lorogo_protocol.reasons import Reason


class ReplyAction(Enum):
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


def decide(reason: Reason) -> ReplyAction:
    """What a NACK asks for."""
    match reason:
        case Reason.NOT_OWNER:
            return ReplyAction.FIND_OWNER
        case Reason.MISSING_DEPENDENCIES:
            return ReplyAction.SYNC
        case Reason.HISTORY_TRIMMED | Reason.PEER_REUSED:
            return ReplyAction.REBASE
        case Reason.DELETED:
            return ReplyAction.DELETED
        case Reason.STORAGE_FULL:
            return ReplyAction.FULL
        case _:
            return ReplyAction.AGAIN if reason.retriable else ReplyAction.REFUSED


def backoff(attempt: int, *, least: float, most: float, jitter: float) -> float:
    """Seconds to wait before attempt number `attempt` + 1; `jitter` is a number from 0 to 1."""
    return min(most, least * 2.0 ** min(attempt, 30)) * (0.5 + jitter / 2)
