"""The next action for a reply to an update, and the backoff between attempts. Pure."""

from enum import Enum, auto

from lorogo_protocol.messages.reasons import Reason


class ReplyAction(Enum):
    """The next action for an update, after its reply."""

    SETTLED = auto()  # saved
    AGAIN = auto()  # resend the same bytes under the same id, after a pause
    FIND_OWNER = auto()  # the same, but find the owner first
    SYNC = auto()  # the owner lacks dependencies: sync, then send everything that it lacks
    REBASE = auto()  # rebase the unsaved edits onto the current state
    DELETED = auto()
    FULL = auto()  # the stream is full
    REFUSED = auto()  # refused for good
    IGNORED = auto()  # matches no update in flight


def decide(reason: Reason) -> ReplyAction:
    """Return the next action after a NACK."""
    match reason:
        case Reason.NOT_OWNER:
            return ReplyAction.FIND_OWNER
        case Reason.MISSING_DEPENDENCIES:
            return ReplyAction.SYNC
        case Reason.HISTORY_TRIMMED | Reason.OUTDATED | Reason.PEER_REUSED:
            return ReplyAction.REBASE
        case Reason.DELETED:
            return ReplyAction.DELETED
        case Reason.STORAGE_FULL:
            return ReplyAction.FULL
        case _:
            return ReplyAction.AGAIN if reason.retriable else ReplyAction.REFUSED


def backoff(attempt: int, *, least: float, most: float, jitter: float) -> float:
    """Return the seconds to wait before attempt number `attempt` + 1; `jitter` is between 0 and 1."""
    return min(most, least * 2.0 ** min(attempt, 30)) * (0.5 + jitter / 2)
