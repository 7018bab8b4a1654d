"""How one server answers senders: counted as it happens, told as records of its journal (docs/JOURNAL.md).

Pure, and nearly free: an answer adds one to one number. What a record says is the difference between now
and the record before it.
"""

from collections.abc import Mapping

from lorogo_protocol import latency
from lorogo_protocol.reasons import Reason
from lorogo_protocol.records import AnswersRecord


class AckMetrics:
    """The answers of one server since it started, and up to where they are told."""

    def __init__(self, server_id: str, now_ns: int) -> None:
        self._server_id = server_id
        self._since_ns = now_ns
        self._counts = [0] * latency.COUNTS_MAX  # ACKs, by how long they took
        self._sum_us = 0  # how long they took together
        self._reasons: dict[str, int] = {}  # NACKs
        self._counts_reported = list(self._counts)
        self._reasons_reported: dict[str, int] = {}

    def acked(self, latency_us: int) -> None:
        """Somebody was given an ACK, so long after the update was here."""
        self._counts[latency.place(latency_us)] += 1
        self._sum_us += max(latency_us, 0)

    def refused(self, reason: Reason) -> None:
        """Somebody was given a NACK."""
        self._reasons[reason.value] = self._reasons.get(reason.value, 0) + 1

    def take(self, now_ns: int) -> AnswersRecord | None:
        """What was answered since it was last taken; None if nothing was."""
        since_ns = min(self._since_ns, now_ns)  # a clock may be set back
        self._since_ns = now_ns
        counts = [now - told for now, told in zip(self._counts, self._counts_reported, strict=True)]
        reasons = {
            reason: count - told
            for reason, count in self._reasons.items()
            if count > (told := self._reasons_reported.get(reason, 0))
        }
        acked = sum(counts)
        if not acked and not reasons:
            return None
        self._counts_reported, self._reasons_reported = list(self._counts), dict(self._reasons)
        places = tuple(latency.trimmed(counts))
        return AnswersRecord(self._server_id, since_ns, now_ns, acked, places, reasons)

    def give_back(self, record: AnswersRecord) -> None:
        """What was taken could not be written: the next record says it, too."""
        self._since_ns = min(self._since_ns, record.since_ns)
        for at, count in enumerate(record.latency_counts):
            self._counts_reported[at] -= count
        for reason, count in record.reasons.items():
            self._reasons_reported[reason] -= count

    def stats(self) -> Mapping[str, object]:
        """Figures for operators, since the start."""
        return {
            "acked": sum(self._counts),
            "nacked": dict(self._reasons),
            "ack_us_counts": latency.trimmed(self._counts),
            "ack_us_sum": self._sum_us,
            "ack_us_p50": latency.quantile_us(self._counts, 0.5),
            "ack_us_p99": latency.quantile_us(self._counts, 0.99),
        }
