"""The receipt of what was saved: where the WAL holds it, and what holds it now."""

from dataclasses import dataclass

from lorogo_protocol import calls


@dataclass(frozen=True, slots=True)
class Receipt:
    """Everything up to here is stored, applied and confirmed by the owner."""

    sequence: int
    lease: int
    durability: str  # stream, journal or replicated
    frontiers: bytes


def from_answer(body: calls.Body) -> Receipt:
    """The receipt that a call was answered with."""
    return Receipt(
        sequence=calls.need(body, "sequence", int),
        lease=calls.need(body, "lease", int),
        durability=calls.need(body, "durability", str),
        frontiers=calls.need(body, "frontiers", bytes),
    )
