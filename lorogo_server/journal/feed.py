"""Serves pages of this server's journal to feed subscribers (docs/PROTOCOL.md, "The feed").

The server keeps no state of a subscriber: a request has the position to read from, and the server reads the
files. An idle subscriber costs nothing.
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace

from lorogo_log import Batch, Log, LogError, LogPosition
from lorogo_protocol.journal import pages, records
from lorogo_protocol.journal.pages import FeedPage, PageEntry, PageRequest
from lorogo_protocol.limits import MIB
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Body, Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.context import ServerContext
from lorogo_server.journal.disk_journal import DiskJournal
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import Subscription
from lorogo_transport.rpc.calls import Responder
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_REQUESTS_MAX = 1024  # at once; most of them wait for new records
_READING_MAX = 4  # at once: each may hold a page and a frame of the log
_LAST_ANSWERS_SECONDS = 2.0
_SCAN_BYTES_MAX = 64 * MIB  # for one page: bounds the time of a request for few documents


class FeedResponder:
    """Handles requests on this server's feed subject, between `start()` and `stop()`."""

    def __init__(self, context: ServerContext, journal: DiskJournal) -> None:
        self._context = context
        self._journal = journal
        self._logs: dict[str, Log] = {}
        self._reading = asyncio.Semaphore(_READING_MAX)
        self._stopping = asyncio.Event()
        self._requests = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks = Tasks(self._failed)
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Subscribe; the journal must be open."""
        context = self._context
        self._logs = dict(zip(self._journal.ids(), self._journal.logs, strict=True))
        responder = Responder(
            context.transport.bus,
            context.clock,
            lambda _: self._serve,
            spawn=self._tasks.spawn,
            budget=context.reply_budget,
            calls_max=_REQUESTS_MAX,
            on_refused=context.counters.refused_call,
        )
        self._subscription = await context.transport.bus.subscribe(
            subjects.server_feed(context.server_id), responder.on_message
        )

    async def stop(self) -> None:
        """Answer the waiting requests, and end. Idempotent."""
        self._stopping.set()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            try:
                await subscription.close()
                async with asyncio.timeout(_LAST_ANSWERS_SECONDS):
                    await self._idle.wait()
                await asyncio.sleep(0)  # lets the responder send the last replies
            except (TransportError, TimeoutError) as error:
                log.debug("feed requests left unanswered", problem=str(error))
        await self._tasks.close()

    def stats(self) -> Mapping[str, object]:
        """Statistics for operators."""
        return {"feeds_asking": self._requests}

    async def _serve(self, _verb: str, arguments: dict[str, object]) -> Body:
        request = pages.parse_request(arguments)
        source = self._logs.get(request.journal)
        if source is None:
            raise Refused(Reason.NOT_FOUND, "this server has no such journal")
        self._requests += 1
        self._idle.clear()
        try:
            return pages.encode(await self._page(source, request))
        except LogError as error:
            raise Refused(Reason.FAILED, f"cannot read the journal: {error}") from error
        finally:
            self._requests -= 1
            if not self._requests:
                self._idle.set()

    async def _page(self, source: Log, request: PageRequest) -> FeedPage:
        """Return the available records; if there are none, wait as long as the request allows."""
        builder = _Builder(request, source.stats().durable_sequence)
        if builder.position.sequence <= builder.durable:
            async with self._reading:
                await builder.take(source)
        if builder.entries or builder.full or not request.wait_seconds or self._stopping.is_set():
            return builder.page()
        following = asyncio.ensure_future(builder.take(source, follow=True))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait(
                {following, stopping}, timeout=request.wait_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if following.done() and isinstance(following.exception(), LogError):
                # The log is closed or has stopped: no new records follow, but existing ones can be read.
                await asyncio.wait({stopping}, timeout=request.wait_seconds)
            elif following.done():
                following.result()
        finally:
            following.cancel()
            stopping.cancel()
            await asyncio.gather(following, stopping, return_exceptions=True)
        return builder.page()

    def _failed(self, error: Exception) -> None:
        log.warning("feed request failed", problem=str(error))


class _Builder:
    """Builds one page."""

    def __init__(self, request: PageRequest, durable: int) -> None:
        self.entries: list[PageEntry] = []
        self.full = False
        self.durable = durable  # last sequence on the disk at the time of the request
        self._request = request
        self._size = 0
        self._scanned = 0
        self._from_time = request.start.time_ns if not request.after else 0
        try:
            self.position = LogPosition.parse(request.after) if request.after else LogPosition(0)
        except ValueError:
            raise Refused(Reason.INVALID_REQUEST, "'after' is not a position") from None
        if self.position.sequence > durable + 1:
            raise Refused(Reason.CONFLICT, "the journal ends before that position")

    async def take(self, source: Log, *, follow: bool = False) -> None:
        """Read until the end or until the page is full; with `follow`, wait for new records."""
        time_ns, position = self._from_time or None, None if self._from_time else self.position
        reading = source.read(from_time=time_ns, from_pos=position, follow=follow, damaged="skip")
        async with aclosing(reading) as batches:  # type: ignore[type-var]  # a generator
            async for batch in batches:
                self._from_time = 0
                self._add(batch)
                self._scanned += batch.header.frame_bytes
                self.full = self.full or self._scanned >= _SCAN_BYTES_MAX
                if self.full or (follow and self.entries):
                    self.full = True  # further records may have been written meanwhile
                    return
        if self._from_time:  # every record is older
            self._from_time = 0
            self.position = LogPosition(self.durable + 1)

    def page(self) -> FeedPage:
        return FeedPage(tuple(self.entries), str(self.position), not self.full)

    def _add(self, batch: Batch) -> None:
        wanted, log_id = self._request.documents, self._request.log_id.encode()
        for found in batch.records():
            if self._size >= self._request.bytes_max:
                self.full = True
                self.position = LogPosition(found.sequence, batch.segment, batch.position)
                return
            document = found.key.decode()
            if wanted is not None and document not in wanted:
                continue
            if log_id and log_id not in found.payload:
                continue  # skips most records without decoding them
            try:
                record = records.decode_document(found.value)
            except records.MalformedRecord as error:
                log.warning("skipped a malformed journal record", sequence=found.sequence, problem=str(error))
                continue
            if record is None or not self._request.start.wants(found.time, record):
                continue
            if log_id and not (
                isinstance(record, records.UpdateRecord) and record.log_id == self._request.log_id
            ):
                continue
            if isinstance(record, records.BaseRecord):
                self._size += len(record.vector)
                record = replace(record, content=b"")  # a feed has no snapshots
            else:
                self._size += len(found.payload)
            self._size += 32 + len(document)
            self.entries.append(PageEntry(found.sequence, found.time, document, record))
        self.position = batch.next
