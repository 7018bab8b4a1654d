"""The receipt of a saved update: its WAL sequence, and its durability."""

from dataclasses import dataclass

from lorogo_protocol.messages import calls


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that everything up to `sequence` is stored, applied and ACKed by the owner."""

    sequence: int
    lease: int
    durability: str  # stream, journal or replicated
    frontiers: bytes
    log_id: str = ""  # of the last ACKed update, for `lorogo trace`


def from_answer(body: calls.Body) -> Receipt:
    """Return the receipt in a call's answer."""
    return Receipt(
        sequence=calls.need(body, "sequence", int),
        lease=calls.need(body, "lease", int),
        durability=calls.need(body, "durability", str),
        frontiers=calls.need(body, "frontiers", bytes),
        log_id=calls.need(body, "log_id", str),
    )
