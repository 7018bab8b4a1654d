"""Conversion and validation of declared parameters; undeclared query parameters are refused."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers

from lorogo_gateway.http.operations import Parameter
from lorogo_gateway.http.schema_check import wrong
from lorogo_gateway.problems import HttpProblem

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


def read(
    parameters: Sequence[Parameter],
    *,
    path: Mapping[str, str],
    query: Iterable[tuple[str, str]],
    headers: Headers,
) -> dict[str, Any]:
    """Return the values by name. Raises HttpProblem, or what a parameter's own `parse` raises."""
    given: dict[str, list[str]] = {}
    for name, text in query:
        given.setdefault(name, []).append(text)
    known = {one.name for one in parameters if one.place == "query"}
    if unknown := given.keys() - known:
        hint = f"; known parameters: {', '.join(sorted(known))}" if known else ""
        raise HttpProblem(400, "unknown-parameter", f"unknown query parameter {min(unknown)[:60]!r}{hint}")
    values: dict[str, Any] = {}
    for one in parameters:
        match one.place:
            case "path":
                texts = [path[one.name]]
            case "query":
                texts = given.get(one.name, [])
            case _:
                texts = [", ".join(headers.getlist(one.name))] if one.name in headers else []
        if texts:
            values[one.name] = _value(one, texts)
        elif one.required:
            raise _bad(f"{one.name} is missing")
        elif "default" in one.schema:
            values[one.name] = one.schema["default"]
    return values


def _value(parameter: Parameter, texts: list[str]) -> object:
    name, schema = parameter.name, parameter.schema
    if schema.get("type") == "array":
        value: object = [_converted(schema.get("items", {}), text, name) for text in texts]
    elif len(texts) > 1:
        raise _bad(f"{name} is given {len(texts)} times; give it once")
    elif parameter.parse is not None:
        return parameter.parse(texts[0])
    else:
        value = _converted(schema, texts[0], name)
    if problem := wrong(schema, value, name):
        raise _bad(problem)
    return value


def _converted(schema: Mapping[str, Any], text: str, name: str) -> object:
    match schema.get("type"):
        case "integer":
            if _INTEGER.fullmatch(text) is None:
                raise _bad(f"{name} must be an integer")
            return int(text)
        case "boolean":
            if text not in _BOOLEANS:
                raise _bad(f"{name} must be true or false")
            return _BOOLEANS[text]
        case _:
            return text


def _bad(detail: str) -> HttpProblem:
    return HttpProblem(400, "invalid-parameter", detail)
