"""Pages of this server's journal for whoever follows it (docs/PROTOCOL.md, "The feed").

Nothing is kept about a subscriber: it names the position that it comes from, and is answered from the
files. One that does not ask costs nothing.
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace

from lorogo_log import Batch, Log, LogError, Position
from lorogo_protocol import pages, records, subjects
from lorogo_protocol.calls import Body, Refused
from lorogo_protocol.limits import MIB
from lorogo_protocol.pages import FeedPage, PageEntry, PageRequest
from lorogo_protocol.reasons import Reason
from lorogo_server.context import ServerContext
from lorogo_server.journal.disk_journal import DiskJournal
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import Subscription
from lorogo_transport.rpc.calls import Responder
from lorogo_transport.tasks import Tasks
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_ASKING_MAX = 1024  # at once; nearly all of them wait
_READING_MAX = 4  # at once: each may hold a page and a frame of the log
_LAST_ANSWERS_SECONDS = 2.0
_SCAN_BYTES_MAX = 64 * MIB  # for one page: whoever wants few documents is answered in time all the same


class FeedResponder:
    """Answers on this server's own feed subject, between `start()` and `stop()`."""

    def __init__(self, context: ServerContext, journal: DiskJournal) -> None:
        self._context = context
        self._journal = journal
        self._logs: dict[str, Log] = {}
        self._reading = asyncio.Semaphore(_READING_MAX)
        self._stopping = asyncio.Event()
        self._asking = 0
        self._nobody = asyncio.Event()
        self._nobody.set()
        self._tasks = Tasks(self._failed)
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Listen; the journal is open."""
        context = self._context
        self._logs = dict(zip(self._journal.ids(), self._journal.logs, strict=True))
        responder = Responder(
            context.transport.bus,
            context.clock,
            self._serve,
            spawn=self._tasks.spawn,
            budget=context.reply_budget,
            calls_max=_ASKING_MAX,
            on_refused=context.counters.refused_call,
        )
        self._subscription = await context.transport.bus.subscribe(
            subjects.server_feed(context.server_id), responder.on_message
        )

    async def stop(self) -> None:
        """Answer those who wait, and end. Safe twice."""
        self._stopping.set()
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            try:
                await subscription.close()
                async with asyncio.timeout(_LAST_ANSWERS_SECONDS):
                    await self._nobody.wait()
                await asyncio.sleep(0)  # the answers themselves
            except (TransportError, TimeoutError) as error:
                log.debug("not every follower was answered", problem=str(error))
        await self._tasks.close()

    def stats(self) -> Mapping[str, object]:
        """Figures for operators."""
        return {"feeds_asking": self._asking}

    async def _serve(self, _verb: str, arguments: dict[str, object]) -> Body:
        ask = pages.parse_ask(arguments)
        source = self._logs.get(ask.journal)
        if source is None:
            raise Refused(Reason.NOT_FOUND, "this server has no such journal")
        self._asking += 1
        self._nobody.clear()
        try:
            return pages.encode(await self._page(source, ask))
        except LogError as error:
            raise Refused(Reason.FAILED, f"the journal cannot be read: {error}") from error
        finally:
            self._asking -= 1
            if not self._asking:
                self._nobody.set()

    async def _page(self, source: Log, ask: PageRequest) -> FeedPage:
        """What is there; if that is nothing, what comes within the time that was given."""
        builder = _Builder(ask, source.stats().durable_sequence)
        if builder.position.sequence <= builder.durable:
            async with self._reading:
                await builder.take(source)
        if builder.entries or builder.full or not ask.wait_seconds or self._stopping.is_set():
            return builder.page()
        following = asyncio.ensure_future(builder.take(source, follow=True))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait(
                {following, stopping}, timeout=ask.wait_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if following.done() and isinstance(following.exception(), LogError):
                # it is closed or has stopped: nothing more will come, and what is there can still be read
                await asyncio.wait({stopping}, timeout=ask.wait_seconds)
            elif following.done():
                following.result()
        finally:
            following.cancel()
            stopping.cancel()
            await asyncio.gather(following, stopping, return_exceptions=True)
        return builder.page()

    def _failed(self, error: Exception) -> None:
        log.warning("a follower was not answered", problem=str(error))


class _Builder:
    """A page in the making."""

    def __init__(self, ask: PageRequest, durable: int) -> None:
        self.entries: list[PageEntry] = []
        self.full = False
        self.durable = durable  # the last sequence on the disk when we looked
        self._ask = ask
        self._size = 0
        self._scanned = 0
        self._from_time = ask.start.time_ns if not ask.after else 0
        try:
            self.position = Position.parse(ask.after) if ask.after else Position(0)
        except ValueError:
            raise Refused(Reason.INVALID_REQUEST, "'after' is no position") from None
        if self.position.sequence > durable + 1:
            raise Refused(Reason.CONFLICT, "the journal ends before that position")

    async def take(self, source: Log, *, follow: bool = False) -> None:
        """Read on to the end, or until the page is full; following, until there is something."""
        time_ns, position = self._from_time or None, None if self._from_time else self.position
        reading = source.read(from_time=time_ns, from_pos=position, follow=follow, damaged="skip")
        async with aclosing(reading) as batches:  # type: ignore[type-var]  # a generator
            async for batch in batches:
                self._from_time = 0
                self._add(batch)
                self._scanned += batch.header.frame_bytes
                self.full = self.full or self._scanned >= _SCAN_BYTES_MAX
                if self.full or (follow and self.entries):
                    self.full = True  # more may have come by now
                    return
        if self._from_time:  # nothing is young enough
            self._from_time = 0
            self.position = Position(self.durable + 1)

    def page(self) -> FeedPage:
        return FeedPage(tuple(self.entries), str(self.position), not self.full)

    def _add(self, batch: Batch) -> None:
        wanted, log_id = self._ask.documents, self._ask.log_id.encode()
        for found in batch.records():
            if self._size >= self._ask.bytes_max:
                self.full = True
                self.position = Position(found.sequence, batch.segment, batch.position)
                return
            document = found.key.decode()
            if wanted is not None and document not in wanted:
                continue
            if log_id and log_id not in found.payload:
                continue  # most of them, without being decoded
            try:
                record = records.decode_document(found.value)
            except records.MalformedRecord as error:
                log.warning("a record of the journal is skipped", sequence=found.sequence, problem=str(error))
                continue
            if record is None or not self._ask.start.wants(found.time, record):
                continue
            if log_id and not (
                isinstance(record, records.UpdateRecord) and record.log_id == self._ask.log_id
            ):
                continue
            if isinstance(record, records.BaseRecord):
                self._size += len(record.vector)
                record = replace(record, content=b"")  # a feed does not carry snapshots
            else:
                self._size += len(found.payload)
            self._size += 32 + len(document)
            self.entries.append(PageEntry(found.sequence, found.time, document, record))
        self.position = batch.next
