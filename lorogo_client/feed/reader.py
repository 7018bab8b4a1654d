"""The app's handle on a feed: pulls pages of every journal, and yields items in the order of `merge`.

One task per journal requests pages, and pauses while enough are buffered: a slow app stops the
requests and delays no other client. One task searches for servers. Failed requests are retried from the same
position. A journal that the position names but no server has gets no task until a server has it, because
positions are untrusted input. One task waits for all of these journals, until `feed_patience_seconds` are
over.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from lorogo_client.context import ClientContext
from lorogo_client.delivery.retry_policy import backoff
from lorogo_client.errors import FeedUnavailable
from lorogo_client.feed.items import FeedItem
from lorogo_client.feed.merge import FeedMerge, FeedSource
from lorogo_client.feed.position import FeedPosition, FeedState
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.journal import pages
from lorogo_protocol.journal.pages import FeedPage, PageRequest
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.errors import Disconnected, TransportError
from lorogo_transport.ports import Subscription
from lorogo_transport.rpc.discovery import FoundServer, find_servers
from lorogo_transport.tasks import Tasks, cancel, within
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TURN_ITEMS: Final = 64  # delivered before yielding to the loop
_SEARCH_SECONDS_MIN: Final = 0.1


class UpdateFeed:
    """An async iterator over accepted updates, each once and in order; leaving it stops the requests."""

    def __init__(
        self, context: ClientContext, state: FeedState, only: Callable[[str], bool] | None = None
    ) -> None:
        self._only = only
        self._context = context
        self._settings = context.settings
        self._start = state.start
        self._documents = state.documents
        self._merge = FeedMerge(state.memory, state.positions)
        self._pullers: dict[str, _Puller] = {}
        self._servers: dict[str, str] = {}  # by journal
        self._tasks = Tasks(self._fail)
        self._changed = asyncio.Event()  # an item may be ready, or the feed failed
        self._search_now = asyncio.Event()
        self._restart = asyncio.Event()  # set to abort and repeat all requests, then replaced
        self._stop_watching: Callable[[], None] = lambda: None
        self._error: LorogoError | None = None
        self._closed = False
        self._given = 0
        self._barrier = 0  # the last barrier for which all requests were repeated
        self._subscription: Subscription | None = None

    @property
    def position(self) -> FeedPosition:
        """The position after the last delivered item; `client.feed(since=position)` resumes there."""
        merge = self._merge
        state = FeedState(self._start, self._documents, merge.positions(), merge.memory)
        return FeedPosition.of(state)

    async def start(self) -> None:
        """Search for servers and start; `client.feed()` calls it. Raises FeedUnavailable, TransportError."""
        bus = self._context.bus
        self._stop_watching = bus.watch_connection(lambda _: self._request_again())
        self._subscription = await bus.subscribe(subjects.SERVER_STARTED, lambda _: self._request_again())
        try:
            self._add_servers(await find_servers(bus))
            if self._error is not None:
                raise self._error
        except LorogoError:
            await self.close()
            raise
        self._tasks.spawn(self._search())
        self._tasks.spawn(self._await_missing())

    async def close(self) -> None:
        """Stop and end the iteration. Idempotent."""
        self._closed = True
        self._stop_watching()
        self._changed.set()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close()
        await self._tasks.close()

    def __aiter__(self) -> "UpdateFeed":
        return self

    async def __anext__(self) -> FeedItem:
        self._given += 1
        if self._given % _TURN_ITEMS == 0:
            await asyncio.sleep(0)
        while True:
            if self._error is not None:
                raise self._error
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            item = self._merge.take()
            if self._merge.barrier != self._barrier:
                self._barrier = self._merge.barrier
                self._request_again()
            for journal in self._merge.moved():
                self._pullers[journal].look()
            if item is not None:
                return item  # no await between take and return, so that no item is lost
            await self._changed.wait()

    # --- servers ----------------------------------------------------------------------------------

    async def _search(self) -> None:
        """Search for servers periodically, and at once on request."""
        while True:
            asked = self._merge.barrier
            try:
                self._add_servers(await find_servers(self._context.bus))
            except TransportError as error:
                log.debug("cannot search for servers", problem=str(error))
            else:
                self._merge.searched = max(self._merge.searched, asked)
                self._changed.set()
            await asyncio.sleep(_SEARCH_SECONDS_MIN)
            if self._merge.searched >= self._merge.barrier:
                await within(self._settings.feed_search_seconds, self._search_now.wait())
            self._search_now.clear()

    def _add_servers(self, found: list[FoundServer]) -> None:
        for server in found:
            if not server.journals:
                self._fail(FeedUnavailable(server.server_id, server.durability))
            for journal in server.journals:
                moved = self._servers.get(journal) != server.server_id
                self._servers[journal] = server.server_id
                self._pull(self._merge.source(journal))
                if moved:
                    self._pullers[journal].wake.set()

    def _request_again(self) -> None:
        """Repeat the request to every journal, and search for servers.

        Called when a journal is held, to read the current end of the others, and when a connection
        of the client or a server was lost, because answers may be lost with it.
        """
        restart, self._restart = self._restart, asyncio.Event()
        restart.set()
        self._search_now.set()
        for puller in self._pullers.values():
            puller.wake.set()

    async def _await_missing(self) -> None:
        """Wait for journals that no server has, at most `feed_patience_seconds`."""
        settings, context = self._settings, self._context
        since: float | None = None
        while missed := [one for one in self._merge.sources.values() if one.journal not in self._pullers]:
            now = context.clock.now()
            since = (now if since is None else since) if context.bus.connected else None
            if since is not None and now - since >= settings.feed_patience_seconds:
                for source in missed:
                    source.away = True
                log.info("journals unreachable: no server has them; the feed continues", journals=len(missed))
                self._changed.set()
                return  # the search finds a server that has one of them later
            self._search_now.set()
            await asyncio.sleep(settings.feed_patience_seconds / 4)

    # --- journals ---------------------------------------------------------------------------------

    def _pull(self, source: FeedSource) -> None:
        if source.journal not in self._pullers:
            self._pullers[source.journal] = puller = _Puller(source)
            self._tasks.spawn(self._pull_pages(puller))

    async def _pull_pages(self, puller: "_Puller") -> None:
        """Request page after page until cancelled."""
        source, merge = puller.source, self._merge
        while True:
            await puller.room.wait()
            asked = merge.barrier
            try:
                page = await self._ask(source)
            except (TransportError, Refused, MalformedMessage) as error:
                await self._back_off(puller, error)
                continue
            if page is not None:
                page = self._wanted(page)
                puller.answered()
                puller.page_records = len(page.entries)
                merge.add(source.journal, page, asked)
                puller.look()
                self._changed.set()

    def _wanted(self, page: FeedPage) -> FeedPage:
        """Filter the page by `only`."""
        if self._only is None:
            return page
        return replace(page, entries=tuple(one for one in page.entries if self._only(one.document)))

    async def _ask(self, source: FeedSource) -> FeedPage | None:
        """Request the next page; None if the request must be repeated."""
        server_id = self._servers[source.journal]
        settings, merge, restart = self._settings, self._merge, self._restart
        wait = 0.0 if merge.holding and source.ended < merge.barrier else settings.feed_wait_seconds
        ask = PageRequest(
            source.journal, source.read, self._start, self._documents, settings.feed_page_bytes, wait
        )
        asking = asyncio.ensure_future(
            self._context.caller.ask(
                subjects.server_feed(server_id),
                ask.body(),
                timeout=wait + settings.reply_seconds,
                whom=f"server {server_id}",
            )
        )
        interrupted = asyncio.ensure_future(restart.wait())
        try:
            await asyncio.wait({asking, interrupted}, return_when=asyncio.FIRST_COMPLETED)
            return pages.decode(asking.result()) if asking.done() else None
        finally:
            await cancel(asking, interrupted)

    async def _back_off(self, puller: "_Puller", error: LorogoError) -> None:
        """Wait before the next attempt; a journal that does not answer for long is away."""
        settings, source, now = self._settings, puller.source, self._context.clock.now()
        gone = not isinstance(error, Disconnected) and not _busy(error) and self._context.bus.connected
        if gone:
            puller.failing_since = now if puller.failing_since is None else puller.failing_since
            if now - puller.failing_since >= settings.feed_patience_seconds and not source.away:
                source.away = True
                log.info(
                    "journal unreachable; the feed continues without it",
                    journal=source.journal,
                    problem=str(error),
                )
            self._search_now.set()
            self._changed.set()
        else:
            puller.failing_since = None
        least, most = settings.retry_seconds_min, settings.retry_seconds_max
        jitter = self._context.rng.random()
        seconds = backoff(puller.attempt, least=least, most=most, jitter=jitter)
        if gone and not source.away:
            seconds = min(seconds, settings.feed_patience_seconds / 4)
        puller.attempt += 1
        await within(seconds, puller.wake.wait())
        puller.wake.clear()

    def _fail(self, error: Exception) -> None:
        """End the feed with an error."""
        if self._error is None:
            unexpected = not isinstance(error, LorogoError)
            if unexpected:
                log.error("the feed failed", exc_info=error)
            self._error = LorogoError(f"the feed failed: {error}") if unexpected else error  # type: ignore[assignment]  # a LorogoError
        self._changed.set()


class _Puller:
    """The request state of one journal."""

    def __init__(self, source: FeedSource) -> None:
        self.source = source
        self.room = asyncio.Event()  # the buffer has space for another page
        self.room.set()
        self.wake = asyncio.Event()  # retry now
        self.page_records = 0
        self.attempt = 0
        self.failing_since: float | None = None

    def look(self) -> None:
        """Allow the next request when half of the last page is delivered."""
        if len(self.source.entries) <= self.page_records // 2:
            self.room.set()
        else:
            self.room.clear()

    def answered(self) -> None:
        self.attempt = 0
        self.failing_since = None
        self.source.away = False


def _busy(error: LorogoError) -> bool:
    return isinstance(error, Refused) and error.reason is Reason.BUSY
