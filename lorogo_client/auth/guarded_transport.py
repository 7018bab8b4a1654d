"""A transport for a client with a token: operations that no token grants raise NotAllowed here.

A token grants the documents that it names and nothing else of NATS: no streams, buckets or services
(docs/decisions/0016). Publishing an update into the WAL is a plain message, which JetStream answers.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from lorogo_client.errors import NotAllowed
from lorogo_protocol.messages import subjects
from lorogo_transport.ports import (
    Bus,
    Headers,
    ServiceInfo,
    StoredMessage,
    Stream,
    StreamSpec,
    StreamState,
    Subscription,
    Transport,
)

_NEEDS: Final = "needs the NATS user of an operator (connect(..., seed=...)): a token only opens documents"


def beyond_token(what: str) -> NotAllowed:
    """Return the error for an operation that no token grants."""
    return NotAllowed(f"{what} {_NEEDS}")


class TokenTransport:
    """A `ports.Transport` for a client with a token."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner

    @property
    def bus(self) -> Bus:
        return self.inner.bus

    def stream(self, name: str) -> Stream:
        return _Guarded(self.inner.stream(name), writable=name == subjects.WAL_STREAM)

    async def ensure(self, spec: StreamSpec) -> list[str]:
        raise beyond_token(f"making the stream {spec.name}")

    async def announce(self, info: ServiceInfo, stats: Callable[[], Mapping[str, object]]) -> Subscription:
        raise beyond_token(f"announcing the service {info.name}")

    async def close(self) -> None:
        await self.inner.close()


class _Guarded:
    """A `ports.Stream` that only appends, and only if it is the WAL."""

    def __init__(self, inner: Stream, *, writable: bool) -> None:
        self._inner = inner
        self._writable = writable

    @property
    def name(self) -> str:
        return self._inner.name

    async def append(
        self,
        subject: str,
        data: bytes,
        *,
        headers: Headers | None = None,
        expected_last: int | None = None,
        timeout: float = 5.0,
    ) -> int:
        self._check_writable()
        return await self._inner.append(
            subject, data, headers=headers, expected_last=expected_last, timeout=timeout
        )

    async def append_unconfirmed(
        self, subject: str, data: bytes, *, headers: Headers | None = None, expected_last: int | None = None
    ) -> None:
        self._check_writable()
        await self._inner.append_unconfirmed(subject, data, headers=headers, expected_last=expected_last)

    async def last(self, subject: str, *, timeout: float = 5.0) -> StoredMessage | None:
        raise self._reading()

    async def get(self, sequence: int, *, timeout: float = 5.0) -> StoredMessage | None:
        raise self._reading()

    async def next(self, subject: str, first: int, *, timeout: float = 5.0) -> StoredMessage | None:
        raise self._reading()

    def read(self, subject: str, *, first: int = 1, last: int | None = None) -> AsyncIterator[StoredMessage]:
        raise self._reading()

    def newest_of(self, subjects: Sequence[str]) -> AsyncIterator[StoredMessage]:
        raise self._reading()

    async def state(self, *, timeout: float = 5.0) -> StreamState:
        raise self._reading()

    async def count(self, subject: str, *, timeout: float = 5.0) -> int:
        raise self._reading()

    async def count_through(self, subject: str, *, timeout: float = 5.0) -> tuple[int, int]:
        raise self._reading()

    async def subjects(self, pattern: str, *, timeout: float = 5.0) -> Mapping[str, int]:
        raise self._reading()

    async def purge(self, subject: str, *, before: int | None = None, timeout: float = 5.0) -> int:
        raise beyond_token(f"purging the stream {self.name}")

    async def delete(self, sequence: int, *, timeout: float = 5.0) -> bool:
        raise beyond_token(f"deleting from the stream {self.name}")

    def _check_writable(self) -> None:
        if not self._writable:
            raise beyond_token(f"writing to the stream {self.name}")

    def _reading(self) -> NotAllowed:
        return beyond_token(f"reading the stream {self.name}")
