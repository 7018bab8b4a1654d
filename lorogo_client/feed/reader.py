"""A feed as an app holds it: pulls pages of every journal, and gives what `merge` lets through.

One task per journal asks for pages, and waits while enough are here: a slow app stops asking, and
nobody else notices. One task looks for servers. Whatever fails is tried again, from the same position.
A journal that the position names and no server has gets no task before one has it: a position is anybody's
text. One task waits for all of these, as long as patience lasts.
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
from lorogo_protocol import pages, subjects
from lorogo_protocol.calls import Refused
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.pages import FeedPage, PageRequest
from lorogo_protocol.reasons import Reason
from lorogo_transport.errors import Disconnected, TransportError
from lorogo_transport.ports import Subscription
from lorogo_transport.rpc.discovery import FoundServer, find_servers
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TURN_ITEMS: Final = 64  # given without a pause, before others on the loop get a turn
_SEARCH_SECONDS_MIN: Final = 0.1


class UpdateFeed:
    """Every accepted update, once, in order: `async for item in feed`. Left, it stops asking."""

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
        self._changed = asyncio.Event()  # something may be given, or went wrong
        self._search_now = asyncio.Event()
        self._anew = asyncio.Event()  # set when what was asked must be asked again, and then replaced
        self._stop_watching: Callable[[], None] = lambda: None
        self._error: LorogoError | None = None
        self._closed = False
        self._given = 0
        self._barrier = 0  # the last for which everybody was asked anew
        self._subscription: Subscription | None = None

    @property
    def position(self) -> FeedPosition:
        """Behind the last item that was given: keep it, and `client.feed(since=position)` goes on there."""
        merge = self._merge
        state = FeedState(self._start, self._documents, merge.positions(), merge.memory)
        return FeedPosition.of(state)

    async def start(self) -> None:
        """Look for servers and begin; `client.feed()` does it. Raises FeedUnavailable, TransportError."""
        bus = self._context.bus
        self._stop_watching = bus.watch_connection(lambda _: self._ask_anew())
        self._subscription = await bus.subscribe(subjects.SERVER_STARTED, lambda _: self._ask_anew())
        try:
            self._learn(await find_servers(bus))
            if self._error is not None:
                raise self._error
        except LorogoError:
            await self.close()
            raise
        self._tasks.spawn(self._search())
        self._tasks.spawn(self._miss())

    async def close(self) -> None:
        """Stop; the iteration ends. Safe twice."""
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
                self._ask_anew()
            for journal in self._merge.moved():
                self._pullers[journal].look()
            if item is not None:
                return item  # nothing is awaited between taking and giving
            await self._changed.wait()

    # --- servers ----------------------------------------------------------------------------------

    async def _search(self) -> None:
        """Look for servers now and then, and at once when there is a reason."""
        while True:
            asked = self._merge.barrier
            try:
                self._learn(await find_servers(self._context.bus))
            except TransportError as error:
                log.debug("servers could not be looked for", problem=str(error))
            else:
                self._merge.searched = max(self._merge.searched, asked)
                self._changed.set()
            await asyncio.sleep(_SEARCH_SECONDS_MIN)
            if self._merge.searched >= self._merge.barrier:
                await _within(self._search_now, self._settings.feed_search_seconds)
            self._search_now.clear()

    def _learn(self, found: list[FoundServer]) -> None:
        for server in found:
            if not server.journals:
                self._fail(FeedUnavailable(server.server_id, server.durability))
            for journal in server.journals:
                moved = self._servers.get(journal) != server.server_id
                self._servers[journal] = server.server_id
                self._pull(self._merge.source(journal))
                if moved:
                    self._pullers[journal].wake.set()

    def _ask_anew(self) -> None:
        """Ask every journal again, and look for servers once more.

        A journal is held: the others are asked where they end now. Or a connection was lost, ours or a
        server's: answers may be lost with it.
        """
        anew, self._anew = self._anew, asyncio.Event()
        anew.set()
        self._search_now.set()
        for puller in self._pullers.values():
            puller.wake.set()

    async def _miss(self) -> None:
        """Wait for journals that no server has, all at once; who is not found for long is away."""
        settings, context = self._settings, self._context
        since: float | None = None
        while missed := [one for one in self._merge.sources.values() if one.journal not in self._pullers]:
            now = context.clock.now()
            since = (now if since is None else since) if context.bus.connected else None
            if since is not None and now - since >= settings.feed_patience_seconds:
                for source in missed:
                    source.away = True
                log.info("no server has some journals: they are away", journals=len(missed))
                self._changed.set()
                return  # whenever a server has one of them, it is found
            self._search_now.set()
            await asyncio.sleep(settings.feed_patience_seconds / 4)

    # --- journals ---------------------------------------------------------------------------------

    def _pull(self, source: FeedSource) -> None:
        if source.journal not in self._pullers:
            self._pullers[source.journal] = puller = _Puller(source)
            self._tasks.spawn(self._pull_on(puller))

    async def _pull_on(self, puller: "_Puller") -> None:
        """Ask for page after page, for as long as the feed lives."""
        source, merge = puller.source, self._merge
        while True:
            await puller.room.wait()
            asked = merge.barrier
            try:
                page = await self._ask(source)
            except (TransportError, Refused, MalformedMessage) as error:
                await self._failed(puller, error)
                continue
            if page is not None:
                page = self._wanted(page)
                puller.answered()
                puller.page_records = len(page.entries)
                merge.add(source.journal, page, asked)
                puller.look()
                self._changed.set()

    def _wanted(self, page: FeedPage) -> FeedPage:
        """The page without what this reader must not hear of."""
        if self._only is None:
            return page
        return replace(page, entries=tuple(one for one in page.entries if self._only(one.document)))

    async def _ask(self, source: FeedSource) -> FeedPage | None:
        """The next page; None if it must be asked for anew."""
        server_id = self._servers[source.journal]
        settings, merge, anew = self._settings, self._merge, self._anew
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
        interrupted = asyncio.ensure_future(anew.wait())
        try:
            await asyncio.wait({asking, interrupted}, return_when=asyncio.FIRST_COMPLETED)
            return pages.decode(asking.result()) if asking.done() else None
        finally:
            asking.cancel()
            interrupted.cancel()
            await asyncio.gather(asking, interrupted, return_exceptions=True)

    async def _failed(self, puller: "_Puller", error: LorogoError) -> None:
        """Wait before the next try; who does not answer for long is away, and nobody waits for it."""
        settings, source, now = self._settings, puller.source, self._context.clock.now()
        gone = not isinstance(error, Disconnected) and not _busy(error) and self._context.bus.connected
        if gone:
            puller.failing_since = now if puller.failing_since is None else puller.failing_since
            if now - puller.failing_since >= settings.feed_patience_seconds and not source.away:
                source.away = True
                log.info("a journal is away", journal=source.journal, problem=str(error))
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
        await _within(puller.wake, seconds)
        puller.wake.clear()

    def _fail(self, error: Exception) -> None:
        """The feed is over."""
        if self._error is None:
            unexpected = not isinstance(error, LorogoError)
            if unexpected:
                log.error("the feed failed", exc_info=error)
            self._error = LorogoError(f"the feed failed: {error}") if unexpected else error  # type: ignore[assignment]  # a LorogoError
        self._changed.set()


class _Puller:
    """The asking for one journal."""

    def __init__(self, source: FeedSource) -> None:
        self.source = source
        self.room = asyncio.Event()  # few enough records wait here
        self.room.set()
        self.wake = asyncio.Event()  # try now
        self.page_records = 0
        self.attempt = 0
        self.failing_since: float | None = None

    def look(self) -> None:
        """Ask for more when half of the last page is taken."""
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


async def _within(event: asyncio.Event, seconds: float) -> None:
    """Until the event, or so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
