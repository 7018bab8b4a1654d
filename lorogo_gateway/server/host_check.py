"""Requests whose Host is not a name of this gateway get 421: see `origins`."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lorogo_gateway.origins import host_allowed
from lorogo_gateway.problems import HttpProblem
from lorogo_gateway.settings import GatewaySettings


class HostCheckMiddleware:
    """ASGI middleware, for HTTP and for the handshake of a WebSocket."""

    def __init__(self, app: ASGIApp, settings: GatewaySettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "")
        chosen = self._settings
        if host_allowed(host, chosen.host, chosen.host_names, chosen.origins):
            await self._app(scope, receive, send)
            return
        detail = f"this gateway is not {host[:100]!r}; add the name with `lorogo gateway --host-name`"
        await HttpProblem(421, "wrong-host", detail).response()(scope, receive, send)
