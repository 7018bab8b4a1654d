"""The OpenAPI 3.1 document, made of the operations."""

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
    "description": "Why there is no other answer (RFC 9457).",
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

_PROBLEMS = {  # those whose name does not say it all
    400: "A parameter or the body is not what is described here.",
    401: "There is no token, or not one that is good.",
    403: "The token does not allow it, this gateway only reads, or a page of another origin asks.",
    404: "There is no such document, or it has no such version.",
    409: "The document is not in a state in which this can be done.",
    410: "The document was deleted.",
    412: "The document has another version than If-Match asks for.",
    413: "The body is too large.",
    421: "The Host that was asked for is not a name of this gateway.",
    422: "What was sent is well-formed and cannot be applied.",
    429: "Too many requests; Retry-After says when to come again.",
    500: "A mistake of the gateway.",
    503: "Nobody serves it now; Retry-After says when to come again, if that is worth a try.",
    504: "No answer came in time. A change may have been made.",
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
        "description": "The same, as `POST /v1/session` sets it for pages; a bearer wins over it.",
    },
}


def operation(operations: Sequence[Operation], *, closed: bool = False) -> Operation:
    """The operation that gives the description of those, and of itself; `closed`: tokens are asked for."""
    rendered = b""

    async def give(_: Request) -> Response:
        return Response(rendered, media_type="application/json")

    made = Operation(
        method="GET",
        path=PATH,
        name="openapi",
        about="This description.",
        handler=give,
        answers={200: ResponseSpec("OpenAPI 3.1.", {"application/json": {"type": "object"}})},
        group="about",
        need=NoToken(),
    )
    rendered = json.dumps(document((*operations, made), closed=closed), ensure_ascii=False).encode()
    return made


def document(operations: Sequence[Operation], *, closed: bool = False) -> dict[str, Any]:
    """The whole description."""
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
            "description": "Documents that merge: read, changed and followed over HTTP. Times are ISO 8601"
            " with a zone, or how long ago; versions are texts as the history shows them.",
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
    """The schema with every part that has a title moved to the components, and referred to."""
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
    if key == "properties":  # whose keys are names, not words of JSON Schema
        return {name: _shared(one, components) for name, one in value.items()}
    return value if key in ("default", "const", "enum", "examples") else _shared(value, components)
