"""What can go wrong while bytes move.

LorogoError
└── TransportError
    ├── Disconnected        retriable: no connection right now; nothing was sent
    ├── RequestTimeout      retriable: no answer in time; the request may have been served
    ├── NoResponders        retriable: nobody listens on that subject
    ├── NoLeader            retriable: the cluster has nobody who decides right now; nothing was done
    ├── OutcomeUnknown      retriable after reading: a write may or may not be stored
    ├── WrongLastSequence   a compare-and-swap lost: somebody wrote first
    ├── StorageFull         the stream refuses more bytes
    ├── TooLarge            above the server's max_payload; nothing was sent
    ├── StreamMissing       the stream is not there
    ├── StreamMismatch      the stream is there with settings that we cannot migrate
    ├── PermissionDenied    NATS does not let us publish or subscribe there; nothing was sent on
    └── Unreachable         a connection could not be made
        └── NotAuthorized   NATS does not take our token, seed or password
"""

from typing import ClassVar

from lorogo_protocol.errors import LorogoError


class TransportError(LorogoError):
    """Bytes could not be moved."""

    code = "transport"


class Disconnected(TransportError):
    """There is no connection right now; nothing was sent."""

    code = "disconnected"
    retriable: ClassVar[bool] = True


class RequestTimeout(TransportError):
    """No answer came in time."""

    code = "timeout"
    retriable: ClassVar[bool] = True


class NoResponders(TransportError):
    """Nobody listens on that subject."""

    code = "no-responders"
    retriable: ClassVar[bool] = True


class NoLeader(TransportError):
    """JetStream's cluster chooses a leader right now, or has no quorum: nothing was done."""

    code = "no-leader"
    retriable: ClassVar[bool] = True


class OutcomeUnknown(TransportError):
    """The write was sent and no confirmation came: read before you decide."""

    code = "outcome-unknown"
    retriable: ClassVar[bool] = True


class WrongLastSequence(TransportError):
    """A compare-and-swap lost: the subject's last sequence is not the expected one."""

    code = "wrong-last-sequence"


class StorageFull(TransportError):
    """The stream is at its limit and refuses more."""

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
    """NATS does not let us publish or subscribe there."""

    code = "permission-denied"

    def __init__(self, subject: str) -> None:
        super().__init__(f"NATS does not allow us {subject!r}")
        self.subject = subject


class Unreachable(TransportError):
    """A connection could not be made."""

    code = "unreachable"


class NotAuthorized(Unreachable):
    """NATS does not take our token, seed or password."""

    code = "not-authorized"
