"""Security headers of every response: user content never runs as a page, URLs do not leak to other sites."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lorogo_gateway.settings import GatewaySettings

#: for responses other than pages: nothing in them is run, framed or fetched
_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class ResponseHeadersMiddleware:
    """ASGI middleware; headers that a page sets itself are kept."""

    def __init__(self, app: ASGIApp, settings: GatewaySettings) -> None:
        self._app = app
        self._always = {
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "content-security-policy": _POLICY,
            "x-frame-options": "DENY",
            "cross-origin-opener-policy": "same-origin",
        }
        seconds = round(settings.hsts_seconds)
        self._strict = f"max-age={seconds}" if seconds else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                for name, value in self._always.items():
                    headers.setdefault(name, value)
                if self._strict and scope.get("scheme") in ("https", "wss"):
                    headers.setdefault("strict-transport-security", self._strict)
            await send(message)

        await self._app(scope, receive, with_headers)
