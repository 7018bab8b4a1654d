"""`/v1/session`: stores a token in a cookie that scripts cannot read."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from lorogo_gateway.auth import COOKIE, OPEN, PresentedToken, Principal, TokenGuard, missing, presented
from lorogo_gateway.auth.needs import AnyToken, NoToken
from lorogo_gateway.documents import versions
from lorogo_gateway.documents.reads import json_response
from lorogo_gateway.documents.schemas import TIME
from lorogo_gateway.http.operations import Operation, ResponseSpec, Schema, checked_request, principal
from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.limits.middleware import rate_limited
from lorogo_gateway.limits.request_quota import request_quota
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.limits import KIB, TOKEN_BYTES_MAX
from lorogo_transport.clock import Clock, SystemClock

PATH: Final = "/v1/session"
_JSON = "application/json"
SIGN_IN_BYTES_MAX: Final = 16 * KIB  # of an unauthenticated body: a token with each character as \uXXXX
_LAST = 253_402_300_799  # the last second of the year 9999
_FRESH = {"Cache-Control": "no-store"}

assert SIGN_IN_BYTES_MAX > 6 * TOKEN_BYTES_MAX + 100

TOKEN: Schema = {
    "title": "SignIn",
    "type": "object",
    "required": ["token"],
    "additionalProperties": False,
    "properties": {"token": {"type": "string", "minLength": 1, "maxLength": TOKEN_BYTES_MAX}},
}
SESSION: Schema = {
    "title": "Session",
    "type": "object",
    "required": ["open", "subject", "expires", "documents", "operator"],
    "properties": {
        "open": {"type": "boolean", "description": "No tokens are required: every client may do everything."},
        "subject": {"type": "string", "description": "The token's subject."},
        "expires": {**TIME, "type": ["string", "null"]},
        "documents": {
            "type": "object",
            "additionalProperties": {"type": "string", "enum": ["read", "write", "admin"]},
        },
        "operator": {"type": "boolean"},
    },
}


class SessionOperations:
    """The operations to sign in and out."""

    def __init__(self, guard: TokenGuard, limiter: Limiter | None = None, clock: Clock | None = None) -> None:
        self._guard = guard
        self._limiter = limiter or Limiter(GatewaySettings())
        self._clock = clock or SystemClock()

    def operations(self) -> list[Operation]:
        """Return the operations of `/v1/session`."""
        session = ResponseSpec("The token's grants.", {_JSON: SESSION})
        return [
            Operation(
                method="GET",
                path=PATH,
                name="session",
                about="Read the token's subject and grants.",
                handler=self._read,
                answers={200: session},
                group="session",
                need=AnyToken(),
            ),
            Operation(
                method="POST",
                path=PATH,
                name="sign-in",
                about="Sign in: store the token of the bearer header or the body in a cookie that scripts"
                " cannot read. No cookie is set if no tokens are required.",
                handler=self._sign_in,
                answers={
                    200: ResponseSpec(
                        session.about, session.content, {"Set-Cookie": "The token, if tokens are required."}
                    )
                },
                body={_JSON: TOKEN},
                body_required=False,
                body_bytes_max=SIGN_IN_BYTES_MAX,
                group="session",
                problems=(401,),
                need=NoToken(),
                harmless=True,
            ),
            Operation(
                method="DELETE",
                path=PATH,
                name="sign-out",
                about="Sign out: clear the cookie. The token stays valid until it expires or is revoked.",
                handler=self._sign_out,
                answers={
                    204: ResponseSpec("The cookie is cleared.", headers={"Set-Cookie": "An empty cookie."})
                },
                group="session",
                need=NoToken(),
                harmless=True,
            ),
        ]

    async def _read(self, request: Request) -> Response:
        return self._session(principal(request))

    async def _sign_in(self, request: Request) -> Response:
        if self._guard.open:
            return self._session(OPEN)
        given = _given(request)
        if (no := request_quota(request.scope, self._limiter).blocked(given.text)) is not None:
            raise rate_limited(no)
        who = request.state.principal = self._guard.verified(given)  # read by the limits middleware
        response = self._session(who)
        assert who.token is not None
        seconds = max(1, round(who.token.expires - self._clock.wall_ns() / 1e9))
        _set(response, request, who.text, seconds)
        return response

    async def _sign_out(self, request: Request) -> Response:
        response = Response(status_code=204, headers=_FRESH)
        _set(response, request, "", 0)
        return response

    def _session(self, who: Principal) -> Response:
        expires = None if who.token is None else int(min(who.token.expires, _LAST)) * 10**9
        facts: dict[str, Any] = {
            "open": self._guard.open,
            "subject": who.subject,
            "expires": versions.show(expires),
            "documents": who.grants.words(),
            "operator": who.operator,
        }
        return json_response(facts, headers=_FRESH)


def _given(request: Request) -> PresentedToken:
    """Return the token to sign in with, never that of an existing cookie. Raises NotSignedIn."""
    found = presented(request.headers)
    if found is not None and found.place == "bearer":
        return found
    body = checked_request(request).body
    if body is None:
        raise missing()
    return PresentedToken(body["token"].strip(), "message")


def _set(response: Response, request: Request, text: str, seconds: int) -> None:
    response.set_cookie(
        COOKIE,
        text,
        max_age=seconds,
        path="/",
        secure=_is_secure(request),
        httponly=True,
        samesite="strict",
    )


def _is_secure(request: Request) -> bool:
    """Return whether the browser uses TLS, to the gateway or a proxy. Forging it harms only the client."""
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    origin = request.headers.get("origin", "").lower()
    return request.url.scheme == "https" or forwarded == "https" or origin.startswith("https://")
