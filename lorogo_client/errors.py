"""What an app that uses the client may have to handle.

    LorogoError
    ├── ClientError
    │   ├── DocumentFailed      servers could not load it; a person must reset it (trace_id)
    │   ├── DocumentDeleted     it was deleted; only `restore` brings it back
    │   ├── NoSuchDocument      it does not exist, and this call does not create it
    │   ├── UpdateRefused       the owner will never take one of our updates (log_id, reason)
    │   │   └── TooLargeUpdate  because it has too many bytes
    │   ├── NotAllowed          the token does not grant this; nothing was done
    │   ├── TooManyDocuments    too many connections for documents that only a pattern of the token covers
    │   ├── ReadOnly            an edit in a session that was opened to read, or may only read
    │   ├── OfflineBufferFull   too much waits to be sent; the edit stays open in the document
    │   ├── NotServed           retriable: no server took the document in time
    │   │   └── ServerFull      retriable: the disk of the only server is full
    │   ├── Timeout             retriable: it took longer than the caller allowed
    │   ├── Unsaved             a session was left, and these edits have no ACK
    │   ├── FeedUnavailable     a server keeps no journal, so a feed would leave its updates out
    │   ├── StoreFailed         the local store cannot be used, or has stopped; edits go on in memory
    │   │   ├── StoreFull       retriable: its disk is full; it goes on by itself when there is room
    │   │   ├── StoreLocked     retriable: another process has it
    │   │   └── StoreDamaged    this document's copy is not whole; only the server can complete it
    │   ├── GivenUp             a relay knows nothing about this update; its member must join again
    │   ├── InvalidVersion      what a member of a relay says that it has does not decode
    │   ├── NotStored           retriable: offline, and the store has no copy of this document
    │   ├── InvalidMoment       the text is neither a time nor a version (lorogo_client.versions)
    │   └── SessionClosed       the session or its client is closed
    ├── TokenRefused            what should be a token is none (lorogo_protocol.tokens)
    ├── NotAuthorized           NATS does not take the token, seed or password (lorogo_transport.errors)
    │   └── TokenExpired        because the token's time is over; edits are kept
    ├── Refused                 the owner answered a call with a reason (lorogo_protocol.calls)
    └── StorageFull             the stream takes no more bytes (lorogo_transport.errors)

`retriable` is a fact of the class: the same call may succeed later without a change.
"""

from typing import ClassVar

from lorogo_protocol.calls import Refused
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.reasons import Reason
from lorogo_transport.errors import NotAuthorized, StorageFull

__all__ = [
    "ClientError",
    "DocumentDeleted",
    "DocumentFailed",
    "FeedUnavailable",
    "GivenUp",
    "InvalidMoment",
    "InvalidVersion",
    "NoSuchDocument",
    "NotAllowed",
    "NotAuthorized",
    "NotServed",
    "NotStored",
    "OfflineBufferFull",
    "ReadOnly",
    "Refused",
    "ServerFull",
    "SessionClosed",
    "StorageFull",
    "StoreDamaged",
    "StoreFailed",
    "StoreFull",
    "StoreLocked",
    "Timeout",
    "TokenExpired",
    "TooLargeUpdate",
    "TooManyDocuments",
    "Unsaved",
    "UpdateRefused",
]


class ClientError(LorogoError):
    """Something that the client itself has to say."""

    code = "client"


class DocumentFailed(ClientError):
    """Its status is ERROR: servers failed to load it too often."""

    code = "document-failed"

    def __init__(self, document_id: str, trace_id: str) -> None:
        super().__init__(
            f"servers failed to load {document_id} (trace {trace_id}); "
            f"when the cause is gone: lorogo reset {document_id}"
        )
        self.document_id = document_id
        self.trace_id = trace_id


class DocumentDeleted(ClientError):
    """The document was deleted; `erased`: for good, nothing brings it back."""

    code = "deleted"

    def __init__(self, document_id: str, *, erased: bool = False) -> None:
        back = f"deleted; lorogo doc restore {document_id} brings it back"
        super().__init__(f"{document_id} was {'erased for good' if erased else back}")
        self.document_id = document_id
        self.erased = erased


class NoSuchDocument(ClientError):
    """The document does not exist, and the call does not create it. Nothing was written."""

    code = "not-found"

    def __init__(self, document_id: str) -> None:
        super().__init__(f"there is no document {document_id!r}; its first edit creates it")
        self.document_id = document_id


class UpdateRefused(ClientError):
    """The owner will never take this update; what it holds stays in this replica only."""

    code = "update-refused"

    def __init__(self, log_id: str, reason: Reason, message: str) -> None:
        which = f"update {log_id}" if log_id else "the update"
        super().__init__(f"{which} was refused ({reason.value}): {message}")
        self.log_id = log_id
        self.reason = reason
        self.message = message
        self.code = reason.value


class TooLargeUpdate(UpdateRefused):
    """The update has more bytes than the owner takes."""


class NotAllowed(ClientError):
    """The token does not grant this. Said before anything is sent, or by the owner, who did nothing."""

    code = "permission-denied"

    def __init__(self, problem: str, *, document_id: str = "") -> None:
        super().__init__(problem)
        self.document_id = document_id


class TooManyDocuments(ClientError):
    """Each document that only a pattern of the token covers takes a connection, and there are enough."""

    code = "too-many-documents"
    retriable: ClassVar[bool] = True

    def __init__(self, documents_open_max: int) -> None:
        super().__init__(
            f"{documents_open_max} documents are open that the token only grants by a pattern, each on a"
            " connection of its own: close some, name them in the token, raise documents_open_max, or go"
            " through a gateway"
        )


class TokenExpired(NotAuthorized):
    """The token's time is over. Edits are kept, unsent, until a fresh one is there."""

    code = "token-expired"


class ReadOnly(ClientError):
    """The session was opened to read, or may only read; its edits are dropped, not sent."""

    code = "read-only"


class OfflineBufferFull(ClientError):
    """Too much waits to be sent. Nothing is lost: the edit stays open, commit again later."""

    code = "offline-buffer-full"
    retriable: ClassVar[bool] = True


class NotServed(ClientError):
    """No server took the document in time."""

    code = "not-served"
    retriable: ClassVar[bool] = True
    _remedy: ClassVar[str] = "a server is started with: lorogo serve"

    def __init__(self, document_id: str, why: str) -> None:
        super().__init__(f"no server serves {document_id}: {why}; {self._remedy}")
        self.document_id = document_id


class ServerFull(NotServed):
    """No server takes the document because the disk of the one that would is full."""

    _remedy = "edits are kept and sent when there is room"


class Timeout(ClientError):
    """It took longer than allowed; the outcome may still come."""

    code = "timeout"
    retriable: ClassVar[bool] = True


class Unsaved(ClientError):
    """The session was left with edits that no server has confirmed."""

    code = "unsaved"

    def __init__(self, document_id: str, updates: int, why: str) -> None:
        super().__init__(f"{document_id} was left with {updates} update(s) not ACKed: {why}")
        self.document_id = document_id
        self.updates = updates


class FeedUnavailable(ClientError):
    """A server keeps no journal: what it accepts cannot be given."""

    code = "feed-unavailable"

    def __init__(self, server_id: str, durability: str) -> None:
        super().__init__(
            f"server {server_id} keeps no journal (durability {durability or 'unknown'}), so there is no feed"
            " of what it accepts; run it with durability 'journal'"
        )
        self.server_id = server_id
        self.durability = durability


class StoreFailed(ClientError):
    """The local store cannot be used: nothing more is kept on this disk. Edits go on in memory."""

    code = "store-failed"


class StoreFull(StoreFailed):
    """The disk of the local store is full. Edits go on in memory; the store goes on when there is room."""

    code = "store-full"
    retriable: ClassVar[bool] = True

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the disk of the store {path} is full, edits are only in memory until they are ACKed;"
            f" make room, and the store goes on by itself: {why}"
        )
        self.path = path


class StoreLocked(StoreFailed):
    """Another process has the store open."""

    code = "store-locked"
    retriable: ClassVar[bool] = True

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the store {path} is open in another process or client; close that one,"
            " or give this one a store of its own"
        )
        self.path = path


class StoreDamaged(StoreFailed):
    """Some of the document's records in the store are lost."""

    code = "store-damaged"

    def __init__(self, document_id: str) -> None:
        super().__init__(
            f"the copy of {document_id} in the store is damaged; it opens when a server is reachable,"
            " with those unsaved edits that could be read"
        )
        self.document_id = document_id


class GivenUp(ClientError):
    """An update of a relay's member was given up: it may be saved, or not. A join tells what is."""

    code = "given-up"


class InvalidVersion(ClientError):
    """The bytes are not a version vector; begin with an empty one."""

    code = "invalid-version"


class NotStored(ClientError):
    """There is no connection, and no copy of the document in the store."""

    code = "not-stored"
    retriable: ClassVar[bool] = True

    def __init__(self, document_id: str) -> None:
        super().__init__(
            f"there is no connection to NATS, and {document_id} is not in the store;"
            " open(..., create=True) begins an empty one that is merged later"
        )
        self.document_id = document_id


class SessionClosed(ClientError):
    """The session, or the client that it came from, is closed."""

    code = "session-closed"


class InvalidMoment(ClientError):
    """The text is neither a time nor a version of a document."""

    code = "invalid-moment"
