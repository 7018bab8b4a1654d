"""Counts of HTTP responses by status class: 2xx, 3xx, 4xx, 5xx."""

from collections import Counter
from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CLASSES = ("2xx", "3xx", "4xx", "5xx")


class ResponseCounts:
    """Responses since the start, by status class."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def count(self, status: int) -> None:
        """Count a response."""
        self._counts[f"{status // 100}xx"] += 1

    def facts(self) -> dict[str, int]:
        """Return the counts of all classes, zeros included: a rate needs the initial zero."""
        return {one: self._counts[one] for one in _CLASSES}


class ResponseCountMiddleware:
    """The outermost ASGI middleware. Probes (`uncounted`) are excluded: they would dominate the counts."""

    def __init__(self, app: ASGIApp, responses: ResponseCounts, uncounted: Collection[str]) -> None:
        self._app = app
        self._responses = responses
        self._uncounted = frozenset(uncounted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._uncounted:
            await self._app(scope, receive, send)
            return
        begun = False

        async def counted(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._responses.count(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception:  # Starlette's error middleware responds with 500
            if not begun:
                self._responses.count(500)
            raise
