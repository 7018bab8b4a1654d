"""`GET /v1/feed`: accepted updates as server-sent events, from any position, resumable without a gap.

An event's id is the feed position after it. A position names every document that the feed has sent an
event of, so it grows. Once it no longer fits in a header, the id is a time one minute before the event:
a client that resumes receives the last minute again.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lorogo_client import Client
from lorogo_client.awaitables import AwaitableContext
from lorogo_client.errors import InvalidMoment
from lorogo_client.feed import Deleted, Erased, FeedItem, FeedPosition, Gap, Restored, Since, Update
from lorogo_client.feed.reader import UpdateFeed
from lorogo_client.versions import parse_time, show_time, show_time_down
from lorogo_gateway.auth import Principal, TokenGuard
from lorogo_gateway.auth.needs import SomeDocument
from lorogo_gateway.documents.schemas import DOCUMENT_ID
from lorogo_gateway.http.operations import Operation, Parameter, ResponseSpec, checked_request, principal
from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.limits.middleware import rate_limited
from lorogo_gateway.limits.reasons import LimitReason
from lorogo_gateway.limits.request_quota import request_quota
from lorogo_gateway.problems import HttpProblem
from lorogo_gateway.settings import GatewaySettings
from lorogo_gateway.transport.uvicorn_http import FinalMessage, final_message
from lorogo_protocol.access.grants import Access
from lorogo_protocol.errors import LorogoError
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
_POSITION_MARK = "lf1-"
_ID_CHARS_MAX = 6_000  # proxies take headers of 8 KiB
_BACK_NS = 60 * 1_000_000_000  # allows for the lag between journals
_SINCE_CHARS_MAX = _ID_CHARS_MAX  # the gateway never sends a longer id
_POSITION_BYTES_MAX = 512 * 1024  # decompressed: similar long ids decompress to 200 KiB
_JOURNALS_MAX = 1_000  # in one position; an id of the maximum length has about 200
_DOCUMENTS_MAX = 1_000  # named by one request
_RETRY_MS = 1_000  # until a browser reconnects
_FULL_RETRY_SECONDS = 5


class Feeds:
    """The open feeds of one gateway."""

    def __init__(
        self,
        client: Client,
        settings: GatewaySettings | None = None,
        guard: TokenGuard | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self._client = client
        self._guard = guard or TokenGuard()
        self._settings = settings or GatewaySettings()
        self._limiter = limiter or Limiter(self._settings)
        self._refusals = self._limiter.refusals
        self._open = 0
        self._ended = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.events_sent = 0
        self.opened = 0

    @property
    def open(self) -> int:
        """The number of open feeds."""
        return self._open

    def operations(self) -> list[Operation]:
        """Return the operations of `/v1/feed`."""
        return [
            Operation(
                "GET",
                "/v1/feed",
                "feed",
                "Stream accepted updates as server-sent events, of all documents or of those named. An"
                " event's id is the position after it; send it as Last-Event-ID to resume from there.",
                self._answer,
                {
                    200: ResponseSpec(
                        "Events `update`, `deleted`, `restored`, `erased`, `gap`, until either side closes.",
                        {"text/event-stream": {"type": "string"}},
                    )
                },
                (
                    Parameter(
                        "since",
                        "query",
                        "Where to begin: now; 0 for everything in the journals; a sequence of the WAL; a"
                        " time, or an age (10m); or the id of an event.",
                        {"type": "string", "default": "now"},
                    ),
                    Parameter(
                        "document",
                        "query",
                        "Only events of this document; may be repeated.",
                        {"type": "array", "items": DOCUMENT_ID, "maxItems": _DOCUMENTS_MAX},
                    ),
                    Parameter(
                        "last-event-id",
                        "header",
                        "The id of the last event that the client received. It wins over `since`.",
                        {"type": "string"},
                    ),
                ),
                group="feed",
                need=SomeDocument(),
            )
        ]

    async def close(self) -> None:
        """End every feed and accept no more; clients resume at another gateway."""
        self._ended.set()
        try:
            async with asyncio.timeout(self._settings.close_seconds):
                await self._idle.wait()
        except TimeoutError:
            log.warning("feeds did not end in time", feeds=self._open)

    async def _answer(self, request: Request) -> Response:
        """Open the feed before the response begins, so that an error is a problem and not a broken stream."""
        if self._ended.is_set():
            detail = "this gateway is shutting down; try again"
            raise HttpProblem(503, "closing", detail, headers={"Retry-After": "1"})
        values = checked_request(request).values
        since = _since(values.get("last-event-id", "").strip() or values["since"])
        if self._open >= self._settings.feeds_max:
            self._refusals.count(LimitReason.FEEDS)
            raise HttpProblem(
                503,
                "too-many-feeds",
                f"{self._open} feeds are open, the limit of this gateway; try again or use another gateway",
                headers={"Retry-After": str(_FULL_RETRY_SECONDS)},
            )
        async with AsyncExitStack() as undo:
            key = request_quota(request.scope, self._limiter).key
            if (no := self._limiter.enter_feed(key)) is not None:
                raise rate_limited(no)
            undo.callback(self._limiter.leave_feed, key)
            self._entered()
            undo.callback(self._left)
            try:
                who = principal(request)
                feed = await undo.enter_async_context(self._opened(who, since, values.get("document")))
            except (ValueError, TypeError) as error:
                raise HttpProblem(400, "invalid-parameter", str(error)) from None
            return _Stream(self, feed, who, undo.pop_all())

    def _opened(
        self, who: Principal, since: Since, documents: list[str] | None
    ) -> AwaitableContext[UpdateFeed]:
        """Return the feed of the documents that this principal may read.

        A feed position keeps the documents that the feed began with.
        """
        if who.sees_all:
            return self._client.feed(since, documents)
        named = {pattern for pattern, access in who.grants.table if access >= Access.READ}
        if documents is None and not isinstance(since, FeedPosition) and not any("*" in one for one in named):
            documents = sorted(named)
        return self._client.feed(since, documents, only=who.reads)

    def _entered(self) -> None:
        self._open += 1
        self._idle.clear()

    def _left(self) -> None:
        self._open -= 1
        if not self._open:
            self._idle.set()

    async def stream(
        self,
        feed: UpdateFeed,
        who: Principal,
        receive: Receive,
        send: Send,
        final: FinalMessage | None = None,
    ) -> None:
        """Send events until the client disconnects or stalls, its token ends, or the gateway stops."""
        self.opened += 1
        if (
            final is not None
        ):  # sent after the unread data, so that a client that resumes reading sees the reason
            final.text, final.why = _STALLED, LimitReason.FEED_STALLED
        over = asyncio.Event()
        forget = self._guard.follow(who, lambda _: over.set())
        if not self._guard.still(who):  # while the feed was opened
            over.set()
        sending = asyncio.ensure_future(self._send(feed, send))
        gone = asyncio.ensure_future(_disconnected(receive))
        ended = asyncio.ensure_future(self._ended.wait())
        expired = asyncio.ensure_future(over.wait())
        tasks = {sending, gone, ended, expired}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            left, failure = gone.done(), sending.exception() if sending.done() else None
        finally:
            forget()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if failure is not None and not left:
            _log_end(failure)
        if isinstance(failure, _Slow) and not left:
            if final is None:
                self._refusals.count(LimitReason.FEED_STALLED)
            else:
                final.send()
        if not left and not isinstance(failure, _Slow | OSError):
            with suppress(_Slow, OSError):
                await self._put(send, b"", more=False)

    async def _send(self, feed: UpdateFeed, send: Send) -> None:
        ids = _Ids(feed)
        begun = ids.exact()  # "now" has a position, too
        await self._put(send, f"retry: {_RETRY_MS}\n{f'id: {begun}' if begun else ''}\n\n".encode())
        while True:
            try:
                async with asyncio.timeout(self._settings.feed_comment_seconds):
                    item = await anext(feed)  # cancelled, it has given nothing
            except StopAsyncIteration:
                return  # the client is closed
            except TimeoutError:
                await self._put(send, b": still here\n\n")
                continue
            await self._put(send, _event(item, ids.behind(item)))
            self.events_sent += 1

    async def _put(self, send: Send, body: bytes, *, more: bool = True) -> None:
        """Send the bytes. Raises _Slow if the client takes nothing for `feed_stall_seconds`."""
        deadline = asyncio.timeout(self._settings.feed_stall_seconds)
        try:
            async with deadline:
                await send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            if not deadline.expired():
                raise
            raise _Slow from None


class _Slow(Exception):
    """The client stopped reading."""


class _Stream(Response):
    """The response, once the feed is open."""

    def __init__(self, feeds: Feeds, feed: UpdateFeed, who: Principal, undo: AsyncExitStack) -> None:
        super().__init__(media_type="text/event-stream")
        self._feeds = feeds
        self._feed = feed
        self._who = who
        self._undo = undo

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._undo:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._feeds.stream(self._feed, self._who, receive, send, final_message(scope))


_STALLED = (
    b'event: ended\ndata: {"code":"slow-reader","detail":"slow consumer; resume with Last-Event-ID"}\n\n'
)
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would buffer events
]


class _Ids:
    """The ids of events: where a client resumes."""

    def __init__(self, feed: UpdateFeed) -> None:
        self._feed = feed
        self._large = False

    def behind(self, item: FeedItem) -> str:
        """Return the position after the item just read, or a time safely before it."""
        return self.exact() or show_time_down(max(0, item.time_ns - _BACK_NS), UTC)

    def exact(self) -> str:
        """Return the current position; empty if it is too large."""
        if self._large:
            return ""
        position = str(self._feed.position)
        self._large = len(position) > _ID_CHARS_MAX  # permanently: a position only grows
        return "" if self._large else position


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _log_end(error: BaseException) -> None:
    match error:
        case _Slow():
            log.info("feed closed: slow consumer")
        case LorogoError():
            log.warning("feed closed", problem=str(error))
        case OSError():
            log.debug("feed client disconnected", problem=str(error))
        case _:
            log.error("feed failed", exc_info=error)


def _since(text: str) -> Since:
    """Parse the `since` parameter. Raises InvalidPosition, HttpProblem."""
    if text == "now":
        return text
    if len(text) > _SINCE_CHARS_MAX:
        raise HttpProblem(
            400, "invalid-parameter", f"a feed position has at most {_SINCE_CHARS_MAX} characters"
        )
    if text.startswith(_POSITION_MARK):
        return FeedPosition.parse(text, bytes_max=_POSITION_BYTES_MAX, journals_max=_JOURNALS_MAX)
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    now_ns = (datetime.now(UTC) - _UNIX) // timedelta(microseconds=1) * 1000
    try:
        return _UNIX + timedelta(microseconds=parse_time(text, now_ns=now_ns, zone=UTC) // 1000)
    except (InvalidMoment, OverflowError):  # the last hours of 9999 may be another year in UTC
        raise HttpProblem(
            400,
            "invalid-moment",
            f"{text[:60]!r} is not a feed position: since is now, 0 (everything), a sequence, a time"
            " (2026-11-16T10:30:00Z), an age (10m), or the id of an event",
        ) from None


def _event(item: FeedItem, position: str) -> bytes:
    name, facts = event_data(item)
    return f"id: {position}\nevent: {name}\ndata: {json.dumps(facts, separators=(',', ':'))}\n\n".encode()


def event_data(item: FeedItem) -> tuple[str, Mapping[str, object]]:
    """Return the event name and data of an item. Peers are strings: JSON numbers cannot hold 64 bits."""
    facts: dict[str, object] = {"document": item.document, "time": show_time(item.time_ns, UTC)}
    match item:
        case Update():
            summary: dict[str, int] = {}
            for peer, first, end in item.spans:
                summary[str(peer)] = summary.get(str(peer), 0) + end - first
            return "update", facts | {
                "sequence": item.sequence,
                "epoch": item.epoch,
                "log_id": item.log_id,
                "generation": item.generation,
                "peers": list(summary),
                "bytes": len(item.payload),
                "operations": sum(summary.values()),
                "summary": summary,
            }
        case Deleted():
            return "deleted", facts | {"generation": item.generation}
        case Restored():
            return "restored", facts | {"generation": item.generation}
        case Erased():
            return "erased", facts
        case Gap():
            missing = [[str(peer), first, end] for peer, first, end in item.missing]
            count = sum(end - first for _, first, end in item.missing)
            why = "none of the journals that answer has these operations, and later updates depend on them"
            return "gap", facts | {"operations": count, "missing": missing, "why": why}
