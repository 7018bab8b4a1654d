"""Which old segments of a journal may go: decided here, removed by the log."""

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
    """The time before which segments may go (for `Log.expire`); None: all stay. 0 keeps without a limit.

    Oldest first, never an open one, never the newest, and none that is not shipped: nor any behind it,
    so that what is left has no hole.
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
            # `expire` takes everything wholly before a time: this one must not be
            return before if before is None or info.last_time is None else min(before, info.last_time)
        old = cutoff is not None and info.last_time < cutoff
        large = bool(keep_bytes) and total > keep_bytes
        if not (old or large):
            return None if before is None else min(before, info.last_time)
        total -= info.bytes
        before = max(before or 0, info.last_time + 1)
    return before
