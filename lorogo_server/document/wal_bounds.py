"""How far two promises about a document's WAL may go: what a purge may remove, what a ledger may say."""

from lorogo_server.document.answers import Answers
from lorogo_server.document.intake import RefusedUpdate
from lorogo_server.document.loading import Loaded


def first_needed(loaded: Loaded, answers: Answers) -> int:
    """The lowest sequence that a purge must leave: of what is unfinished, pending or not yet moved."""
    needed = [loaded.follower.position + 1, *answers.to_quarantine, *answers.left]
    if (first := loaded.intake.first_needed()) is not None:
        needed.append(first)
    return min(needed)


def covered_through(loaded: Loaded, answers: Answers) -> int:
    """Up to there every message of the WAL was accepted, or is moved out of it: what the ledger may say.

    Not only what waits bounds it, but also what was dropped and lies in the WAL: chunks that came
    too late for us may be whole for the next load, which then must journal what it accepts.
    """
    bounds = [first_needed(loaded, answers)]
    if (dropped := loaded.intake.first_dropped()) is not None:
        bounds.append(dropped)
    for effect in loaded.unanswered:  # what the load refused, and nobody has moved yet
        if isinstance(effect, RefusedUpdate):
            bounds += effect.sequences
    return min(bounds) - 1
