"""Reasons of refusals, which are the labels of a metric: a closed set."""

from collections import Counter
from enum import StrEnum


class LimitReason(StrEnum):
    """A reason of `lorogo_gateway_refused_total`."""

    # of the gateway as a whole
    CONNECTIONS = "connections"
    FEEDS = "feeds"
    FRAGMENTS = "fragments"
    # of an address
    ADDRESS_CONNECTIONS = "address-connections"
    ADDRESS_CONNECTS = "address-connects"
    ADDRESS_REQUESTS = "address-requests"
    ADDRESS_BYTES = "address-bytes"
    AUTH_FAILURES = "auth-failures"
    # of a token, or of an address without one
    TOKEN_CONNECTIONS = "token-connections"
    TOKEN_REQUESTS = "token-requests"
    TOKEN_BYTES = "token-bytes"
    TOKEN_BODIES = "token-bodies"
    TOKEN_FRAMES = "token-frames"
    TOKEN_UPDATES = "token-updates"
    TOKEN_UPDATE_BYTES = "token-update-bytes"
    TOKEN_JOINS = "token-joins"
    TOKEN_DOCUMENTS = "token-documents"
    TOKEN_FEEDS = "token-feeds"
    # of a connection or a request
    FRAMES = "frames"
    UPDATES = "updates"
    ROOMS = "rooms"
    HEAD_BYTES = "head-bytes"
    HEAD_SECONDS = "head-seconds"
    PIPELINE = "pipeline"
    BODY_BYTES = "body-bytes"
    BODY_SECONDS = "body-seconds"
    SLOW_READER = "slow-reader"
    FEED_STALLED = "feed-stalled"


class LimitCounters:
    """Refusals since the start, by reason."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[LimitReason] = Counter()

    def count(self, why: LimitReason) -> None:
        """Count a refusal."""
        self._counts[why] += 1

    def facts(self) -> dict[str, int]:
        """Return the counts of all reasons, zeros included: a rate needs the initial zero."""
        return {why.value: self._counts[why] for why in LimitReason}
