"""JetStream streams over any Bus: stored, sequenced, compare-and-swap.

JetStream's API is JSON requests over core NATS, so this module needs only a `Bus`. Reads for
decisions (`last`, `get`, `state`) go to the stream's leader; bulk reads use batched
direct get, which any replica may answer.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from lorogo_protocol.messages import subjects
from lorogo_transport.errors import (
    NoResponders,
    OutcomeUnknown,
    PermissionDenied,
    RequestTimeout,
    StorageFull,
    StreamBusy,
    StreamMismatch,
    StreamMissing,
    TransportError,
    Unreachable,
)
from lorogo_transport.headers import (
    DESCRIPTION,
    STATUS,
    expecting,
    is_stored,
    own_headers,
    record_bytes,
)
from lorogo_transport.nats import api
from lorogo_transport.ports import (
    Bus,
    Headers,
    Message,
    PermissionViolation,
    StoredMessage,
    StreamSpec,
    StreamState,
)
from lorogo_transport.stores import topology
from lorogo_transport.tasks import within

_BATCH_MESSAGES = 1000
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_SUBJECTS = 500  # the server refuses a multi-last of more than 1024
_READ_SECONDS = 5.0  # the longest silence within a batch
_POLL_SECONDS = 0.02  # between reads that look for an unconfirmed message
_FULL_SECONDS = 1.0  # before a check whether the stream is full
_BUSY_SECONDS = 0.02  # before another attempt at a stream that is too busy to store


class JetStreamStream:
    """A `ports.Stream` on JetStream."""

    __slots__ = ("_bus", "_name")

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def append(
        self,
        subject: str,
        data: bytes,
        *,
        headers: Headers | None = None,
        expected_last: int | None = None,
        timeout: float = 5.0,
    ) -> int:
        if self._name == subjects.WAL_STREAM and self._bus.guarded:
            return await self._append_unanswered(subject, data, headers, expected_last, timeout)
        loop = asyncio.get_running_loop()
        gives_up = loop.time() + timeout
        while True:
            left = max(0.0, gives_up - loop.time())
            answer = await self._requested(subject, data, expecting(headers, expected_last), left)
            try:
                ack = api.decode(self._name, answer.data)
            except StreamBusy:  # nothing was stored, so it may be sent again, also with `expected_last`
                if loop.time() + _BUSY_SECONDS >= gives_up:
                    raise
                await asyncio.sleep(_BUSY_SECONDS)
                if loop.time() >= gives_up:
                    raise  # the loop was busy: no time is left for another answer
                continue
            if ack.get("stream") != self._name:
                raise StreamMismatch(self._name, [f"{subject!r} is stored by stream {ack.get('stream')!r}"])
            return int(ack["seq"])

    async def _requested(self, subject: str, data: bytes, headers: Headers | None, timeout: float) -> Message:
        try:
            return await self._bus.request(subject, data, headers=headers, timeout=timeout)
        except RequestTimeout as error:
            raise OutcomeUnknown(f"no confirmation from stream {self._name!r} for {subject!r}") from error
        except NoResponders:
            with suppress(PermissionDenied):
                # raises StreamMissing or Unreachable if that is the reason
                await self.state(timeout=timeout)
            raise

    async def append_unconfirmed(
        self, subject: str, data: bytes, *, headers: Headers | None = None, expected_last: int | None = None
    ) -> None:
        await self._bus.publish(subject, data, headers=expecting(headers, expected_last))

    async def last(self, subject: str, *, timeout: float = 5.0) -> StoredMessage | None:
        return await self._message({"last_by_subj": subject}, timeout)

    async def get(self, sequence: int, *, timeout: float = 5.0) -> StoredMessage | None:
        return await self._message({"seq": sequence}, timeout)

    async def next(self, subject: str, first: int, *, timeout: float = 5.0) -> StoredMessage | None:
        return await self._message({"next_by_subj": subject, "seq": max(first, 1)}, timeout)

    def read(self, subject: str, *, first: int = 1, last: int | None = None) -> AsyncIterator[StoredMessage]:
        def page(position: int) -> Awaitable[tuple[list[StoredMessage], int]]:
            query = {"next_by_subj": subject, "seq": position}
            return self._direct({**query, "batch": _BATCH_MESSAGES, "max_bytes": _BATCH_BYTES})

        return read_pages(page, first, last)

    async def newest_of(self, subjects: Sequence[str]) -> AsyncIterator[StoredMessage]:
        for start in range(0, len(subjects), _BATCH_SUBJECTS):
            async for stored in self._multi_last(subjects[start : start + _BATCH_SUBJECTS]):
                yield stored

    async def state(self, *, timeout: float = 5.0) -> StreamState:
        return api.state_from_info(await call(self._bus, "STREAM.INFO", self._name, None, timeout))

    async def count(self, subject: str, *, timeout: float = 5.0) -> int:
        return sum((await self.subjects(subject, timeout=timeout)).values())

    async def count_through(self, subject: str, *, timeout: float = 5.0) -> tuple[int, int]:
        info = await call(self._bus, "STREAM.INFO", self._name, {"subjects_filter": subject}, timeout)
        found: dict[str, int] = info["state"].get("subjects") or {}
        return found.get(subject, 0), info["state"]["last_seq"]

    async def subjects(self, pattern: str, *, timeout: float = 5.0) -> dict[str, int]:
        found: dict[str, int] = {}
        offset = 0
        while True:  # NATS returns at most 100,000 per page
            query = {"subjects_filter": pattern, "offset": offset}
            info = await call(self._bus, "STREAM.INFO", self._name, query, timeout)
            page: dict[str, int] = info["state"].get("subjects") or {}
            found.update(page)
            offset += len(page)
            if not page or offset >= info.get("total", 0):
                return found

    async def purge(self, subject: str, *, before: int | None = None, timeout: float = 5.0) -> int:
        query: dict[str, Any] = {"filter": subject}
        if before is not None:
            if before <= 1:
                return 0  # for NATS, 0 means "everything"
            query["seq"] = before
        try:
            answer = await call(self._bus, "STREAM.PURGE", self._name, query, timeout)
        except RequestTimeout as error:
            raise OutcomeUnknown(f"no confirmation of the purge of {subject!r}") from error
        return int(answer.get("purged", 0))

    async def delete(self, sequence: int, *, timeout: float = 5.0) -> bool:
        try:
            await call(self._bus, "STREAM.MSG.DELETE", self._name, {"seq": sequence}, timeout)
        except RequestTimeout as error:
            raise OutcomeUnknown(f"no confirmation of the deletion of {sequence}") from error
        except api.ApiError as error:
            if error.error_code == api.SEQUENCE_NOT_FOUND:
                return False
            # NATS reports "delete failed" both for a sequence it never had and for real failures
            if error.error_code == api.DELETE_FAILED and await self.get(sequence, timeout=timeout) is None:
                return False
            raise
        return True

    async def _append_unanswered(
        self, subject: str, data: bytes, headers: Headers | None, expected_last: int | None, timeout: float
    ) -> int:
        """Append where JetStream confirms nothing (docs/decisions/0016): read until the message is found."""
        headers = expecting(headers, expected_last)
        stored = await self.last(subject, timeout=timeout)
        position = 1 if stored is None else stored.sequence + 1
        await self._bus.publish(subject, data, headers=headers)
        wanted = own_headers(headers or {})
        loop = asyncio.get_running_loop()
        asks_at, left = loop.time() + min(_FULL_SECONDS, timeout / 2), None
        size = record_bytes(subject, data, headers or {})
        with suppress(TimeoutError, RequestTimeout):
            async with asyncio.timeout(timeout):
                while True:
                    found = await self.next(subject, position, timeout=timeout)
                    if found is not None:
                        if found.data == data and own_headers(found.headers) == wanted:
                            return found.sequence
                        position = found.sequence + 1  # another client's message
                    elif left is not None and size > left:
                        room = f"space for {max(left, 0)} bytes; the message needs {size}"
                        raise StorageFull(f"stream {self._name!r} has {room}")
                    elif loop.time() >= asks_at:
                        asks_at += _FULL_SECONDS
                        left = (await self.state(timeout=timeout)).bytes_left
                        # A stream that is too busy to store drops messages without an answer here.
                        if expected_last is None and (left is None or size <= left):
                            await self._bus.publish(subject, data, headers=headers)
                    else:
                        await asyncio.sleep(_POLL_SECONDS)
        raise OutcomeUnknown(f"the message for {subject!r} was not found in stream {self._name!r}")

    async def _message(self, query: dict[str, Any], timeout: float) -> StoredMessage | None:
        try:
            answer = await call(self._bus, "STREAM.MSG.GET", self._name, query, timeout)
        except api.ApiError as error:
            if error.error_code == api.MESSAGE_NOT_FOUND:
                return None
            raise
        return api.stored_from_api(answer["message"])

    async def _multi_last(self, subjects: Sequence[str]) -> AsyncIterator[StoredMessage]:
        position, up_to = 1, 0
        while True:
            query: dict[str, Any] = {
                "multi_last": list(subjects),
                "batch": _BATCH_MESSAGES,
                "max_bytes": _BATCH_BYTES,
                "seq": position,
            }
            if up_to:
                query["up_to_seq"] = up_to
            batch = await self._collect(query)
            for stored in batch.messages:
                yield stored
            if not batch.pending:
                return
            position, up_to = batch.messages[-1].sequence + 1, batch.up_to

    async def _direct(self, query: dict[str, Any]) -> tuple[list[StoredMessage], int]:
        batch = await self._collect(query)
        return batch.messages, batch.pending

    async def _collect(self, query: dict[str, Any]) -> "_Batch":
        batch = _Batch(self._name)
        inbox = self._bus.new_inbox()
        asked = f"$JS.API.DIRECT.GET.{self._name}"
        unwatch = self._bus.watch_connection(batch.on_connection)
        unwatch_refusals = self._bus.watch_refusals(lambda refusal: batch.on_refusal(refusal, asked))
        subscription = await self._bus.subscribe(inbox, batch.on_message)
        try:
            await self._bus.publish(asked, json.dumps(query).encode(), reply=inbox)
            await batch.wait(_READ_SECONDS)
        except NoResponders:
            await self.state()  # raises StreamMissing or Unreachable if that is the reason
            raise
        finally:
            unwatch()
            unwatch_refusals()
            await subscription.close()
        return batch


class _Batch:
    """The messages of one batched direct get, until its end marker."""

    __slots__ = ("_done", "_failure", "_previous", "_stream", "messages", "pending", "up_to")

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._done = asyncio.Event()
        self._failure: Exception | None = None
        self._previous = 0
        self.messages: list[StoredMessage] = []
        self.pending = 0
        self.up_to = 0

    def on_message(self, message: Message) -> None:
        if is_stored(message.headers):
            stored = api.stored_from_direct(message)
            # every message names the previous one of the batch, so a gap is detected
            if int(message.headers["Nats-Last-Sequence"]) != self._previous:
                self._fail(RequestTimeout(f"a batch from stream {self._stream!r} has a gap"))
                return
            self._previous = stored.sequence
            self.messages.append(stored)
            return
        match message.headers.get(STATUS):
            case "204":
                self.pending = int(message.headers.get("Nats-Num-Pending", "0"))
                self.up_to = int(message.headers.get("Nats-UpTo-Sequence", "0"))
                if int(message.headers.get("Nats-Last-Sequence", "0")) != self._previous:
                    self._fail(RequestTimeout(f"a batch from stream {self._stream!r} lost its end"))
                elif self.pending and not self.messages:
                    self._fail(TransportError(f"stream {self._stream!r} sent an empty batch"))
            case "404":
                pass  # nothing there
            case "503":
                self._fail(NoResponders(f"no server answers direct gets of stream {self._stream!r}"))
            case status:
                words = f"{status or 'no status'} {message.headers.get(DESCRIPTION, '')}"
                self._fail(TransportError(f"direct get on stream {self._stream!r}: {words}"))
        self._done.set()

    def on_connection(self, connected: bool) -> None:
        if not connected:
            self._fail(RequestTimeout("the connection was lost while reading"))

    def on_refusal(self, refusal: PermissionViolation, asked: str) -> None:
        if refusal.publish and refusal.subject == asked:
            self._fail(PermissionDenied(asked))

    async def wait(self, silence: float) -> None:
        """Wait for the end marker; raise after `silence` seconds without a message."""
        while not self._done.is_set():
            seen = len(self.messages)
            if not await within(silence, self._done.wait()) and len(self.messages) == seen:
                raise RequestTimeout(f"stream {self._stream!r} stopped answering")
        if self._failure is not None:
            raise self._failure

    def _fail(self, failure: Exception) -> None:
        if self._failure is None:
            self._failure = failure
        self._done.set()


async def read_pages(
    page: Callable[[int], Awaitable[tuple[list[StoredMessage], int]]], first: int, last: int | None
) -> AsyncIterator[StoredMessage]:
    """Yield the messages from `first` through `last` (None: all); `page` returns some and how many remain."""
    position = max(first, 1)
    while last is None or position <= last:
        messages, pending = await page(position)
        for stored in messages:
            if last is not None and stored.sequence > last:
                return
            yield stored
        if not pending:
            return
        position = messages[-1].sequence + 1


async def call(
    bus: Bus, verb: str, stream: str, query: dict[str, Any] | None, timeout: float
) -> dict[str, Any]:
    """Make one JetStream API request about a stream."""
    body = b"" if query is None else json.dumps(query).encode()
    try:
        answer = await bus.request(f"$JS.API.{verb}.{stream}", body, timeout=timeout)
    except NoResponders:
        try:
            await bus.request("$JS.API.INFO", timeout=timeout)
        except NoResponders:
            raise Unreachable(
                "JetStream is not enabled on this NATS server: enable it (nats-server -js)"
            ) from None
        raise
    return api.decode(stream, answer.data)


async def ensure(bus: Bus, spec: StreamSpec, *, timeout: float = 10.0) -> list[str]:
    """Create the stream or migrate it to `spec`; see `ports.Transport.ensure`."""
    try:
        info = await call(bus, "STREAM.INFO", spec.name, None, timeout)
    except StreamMissing:
        try:
            await call(bus, "STREAM.CREATE", spec.name, topology.config_of(spec), timeout)
            return [f"created stream {spec.name}"]
        except api.ApiError as error:
            if error.error_code != api.STREAM_NAME_TAKEN:
                raise
        info = await call(bus, "STREAM.INFO", spec.name, None, timeout)  # another process was faster
    plan = topology.plan(spec, info["config"])
    if plan.differences:
        raise StreamMismatch(spec.name, list(plan.differences))
    if plan.changes:
        await call(bus, "STREAM.UPDATE", spec.name, dict(plan.config), timeout)
    return list(plan.changes)
