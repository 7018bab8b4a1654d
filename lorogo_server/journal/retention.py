"""Journal retention: decides which old segments may be removed; the log removes them."""

from collections.abc import Callable, Sequence

from lorogo_log import SegmentInfo


def expire_before(
    segments: Sequence[SegmentInfo],
    *,
    now_ns: int,
    keep_seconds: float,
    keep_bytes: int,
    shipped: Callable[[SegmentInfo], bool] = lambda _: True,
) -> int | None:
    """Return the time before which segments may be removed, for `Log.expire`; None to keep all.

    A limit of 0 is no limit. Segments go from the oldest on; an open, the newest or an unshipped segment and
    all after it stay, so that the rest has no gap.
    """
    before = _before(segments, now_ns, keep_seconds, keep_bytes, shipped)
    oldest = segments[0].last_time if segments else None
    return None if before is None or oldest is None or oldest >= before else before


def _before(
    segments: Sequence[SegmentInfo],
    now_ns: int,
    keep_seconds: float,
    keep_bytes: int,
    shipped: Callable[[SegmentInfo], bool],
) -> int | None:
    cutoff = now_ns - int(keep_seconds * 1e9) if keep_seconds else None
    total = sum(info.bytes for info in segments)
    before: int | None = None
    for info in segments[:-1]:
        if not info.sealed or info.last_time is None or not shipped(info):
            # `expire` removes every segment that ends before the time, so the time must exclude this one
            return before if before is None or info.last_time is None else min(before, info.last_time)
        old = cutoff is not None and info.last_time < cutoff
        large = bool(keep_bytes) and total > keep_bytes
        if not (old or large):
            return None if before is None else min(before, info.last_time)
        total -= info.bytes
        before = max(before or 0, info.last_time + 1)
    return before
