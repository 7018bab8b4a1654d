"""Errors of the transport.

LorogoError
└── TransportError
    ├── Disconnected        retriable: no connection right now; nothing was sent
    ├── RequestTimeout      retriable: no answer in time; the request may have been served
    ├── NoResponders        retriable: the subject has no subscriber
    ├── StreamBusy          retriable: too much waits for the stream; nothing was stored
    ├── NoLeader            retriable: JetStream has no leader; nothing was done
    ├── OutcomeUnknown      retriable after a read: a write may or may not be stored
    ├── WrongLastSequence   a compare-and-swap lost: another writer was first
    ├── StorageFull         the stream is full
    ├── TooLarge            above the server's max_payload; nothing was sent
    ├── StreamMissing       the stream does not exist
    ├── StreamMismatch      the stream has settings that cannot be migrated
    ├── PermissionDenied    NATS denies the publish or subscribe; nothing was delivered
    └── Unreachable         cannot connect to NATS
        └── NotAuthorized   NATS refuses the token, seed or password
"""

from typing import ClassVar

from lorogo_protocol.errors import LorogoError


class TransportError(LorogoError):
    """A transport operation failed."""

    code = "transport"


class Disconnected(TransportError):
    """There is no connection right now; nothing was sent."""

    code = "disconnected"
    retriable: ClassVar[bool] = True


class RequestTimeout(TransportError):
    """No answer arrived in time; the request may have been served."""

    code = "timeout"
    retriable: ClassVar[bool] = True


class NoResponders(TransportError):
    """The subject has no subscriber."""

    code = "no-responders"
    retriable: ClassVar[bool] = True


class StreamBusy(TransportError):
    """Too much waits for the stream in nats-server (`max_buffered_size`): nothing was stored."""

    code = "stream-busy"
    retriable: ClassVar[bool] = True


class NoLeader(TransportError):
    """JetStream is electing a leader or has no quorum: nothing was done."""

    code = "no-leader"
    retriable: ClassVar[bool] = True


class OutcomeUnknown(TransportError):
    """The write was sent but not confirmed: read before you decide."""

    code = "outcome-unknown"
    retriable: ClassVar[bool] = True


class WrongLastSequence(TransportError):
    """A compare-and-swap lost: the subject's last sequence is not the expected one."""

    code = "wrong-last-sequence"


class StorageFull(TransportError):
    """The stream is at its limit and refuses the write."""

    code = "storage-full"


class TooLarge(TransportError):
    """The message is above the server's max_payload; nothing was sent."""

    code = "too-large"


class StreamMissing(TransportError):
    """The stream does not exist."""

    code = "stream-missing"

    def __init__(self, name: str) -> None:
        super().__init__(f"stream {name!r} does not exist")
        self.name = name


class StreamMismatch(TransportError):
    """The stream exists with settings that cannot be changed safely."""

    code = "stream-mismatch"

    def __init__(self, name: str, differences: list[str]) -> None:
        super().__init__(f"stream {name!r} has other settings: {'; '.join(differences)}")
        self.name = name
        self.differences = differences


class PermissionDenied(TransportError):
    """NATS denies the publish or subscribe."""

    code = "permission-denied"

    def __init__(self, subject: str) -> None:
        super().__init__(f"NATS denies access to {subject!r}")
        self.subject = subject


class Unreachable(TransportError):
    """Cannot connect to NATS."""

    code = "unreachable"


class NotAuthorized(Unreachable):
    """NATS refuses the token, seed or password."""

    code = "not-authorized"
