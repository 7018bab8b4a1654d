"""Starlette routes generated from the operations; every error becomes a problem response."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from lorogo_gateway.auth import ANONYMOUS, OPEN, Principal, TokenGuard, missing, presented
from lorogo_gateway.auth.audit_log import AuditLog
from lorogo_gateway.auth.needs import NoToken, check, check_body
from lorogo_gateway.http import openapi, parameters, schema_check
from lorogo_gateway.http.bodies import Bodies, parse_json, weigh_json
from lorogo_gateway.http.failures import problem_of
from lorogo_gateway.http.negotiation import best, body_type
from lorogo_gateway.http.operations import CheckedRequest, Operation, Schema, principal
from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.origins import origin_allowed
from lorogo_gateway.problems import HttpProblem
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.limits import DOCUMENT_ID_CHARS_MAX, KIB
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_GRACE_SECONDS = 5.0  # for a handler, beyond its calls
_STREAM = "text/event-stream"
_WHOLE_BYTES_MAX = 256 * KIB  # a larger answer is sent in parts, and counted
_PART_BYTES = 64 * KIB
_GONE = 499  # the client has disconnected; for counters only


def router(
    operations: Sequence[Operation],
    settings: GatewaySettings | None = None,
    guard: TokenGuard | None = None,
    limiter: Limiter | None = None,
) -> list[BaseRoute]:
    """Return the routes of all operations, of their description, and a 404 for other paths below /v1."""
    chosen, asking = settings or GatewaySettings(), guard or TokenGuard()
    audit = AuditLog()
    described = (*operations, openapi.operation(operations, closed=not asking.open))
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in described:
        _check(operation)
        methods = by_path.setdefault(operation.path, {})
        if operation.method in methods:
            raise ValueError(f"{operation.method} {operation.path} is declared twice")
        methods[operation.method] = operation
    bodies = Bodies(chosen, limiter or Limiter(chosen))
    routes: list[BaseRoute] = [
        Route(path, _Resource(found, chosen, bodies, asking, audit)) for path, found in by_path.items()
    ]
    # literal paths first: a path with a parameter would match them, too
    routes.sort(key=lambda route: "{" in getattr(route, "path", ""))
    return [*routes, Route("/v1", _NotFound()), Route("/v1/{rest:path}", _NotFound())]


def _check(operation: Operation) -> None:
    for parameter in operation.parameters:
        if parameter.parse is None:
            schema_check.supported(parameter.schema)
    for kind, schema in (operation.body or {}).items():
        if _is_json(kind):
            schema_check.supported(schema)


class _Resource:
    """One path with its methods."""

    def __init__(
        self,
        methods: Mapping[str, Operation],
        settings: GatewaySettings,
        bodies: Bodies,
        guard: TokenGuard,
        audit: AuditLog,
    ) -> None:
        self._methods = dict(methods)
        get = self._methods.get("GET")
        if get is not None and _STREAM not in get.offers:
            self._methods["HEAD"] = get
        self._allow = ", ".join(sorted(self._methods))
        self._settings = settings
        self._bodies = bodies
        self._guard = guard
        self._audit = audit

    @property
    def operations(self) -> Mapping[str, Operation]:
        """The operations by method."""
        return self._methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await _answered(self._answer(request), request)
        # revalidate with the ETag; responses that depend on a token are not for shared caches
        response.headers.setdefault("Cache-Control", "no-cache" if self._guard.open else "private, no-cache")
        response.headers.setdefault(
            "X-Content-Type-Options", "nosniff"
        )  # user content must not run as a page
        if scope["method"] == "HEAD":
            response = Response(status_code=response.status_code, headers=dict(response.headers))
        if len(response.body) <= _WHOLE_BYTES_MAX:
            await response(scope, receive, send)
            return
        try:
            with self._bodies.held(request, len(response.body)):
                await self._send_in_parts(request, response, send)
        except HttpProblem as busy:
            await busy.response()(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": self._allow})
        operation = self._methods.get(request.method)
        if operation is None:
            detail = f"this path does not support {request.method[:20]}; use {self._allow}"
            raise HttpProblem(405, "method-not-allowed", detail, headers={"Allow": self._allow})
        request.state.principal = OPEN if self._guard.open else ANONYMOUS
        with self._audited(operation, request):
            return await self._perform(operation, request)

    async def _perform(self, operation: Operation, request: Request) -> Response:
        if operation.writes:
            _may_write(operation, request, self._settings)
        who = request.state.principal = self._authenticate(operation, request)
        values = parameters.read(
            operation.parameters,
            path=request.path_params,
            query=request.query_params.multi_items(),
            headers=request.headers,
        )
        check(operation.need, who, values)
        wants = best(request.headers.get("accept"), operation.offers)
        if operation.body is None:
            return await self._handled(operation, request, CheckedRequest(values, wants=wants))
        content_type = request.headers.get("content-type", "")
        kind = body_type(content_type, operation.body) if content_type else ""
        async with self._bodies.read(request, self._body_bytes_max(operation, kind)) as data:
            if kind or data:
                known = kind or body_type("", operation.body)
                weight = await weigh_json(data, self._settings.json_values_max) if _is_json(known) else 0
                with self._bodies.held(request, weight):
                    body = await _parsed(known, operation.body, data)
                    check_body(operation.need, principal(request), body)
                    return await self._handled(operation, request, CheckedRequest(values, body, kind, wants))
            if operation.body_required:
                raise HttpProblem(
                    400, "missing-body", f"the request has no body: send {' or '.join(operation.body)}"
                )
            return await self._handled(operation, request, CheckedRequest(values, wants=wants))

    def _body_bytes_max(self, operation: Operation, kind: str) -> int:
        """Return the size limit of the body; without a Content-Type it is that of JSON."""
        most = [self._settings.body_bytes_max]
        if not kind or _is_json(kind):
            most.append(self._settings.json_bytes_max)
        if operation.body_bytes_max is not None:
            most.append(operation.body_bytes_max)
        return min(most)

    def _authenticate(self, operation: Operation, request: Request) -> Principal:
        """Return the principal.

        Raises NotSignedIn, TokenRefused, HttpProblem 403 for a cross-site request.
        """
        if self._guard.open or isinstance(operation.need, NoToken):
            return OPEN if self._guard.open else ANONYMOUS
        found = presented(request.headers)
        if found is None:
            raise missing()
        if found.place == "cookie" and operation.writes and "origin" not in request.headers:
            detail = "a request with a cookie that changes something must have an Origin"
            raise HttpProblem(403, "cross-origin", detail)
        return self._guard.verified(found)

    @contextmanager
    def _audited(self, operation: Operation, request: Request) -> Iterator[None]:
        """Write an audit line for an audited operation, whatever its outcome."""
        action = operation.action(request.query_params)
        if not action:
            yield
            return
        outcome, problem = "failed", None
        try:
            yield
            outcome = "done"
        except LorogoError as error:
            problem = problem_of(error)
            outcome = "denied" if problem is not None and problem.status in (401, 403) else "failed"
            raise
        finally:
            who, document = principal(request), request.path_params.get("id", "")[:DOCUMENT_ID_CHARS_MAX]
            self._audit.record(action, who, address_of(request), outcome, document=document, problem=problem)

    async def _handled(self, operation: Operation, request: Request, what: CheckedRequest) -> Response:
        request.state.checked = what  # read by checked_request()
        allowed = self._settings.call_seconds + _GRACE_SECONDS
        deadline = asyncio.timeout(allowed)
        try:
            async with deadline:
                return await operation.handler(request)
        except TimeoutError:
            if not deadline.expired():
                raise
            perhaps = "; the change may have been made" if operation.writes else ""
            raise HttpProblem(504, "timeout", f"no answer in {allowed:g} s{perhaps}") from None

    async def _send_in_parts(self, request: Request, response: Response, send: Send) -> None:
        """Send a body as fast as the client reads it, while its token is valid.

        `uvicorn_http` closes a connection that stalls; uvicorn one whose response is incomplete.
        """
        await send(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": response.raw_headers,
            }
        )
        whole = memoryview(response.body)
        for at in range(0, len(whole), _PART_BYTES):
            if not self._guard.still(principal(request)):
                log.info("response aborted: the token ended", path=request.url.path)
                return
            part = bytes(whole[at : at + _PART_BYTES])
            more = at + _PART_BYTES < len(whole)
            await send({"type": "http.response.body", "body": part, "more_body": more})


async def _answered(work: Awaitable[Response], request: Request) -> Response:
    """Return the response of the work, or the problem that it raises."""
    try:
        return await work
    except ClientDisconnect:
        return Response(status_code=_GONE)
    except LorogoError as error:
        return _error_response(error, request)
    except Exception:
        log.exception("request failed", method=request.method, path=request.url.path)
        return _internal_error().response()


def _error_response(error: LorogoError, request: Request) -> Response:
    """Return the error as a response.

    A function of its own: the traceback holds the frame of `_answered`, and a variable for the problem in it
    would keep the request's whole body in memory until the next garbage collection.
    """
    problem = problem_of(error)
    if problem is None:
        log.error("error without a status", method=request.method, path=request.url.path, exc_info=error)
        problem = _internal_error()
    return problem.response()


def _internal_error() -> HttpProblem:
    return HttpProblem(500, "internal", "internal error; the gateway's log has the details")


async def _parsed(kind: str, bodies: Mapping[str, Schema], data: bytes) -> object:
    if not _is_json(kind):
        return data
    return await parse_json(data, bodies[kind])


def _is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


def _may_write(operation: Operation, request: Request, settings: GatewaySettings) -> None:
    """Refuse writes of a read-only gateway and of pages of other origins. Raises HttpProblem 403.

    Browsers send a POST without a body to any site without a preflight request.
    """
    if settings.read_only and not operation.harmless:
        raise HttpProblem(403, "read-only", "this gateway is read-only")
    if not origin_allowed(request.headers, settings.origins):
        detail = "pages of another origin may not write; allow an origin with `lorogo gateway --origin`"
        raise HttpProblem(403, "cross-origin", detail)


class _NotFound:
    """The 404 for unknown paths below /v1."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope["path"])[:200]
        problem = HttpProblem(404, "no-such-path", f"unknown path {path}; /v1/openapi.json lists all paths")
        await problem.response()(scope, receive, send)


def address_of(request: Request) -> str:
    """Return the client address of the request."""
    return "" if request.client is None else request.client.host
