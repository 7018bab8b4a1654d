"""How bytes move: the small Protocols that server, client and simulation share.

A `Transport` is a `Bus` (core NATS: publish, request, subscribe) and some `Stream`s (JetStream:
stored, sequenced, compare-and-swap). `lorogo_transport.nats.connection` implements it on the real thing,
`lorogo_testing.memory_nats` in one process for simulation; one contract suite holds both to the same
words. The status bucket and the snapshot store are plain code on `Stream`, written once.

What is made for each message is a NamedTuple: a frozen dataclass takes two to three times as long to make.

Handlers are plain functions, called on the event loop in the order of arrival: they decide and
hand over; they never block. An exception in a handler is logged by the transport and swallowed:
one bad message stops nobody.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

Headers = Mapping[str, str]
NO_HEADERS: Headers = {}


class Message(NamedTuple):
    """A message of core NATS, as it arrived."""

    subject: str
    data: bytes
    headers: Headers = NO_HEADERS
    reply: str = ""


class StoredMessage(NamedTuple):
    """A message at rest in a stream."""

    subject: str
    sequence: int
    time_ns: int  # when the stream stored it, Unix nanoseconds
    data: bytes
    headers: Headers = NO_HEADERS


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream's own account of itself, from its leader."""

    first_sequence: int
    last_sequence: int
    messages: int
    bytes: int
    consumers: int
    bytes_max: int  # -1: no limit
    created_ns: int = 0  # when the stream was made; 0: not known
    now_ns: int = 0  # when it said so, by NATS's own clock; 0: not known
    replicas: int = 1  # that keep it
    replicas_current: int = 1  # of these, the leader and who is with it

    @property
    def bytes_left(self) -> int | None:
        """What it still takes, of all messages together; None: there is no limit."""
        return self.bytes_max - self.bytes if self.bytes_max > 0 else None


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """The settings that lorogo needs of a stream; everything else is the operator's."""

    name: str
    subjects: tuple[str, ...]
    republish: tuple[str, str] | None = None  # (source pattern, destination)
    messages_per_subject_max: int = -1
    bytes_max: int = -1
    age_max_seconds: float = 0  # 0: for ever
    replicas: int = 1
    allow_rollup: bool = False
    deny_delete: bool = False
    discard_new: bool = True
    no_ack: bool | None = False  # True: JetStream answers no publisher; None: as it is
    first_sequence: int = 0  # of a stream that is made now; 0: JetStream's own choice, 1


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """What a server says of itself through the NATS services protocol."""

    name: str
    version: str
    description: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PermissionViolation:
    """NATS did not let us: the message was dropped, or the subscription hears nothing."""

    subject: str
    publish: bool  # else a subscription


class Subscription(Protocol):
    """Something that can be ended."""

    async def close(self) -> None:
        """Stop; messages already queued are dropped. Safe twice."""


class SubjectSubscription(Subscription, Protocol):
    """A subscription that knows its subject."""

    @property
    def subject(self) -> str:
        """As it is now. One's own inboxes move when a reconnect is made with the token of another user."""


class Bus(Protocol):
    """Core NATS: messages that are heard now, or never."""

    @property
    def max_payload(self) -> int:
        """The most bytes of headers and data that one message may carry."""

    @property
    def connected(self) -> bool: ...

    @property
    def broker_id(self) -> str:
        """The nats-server at the other end, in its present life: after a restart it has another id."""

    @property
    def problem(self) -> Exception | None:
        """Why there is no connection right now, if it is known: `NotAuthorized`, when a token has ended."""

    @property
    def unanswerable(self) -> int:
        """How many messages wanted an answer where none may go."""

    @property
    def users_only(self) -> bool:
        """Whether only inboxes that belong to a user are answered (docs/decisions/0016)."""

    @property
    def guarded(self) -> bool:
        """Whether we came in with a token or a seed. JetStream then confirms nothing in the WAL."""

    def new_inbox(self) -> str:
        """A subject of one's own, to `subscribe` to now; from then on ask the subscription for it."""

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: Headers | None = None, reply: str = ""
    ) -> None:
        """Send once, at most once. Raises Disconnected, TooLarge."""

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        timeout: float,
        window: bool = False,
    ) -> Message:
        """The first answer. With `window` it says no more than "go on", and anybody may have sent it.

        Raises NoResponders, RequestTimeout, Disconnected, TooLarge, PermissionDenied.
        """

    async def subscribe(
        self, subject: str, handler: Callable[[Message], None], *, queue: str = ""
    ) -> SubjectSubscription:
        """Listen; for sure after `barrier()`, or the answer to a later request. Survives reconnects."""

    async def barrier(self, timeout: float = 5.0) -> None:
        """Return when NATS has processed everything sent before, subscriptions included."""

    def watch_connection(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        """Call `listener(connected)` on every change; returns the function that stops it."""

    def watch_refusals(self, listener: Callable[[PermissionViolation], None]) -> Callable[[], None]:
        """Call `listener` for whatever NATS does not allow us; returns the function that stops it."""


class Stream(Protocol):
    """A stream of JetStream: messages that are kept."""

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
        """Send without waiting; success shows in the republished copy. Raises Disconnected, TooLarge."""

    async def last(self, subject: str, *, timeout: float = 5.0) -> StoredMessage | None:
        """The subject's newest message, asked of the stream's leader; None if there is none."""

    async def get(self, sequence: int, *, timeout: float = 5.0) -> StoredMessage | None:
        """One message by sequence, from the leader."""

    async def next(self, subject: str, first: int, *, timeout: float = 5.0) -> StoredMessage | None:
        """The subject's earliest message from sequence `first` on, asked of the leader; wildcards may be."""

    def read(self, subject: str, *, first: int = 1, last: int | None = None) -> AsyncIterator[StoredMessage]:
        """The subject's messages from `first` to `last` in order, by batched direct get; wildcards may be.

        Ends when the stream has no more (a lagging replica may end early: compare with `last()` or `next()`).
        Bounded: at most a few MiB are under way at once.
        """

    def newest(self, pattern: str) -> AsyncIterator[StoredMessage]:
        """The last message of every subject that matches, in any order (multi-last direct get)."""

    def newest_of(self, subjects: Sequence[str]) -> AsyncIterator[StoredMessage]:
        """The last message of each of these subjects that has one, in any order; no wildcards."""

    async def state(self, *, timeout: float = 5.0) -> StreamState: ...

    async def count(self, subject: str, *, timeout: float = 5.0) -> int:
        """How many messages the subject holds."""

    async def subjects(self, pattern: str, *, timeout: float = 5.0) -> Mapping[str, int]:
        """Every subject that matches, with how many messages it holds; no bodies are moved."""

    async def purge(self, subject: str, *, before: int | None = None, timeout: float = 5.0) -> int:
        """Remove the subject's messages with sequence < `before` (None: all); returns how many."""

    async def delete(self, sequence: int, *, timeout: float = 5.0) -> bool:
        """Remove one message; False if it was not there."""


@runtime_checkable
class Transport(Protocol):
    """A connection to NATS."""

    @property
    def bus(self) -> Bus: ...

    def stream(self, name: str) -> Stream:
        """A handle; no call is made, the stream need not exist yet."""

    async def ensure(self, spec: StreamSpec) -> list[str]:
        """Create the stream, or bring it to `spec` where that is safe; returns what was changed.

        Raises StreamMismatch naming the differences that are not safe to change.
        """

    async def announce(self, info: ServiceInfo, stats: Callable[[], Mapping[str, object]]) -> Subscription:
        """Be found through the NATS services protocol (ping, info, stats)."""

    async def close(self) -> None: ...
