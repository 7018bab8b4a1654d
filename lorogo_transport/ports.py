"""The transport Protocols that server, client and simulation share.

A `Transport` is a `Bus` (core NATS: publish, request, subscribe) and some `Stream`s (JetStream:
stored, sequenced, compare-and-swap). `lorogo_transport.nats.connection` implements it on real NATS,
`lorogo_testing.memory_nats` in one process for simulation; one contract suite tests both.
The status bucket and the snapshot store are plain code on `Stream`, written once.

Objects created for each message are NamedTuples: creating a frozen dataclass takes two to three times as
long.

Handlers are plain functions, called on the event loop in the order of arrival: they decide and
hand over; they never block. The transport logs and swallows an exception in a handler, so that
one bad message does not stop the others.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

Headers = Mapping[str, str]
NO_HEADERS: Headers = {}
Handler = Callable[["Message"], None]


class Message(NamedTuple):
    """A received message of core NATS."""

    subject: str
    data: bytes
    headers: Headers = NO_HEADERS
    reply: str = ""


class StoredMessage(NamedTuple):
    """A message stored in a stream."""

    subject: str
    sequence: int
    time_ns: int  # when the stream stored it, Unix nanoseconds
    data: bytes
    headers: Headers = NO_HEADERS


@dataclass(frozen=True, slots=True)
class StreamState:
    """The state of a stream, from its leader."""

    first_sequence: int
    last_sequence: int
    messages: int
    bytes: int
    consumers: int
    bytes_max: int  # -1: no limit
    created_ns: int = 0  # when the stream was created; 0: unknown
    now_ns: int = 0  # time of the answer, by NATS's clock; 0: unknown
    replicas: int = 1  # replicas of the stream
    replicas_current: int = 1  # of these, the leader and replicas that are current

    @property
    def bytes_left(self) -> int | None:
        """Free bytes for new messages; None without a limit."""
        return self.bytes_max - self.bytes if self.bytes_max > 0 else None


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """The stream settings that lorogo requires; all others are the operator's."""

    name: str
    subjects: tuple[str, ...]
    republish: tuple[str, str] | None = None  # (source pattern, destination)
    messages_per_subject_max: int = -1
    bytes_max: int = -1
    age_max_seconds: float = 0  # 0: unlimited
    replicas: int = 1
    allow_rollup: bool = False
    deny_delete: bool = False
    discard_new: bool = True
    no_ack: bool | None = False  # True: JetStream confirms no publish; None: unchanged
    first_sequence: int = 0  # of a new stream; 0: JetStream's default, 1


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """A server's description in the NATS services protocol."""

    name: str
    version: str
    description: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PermissionViolation:
    """A permission violation: NATS dropped the message, or the subscription receives nothing."""

    subject: str
    publish: bool  # else a subscription


class Subscription(Protocol):
    """A subscription that can be closed."""

    async def close(self) -> None:
        """Stop; messages already queued are dropped. Idempotent."""


class SubjectSubscription(Subscription, Protocol):
    """A subscription that knows its subject."""

    @property
    def subject(self) -> str:
        """The current subject. Inboxes change when a reconnect uses the token of another user."""


class Bus(Protocol):
    """Core NATS: messages are delivered at most once to current subscribers."""

    @property
    def max_payload(self) -> int:
        """The maximum size of headers and data of one message, in bytes."""

    @property
    def connected(self) -> bool: ...

    @property
    def broker_id(self) -> str:
        """The id of the connected nats-server process: a restart changes it."""

    @property
    def problem(self) -> Exception | None:
        """The reason why there is no connection, if known: `NotAuthorized` if the token has expired."""

    @property
    def unanswerable(self) -> int:
        """The number of messages whose reply subject is not allowed."""

    @property
    def users_only(self) -> bool:
        """True if replies go only to inboxes of users (docs/decisions/0016)."""

    @property
    def guarded(self) -> bool:
        """True if connected with a token or a seed. JetStream then does not confirm WAL writes."""

    def new_inbox(self) -> str:
        """Return an inbox to `subscribe` to now; later read its subject from the subscription."""

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: Headers | None = None, reply: str = ""
    ) -> None:
        """Send at most once. Raises Disconnected, TooLarge."""

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        timeout: float,
        window: bool = False,
    ) -> Message:
        """Send a request and return the first answer. With `window` it is an untrusted signal to continue.

        Raises NoResponders, RequestTimeout, Disconnected, TooLarge, PermissionDenied.
        """

    async def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> SubjectSubscription:
        """Subscribe; effective after `barrier()` or the answer to a later request. Survives reconnects."""

    async def barrier(self, timeout: float = 5.0) -> None:
        """Return when NATS has processed everything sent before, subscriptions included."""

    def watch_connection(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        """Call `listener(connected)` on every change; returns a function that stops it."""

    def watch_refusals(self, listener: Callable[[PermissionViolation], None]) -> Callable[[], None]:
        """Call `listener` for every permission violation; returns a function that stops it."""


class Stream(Protocol):
    """A JetStream stream of stored messages."""

    @property
    def name(self) -> str: ...

    async def append(
        self,
        subject: str,
        data: bytes,
        *,
        headers: Headers | None = None,
        expected_last: int | None = None,
        timeout: float = 5.0,
    ) -> int:
        """Store and return the sequence.

        With `expected_last`, only if that is the subject's last sequence (0: none there); else
        WrongLastSequence. Raises StorageFull, TooLarge, StreamMissing, Disconnected (nothing
        sent), OutcomeUnknown (sent, but no confirmation).
        """

    async def append_unconfirmed(
        self, subject: str, data: bytes, *, headers: Headers | None = None, expected_last: int | None = None
    ) -> None:
        """Send without waiting; the republished copy proves success. Raises Disconnected, TooLarge."""

    async def last(self, subject: str, *, timeout: float = 5.0) -> StoredMessage | None:
        """Return the subject's newest message, from the stream's leader; None if there is none."""

    async def get(self, sequence: int, *, timeout: float = 5.0) -> StoredMessage | None:
        """Return one message by sequence, from the leader."""

    async def next(self, subject: str, first: int, *, timeout: float = 5.0) -> StoredMessage | None:
        """Return the subject's first message from sequence `first` on, from the leader; allows wildcards."""

    def read(self, subject: str, *, first: int = 1, last: int | None = None) -> AsyncIterator[StoredMessage]:
        """Yield the subject's messages from `first` to `last` in order, by batched direct get; wildcards too.

        Ends when the stream has no more (a lagging replica may end early: compare with `last()` or `next()`).
        Memory is bounded: at most a few MiB are in flight.
        """

    def newest_of(self, subjects: Sequence[str]) -> AsyncIterator[StoredMessage]:
        """Yield the last message of each of these subjects, in any order; no wildcards."""

    async def state(self, *, timeout: float = 5.0) -> StreamState: ...

    async def count(self, subject: str, *, timeout: float = 5.0) -> int:
        """Return the number of messages of the subject."""

    async def count_through(self, subject: str, *, timeout: float = 5.0) -> tuple[int, int]:
        """Return the number of messages of the subject and the stream's last sequence, from one answer."""

    async def subjects(self, pattern: str, *, timeout: float = 5.0) -> Mapping[str, int]:
        """Return every matching subject with its number of messages, without reading the messages."""

    async def purge(self, subject: str, *, before: int | None = None, timeout: float = 5.0) -> int:
        """Remove the subject's messages with sequence < `before` (None: all); return the number removed."""

    async def delete(self, sequence: int, *, timeout: float = 5.0) -> bool:
        """Remove one message; False if it does not exist."""


@runtime_checkable
class Transport(Protocol):
    """A connection to NATS."""

    @property
    def bus(self) -> Bus: ...

    def stream(self, name: str) -> Stream:
        """Return a handle; makes no request, the stream need not exist yet."""

    async def ensure(self, spec: StreamSpec) -> list[str]:
        """Create the stream, or change it to `spec` where that is safe; return the changes.

        Raises StreamMismatch naming the differences that are not safe to change.
        """

    async def announce(self, info: ServiceInfo, stats: Callable[[], Mapping[str, object]]) -> Subscription:
        """Announce a service in the NATS services protocol (ping, info, stats)."""

    async def close(self) -> None: ...
