"""The OpenAPI 3.1 document, generated from the operations."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lorogo_gateway.auth import COOKIE
from lorogo_gateway.auth.needs import NoToken, words
from lorogo_gateway.http.operations import Operation, Parameter, ResponseSpec, Schema
from lorogo_transport.release import release

PATH = "/v1/openapi.json"

PROBLEM: Schema = {
    "title": "Problem",
    "description": "An error (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string", "description": "For people."},
        "code": {"type": "string", "description": "For programs.", "examples": ["deleted"]},
    },
}

_PROBLEMS = {  # statuses whose standard phrase is not specific enough
    400: "A parameter or the body does not match this description.",
    401: "The token is missing or not valid.",
    403: "The token does not grant this, the gateway is read-only, or the page has another origin.",
    404: "The document or the version does not exist.",
    409: "The state of the document does not allow this.",
    410: "The document was deleted.",
    412: "The document does not have the version in If-Match.",
    413: "The body is too large.",
    421: "The Host is not a name of this gateway.",
    422: "The content is well-formed but cannot be applied.",
    429: "Too many requests; retry after Retry-After.",
    500: "An internal error of the gateway.",
    503: "Not available now; with Retry-After if a retry may succeed.",
    504: "Timeout. A change may have been made.",
    507: "The WAL is full.",
}
_OF_ALL = (400, 406, 421, 500, 502, 503, 504)
_OF_WRITES = (403,)
_OF_BODIES = (408, 413, 415, 422)
_OF_TOKENS = (401, 403)
_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token: docs/SECURITY.md.",
    },
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "The token as a cookie, set by `POST /v1/session` for pages; a bearer wins over it.",
    },
}


def operation(operations: Sequence[Operation], *, closed: bool = False) -> Operation:
    """Return the operation that serves the description of these operations and itself.

    `closed`: tokens are required.
    """
    rendered = b""

    async def give(_: Request) -> Response:
        return Response(rendered, media_type="application/json")

    made = Operation(
        method="GET",
        path=PATH,
        name="openapi",
        about="Read this description.",
        handler=give,
        answers={200: ResponseSpec("OpenAPI 3.1.", {"application/json": {"type": "object"}})},
        group="about",
        need=NoToken(),
    )
    rendered = json.dumps(document((*operations, made), closed=closed), ensure_ascii=False).encode()
    return made


def document(operations: Sequence[Operation], *, closed: bool = False) -> dict[str, Any]:
    """Return the OpenAPI document."""
    components: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, components, closed=closed)
    shared: dict[str, Any] = {"schemas": dict(sorted(components.items()))}
    if closed:
        shared["securitySchemes"] = _SCHEMES
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lorogo",
            "version": release(),
            "description": "Read, change and follow collaborative documents over HTTP. Times are ISO 8601"
            " with a zone, or an age; versions are strings as the history returns them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": shared,
    }


def _operation(one: Operation, components: dict[str, Any], *, closed: bool) -> dict[str, Any]:
    statuses = {*one.problems, *_OF_ALL}
    asks = closed and not isinstance(one.need, NoToken)
    statuses |= set(_OF_TOKENS) if asks else set()
    statuses |= set(_OF_WRITES) if one.writes else set()
    statuses |= set(_OF_BODIES) if one.body is not None else set()
    answers = {str(status): _answer(answer, components) for status, answer in one.answers.items()}
    for status in sorted(statuses - set(one.answers)):
        answers[str(status)] = _problem(status, components)
    made: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.about,
        "tags": [one.group],
        "responses": answers,
    }
    if closed:
        made["security"] = [{name: []} for name in _SCHEMES] if asks else []
    if asks:
        made["description"] = f"Needs {words(one.need)}."
    if one.parameters:
        made["parameters"] = [_parameter(parameter, components) for parameter in one.parameters]
    if one.body is not None:
        content = {kind: {"schema": _shared(schema, components)} for kind, schema in one.body.items()}
        made["requestBody"] = {"required": one.body_required, "content": content}
    return made


def _parameter(parameter: Parameter, components: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.about,
        "required": parameter.required or parameter.place == "path",
        "schema": _shared(parameter.schema, components),
    }
    if parameter.schema.get("type") == "array":
        made |= {"style": "form", "explode": True}
    return made


def _answer(answer: ResponseSpec, components: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"description": answer.about}
    if answer.content:
        made["content"] = {
            kind: {"schema": _shared(schema, components)} for kind, schema in answer.content.items()
        }
    if answer.headers:
        made["headers"] = {
            name: {"description": about, "schema": {"type": "string"}}
            for name, about in answer.headers.items()
        }
    return made


def _problem(status: int, components: dict[str, Any]) -> dict[str, Any]:
    about = _PROBLEMS.get(status, HTTPStatus(status).phrase + ".")
    return _answer(ResponseSpec(about, {"application/problem+json": PROBLEM}), components)


def _shared(schema: Any, components: dict[str, Any]) -> Any:
    """Move every subschema with a title to the components and return the schema with references."""
    if isinstance(schema, Mapping):
        made = {key: _inside(key, value, components) for key, value in schema.items()}
        name = schema.get("title")
        if not isinstance(name, str):
            return made
        if components.setdefault(name, made) != made:
            raise ValueError(f"two schemas have the title {name!r}")
        return {"$ref": f"#/components/schemas/{name}"}
    return [_shared(item, components) for item in schema] if isinstance(schema, list | tuple) else schema


def _inside(key: str, value: Any, components: dict[str, Any]) -> Any:
    if key == "properties":  # its keys are property names, not keywords of JSON Schema
        return {name: _shared(one, components) for name, one in value.items()}
    return value if key in ("default", "const", "enum", "examples") else _shared(value, components)
