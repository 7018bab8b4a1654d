"""ACK metrics of one server: counts of ACKs and NACKs, written as journal records (docs/JOURNAL.md).

Pure and cheap: each reply increments one counter. A record has the difference to the previous record.
"""

from collections.abc import Callable, Mapping

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

    def report(self, now_ns: int, write: Callable[[AnswersRecord], bool]) -> None:
        """Write a record of the replies since the previous one, if any.

        They are in the next record if `write` returns False.
        """
        counts = [now - reported for now, reported in zip(self._counts, self._counts_reported, strict=True)]
        reasons = {
            reason: new
            for reason, count in self._reasons.items()
            if (new := count - self._reasons_reported.get(reason, 0))
        }
        acked = sum(counts)
        if acked or reasons:
            since_ns = min(self._since_ns, now_ns)  # a clock may be set back
            places = tuple(latency.trimmed(counts))
            if not write(AnswersRecord(self._server_id, since_ns, now_ns, acked, places, reasons)):
                return
            self._counts_reported, self._reasons_reported = list(self._counts), dict(self._reasons)
        self._since_ns = now_ns

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
