"""JSON bodies of HTTP, checked by a schema: what is taken means one thing only."""

import json
from collections.abc import Iterable

from lorogo_gateway.http import bodies, schema_check
from lorogo_gateway.problems import HttpProblem
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_SCHEMAS: tuple[dict[str, object], ...] = (
    {},
    {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "maxLength": 5}}},
    {"type": "array", "maxItems": 4, "items": {"type": "integer", "minimum": 0, "maximum": 9}},
    {"anyOf": [{"type": "null"}, {"type": "number"}, {"const": "x"}, {"enum": [[1], {"a": 1}]}]},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "propertyNames": {"pattern": "^[a-z]+$"}},
)


def run(data: bytes) -> None:
    """The first byte chooses the schema, and whether the rest is the body or a value to make it of."""
    source = Source(data)
    choice = source.byte()
    schema = _SCHEMAS[choice % len(_SCHEMAS)]
    body = source.rest() if choice < 128 else json.dumps(source.value(("a", "x"))).encode()
    value = bodies._checked(body, schema)
    assert not schema_check.wrong(schema, value, "the body")
    again = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    assert json.dumps(bodies._checked(again, schema)) == json.dumps(value)


def seeds() -> Iterable[bytes]:
    for schema in range(len(_SCHEMAS)):
        for text in (
            '{"a": "x"}',
            "[1, 2]",
            "null",
            "-1.5e10",
            '{"a": true}',
            '"\\ud83d\\ude00"',
            '"\\ud800"',
        ):
            yield bytes([schema]) + text.encode()
    yield b"\0" + b'{"a": 1, "a": 2}'
    yield b"\0" + b"[" * 3000
    yield b"\0" + b"9" * 30 + b"e999"
    yield bytes([128, 7, 3, 1, 0, 2, 0, 5, 0, 1, *b"b", 9, 2, 1, 1, 4, 6])


TARGET = Target(run, seeds, (HttpProblem,))
