"""Operations of `/v1`, declared once: Starlette's routes and the OpenAPI document are both made of them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from lorogo_gateway.auth import Principal
from lorogo_gateway.auth.needs import Need

Schema = Mapping[str, Any]  # JSON Schema, as OpenAPI 3.1 has it; one with a `title` becomes a component
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation. A query parameter whose schema is an array may be repeated."""

    name: str
    place: Literal["path", "query", "header"]
    about: str
    schema: Schema
    required: bool = False
    parse: Callable[[str], object] | None = None  # instead of the schema; raises LorogoError


@dataclass(frozen=True, slots=True)
class ResponseSpec:
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
    answers: Mapping[int, ResponseSpec]
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, Schema] | None = None  # by media type
    body_required: bool = True
    body_bytes_max: int | None = None  # None: what the settings allow for its kind
    group: str = "documents"
    problems: tuple[int, ...] = ()  # statuses of problems that are its own; `routes` adds those of all
    need: Need = field(kw_only=True)  # of whoever asks
    harmless: bool = field(default=False, kw_only=True)  # to documents, whatever its method
    audit: str = field(default="", kw_only=True)  # the action that is written down
    audit_if: str = field(default="", kw_only=True)  # only if this parameter is true

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"

    def action(self, query: Mapping[str, str]) -> str:
        """What is written down of a request with this query; empty: nothing."""
        return self.audit if not self.audit_if or query.get(self.audit_if) == "true" else ""

    @property
    def offers(self) -> tuple[str, ...]:
        """The media types that it can answer with, the one for `*/*` first."""
        found: dict[str, None] = {}
        for status, answer in self.answers.items():
            if status < 300:
                found |= dict.fromkeys(answer.content)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request after its checks."""

    values: Mapping[str, Any] = field(default_factory=dict)  # of its parameters, by name; absent: not here
    body: Any = None  # a JSON value, or bytes
    body_type: str = ""
    wants: str = ""  # the media type to answer with


def asked(request: Request) -> CheckedRequest:
    """What the request asks for; `routes` has checked it."""
    found: CheckedRequest = request.state.asked
    return found


def principal(request: Request) -> Principal:
    """Who asks; `routes` has verified it."""
    found: Principal = request.state.principal
    return found
