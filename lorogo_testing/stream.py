"""A stream over one connection: every request travels to the in-memory broker and back."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from lorogo_testing.bus import MemoryBus
from lorogo_testing.stream_store import StreamStore
from lorogo_transport.errors import NoResponders, OutcomeUnknown, RequestTimeout, StreamMismatch
from lorogo_transport.headers import expecting
from lorogo_transport.nats import api
from lorogo_transport.nats.streams import read_pages
from lorogo_transport.ports import Headers, Message, StoredMessage, StreamState

if TYPE_CHECKING:
    from lorogo_testing.memory_nats import MemoryNats  # which has streams

T = TypeVar("T")

_BATCH_MESSAGES = 1000
_BATCH_BYTES = 4 * 1024 * 1024
_READ_SECONDS = 5.0


class MemoryStream:
    """A `ports.Stream` in one process."""

    __slots__ = ("_bus", "_name", "_world")

    def __init__(self, world: "MemoryNats", bus: MemoryBus, name: str) -> None:
        self._world = world
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
        message = self._bus.message(subject, data, expecting(headers, expected_last))
        try:
            sequence = await self._bus.call(
                lambda: self._append(message), timeout=timeout, subject=subject, size=len(data)
            )
        except RequestTimeout as error:
            raise OutcomeUnknown(f"no confirmation from stream {self._name!r} for {subject!r}") from error
        if sequence is None:
            raise OutcomeUnknown(f"no confirmation from stream {self._name!r} for {subject!r}")
        return sequence

    async def append_unconfirmed(
        self, subject: str, data: bytes, *, headers: Headers | None = None, expected_last: int | None = None
    ) -> None:
        await self._bus.publish(subject, data, headers=expecting(headers, expected_last))

    async def last(self, subject: str, *, timeout: float = 5.0) -> StoredMessage | None:
        return await self._ask(lambda store, now: store.last(subject, now), timeout)

    async def get(self, sequence: int, *, timeout: float = 5.0) -> StoredMessage | None:
        return await self._ask(lambda store, now: store.get(sequence, now), timeout)

    async def next(self, subject: str, first: int, *, timeout: float = 5.0) -> StoredMessage | None:
        def look(store: StreamStore, now: int) -> StoredMessage | None:
            found, _ = store.batch(subject, max(first, 1), now, messages_max=1, bytes_max=1)
            return found[0] if found else None

        return await self._ask(look, timeout)

    def read(self, subject: str, *, first: int = 1, last: int | None = None) -> AsyncIterator[StoredMessage]:
        return read_pages(lambda position: self._batch(subject, position), first, last)

    async def newest_of(self, subjects: Sequence[str]) -> AsyncIterator[StoredMessage]:
        for stored in await self._ask(
            lambda store, now: store.newest_of(subjects, now, self._lag()), _READ_SECONDS
        ):
            yield stored

    async def state(self, *, timeout: float = 5.0) -> StreamState:
        return await self._ask(lambda store, now: store.state(now), timeout)

    async def count(self, subject: str, *, timeout: float = 5.0) -> int:
        return await self._ask(lambda store, now: store.count(subject, now), timeout)

    async def count_through(self, subject: str, *, timeout: float = 5.0) -> tuple[int, int]:
        def look(store: StreamStore, now: int) -> tuple[int, int]:
            return store.count(subject, now), store.state(now).last_sequence

        return await self._ask(look, timeout)

    async def subjects(self, pattern: str, *, timeout: float = 5.0) -> dict[str, int]:
        return await self._ask(lambda store, now: store.subjects(pattern, now), timeout)

    async def purge(self, subject: str, *, before: int | None = None, timeout: float = 5.0) -> int:
        try:
            return await self._ask(lambda store, _: store.purge(subject, before), timeout)
        except RequestTimeout as error:
            raise OutcomeUnknown(f"no confirmation of the purge of {subject!r}") from error

    async def delete(self, sequence: int, *, timeout: float = 5.0) -> bool:
        def remove(store: StreamStore, _: int) -> bool:
            if store.config.get("deny_delete"):
                raise api.ApiError(self._name, api.DELETE_FAILED, "message delete not permitted")
            return store.remove(sequence)

        try:
            return await self._ask(remove, timeout)
        except RequestTimeout as error:
            raise OutcomeUnknown(f"no confirmation of the deletion of {sequence}") from error

    def _append(self, message: Message) -> int | None:
        """Append at the broker; None if a fault drops the confirmation."""
        world = self._world
        world.store(self._name)
        acks = world.publish(message, self._bus.name)
        if not acks:
            raise NoResponders(f"{message.subject!r} has no subscriber")
        stream, sequence = acks[0]
        if stream != self._name:
            raise StreamMismatch(self._name, [f"{message.subject!r} is stored by stream {stream!r}"])
        if self._bus.acks_to_drop > 0:
            self._bus.acks_to_drop -= 1
            return None
        return sequence

    async def _batch(self, subject: str, position: int) -> tuple[list[StoredMessage], int]:
        return await self._ask(
            lambda store, now: store.batch(
                subject,
                position,
                now,
                messages_max=_BATCH_MESSAGES,
                bytes_max=_BATCH_BYTES,
                lag=self._lag(),
            ),
            _READ_SECONDS,
        )

    def _lag(self) -> int:
        """Return the lag of the replica that answers a direct get, in changes."""
        fault_model = self._world.fault_model
        return 0 if fault_model is None else fault_model.lag(self._name)

    async def _ask(self, question: Callable[[StreamStore, int], T], timeout: float) -> T:
        world = self._world

        def answer() -> T:
            world.acting = self._bus.name
            return question(world.store(self._name), world.now_ns())

        return await self._bus.call(answer, timeout=timeout, subject=f"$JS.API.STREAM.{self._name}")
