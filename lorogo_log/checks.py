"""Checks of callers' arguments. Each error names the argument; checks run before any work begins."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

U64_MAX = (1 << 64) - 1
U32_MAX = (1 << 32) - 1
I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1


def whole(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """Return the value as an int; TypeError unless it is an integer, ValueError if out of range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}") from None
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, not {number}")
    return number


def whole_or_none(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int | None:
    """As `whole`; None stays None."""
    return None if value is None else whole(name, value, least=least, most=most)


def kind(name: str, value: Any, wanted: type, example: str) -> None:
    """Raise TypeError unless the value is of the class; the example shows how to create one."""
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be a {wanted.__name__}, such as {example}, not {type(value).__name__}")


def shared_secret(value: Any) -> bytes | None:
    """Return the secret; TypeError unless it is bytes or None, ValueError if it is empty."""
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"secret must be bytes, not {type(value).__name__}")
    if value == b"":
        raise ValueError("secret must not be empty: use None for no secret")
    return value


def seconds(name: str, value: Any) -> None:
    """Raise TypeError or ValueError unless the value is a duration."""
    if not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not value >= 0:
        raise ValueError(f"{name} must not be negative, not {value}")


def check_keys(keys: Collection[bytes]) -> None:
    """Raise TypeError unless every key is bytes.

    Checked in the caller's thread: an error in the writer's thread would stop the log for all callers.
    """
    if set(map(type, keys)) != {bytes}:
        for key in keys:
            if not isinstance(key, bytes):
                raise TypeError(f"a key must be bytes, not {type(key).__name__}")


def distinct_keys(keys: Sequence[bytes]) -> set[bytes]:
    """Return the distinct keys; checks each distinct key as `check_keys` does."""
    try:
        distinct = set(keys)
    except TypeError:  # not even hashable
        check_keys(keys)
        raise
    check_keys(distinct)
    return distinct


def check_time(time: int) -> int:
    """Return the time; TypeError unless it is an int, ValueError if it does not fit 64 bits."""
    if not isinstance(time, int):
        raise TypeError(f"a time must be an int (nanoseconds), not {type(time).__name__}")
    if not I64_MIN <= time <= I64_MAX:
        raise ValueError(f"time {time} does not fit into 64 bits")
    return time
