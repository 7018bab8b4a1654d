"""A document's value as JSON, and JSONPath (RFC 9535) queries on it.

JSON has no bytes and no infinities, but Loro has both. `to_json` writes them as maps with one key:

    b"ab"                   {"$bytes": "YWI="}       base64
    nan, inf, -inf          {"$float": "NaN"}        or "Infinity", "-Infinity"
    a container id          {"$container": "..."}    for reading only

`unpack` reads the first two back. It does not distinguish them from a map of the document with the same
form. Other values are unchanged: an int stays an int and a float stays a float, so a counter at three is
3.0.

A query has bounded cost: expressions, visited values, results and their size are limited, and the functions
`match` and `search` are disabled, because a backtracking regular expression has no bound.
"""

import base64
import binascii
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError, JSONPathMatch

from lorogo_protocol.errors import LorogoError
from lorogo_server.sandbox.work_meter import CONTAINER_UNITS, VALUE_UNITS, Spend, unmetered
from lorogo_server.values.document_value import DEPTH_MAX, TooDeep

EXPRESSIONS_MAX = 100
EXPRESSION_CHARS_MAX = 1_000
EXPRESSION_CHAR_UNITS = 64  # to parse it
RESULTS_MAX = 100_000
RESULT_CHARS_MAX = 64 * 1024 * 1024  # approximate size of the results as text
VISITS_MAX = 500_000  # one or two seconds of work

T = TypeVar("T")

_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class QueryError(LorogoError):
    """The query is invalid or exceeds a limit."""

    code = "invalid-request"

    def __init__(self, expression: str | None, problem: str) -> None:
        shown = "" if expression is None else f"the JSONPath expression {brief(expression)}: "
        super().__init__(shown + problem)
        self.expression = expression
        self.problem = problem


def brief(value: object, chars_max: int = 100) -> str:
    """Return a printable, shortened form of a value for messages."""
    shown = ""
    for piece in _shown(value, chars_max):
        shown += piece
        if len(shown) > chars_max + 2:
            return shown[:chars_max] + "..."
    return shown


def _shown(value: object, chars_max: int) -> Iterator[str]:
    """Yield the parts of `repr(value)`, because a value may be as large as a document."""
    match value:
        case str() | bytes():
            yield repr(value[:chars_max])
        case list():
            yield "["
            for at, item in enumerate(value):
                yield ", " if at else ""
                yield from _shown(item, chars_max)
            yield "]"
        case dict():
            yield "{"
            for at, (key, item) in enumerate(value.items()):
                yield ", " if at else ""
                yield from _shown(key, chars_max)
                yield ": "
                yield from _shown(item, chars_max)
            yield "}"
        case _:
            yield repr(value)


def to_json(value: object, depth: int = 0) -> object:
    """Convert a value to one that JSON can represent. Raises TooDeep."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$float": _float_name(value)}
        case bytes():
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        case _ if depth >= DEPTH_MAX:
            raise TooDeep
        case dict():
            return {str(key): to_json(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [to_json(item, depth + 1) for item in value]
        case _:
            return {"$container": str(value)}


def unpack(value: dict[str, Any]) -> bytes | float | None:
    """Decode {"$bytes": ...} or {"$float": ...}; return None for any other map. Raises ValueError."""
    match value:
        case {"$bytes": str(text), **rest} if not rest:
            try:
                return base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raise ValueError("$bytes is not base64") from None
        case {"$float": str(name), **rest} if not rest:
            if name not in _FLOATS:
                raise ValueError("$float is not NaN, Infinity or -Infinity")
            return _FLOATS[name]
        case _:
            return None


def query(value: object, expressions: Sequence[str], spend: Spend = unmetered) -> list[list[object]]:
    """Return for each expression the selected values, as JSON.

    Raises QueryError, TooDeep, and the errors of `spend`.
    """
    if isinstance(expressions, str) or not all(isinstance(text, str) for text in expressions):
        raise QueryError(None, "the expressions must be a list of strings")
    if len(expressions) > EXPRESSIONS_MAX:
        raise QueryError(None, f"{len(expressions)} expressions are more than {EXPRESSIONS_MAX}")
    spend(EXPRESSION_CHAR_UNITS * sum(map(len, expressions)))
    paths = [_compile(text) for text in expressions]
    meter = _Meter(spend)
    root = _watched(to_json(value), meter)
    return [_select(root, text, path, meter) for text, path in zip(expressions, paths, strict=True)]


def _float_name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


# ------------------------------------------------------------------------------------ selecting


class _TooMuch(Exception):
    """The query exceeds a limit, which the message names."""


class _Meter:
    """Remaining visits, results and characters of one call."""

    def __init__(self, spend: Spend) -> None:
        self._spend = spend
        self.visits = VISITS_MAX
        self.results = RESULTS_MAX
        self.chars = RESULT_CHARS_MAX

    def visit(self, count: int) -> None:
        self.visits -= count
        if self.visits < 0:
            raise _TooMuch(f"it visits more than {VISITS_MAX} values")
        self._spend(VALUE_UNITS * count)

    def keep(self, items: int) -> None:
        self._spend(CONTAINER_UNITS + VALUE_UNITS * items)

    def result(self, chars: int) -> None:
        self.results -= 1
        self.chars -= chars
        if self.results < 0:
            raise _TooMuch(f"it selects more than {RESULTS_MAX} values")
        if self.chars < 0:
            raise _TooMuch(f"its results are larger than {RESULT_CHARS_MAX} characters")


class _Map(dict[str, Any]):
    """A map that counts accesses: filters visit values inside the library, without a hook."""

    __slots__ = ("chars", "meter", "plain")

    def __init__(self, plain: dict[str, object], meter: _Meter) -> None:
        meter.keep(len(plain))
        super().__init__({key: _watched(item, meter) for key, item in plain.items()})
        self.plain = plain
        self.meter = meter
        self.chars = 2 + sum(len(key) + 4 + _chars(item) for key, item in super().items())

    def items(self) -> Any:
        self.meter.visit(1 + len(self))
        return super().items()

    def __getitem__(self, key: str) -> Any:
        self.meter.visit(1)
        return super().__getitem__(key)

    def __eq__(self, other: object) -> bool:
        self.meter.visit(1 + len(self))
        return super().__eq__(other)

    __hash__ = None  # as dict does


class _List(list[Any]):
    """A list that counts accesses."""

    __slots__ = ("chars", "meter", "plain")

    def __init__(self, plain: list[object], meter: _Meter) -> None:
        meter.keep(len(plain))
        super().__init__(_watched(item, meter) for item in plain)
        self.plain = plain
        self.meter = meter
        self.chars = 2 + sum(2 + _chars(item) for item in super().__iter__())

    def __iter__(self) -> Iterator[Any]:
        self.meter.visit(1 + len(self))
        return super().__iter__()

    def __getitem__(self, index: Any) -> Any:
        self.meter.visit(1 + (len(self) if isinstance(index, slice) else 0))
        return super().__getitem__(index)

    def __eq__(self, other: object) -> bool:
        self.meter.visit(1 + len(self))
        return super().__eq__(other)

    __hash__ = None  # as list does


def _watched(value: object, meter: _Meter) -> Any:
    match value:
        case dict():
            return _Map(value, meter)
        case list():
            return _List(value, meter)
        case _:
            return value


def _chars(value: object) -> int:
    match value:
        case _Map() | _List():
            return value.chars
        case str():
            return 2 + len(value)
        case _:
            return 8


class _Node(JSONPathMatch):
    """A match that does not store its children, which the library would keep until the end."""

    __slots__ = ()

    def add_child(self, *children: JSONPathMatch) -> None:
        pass


class _Environment(JSONPathEnvironment):
    max_recursion_depth = DEPTH_MAX + 2

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        for name in ("match", "search"):
            del self.function_extensions[name]


_ENVIRONMENT = _Environment(strict=True)


def _compile(expression: str) -> JSONPath:
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise QueryError(expression, f"it is longer than {EXPRESSION_CHARS_MAX} characters")

    def compiled() -> JSONPath:
        path = _ENVIRONMENT.compile(expression)
        if not isinstance(path, JSONPath):  # unions of paths are an extension of the library
            raise _TooMuch("it is not one JSONPath")
        return path

    return _ours(expression, compiled)


def _select(root: object, expression: str, path: JSONPath, meter: _Meter) -> list[object]:
    def selected() -> list[object]:
        # JSONPath.finditer does the same, but its nodes store all their children, and it would parse a
        # document that is one string as JSON.
        nodes: Any = [_Node(filter_context={}, obj=root, parent=None, path="$", parts=(), root=root)]  # type: ignore[arg-type]  # a root may be a scalar
        for segment in path.segments:
            nodes = segment.resolve(nodes)
        found: list[object] = []
        for node in nodes:
            meter.result(_chars(node.obj))
            found.append(node.obj.plain if isinstance(node.obj, (_Map, _List)) else node.obj)
        return found

    return _ours(expression, selected)


def _ours(expression: str, work: Callable[[], T]) -> T:
    """Run a step of the library, and translate its errors and the limits to QueryError."""
    try:
        return work()
    except _TooMuch as error:
        raise QueryError(expression, str(error)) from None
    except RecursionError:
        raise QueryError(expression, "it is nested too deep") from None
    except (OverflowError, ValueError) as error:  # numbers that the library cannot read
        raise QueryError(expression, str(error)) from None
    except JSONPathError as error:
        sentence = str(error.args[0] if error.args else error)
        if "function 'match'" in sentence or "function 'search'" in sentence:
            sentence = "match() and search() are disabled: a regular expression has no bound"
        raise QueryError(expression, sentence) from None
