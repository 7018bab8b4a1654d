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
    log_id: str = ""  # of the update that was ACKed last: `lorogo trace` tells what became of it


def from_answer(body: calls.Body) -> Receipt:
    """The receipt that a call was answered with."""
    return Receipt(
        sequence=calls.need(body, "sequence", int),
        lease=calls.need(body, "lease", int),
        durability=calls.need(body, "durability", str),
        frontiers=calls.need(body, "frontiers", bytes),
        log_id=calls.maybe(body, "log_id", str) or "",  # older servers do not say it
    )
