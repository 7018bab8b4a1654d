"""Sequence bounds of one document's WAL: the purge bound, and the journal-coverage bound.

Messages that a later load could still turn into an accepted update limit both.
"""

from dataclasses import replace

from lorogo_protocol.position import Position
from lorogo_server.document.loading import Loaded
from lorogo_server.document.quarantine import DocumentQuarantine
from lorogo_server.intake.decisions import (
    RefusedUpdate,
)


def first_needed(loaded: Loaded, refused: DocumentQuarantine) -> int:
    """Return the first sequence that a purge must keep.

    Kept: messages of unfinished or pending updates, and refused messages that are not in `loro-rejected` yet.
    """
    needed = [loaded.follower.position.sequence + 1, *refused.to_move, *refused.kept]
    if (first := loaded.intake.first_needed()) is not None:
        needed.append(first)
    return min(needed)


def covered_through(loaded: Loaded, refused: DocumentQuarantine) -> Position:
    """Return the position up to which the journal accounts for every WAL message.

    A message counts once its update is accepted or quarantined. Dropped chunks do not count: a later load may
    find their update complete, accept it, and must then journal it.
    """
    bounds = [first_needed(loaded, refused)]
    if (dropped := loaded.intake.first_dropped()) is not None:
        bounds.append(dropped)
    for effect in loaded.unanswered:  # refused during the load, not quarantined yet
        if isinstance(effect, RefusedUpdate):
            bounds += effect.sequences
    return replace(loaded.follower.position, sequence=min(bounds) - 1)
