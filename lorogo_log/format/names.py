"""File names of a log."""

import re

SEGMENT = re.compile(r"(\d{20})-(\d{20})\.seg")
PREPARED = re.compile(r"prepared-(\d+)\.new")
BROKEN = re.compile(r".+\.broken")
APPEND_LOCK = "append.lock"
CLEAN_LOCK = "clean.lock"
TEMPORARY = ".tmp"
#: temporary files of this code; other files with that ending are not ours
_TEMPORARY = re.compile(
    r"(?:(?:\d{20}-\d{20}\.seg|prepared-\d+\.new)(?:\.\d+(?:-\d+)?\.broken)?|replica\.state)\.tmp"
)
#: a segment being fetched from another process; kept over restarts, so that the fetch continues
PART = ".part"
_PART = re.compile(r"\d{20}-\d{20}\.seg\.part")
REPLICA_STATE = "replica.state"


def segment_name(first_sequence: int, first_time: int) -> str:
    """Return a name that sorts by sequence and by time."""
    return f"{first_sequence:020d}-{max(0, first_time):020d}.seg"


def parse_segment(name: str) -> tuple[int, int] | None:
    """Return (first sequence, first time) of a segment's name, None if it is not one."""
    found = SEGMENT.fullmatch(name)
    if found is None:
        return None
    sequence, time = int(found[1]), int(found[2])
    return (sequence, time) if sequence < 1 << 64 and time < 1 << 63 else None


def prepared_name(number: int) -> str:
    """Return the name of a prepared segment file."""
    return f"prepared-{number}.new"


def is_temporary(name: str) -> bool:
    """Return True if this code created the name, for a file that is useless after a crash."""
    return _TEMPORARY.fullmatch(name) is not None


def is_part(name: str) -> bool:
    """Return True if this code created the name, for a segment being fetched."""
    return _PART.fullmatch(name) is not None


def is_ours(name: str) -> bool:
    """Return True if a file of this name belongs to a log directory."""
    return bool(
        parse_segment(name)
        or PREPARED.fullmatch(name)
        or BROKEN.fullmatch(name)
        or name in {APPEND_LOCK, CLEAN_LOCK, REPLICA_STATE}
        or is_temporary(name)
        or is_part(name)
    )
