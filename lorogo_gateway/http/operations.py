"""Operations of `/v1`, declared once: Starlette's routes and the OpenAPI document are both made of them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

Schema = Mapping[str, Any]  # JSON Schema, as OpenAPI 3.1 has it
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation."""

    name: str
    place: Literal["path", "query", "header"]
    about: str
    schema: Schema
    required: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a status means, and what comes with it."""

    about: str
    content: Mapping[str, Schema] = field(default_factory=dict)  # by media type
    headers: Mapping[str, str] = field(default_factory=dict)  # name: what it says


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path."""

    method: Literal["GET", "PUT", "POST", "PATCH", "DELETE"]
    path: str  # with {names}, as Starlette and OpenAPI both write them
    name: str  # operationId
    about: str
    handler: Handler
    answers: Mapping[int, Answer]
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, Schema] | None = None  # by media type
    body_required: bool = True
    group: str = "documents"
