"""JSON encoding. Large values are encoded on a thread in parts, because each encoder call holds the GIL."""

import asyncio
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

_WEIGHT_MAX = 10_000  # values, or strings in units of _TEXT_CHARS: about a millisecond
_TEXT_CHARS = 32
_BATCH = 500

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def rendered(value: object) -> bytes:
    """Return the value as JSON, which must not contain NaN."""
    return _encode(value).encode()


async def rendered_in_thread(value: object) -> bytes:
    """Return the value as JSON without blocking the event loop, whatever its size."""
    if _light(value):
        return rendered(value)
    return await asyncio.to_thread(lambda: "".join(_parts(value)).encode())


def _light(value: object) -> bool:
    """Return whether one encoder call is quick enough; visits at most _WEIGHT_MAX values."""
    left, waiting = _WEIGHT_MAX, [value]
    while waiting and left > 0:
        one = waiting.pop()
        if isinstance(one, str):
            left -= len(one) // _TEXT_CHARS
        elif isinstance(one, dict | list):
            left -= len(one)
            if left > 0:
                waiting += one.values() if isinstance(one, dict) else one
    return left > 0


def _parts(value: object) -> Iterator[str]:
    if not isinstance(value, dict | list) or _light(value):
        yield _encode(value)
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    for group in _groups(value):
        yield opening
        opening = ","
        if _light(group):
            yield _encode(group)[1:-1]
            continue
        comma = ""
        for key in group if isinstance(group, dict) else range(len(group)):
            yield f"{comma}{_encode(key)}:" if isinstance(group, dict) else comma
            yield from _parts(group[key])
            comma = ","
    yield closing


def _groups(value: dict[Any, object] | list[object]) -> Iterator[Any]:
    if isinstance(value, list):
        yield from (value[at : at + _BATCH] for at in range(0, len(value), _BATCH))
        return
    members = iter(value.items())
    while group := dict(islice(members, _BATCH)):
        yield group
