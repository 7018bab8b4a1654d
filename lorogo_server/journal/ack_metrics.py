"""ACK metrics of one server: counts of ACKs and NACKs, written as journal records (docs/JOURNAL.md).

Pure and cheap: each reply increments one counter. A record has the difference to the previous record.
"""

from collections.abc import Mapping

from lorogo_protocol.journal import latency
from lorogo_protocol.journal.records import AnswersRecord
from lorogo_protocol.messages.reasons import Reason


class AckMetrics:
    """Counts of one server since its start, and the part already written to the journal."""

    def __init__(self, server_id: str, now_ns: int) -> None:
        self._server_id = server_id
        self._since_ns = now_ns
        self._counts = [0] * latency.COUNTS_MAX  # ACKs, by latency
        self._sum_us = 0  # total latency
        self._reasons: dict[str, int] = {}  # NACKs, by reason
        self._counts_reported = list(self._counts)
        self._reasons_reported: dict[str, int] = {}

    def acked(self, latency_us: int) -> None:
        """Count an ACK; the latency is measured from the arrival of the update."""
        self._counts[latency.bucket_of(latency_us)] += 1
        self._sum_us += max(latency_us, 0)

    def refused(self, reason: Reason) -> None:
        """Count a NACK."""
        self._reasons[reason.value] = self._reasons.get(reason.value, 0) + 1

    def take(self, now_ns: int) -> AnswersRecord | None:
        """Return a record of the replies since the previous one; None if there were none."""
        since_ns = min(self._since_ns, now_ns)  # a clock may be set back
        self._since_ns = now_ns
        counts = [now - reported for now, reported in zip(self._counts, self._counts_reported, strict=True)]
        reasons = {
            reason: count - reported
            for reason, count in self._reasons.items()
            if count > (reported := self._reasons_reported.get(reason, 0))
        }
        acked = sum(counts)
        if not acked and not reasons:
            return None
        self._counts_reported, self._reasons_reported = list(self._counts), dict(self._reasons)
        places = tuple(latency.trimmed(counts))
        return AnswersRecord(self._server_id, since_ns, now_ns, acked, places, reasons)

    def give_back(self, record: AnswersRecord) -> None:
        """Add a record that could not be written to the next one."""
        self._since_ns = min(self._since_ns, record.since_ns)
        for at, count in enumerate(record.latency_counts):
            self._counts_reported[at] -= count
        for reason, count in record.reasons.items():
            self._reasons_reported[reason] -= count

    def stats(self) -> Mapping[str, object]:
        """Statistics since the start, for operators."""
        return {
            "acked": sum(self._counts),
            "nacked": dict(self._reasons),
            "ack_us_counts": latency.trimmed(self._counts),
            "ack_us_sum": self._sum_us,
            "ack_us_p50": latency.quantile_us(self._counts, 0.5),
            "ack_us_p99": latency.quantile_us(self._counts, 0.99),
        }
