"""Validation of JSON values against the subset of JSON Schema that the operations use.

`supported` refuses a schema with other keywords when the routes are created, so that every declared
constraint is checked. Patterns are those of JSON Schema and must be anchored at both ends.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

Schema = Mapping[str, Any]

_ONE_OF = " must be one of "

_KINDS = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "number": (int, float),
    "object": dict,
    "string": str,
}
_WITH_ARTICLE = {
    "array": "an array",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}
_ANNOTATIONS = {"title", "description", "default", "examples", "format"}  # not checked
_CHECKED = {
    "additionalProperties",
    "anyOf",
    "const",
    "enum",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "propertyNames",
    "required",
    "type",
}


def supported(schema: Schema) -> None:
    """Check that `wrong` supports every keyword of the schema. Raises ValueError."""
    if other := set(schema) - _ANNOTATIONS - _CHECKED:
        raise ValueError(f"no check for {', '.join(sorted(other))}")
    if (pattern := schema.get("pattern")) is not None and not _anchored(pattern):
        raise ValueError(f"the pattern {pattern!r} is not anchored at both ends")
    more = schema.get("additionalProperties")
    nested = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    nested += [schema["items"]] if "items" in schema else []
    nested += [more] if isinstance(more, Mapping) else []
    nested += [schema["propertyNames"]] if "propertyNames" in schema else []
    for one in nested:
        supported(one)


def wrong(schema: Schema, value: object, where: str) -> str | None:
    """Return the first violation as a sentence that names its place; None if the value is valid."""
    kinds = schema.get("type", ())
    wanted = [kinds] if isinstance(kinds, str) else kinds
    if wanted and not _is_one_of(value, wanted):
        return f"{where} must be {' or '.join(_WITH_ARTICLE[one] for one in wanted)}"
    if "const" in schema and not _same(value, schema["const"]):
        return f"{where} must be {schema['const']!r}"
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return f"{where}{_ONE_OF}{', '.join(map(str, schema['enum']))}"
    if "anyOf" in schema:
        problems = [wrong(one, value, where) for one in schema["anyOf"]]
        if all(problems):
            return _nearest(problems)
    match value:
        case str():
            return _wrong_text(schema, value, where)
        case bool() | None:
            return None
        case int() | float():
            return _wrong_number(schema, value, where)
        case list():
            return _wrong_list(schema, value, where)
        case dict():
            return _wrong_map(schema, value, where)
        case _:
            return None


def _wrong_text(schema: Schema, value: str, where: str) -> str | None:
    if len(value) < schema.get("minLength", 0):
        return f"{where} must have at least {schema['minLength']} characters"
    if len(value) > schema.get("maxLength", len(value)):
        return f"{where} must have at most {schema['maxLength']} characters"
    pattern = schema.get("pattern")
    if pattern is not None and _compiled(pattern).fullmatch(value) is None:
        return f"{where} must match: {schema.get('description', pattern)}"
    return None


def _wrong_number(schema: Schema, value: float, where: str) -> str | None:
    if value < schema.get("minimum", value):
        return f"{where} must be at least {schema['minimum']}"
    if value > schema.get("maximum", value):
        return f"{where} must be at most {schema['maximum']}"
    return None


def _wrong_list(schema: Schema, value: list[object], where: str) -> str | None:
    if len(value) < schema.get("minItems", 0):
        return f"{where} must have at least {schema['minItems']} items"
    if len(value) > schema.get("maxItems", len(value)):
        return f"{where} must have at most {schema['maxItems']} items"
    if "items" not in schema:
        return None
    found = (wrong(schema["items"], item, f"{where}[{at}]") for at, item in enumerate(value))
    return next((problem for problem in found if problem), None)


def _wrong_map(schema: Schema, value: dict[str, object], where: str) -> str | None:
    properties = schema.get("properties", {})
    if len(value) > schema.get("maxProperties", len(value)):
        return f"{where} must have at most {schema['maxProperties']} members"
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} lacks {name!r}"
    more = schema.get("additionalProperties", True)
    for name, item in value.items():
        place = f"{where}.{name[:60]}"
        if "propertyNames" in schema and (
            problem := wrong(schema["propertyNames"], name, f"the name {name[:60]!r} in {where}")
        ):
            return problem
        if name in properties:
            problem = wrong(properties[name], item, place)
        elif isinstance(more, Mapping):
            problem = wrong(more, item, place)
        else:
            problem = None if more else f"{where} has the unknown member {name[:60]!r}"
        if problem:
            return problem
    return None


def _nearest(problems: Sequence[str | None]) -> str:
    """Return the violation at the deepest place among the alternatives; enum choices are joined."""
    best = max((problem or "" for problem in problems), key=lambda one: (one.count("."), "lacks" in one))
    place, found, choices = best.partition(_ONE_OF)
    if not found:
        return best
    alike = [one.removeprefix(place + _ONE_OF) for one in problems if one and one.startswith(place + _ONE_OF)]
    return f"{place}{_ONE_OF}{', '.join(alike)}" if choices else best


def _is_one_of(value: object, kinds: Sequence[str]) -> bool:
    return any(_is(value, kind) for kind in kinds)


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS[kind])  # type: ignore[arg-type]  # a type, or a tuple of types


def _same(one: object, other: object) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _anchored(pattern: str) -> bool:
    return pattern.startswith("^") and pattern.endswith("$")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
