"""The outer middleware of every request: its origin, and the limits of its address and token."""

import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lorogo_gateway.auth.presented_token import presented
from lorogo_gateway.auth.principal import NotSignedIn, Principal
from lorogo_gateway.limits.limiter import Limiter, LimitExceeded
from lorogo_gateway.limits.reasons import LimitReason
from lorogo_gateway.limits.request_quota import MonotonicClock, RequestQuota, attach
from lorogo_gateway.problems import HttpProblem
from lorogo_protocol.access.tokens import user_of

_COUNTED = {408: LimitReason.BODY_SECONDS, 413: LimitReason.BODY_BYTES}
_UNAUTHORIZED = 401
_SIGN_IN = "/v1/session"  # the body may contain a token
_BODY_HEADERS = (b"content-length", b"transfer-encoding")


def rate_limited(no: LimitExceeded) -> HttpProblem:
    """Return the refusal as a 429 problem with Retry-After."""
    headers = {"Retry-After": no.retry_after}
    return HttpProblem(429, "rate-limited", f"{no.detail}; try again in {no.retry_after} s", headers=headers)


class LimitMiddleware:
    """ASGI middleware, for HTTP and for the handshake of a WebSocket."""

    def __init__(
        self, app: ASGIApp, limiter: Limiter, *, tokens: bool = False, clock: MonotonicClock = time.monotonic
    ) -> None:
        """`tokens`: tokens are required; too many refused ones block their address."""
        self._app = app
        self._limiter = limiter
        self._tokens = tokens
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer, port = scope.get("client") or ("", 0)
        origin = self._limiter.proxies.origin(peer, scope["headers"])
        scope["client"] = (origin.address, port)
        if origin.https is not None:
            secure = {"websocket": ("ws", "wss")}.get(scope["type"], ("http", "https"))
            scope["scheme"] = secure[origin.https]
        quota = RequestQuota(self._limiter, origin, self._clock)
        quota.body = scope["type"] == "http" and _has_body(scope)
        attach(scope, quota)
        token = _token(scope) if self._tokens else ""
        brings = bool(token) or (self._tokens and quota.body and scope["path"] == _SIGN_IN)
        no = quota.begin() or (quota.blocked(token) if token else None)  # `sign_in` checks a token in a body
        if no is None and token and scope["type"] == "http":
            # The token is not verified yet. Only its holder can use up its limits: the key is its digest.
            no = quota.identify(user_of(token))
        if no is not None:
            await rate_limited(no).response()(scope, receive, send)
        elif scope["type"] == "http":
            await self._app(scope, self._counting(receive, quota), self._watching(scope, send, quota, brings))
        else:
            await self._app(scope, receive, send)

    def _counting(self, receive: Receive, quota: RequestQuota) -> Receive:
        async def counted() -> Message:
            message = await receive()
            if size := len(message.get("body", b"")):
                quota.received(size)
            return message

        return counted if quota.body else receive

    def _watching(self, scope: Scope, send: Send, quota: RequestQuota, brings: bool) -> Send:
        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] in _COUNTED:
                    self._limiter.refusals.count(_COUNTED[message["status"]])
                elif message["status"] == _UNAUTHORIZED and brings:
                    quota.failed()
                elif brings and (user := _verified(scope)):
                    quota.passed(user)
            await send(message)

        return watched


def _token(scope: Scope) -> str:
    """Return the presented token, verified or not; several different ones count as an invalid one."""
    try:
        found = presented(Headers(scope=scope))
    except NotSignedIn:
        return "?"
    return "" if found is None else found.text


def _verified(scope: Scope) -> str:
    """Return the token's user if a handler verified it; else empty."""
    who = scope.get("state", {}).get("principal")
    return who.token.user if isinstance(who, Principal) and who.token is not None else ""


def _has_body(scope: Scope) -> bool:
    return any(name in _BODY_HEADERS and value != b"0" for name, value in scope["headers"])
