"""Find the first difference of two JSON values, in short form."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

_CHARS_MAX = 60
_AROUND = 12  # characters of context before the difference
_CLOSE = 1e-12  # counters are sums of floats: replicas add in different orders
_ABSENT = "(nothing)"


@dataclass(frozen=True, slots=True)
class Contrast:
    """The first difference: a JSONPath, and both values there."""

    path: str
    left: str
    right: str

    def __str__(self) -> str:
        return f"{self.path} ({self.left} in the journals, {self.right} on the server)"


def contrast(left: object, right: object) -> Contrast | None:
    """Return the first difference, in order of keys; None if the values are equal.

    Floats that differ in the last bits are equal: counters sum in the order of arrival.
    """
    return next(_walk("$", left, right), None)


def _walk(path: str, left: object, right: object) -> Iterator[Contrast]:
    match left, right:
        case dict(), dict():
            for key in sorted({*left, *right}, key=str):
                below = f"{path}{_step(str(key))}"
                if key not in left:
                    yield Contrast(below, _ABSENT, _brief(right[key]))
                elif key not in right:
                    yield Contrast(below, _brief(left[key]), _ABSENT)
                else:
                    yield from _walk(below, left[key], right[key])
        case list(), list():
            for index, (one, other) in enumerate(zip(left, right, strict=False)):
                yield from _walk(f"{path}[{index}]", one, other)
            if len(left) > len(right):
                yield Contrast(f"{path}[{len(right)}]", _brief(left[len(right)]), _ABSENT)
            elif len(right) > len(left):
                yield Contrast(f"{path}[{len(left)}]", _ABSENT, _brief(right[len(left)]))
        case str(), str() if left != right:
            at = _first_other(left, right)
            where = path if at < _CHARS_MAX // 2 else f"{path}, character {at},"
            begin = 0 if at < _CHARS_MAX // 2 else at - _AROUND
            yield Contrast(where, _cut(left, begin), _cut(right, begin))
        case _ if not _same(left, right):
            yield Contrast(path, _brief(left), _brief(right))
        case _:
            return


def _same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or math.isclose(left, right, rel_tol=_CLOSE, abs_tol=_CLOSE)
    return type(left) is type(right) and left == right


def _first_other(left: str, right: str) -> int:
    pairs = zip(left, right, strict=False)
    found = (at for at, (one, other) in enumerate(pairs) if one != other)
    return next(found, min(len(left), len(right)))


def _step(key: str) -> str:
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key, ensure_ascii=False)}]"


def _cut(text: str, begin: int) -> str:
    shown = text[begin : begin + _CHARS_MAX]
    before, after = "…" if begin else "", "…" if begin + _CHARS_MAX < len(text) else ""
    return f"{before}{json.dumps(shown, ensure_ascii=False)}{after}"


def _brief(value: object) -> str:
    if isinstance(value, str):
        return _cut(value, 0)
    shown = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return shown if len(shown) <= _CHARS_MAX else shown[:_CHARS_MAX] + "…"
