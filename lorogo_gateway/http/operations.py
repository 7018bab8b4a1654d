"""Declared operations of `/v1`: the routes and the OpenAPI document are both generated from them."""

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
    """A declared response: the meaning, content and headers of a status."""

    about: str
    content: Mapping[str, Schema] = field(default_factory=dict)  # by media type
    headers: Mapping[str, str] = field(default_factory=dict)  # descriptions by name


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
    body_bytes_max: int | None = None  # None: the settings' limit for its media type
    group: str = "documents"
    problems: tuple[int, ...] = ()  # specific error statuses; `openapi` adds the common ones
    need: Need = field(kw_only=True)  # the rights that it needs
    harmless: bool = field(default=False, kw_only=True)  # changes no document, whatever its method
    audit: str = field(default="", kw_only=True)  # the action in the audit log
    audit_if: str = field(default="", kw_only=True)  # audit only if this parameter is true

    @property
    def writes(self) -> bool:
        """True if it changes something."""
        return self.method != "GET"

    def action(self, query: Mapping[str, str]) -> str:
        """Return the audited action of a request with this query; empty if it is not audited."""
        return self.audit if not self.audit_if or query.get(self.audit_if) == "true" else ""

    @property
    def offers(self) -> tuple[str, ...]:
        """The media types of its responses, the one for `*/*` first."""
        found: dict[str, None] = {}
        for status, answer in self.answers.items():
            if status < 300:
                found |= dict.fromkeys(answer.content)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request after its checks."""

    values: Mapping[str, Any] = field(default_factory=dict)  # of the given parameters, by name
    body: Any = None  # a JSON value, or bytes
    body_type: str = ""
    wants: str = ""  # the negotiated media type of the response


def checked_request(request: Request) -> CheckedRequest:
    """Return the checked request that `routes` attached."""
    found: CheckedRequest = request.state.checked
    return found


def principal(request: Request) -> Principal:
    """Return the verified principal that `routes` attached."""
    found: Principal = request.state.principal
    return found
